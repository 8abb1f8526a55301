// The machine-readable report (docs/report.schema.json).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "invariants.h"
#include "replaying.h"
#include "shardcheck/mutators/kill_matrix.h"
#include "shardcheck/properties/axes.h"
#include "shardcheck/properties/runner.h"
#include "verification.h"

namespace shardcheck {

inline constexpr int kReportFormat = 1;

/// Everything a command found. What it did not do stays empty and is written as an empty list.
struct Report {
  std::string command;
  std::vector<std::string> arguments;
  std::uint64_t seed = 0;
  std::optional<InvariantReport> invariants;
  std::vector<LawReport> laws;
  std::vector<AxisRow> axes;
  std::optional<KillReport> kill;
  std::vector<Replay> replays;
  std::optional<Verification> verification;
  double seconds = 0.0;
  int exit_code = 0;
};

/// "passed", "failed", "invalid", "inconclusive", "error".
std::string verdict_word(int exit_code);
/// The same in capitals and in its tone, for the last line of a run.
std::string painted_verdict(int exit_code);

/// The report as JSON text.
std::string to_json(const Report& report);

/// Writes the report to every file, atomically. Throws IoError.
void write_json_reports(const Report& report, const std::vector<std::filesystem::path>& files);

/// Of this build: the commit it was configured at, or "unknown".
std::string build_commit();

}  // namespace shardcheck
