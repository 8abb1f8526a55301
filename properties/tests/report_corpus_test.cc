// corpus/reports: one case for each public report, which must be detected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "shardcheck/mutators/public_reports.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

const fs::path kFolder = fs::path(SHARDCHECK_SOURCE_DIR) / "corpus" / "reports";

CaseFile case_of(const PublicReport& report) {
  std::ifstream file(kFolder / (report.id + ".case"));
  EXPECT_TRUE(file.is_open()) << report.id << " has no case";
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return parse_case_file(text, report.id);
}

TEST(ReportCorpus, HoldsACaseForEveryReportAndNoOther) {
  std::set<std::string> files, ids;
  for (const auto& entry : fs::directory_iterator(kFolder)) files.insert(entry.path().filename());
  for (const PublicReport& report : public_reports()) ids.insert(report.id + ".case");
  EXPECT_EQ(files, ids);
}

TEST(ReportCorpus, EveryCaseInjectsAFaultThatStandsForItsReport) {
  for (const PublicReport& report : public_reports()) {
    const CaseFile file = case_of(report);
    EXPECT_THAT(file.header, Contains(Pair("found_by", HasSubstr(report.thread)))) << report.id;
    const Fault* fault = parse_fault(file.value.fault).fault;
    EXPECT_THAT(faults_of_report(report.id), Contains(fault)) << report.id << ' ' << fault->name;
  }
}

TEST(ReportCorpus, EveryReportIsDetectedAndPassesWithoutItsFault) {
  for (const PublicReport& report : public_reports()) {
    Case c = case_of(report).value;
    const Law& law = law_named(c.law);
    EXPECT_EQ(check_case(law, c).verdict, Verdict::failed) << report.id << ": " << print_case(c);
    c.fault.clear();
    EXPECT_EQ(check_case(law, c).verdict, Verdict::passed) << report.id << ": " << print_case(c);
  }
}

}  // namespace
}  // namespace shardcheck
