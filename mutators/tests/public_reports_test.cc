#include "shardcheck/mutators/public_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace shardcheck {
namespace {

using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

TEST(PublicReports, AreAllOfThemOfAKnownClass) {
  EXPECT_EQ(public_reports().size(), 116U);
  EXPECT_EQ(fault_classes().size(), 39U);
  std::set<std::string> codes, ids;
  for (const FaultClass& one : fault_classes()) codes.insert(one.code);
  for (const PublicReport& report : public_reports()) {
    EXPECT_TRUE(codes.contains(report.fault_class)) << report.id;
    EXPECT_TRUE(ids.insert(report.id).second) << report.id;
    EXPECT_THAT(report.thread, MatchesRegex(".+/.+#[0-9]+.*")) << report.id;
  }
}

TEST(PublicReports, EveryClassHasAFault) {
  for (const FaultClass& one : fault_classes())
    EXPECT_THAT(faults_of_class(one.code), Not(IsEmpty())) << one.code << ": " << one.what;
}

TEST(PublicReports, EveryReportHasAFault) {
  for (const PublicReport& report : public_reports())
    EXPECT_THAT(faults_of_report(report.id), Not(IsEmpty()))
        << report.id << " (" << report.fault_class << "): " << report.mechanism;
}

TEST(PublicReports, AFaultNamesReportsThatExist) {
  for (const Fault* fault : all_faults()) {
    for (const std::string_view id : fault->reports) {
      if (id.empty() || id.front() != 'A') continue;
      EXPECT_NE(find_report(id), nullptr) << fault->name << ' ' << id;
    }
  }
}

}  // namespace
}  // namespace shardcheck
