#include "shardcheck/tolerance/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "control.h"
#include "environment.h"
#include "shardcheck/comm/collective.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"
#include "shardcheck/tolerance/comparator.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {
namespace {

constexpr int kSafetyDecades = 2;  // safety factor 100
constexpr double kSmallestThreshold = 1e-9;
constexpr std::uint64_t kFirstTokenSeed = 10000;
const std::vector<int> kCandidateDegrees = {1, 2, 4};

struct FloorInUse {
  RecordedFloor floor = load_recorded_floor("in_process");
  std::string source = "tolerance/in_process.json";
};

FloorInUse& floor_slot() {
  static FloorInUse slot;
  return slot;
}

/// The double nearest to 10^exponent: std::pow may miss it by a unit.
double power_of_ten(int exponent) { return std::strtod(fmt::format("1e{}", exponent).c_str(), nullptr); }

std::map<std::string, Geometry> recorded_configs() { return {{"kv2", toy()}, {"kv4", toy_kv4()}}; }

std::vector<int> recorded_degrees(const Geometry& geometry) {
  return supported_degrees(LayoutTable::built_in("seed"), geometry, kCandidateDegrees);
}

Layout seed_layout(const Geometry& geometry, int degree) {
  return LayoutTable::built_in("seed").instantiate(geometry, degree);
}

/// The cells of one configuration, each with one repetition added per call of `repeat`.
class ConfigMeasurement {
 public:
  ConfigMeasurement(const std::string& name, const Geometry& geometry) : geometry_(geometry) {
    for (const int degree : recorded_degrees(geometry)) layouts_.push_back(seed_layout(geometry, degree));
    for (const auto& source : layouts_) {
      for (const auto& target : layouts_)
        cells_.push_back({name, source.degree, target.degree, 0, 0, 0, 0, {}});
    }
  }

  void repeat(std::uint64_t model_seed, std::uint64_t token_seed, std::int64_t batch, std::int64_t length) {
    const TensorMap weights = make_weights(geometry_, WeightStyle::recorded, model_seed, DType::f32);
    const Tokens tokens = make_tokens(geometry_, batch, length, token_seed);
    const Contract contract = contract_for(geometry_);
    const Tensor expected = ReferenceModel(geometry_, weights, Arithmetic::native, contract).forward(tokens);
    auto cell = cells_.begin();
    for (const auto& source : layouts_) {
      const ShardedTensors shards = split(weights, source);
      for (const auto& target : layouts_) {
        const ShardedTensors moved = reshard(shards, source, target);
        const auto collective = make_in_process_collective(target.degree);
        const ShardedModel model(geometry_, moved, consumer_named(target.consumer), *collective,
                                 Arithmetic::native, contract);
        add(*cell++, compare_ranks(expected, model.forward(tokens)).worst);
      }
    }
  }

  std::vector<FloorCell> finish() {
    for (auto& cell : cells_) {
      cell.max_deviation = *std::ranges::max_element(cell.per_seed);
      cell.max_ulp = cell.max_deviation / kUlp;
      cell.median_ulp /= static_cast<double>(cell.per_seed.size());
      cell.mean_ulp /= static_cast<double>(cell.per_seed.size());
    }
    return std::move(cells_);
  }

 private:
  static void add(FloorCell& cell, const Comparison& comparison) {
    cell.per_seed.push_back(comparison.max_abs);
    cell.median_ulp += comparison.median_abs / kUlp;
    cell.mean_ulp += comparison.mean_abs / kUlp;
  }

  Geometry geometry_;
  std::vector<Layout> layouts_;
  std::vector<FloorCell> cells_;
};

using CellKey = std::tuple<std::string, int, int>;

CellKey key_of(const FloorCell& cell) { return {cell.config, cell.source_degree, cell.target_degree}; }

std::set<CellKey> expected_cells(const std::string& phase) {
  std::set<CellKey> keys;
  for (const auto& [name, geometry] : recorded_configs()) {
    const auto degrees = recorded_degrees(geometry);
    for (const int target : degrees) {
      if (phase == "mpi") {
        keys.insert({name, target, target});
        continue;
      }
      for (const int source : degrees) keys.insert({name, source, target});
    }
  }
  return keys;
}

std::string name_of(const FloorCell& cell) {
  return fmt::format("{} tp{} -> tp{}", cell.config, cell.source_degree, cell.target_degree);
}

void check_configs(const RecordedFloor& floor, std::vector<std::string>& failures) {
  const auto configs = recorded_configs();
  for (const auto& [name, geometry] : configs) {
    const auto found = floor.configs.find(name);
    if (found == floor.configs.end()) {
      failures.push_back(fmt::format("config {} is not recorded", name));
    } else if (found->second != geometry) {
      failures.push_back(fmt::format("config {} was recorded for another geometry: {}, now {}", name,
                                     to_string(found->second), to_string(geometry)));
    }
  }
  for (const auto& [name, geometry] : floor.configs) {
    if (!configs.contains(name)) failures.push_back(fmt::format("config {} is not known", name));
  }
}

void check_measurement(const RecordedFloor& floor, std::vector<std::string>& failures) {
  const RecordedFloor now;
  if (floor.batch != now.batch || floor.length != now.length) {
    failures.push_back(fmt::format("token shape {} x {} was recorded, the floor is used for {} x {}",
                                   floor.batch, floor.length, now.batch, now.length));
  }
  if (floor.dtype != now.dtype) {
    failures.push_back(
        fmt::format("dtype {} was recorded, the floor is used for {}", floor.dtype, now.dtype));
  }
  const auto repetitions = static_cast<std::size_t>(floor.repetitions);
  if (floor.model_seeds.size() != repetitions || floor.token_seeds.size() != repetitions) {
    failures.push_back(fmt::format("{} repetitions were recorded with {} model seeds and {} token seeds",
                                   floor.repetitions, floor.model_seeds.size(), floor.token_seeds.size()));
  }
}

void check_coverage(const RecordedFloor& floor, std::vector<std::string>& failures) {
  const std::set<CellKey> expected = expected_cells(floor.phase);
  std::set<CellKey> missing = expected;
  std::set<CellKey> seen;
  for (const auto& cell : floor.cells) {
    if (!seen.insert(key_of(cell)).second)
      failures.push_back(fmt::format("cell {} is recorded twice", name_of(cell)));
    missing.erase(key_of(cell));
    if (!expected.contains(key_of(cell))) {
      failures.push_back(
          fmt::format("cell {} is none of the ordered pairs of supported degrees", name_of(cell)));
    }
  }
  for (const auto& [config, source, target] : missing) {
    failures.push_back(fmt::format("cell {} tp{} -> tp{} is not recorded", config, source, target));
  }
}

void check_cell(const FloorCell& cell, const RecordedFloor& floor, std::vector<std::string>& failures) {
  const auto fail = [&](const std::string& what) { failures.push_back(name_of(cell) + ": " + what); };
  if (std::ssize(cell.per_seed) != floor.repetitions) {
    fail(fmt::format("{} maxima recorded for {} repetitions", cell.per_seed.size(), floor.repetitions));
  }
  const double worst = cell.per_seed.empty() ? 0.0 : *std::ranges::max_element(cell.per_seed);
  if (worst != cell.max_deviation) {
    fail(fmt::format("max_deviation {:.4g} is not the largest of per_seed, {:.4g}", cell.max_deviation,
                     worst));
  }
  if (std::fabs(cell.max_ulp - cell.max_deviation / kUlp) > 1e-6 * (1.0 + cell.max_ulp)) {
    fail(fmt::format("max_ulp {:.4g} is not max_deviation / 2^-23", cell.max_ulp));
  }
  if (!(cell.max_deviation < floor.threshold)) {
    fail(fmt::format("deviation {:.4g} is not below the threshold {:.4g}", cell.max_deviation,
                     floor.threshold));
  }
  if (cell.target_degree == 1 && cell.max_deviation != 0.0) {
    fail(fmt::format("one rank reorders nothing, yet the deviation is {:.4g}", cell.max_deviation));
  }
  if (cell.max_deviation == 0.0) return;
  if (!(cell.median_ulp > 0.0) || cell.median_ulp > 2.0 * cell.mean_ulp || !(cell.mean_ulp < cell.max_ulp)) {
    fail(fmt::format("median {:.4g}, mean {:.4g} and max {:.4g} ULP cannot be of one distribution",
                     cell.median_ulp, cell.mean_ulp, cell.max_ulp));
  }
}

void check_rule(const RecordedFloor& floor, std::vector<std::string>& failures) {
  double worst = 0.0;
  for (const auto& cell : floor.cells) worst = std::max(worst, cell.max_deviation);
  if (worst != floor.max_deviation) {
    failures.push_back(fmt::format("max_deviation {:.4g} is not the largest of the cells, {:.4g}",
                                   floor.max_deviation, worst));
  }
  if (!std::isfinite(floor.max_deviation) || floor.threshold != seed_threshold(floor.max_deviation)) {
    failures.push_back(fmt::format("threshold {:.4g} does not follow from max_deviation {:.4g} by the rule",
                                   floor.threshold, floor.max_deviation));
  }
}

void check_environment(const RecordedFloor& floor, std::vector<std::string>& warnings) {
  const auto now = this_environment();
  for (const char* key : kComparedKeys) {
    const auto found = floor.environment.find(key);
    const std::string recorded = found == floor.environment.end() ? "(not recorded)" : found->second;
    if (floor.phase == "in_process" && std::string_view(key) == "mpi") continue;
    if (recorded != now.at(key)) {
      warnings.push_back(fmt::format("{}: recorded with {}, running with {}", key, recorded, now.at(key)));
    }
  }
}

double control_of(const Geometry& geometry) {
  const RecordedFloor now;
  const TensorMap weights = make_weights(geometry, WeightStyle::recorded, 0, DType::f32);
  const Tokens tokens = make_tokens(geometry, now.batch, now.length, kFirstTokenSeed);
  const Contract contract = contract_for(geometry);
  const ReferenceModel model(geometry, weights, Arithmetic::native, contract);
  return control_deviation(geometry, contract, weights, tokens, model.forward(tokens));
}

/// The weaker control of the two configurations, on the first repetition.
double recorded_control() {
  static const double weakest = std::min(control_of(toy()), control_of(toy_kv4()));
  return weakest;
}

}  // namespace

double seed_threshold(double worst) {
  if (!std::isfinite(worst)) throw std::invalid_argument("seed_threshold: the worst deviation is not finite");
  if (worst <= 0.0) return kSmallestThreshold;
  // 100 * worst is never computed: worst is compared with the power two decades lower, so that a worst
  // deviation of exactly 10^n gives exactly 10^(n+2).
  int exponent = static_cast<int>(std::floor(std::log10(worst))) - 1;
  while (power_of_ten(exponent) < worst) ++exponent;
  return power_of_ten(exponent + kSafetyDecades);
}

RecordedFloor measure_floor(int repetitions, const ProgressSink& progress) {
  if (repetitions < 1) throw std::invalid_argument("measure_floor: at least one repetition is needed");
  RecordedFloor floor;
  floor.configs = recorded_configs();
  floor.repetitions = repetitions;
  floor.environment = this_environment();
  for (int i = 0; i < repetitions; ++i) {
    floor.model_seeds.push_back(static_cast<std::uint64_t>(i));
    floor.token_seeds.push_back(kFirstTokenSeed + static_cast<std::uint64_t>(i));
  }
  for (const auto& [name, geometry] : floor.configs) {
    ConfigMeasurement measurement(name, geometry);
    if (progress) progress({ProgressEvent::Kind::stage, fmt::format("floor of {}", name), 0.0});
    for (std::size_t i = 0; i < floor.model_seeds.size(); ++i) {
      measurement.repeat(floor.model_seeds[i], floor.token_seeds[i], floor.batch, floor.length);
      if (progress)
        progress({ProgressEvent::Kind::step,
                  fmt::format("floor of {}: repetition {} of {}", name, i + 1, repetitions),
                  static_cast<double>(i + 1) / repetitions});
    }
    for (auto& cell : measurement.finish()) floor.cells.push_back(std::move(cell));
  }
  for (const auto& cell : floor.cells)
    floor.max_deviation = std::max(floor.max_deviation, cell.max_deviation);
  floor.threshold = seed_threshold(floor.max_deviation);
  return floor;
}

const RecordedFloor& floor_in_use() { return floor_slot().floor; }
const std::string& source_of_floor_in_use() { return floor_slot().source; }

void use_floor_of(const std::filesystem::path& data_dir) {
  RecordedFloor floor = load_recorded_floor("in_process", data_dir);
  std::string source = (data_dir / "in_process.json").string();
  const FloorCheck check = check_floor(floor);
  if (!check.failures.empty()) throw InvalidInput(fmt::format("{}: {}", source, check.failures.front()));
  floor_slot() = {std::move(floor), std::move(source)};
}

FloorCheck check_floor(const RecordedFloor& floor) {
  FloorCheck check;
  check_configs(floor, check.failures);
  check_measurement(floor, check.failures);
  check_coverage(floor, check.failures);
  for (const auto& cell : floor.cells) check_cell(cell, floor, check.failures);
  check_rule(floor, check.failures);
  check_environment(floor, check.warnings);
  Threshold threshold;
  threshold.value = floor.threshold;
  threshold.floor = floor.max_deviation;
  threshold.control = recorded_control();
  threshold.source = "recorded, phase " + floor.phase;
  check.mistrusted = threshold.mistrusted();
  return check;
}

}  // namespace shardcheck
