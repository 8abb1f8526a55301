#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/embedded.h"
#include "shardcheck/tolerance/comparator.h"
#include "shardcheck/tolerance/floor.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {

std::span<const EmbeddedFile> embedded_floors();

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json geometry_json(const Geometry& g) {
  return {{"d_model", g.d_model},       {"n_layers", g.n_layers}, {"n_heads", g.n_heads},
          {"n_kv_heads", g.n_kv_heads}, {"head_dim", g.head_dim}, {"ffn", g.ffn},
          {"vocab", g.vocab},           {"norm_eps", g.norm_eps}, {"rope", to_string(g.rope)},
          {"rope_theta", g.rope_theta}, {"tied", g.tied},         {"qkv_bias", g.qkv_bias},
          {"qk_norm", g.qk_norm}};
}

ordered_json cell_json(const FloorCell& cell) {
  return {{"config", cell.config},
          {"source_degree", cell.source_degree},
          {"target_degree", cell.target_degree},
          {"max_deviation", cell.max_deviation},
          {"max_ulp", cell.max_ulp},
          {"median_ulp", cell.median_ulp},
          {"mean_ulp", cell.mean_ulp},
          {"per_seed", cell.per_seed}};
}

using Keys = std::initializer_list<std::string_view>;

/// Reads an object that holds `keys`, perhaps `optional` ones, and nothing else. Every refusal names the
/// field.
class Fields {
 public:
  Fields(const json& object, std::string origin, std::string path, Keys keys, Keys optional = {})
      : object_(object), origin_(std::move(origin)), path_(std::move(path)) {
    if (!object.is_object()) refuse("", "an object");
    for (const std::string_view key : keys) at(key);
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(keys, key) != keys.end() || std::ranges::find(optional, key) != optional.end())
        continue;
      throw InvalidInput(fmt::format("{}: field {}{} is unknown; allowed: {}", origin_, path_, quote(key),
                                     fmt::join(keys, ", ")));
    }
  }

  Fields object(std::string_view key, Keys keys, Keys optional = {}) const {
    return {at(key), origin_, fmt::format("{}{}.", path_, key), keys, optional};
  }

  /// Visits every member of an object whose names are free.
  template <typename Visit>
  void each(std::string_view key, Keys keys, Visit visit) const {
    if (!at(key).is_object()) refuse(key, "an object");
    for (const auto& [name, value] : at(key).items()) {
      visit(name,
            Fields(value, origin_, fmt::format("{}{}.{}.", path_, key, shorten(name, kShownBytes)), keys));
    }
  }

  double number(std::string_view key) const {
    const json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "a finite number");
    return value.get<double>();
  }

  /// A quantity that is measured: finite and not negative.
  double measured(std::string_view key) const {
    const double value = number(key);
    if (value < 0.0) refuse(key, "a number that is not negative");
    return value;
  }

  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const {
    const json& value = at(key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high ||
        (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high))) {
      refuse(key, fmt::format("an integer in {}..{}", low, high));
    }
    return value.get<std::int64_t>();
  }

  bool boolean(std::string_view key) const {
    if (!at(key).is_boolean()) refuse(key, "true or false");
    return at(key).get<bool>();
  }

  std::string text(std::string_view key) const {
    if (!at(key).is_string()) refuse(key, "a string");
    return at(key).get<std::string>();
  }

  const json& array(std::string_view key) const {
    if (!at(key).is_array()) refuse(key, "an array");
    return at(key);
  }

  std::vector<double> measured_list(std::string_view key) const {
    std::vector<double> values;
    for (const auto& value : array(key)) {
      if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0.0) {
        refuse(key, "an array of finite numbers that are not negative");
      }
      values.push_back(value.get<double>());
    }
    return values;
  }

  std::vector<std::uint64_t> seeds(std::string_view key) const {
    std::vector<std::uint64_t> values;
    for (const auto& value : array(key)) {
      if (!value.is_number_unsigned()) refuse(key, "an array of unsigned integers");
      values.push_back(value.get<std::uint64_t>());
    }
    return values;
  }

  std::map<std::string, std::string> texts(std::string_view key) const {
    const json& object = at(key);
    if (!object.is_object()) refuse(key, "an object of strings");
    std::map<std::string, std::string> values;
    for (const auto& [name, value] : object.items()) {
      if (!value.is_string()) refuse(key, "an object of strings");
      values[name] = value.get<std::string>();
    }
    return values;
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const {
    throw InvalidInput(fmt::format("{}: field {}{} must be {}", origin_, path_, key, allowed));
  }

 private:
  const json& at(std::string_view key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) {
      throw InvalidInput(fmt::format("{}: field {}{} is missing", origin_, path_, key));
    }
    return *found;
  }

  const json& object_;
  std::string origin_;
  std::string path_;
};

constexpr std::int64_t kLargestExtent = std::int64_t{1} << 24;
constexpr std::size_t kLargestFileBytes = std::size_t{16} << 20;
constexpr int kSafetyFactor = 100;
const Keys kGeometryKeys = {"d_model",  "n_layers", "n_heads",    "n_kv_heads", "head_dim", "ffn",    "vocab",
                            "norm_eps", "rope",     "rope_theta", "tied",       "qkv_bias", "qk_norm"};
const Keys kCellKeys = {"config",  "source_degree", "target_degree", "max_deviation",
                        "max_ulp", "median_ulp",    "mean_ulp",      "per_seed"};

Geometry geometry_from(const Fields& f) {
  Geometry g;
  g.d_model = f.integer("d_model", 1, kLargestExtent);
  g.n_layers = f.integer("n_layers", 1, 1024);
  g.n_heads = f.integer("n_heads", 1, kLargestExtent);
  g.n_kv_heads = f.integer("n_kv_heads", 1, kLargestExtent);
  g.head_dim = f.integer("head_dim", 1, kLargestExtent);
  g.ffn = f.integer("ffn", 1, kLargestExtent);
  g.vocab = f.integer("vocab", 1, kLargestExtent);
  g.norm_eps = f.number("norm_eps");
  const std::string rope = f.text("rope");
  if (rope != to_string(Rope::none) && rope != to_string(Rope::half)) f.refuse("rope", "none or half");
  g.rope = rope == to_string(Rope::none) ? Rope::none : Rope::half;
  g.rope_theta = f.number("rope_theta");
  g.tied = f.boolean("tied");
  g.qkv_bias = f.boolean("qkv_bias");
  g.qk_norm = f.boolean("qk_norm");
  return g;
}

FloorCell cell_from(const Fields& f) {
  FloorCell cell;
  cell.config = f.text("config");
  cell.source_degree = static_cast<int>(f.integer("source_degree", 1, 1024));
  cell.target_degree = static_cast<int>(f.integer("target_degree", 1, 1024));
  cell.max_deviation = f.measured("max_deviation");
  cell.max_ulp = f.measured("max_ulp");
  cell.median_ulp = f.measured("median_ulp");
  cell.mean_ulp = f.measured("mean_ulp");
  cell.per_seed = f.measured_list("per_seed");
  return cell;
}

/// The parts that are written for readers must say what the rule is.
void require_rule(const Fields& f) {
  if (f.number("ulp") != kUlp) f.refuse("ulp", fmt::format("{}", kUlp));
  f.text("note");
  const Fields rule = f.object("rule", {"description", "safety_factor", "expression"});
  rule.integer("safety_factor", kSafetyFactor, kSafetyFactor);
  rule.text("description");
  rule.text("expression");
}

void read_measurement(const Fields& f, RecordedFloor& floor) {
  floor.repetitions = static_cast<int>(f.integer("repetitions", 1, 1000000));
  floor.batch = f.integer("batch", 1, kLargestExtent);
  floor.length = f.integer("length", 1, kLargestExtent);
  floor.dtype = f.text("dtype");
  floor.model_seeds = f.seeds("model_seeds");
  floor.token_seeds = f.seeds("token_seeds");
}

RecordedFloor floor_from(const json& document, const std::string& origin) {
  const Fields f(document, origin, "",
                 {"phase", "note", "ulp", "configs", "rule", "threshold", "max_deviation", "measurement",
                  "environment", "results"});
  RecordedFloor floor;
  floor.phase = f.text("phase");
  if (floor.phase != "in_process" && floor.phase != "mpi") f.refuse("phase", "in_process or mpi");
  require_rule(f);
  floor.max_deviation = f.measured("max_deviation");
  floor.threshold = f.measured("threshold");
  f.each("configs", kGeometryKeys,
         [&](const std::string& name, const Fields& g) { floor.configs[name] = geometry_from(g); });
  read_measurement(
      f.object("measurement", {"repetitions", "model_seeds", "token_seeds", "batch", "length", "dtype"},
               {"backend", "processes_per_cell"}),
      floor);
  floor.environment = f.texts("environment");
  const json& results = f.array("results");
  for (std::size_t i = 0; i < results.size(); ++i) {
    floor.cells.push_back(cell_from(Fields(results[i], origin, fmt::format("results[{}].", i), kCellKeys)));
  }
  return floor;
}

}  // namespace

std::string to_json(const RecordedFloor& floor) {
  ordered_json document;
  document["phase"] = floor.phase;
  document["note"] = "Valid for these geometries, this token shape, this dtype and this phase alone.";
  document["ulp"] = kUlp;
  for (const auto& [name, geometry] : floor.configs) document["configs"][name] = geometry_json(geometry);
  document["rule"] = {
      {"description",
       "the smallest power of ten at or above safety_factor times the worst deviation of every cell and "
       "repetition; comparison is strict"},
      {"safety_factor", kSafetyFactor},
      {"expression", "10 ** ceil(log10(safety_factor * max_deviation))"}};
  document["threshold"] = floor.threshold;
  document["max_deviation"] = floor.max_deviation;
  document["measurement"] = {{"repetitions", floor.repetitions}, {"model_seeds", floor.model_seeds},
                             {"token_seeds", floor.token_seeds}, {"batch", floor.batch},
                             {"length", floor.length},           {"dtype", floor.dtype}};
  document["environment"] = floor.environment;
  document["results"] = ordered_json::array();
  for (const auto& cell : floor.cells) document["results"].push_back(cell_json(cell));
  return document.dump(2) + "\n";
}

RecordedFloor parse_floor(std::string_view text, const std::string& origin) {
  return floor_from(parse_json_object<InvalidInput>(text, origin, kLargestFileBytes), origin);
}

RecordedFloor load_recorded_floor(const std::string& phase, const std::filesystem::path& data_dir) {
  const std::string name = phase + ".json";
  const auto require_phase = [&](RecordedFloor floor, const std::string& origin) {
    if (floor.phase == phase) return floor;
    throw InvalidInput(fmt::format("{}: field phase is {}, expected {}", origin, floor.phase, phase));
  };
  if (!data_dir.empty()) {
    const auto file = data_dir / name;
    return require_phase(parse_floor(read_text(file, kLargestFileBytes), file.string()), file.string());
  }
  for (const EmbeddedFile& file : embedded_floors()) {
    if (file.name == name) return require_phase(parse_floor(file.text, name), name);
  }
  throw InvalidInput(fmt::format(
      "no floor is recorded for phase {}: record one with `shardcheck tolerance measure`", phase));
}

}  // namespace shardcheck
