// The recorded floor of `native`: measured, never guessed, and valid for the geometry, token shape, dtype and
// backend it was measured on. The rule is the seed document's.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "shardcheck/model/geometry.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

/// 10^ceil(log10(100 * worst)); 1e-9 when worst <= 0. NaN and infinity throw std::invalid_argument.
double seed_threshold(double worst);

struct FloorCell {
  std::string config;  // "kv2", "kv4"
  int source_degree = 1, target_degree = 1;
  double max_deviation = 0.0, max_ulp = 0.0;
  double median_ulp = 0.0, mean_ulp = 0.0;  // means over repetitions
  std::vector<double> per_seed;             // max deviation of each repetition
};

struct RecordedFloor {
  std::string phase = "in_process";  // or "mpi"; one may not be used for the other
  std::map<std::string, Geometry> configs;
  std::int64_t batch = 2, length = 16;
  int repetitions = 20;
  std::vector<std::uint64_t> model_seeds, token_seeds;
  std::string dtype = "f32";
  double max_deviation = 0.0, threshold = 0.0;
  std::vector<FloorCell> cells;
  std::map<std::string, std::string> environment;  // compiler, flags, cpu, simd_target, mpi, commit
};

/// Measures every ordered pair of supported degrees of TOY and TOY_KV4 in process. Model seed = repetition,
/// token seed = 10000 + repetition, tokens 2 x 16. `progress` may be empty.
RecordedFloor measure_floor(int repetitions, const ProgressSink& progress = {});

std::string to_json(const RecordedFloor& floor);
/// Throws InvalidInput naming the field.
RecordedFloor parse_floor(std::string_view json, const std::string& origin);
/// The artifact embedded at build time (tolerance/in_process.json), or `data_dir`/in_process.json.
/// Throws IoError when the file cannot be read, InvalidInput when it is refused or of another phase.
RecordedFloor load_recorded_floor(const std::string& phase, const std::filesystem::path& data_dir = {});

/// The floor every threshold of this process comes from: the embedded one until another is chosen.
const RecordedFloor& floor_in_use();
/// Where it was read: "tolerance/in_process.json" or the file that was chosen.
const std::string& source_of_floor_in_use();
/// Uses `data_dir`/in_process.json from now on, before any case is judged: not safe beside threads that
/// judge. Throws InvalidInput naming file and failure when check_floor finds one, and nothing changes then.
void use_floor_of(const std::filesystem::path& data_dir);

/// This machine's compiler, flags, CPU, SIMD target, MPI, commit.
std::map<std::string, std::string> this_environment();

struct FloorCheck {
  std::vector<std::string> failures;  // geometry or token shape differ from the recording, rule not followed
  std::vector<std::string> warnings;  // compiler, library or CPU differ
  /// Why passing under its threshold would be no evidence (Threshold::mistrusted); empty when it would.
  std::string mistrusted;
};
/// Compares a recording with the rule, the configurations in code, this environment and the control.
FloorCheck check_floor(const RecordedFloor& floor);

}  // namespace shardcheck
