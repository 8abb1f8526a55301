// The catalogue against random cases: a fault that applies and has no witness of equivalence is killed by
// every oracle it declares, a fault with a witness is agreed with by all, and the right subject passes
// everywhere.
#include <gtest/gtest.h>

#include "random_cases.h"
#include "shardcheck/mutators/kill_matrix.h"

namespace shardcheck {
namespace {

const KillReport& report() {
  static const KillReport result = [] {
    KillOptions options;
    options.random_cases = 25;
    options.draw = random_case;
    options.jobs = 2;
    options.only_declared = true;
    return run_kill_matrix(options);
  }();
  return result;
}

std::string described(const KillCell& cell) {
  return std::string(cell.fault) + " under " + std::string(to_string(cell.oracle)) + ": " + cell.case_line +
         " (" + cell.message + ")";
}

/// No forward pass reads some layouts over meshes; their shards are compared all the same.
bool is_judged(const KillCell& cell) {
  const Case c = parse_case(cell.case_line);
  return cell.expected && (cell.oracle == Oracle::layout || can_run(c.target, c.geometry));
}

void the_right_subject_passes_on_every_case() { EXPECT_EQ(report().baseline_failures.size(), 0U); }

void what_applies_is_killed_or_has_a_witness() {
  for (const KillCell& cell : report().cells) {
    if (!is_judged(cell)) continue;
    EXPECT_TRUE(cell.status == CellStatus::killed || cell.status == CellStatus::equivalent)
        << described(cell);
  }
}

void nothing_raises() {
  for (const KillCell& cell : report().cells) {
    EXPECT_NE(cell.status, CellStatus::error) << described(cell);
    EXPECT_NE(cell.status, CellStatus::vacuous) << described(cell);
  }
}

void every_fault_is_killed_on_random_cases() {
  for (const KillRow& row : report().rows) {
    if (!row.expected) continue;
    const auto found = row.counts.find(CellStatus::killed);
    EXPECT_GE(found == row.counts.end() ? 0 : found->second, 5)
        << row.fault << " under " << to_string(row.oracle);
  }
}

void every_witness_is_seen_at_least_once() {
  for (const Fault* fault : all_faults()) {
    if (fault->equivalent == nullptr) continue;
    bool seen = false;
    for (const KillRow& row : report().rows) {
      seen = seen || (parse_fault(row.fault).fault == fault && row.counts.contains(CellStatus::equivalent));
    }
    EXPECT_TRUE(seen) << fault->name;
  }
}

void relabellings_are_named_with_their_witness_and_never_flagged() {
  EXPECT_TRUE(report().false_alarms.empty());
  for (const Fault* fault : all_faults()) {
    if (!fault->is_relabel_control()) continue;
    std::int64_t relabelled = 0;
    for (const KillCell& cell : report().cells) {
      if (cell.fault != fault->name || cell.status != CellStatus::relabelled) continue;
      ++relabelled;
      EXPECT_FALSE(cell.message.empty()) << described(cell);
    }
    EXPECT_GE(relabelled, 20) << fault->name;
  }
}

void native_kills_lie_far_above_the_threshold() {
  for (const KillCell& cell : report().cells) {
    if (cell.oracle != Oracle::native || !cell.expected || cell.status != CellStatus::killed) continue;
    EXPECT_GT(cell.margin(), 10.0) << described(cell);
  }
}

void score_is_full() {
  EXPECT_EQ(report().score(), 1.0);
  EXPECT_TRUE(report().passed());
  EXPECT_TRUE(report().survivors.empty());
}

// One test: every test is a process of its own, and the report is most of the work.
TEST(FaultSoundness, HoldsOnRandomCases) {
  the_right_subject_passes_on_every_case();
  what_applies_is_killed_or_has_a_witness();
  nothing_raises();
  every_fault_is_killed_on_random_cases();
  every_witness_is_seen_at_least_once();
  relabellings_are_named_with_their_witness_and_never_flagged();
  native_kills_lie_far_above_the_threshold();
  score_is_full();
}

}  // namespace
}  // namespace shardcheck
