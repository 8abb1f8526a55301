// The rows of the seed document, on its own configurations.
#include <gtest/gtest.h>

#include "shardcheck/mutators/kill_matrix.h"
#include "shardcheck/mutators/seed_figures.h"
#include "shardcheck/tolerance/floor.h"

namespace shardcheck {
namespace {

TEST(RecordedKillCases, AreTheRecordedConfigurationsAtEveryDegreeOfTwoOrMore) {
  const auto cases = recorded_kill_cases();
  ASSERT_EQ(cases.size(), 3U);
  EXPECT_EQ(cases[0].geometry, toy());
  EXPECT_EQ(cases[1].geometry, toy_kv4());
  EXPECT_EQ(cases[2].geometry, toy_kv4());
  EXPECT_EQ(cases[0].target.tp_degree(), 2);
  EXPECT_EQ(cases[1].target.tp_degree(), 2);
  EXPECT_EQ(cases[2].target.tp_degree(), 4);
  for (const Case& c : cases) {
    EXPECT_EQ(c.source.tp_degree(), 1);
    EXPECT_EQ(c.weights, WeightStyle::recorded);
    EXPECT_EQ(c.batch * c.length, 32);
    EXPECT_EQ(parse_case(print_case(c)), c);
  }
}

/// The rows of the seed document under `native`, run once.
const KillReport& seed_rows() {
  static const KillReport report = [] {
    KillOptions options;
    options.oracles = {Oracle::native};
    options.cases = recorded_kill_cases();
    for (const SeedFigure& figure : seed_figures()) options.faults.push_back(parse_fault(figure.fault));
    return run_kill_matrix(options);
  }();
  return report;
}

TEST(SeedRows, EveryOneIsAtLeastAHundredTimesTheThreshold) {
  const KillReport& report = seed_rows();
  EXPECT_TRUE(report.baseline_failures.empty());
  ASSERT_EQ(report.cells.size(), 12U);
  for (const KillCell& cell : report.cells) {
    EXPECT_EQ(cell.status, CellStatus::killed) << cell.fault;
    EXPECT_NE(cell.config, "random");
    EXPECT_GE(cell.margin(), 100.0) << cell.fault << " on " << cell.config;
  }
  // The weights are drawn otherwise than the seed's, so the deviations are of its order, not its digits.
  for (const SeedFigure& figure : seed_figures()) {
    for (const KillRow& row : report.rows) {
      if (row.fault != figure.fault) continue;
      EXPECT_GT(row.weakest_deviation, figure.lowest / 2);
      EXPECT_LT(row.strongest_deviation, figure.highest * 2);
    }
  }
}

/// As the seed's: 0.338 over 1.669e-06.
TEST(SeedRows, TheWeakestIsMoreThanTenToTheFifthTimesTheFloor) {
  const double floor = load_recorded_floor("in_process").max_deviation;
  ASSERT_GT(floor, 0.0);
  ASSERT_EQ(seed_rows().cells.size(), 12U);
  for (const KillCell& cell : seed_rows().cells) EXPECT_GT(cell.deviation, 1e5 * floor) << cell.fault;
}

}  // namespace
}  // namespace shardcheck
