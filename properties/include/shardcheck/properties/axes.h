// The determinism axes side by side: what `native` and `tree` show on each, and the fault that proves that
// the axis's law can fail.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/properties/runner.h"

namespace shardcheck {

struct DeterminismAxis {
  std::string_view name;   // "batch"
  std::string_view law;    // that must hold under tree and exact
  std::string_view fault;  // of family D, that this law sees
  /// Whether native has one fixed order along this axis anyway: then the fault is the evidence.
  bool native_is_fixed = true;
  /// Whether native must differ in at least half the cases.
  bool native_must_differ = false;
};

/// Every axis, from the cheapest promise to the dearest.
const std::vector<DeterminismAxis>& determinism_axes();

/// Cases of one law under one arithmetic.
struct AxisCount {
  std::int64_t cases = 0;      // decided
  std::int64_t differing = 0;  // with a differing bit
  double worst = 0.0;          // largest |logit difference|
};

/// A fault against the law of an axis.
struct AxisKill {
  std::string_view fault, law;
  std::int64_t cases = 0;       // that it acted in
  std::int64_t first_kill = 0;  // number among them of the one that showed it, from 1; 0: none did
  std::string killing_case;     // that one, as a line to replay; empty when none did
};

struct AxisRow {
  DeterminismAxis axis;
  AxisCount bitwise;            // tree, and exact in a share
  AxisCount native;             // the same cases with f32 storage
  AxisKill own;                 // the axis's fault against its law
  std::vector<AxisKill> other;  // against the laws of the other axes; filled on request

  /// What the row shows that must not be; empty when nothing. logprobs_agree_across_layouts may see any
  /// fault: training and rollout differ in their ranks, so that axis contains others.
  std::vector<std::string> problems() const;
  /// What the row says nothing of, because no case decided it; empty when nothing.
  std::vector<std::string> gaps() const;
};

struct AxisOptions {
  std::uint64_t seed = 0;
  std::int64_t native_cases = 40;
  std::int64_t kill_cases = 50;  // in which its own law must see a fault
  std::int64_t other_cases = 0;  // in which no other axis law may; 0: not asked
  int jobs = 1;
  ProgressSink progress;
  /// Measures these alone, by name; empty: all.
  std::vector<std::string> only;
};

/// The rows of all axes, the same for any number of jobs. `laws` are the reports of laws that ran already:
/// they give the bitwise column; an axis whose law is not among them runs its law's smoke cases.
std::vector<AxisRow> measure_axes(const AxisOptions& options, const std::vector<LawReport>& laws);

/// Exit code of a set of rows: 1 a row has a problem, else 3 a row has a gap, else 0.
int exit_code_of(const std::vector<AxisRow>& rows);

}  // namespace shardcheck
