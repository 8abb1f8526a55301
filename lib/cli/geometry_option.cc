#include "geometry_option.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "options.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;

struct IntegerKey {
  std::string_view name;
  std::int64_t Geometry::*field;
};
constexpr std::array kIntegers = {IntegerKey{"d_model", &Geometry::d_model},
                                  IntegerKey{"layers", &Geometry::n_layers},
                                  IntegerKey{"heads", &Geometry::n_heads},
                                  IntegerKey{"kv_heads", &Geometry::n_kv_heads},
                                  IntegerKey{"head_dim", &Geometry::head_dim},
                                  IntegerKey{"ffn", &Geometry::ffn},
                                  IntegerKey{"vocab", &Geometry::vocab},
                                  IntegerKey{"positions", &Geometry::positions},
                                  IntegerKey{"experts", &Geometry::n_experts},
                                  IntegerKey{"expert_ffn", &Geometry::expert_ffn},
                                  IntegerKey{"shared_ffn", &Geometry::shared_ffn},
                                  IntegerKey{"dense_layers", &Geometry::dense_layers},
                                  IntegerKey{"q_lora", &Geometry::q_lora},
                                  IntegerKey{"kv_lora", &Geometry::kv_lora},
                                  IntegerKey{"nope_dim", &Geometry::nope_dim},
                                  IntegerKey{"rope_dim", &Geometry::rope_dim},
                                  IntegerKey{"v_dim", &Geometry::v_dim}};

struct FlagKey {
  std::string_view name;
  bool Geometry::*field;
};
constexpr std::array kFlags = {
    FlagKey{"tied", &Geometry::tied},     FlagKey{"qkv_bias", &Geometry::qkv_bias},
    FlagKey{"o_bias", &Geometry::o_bias}, FlagKey{"qk_norm", &Geometry::qk_norm},
    FlagKey{"gated", &Geometry::gated},   FlagKey{"mlp_bias", &Geometry::mlp_bias},
    FlagKey{"sinks", &Geometry::sinks},   FlagKey{"router_bias", &Geometry::router_bias}};

struct NumberKey {
  std::string_view name;
  double Geometry::*field;
};
constexpr std::array kNumbers = {NumberKey{"norm_eps", &Geometry::norm_eps},
                                 NumberKey{"rope_theta", &Geometry::rope_theta}};

template <typename Choice>
Choice parse_choice(const std::string& what, std::string_view text, std::initializer_list<Choice> choices) {
  std::vector<std::string> names;
  for (const Choice choice : choices) {
    if (text == to_string(choice)) return choice;
    names.emplace_back(to_string(choice));
  }
  refuse_unknown(what, text, names);
}

bool parse_flag(const std::string& what, std::string_view text) {
  if (text != "true" && text != "false") refuse_unknown(what, text, {"false", "true"});
  return text == "true";
}

double parse_number(const std::string& what, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    throw InvalidInput(fmt::format("{}='{}' is not a number", what, text));
  return value;
}

void set(Geometry& g, std::string_view key, std::string_view value) {
  const std::string what = fmt::format("--geometry: {}", key);
  std::vector<std::string> known = {"rope", "norm"};
  for (const auto& [name, field] : kIntegers) {
    if (name == key) g.*field = parse_integer(what, value, 0, kMaxExtent);
    known.emplace_back(name);
  }
  for (const auto& [name, field] : kFlags) {
    if (name == key) g.*field = parse_flag(what, value);
    known.emplace_back(name);
  }
  for (const auto& [name, field] : kNumbers) {
    if (name == key) g.*field = parse_number(what, value);
    known.emplace_back(name);
  }
  if (key == "rope") g.rope = parse_choice(what, value, {Rope::none, Rope::half});
  if (key == "norm") g.norm = parse_choice(what, value, {Norm::rms, Norm::layer});
  if (std::find(known.begin(), known.end(), key) == known.end())
    refuse_unknown("--geometry: key", key, known);
}

/// Sets the keys of the text and returns them.
std::set<std::string_view> set_all(Geometry& geometry, std::string_view text) {
  std::set<std::string_view> keys;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const std::size_t equals = item.find('=');
    if (equals == item.npos)
      throw InvalidInput(fmt::format("--geometry: '{}' has no value; allowed: KEY=VALUE,...", item));
    const std::string_view key = item.substr(0, equals);
    if (!keys.insert(key).second) throw InvalidInput(fmt::format("--geometry: {} is given twice", key));
    set(geometry, key, item.substr(equals + 1));
  }
  return keys;
}

Geometry validated(const Geometry& geometry) {
  try {
    validate(geometry);
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--geometry: {}", error.what()));
  }
  return geometry;
}

}  // namespace

Geometry parse_geometry(std::string_view text) {
  Geometry geometry;
  const std::set<std::string_view> keys = set_all(geometry, text);
  if (!keys.contains("kv_heads")) geometry.n_kv_heads = geometry.n_heads;
  if (!keys.contains("head_dim") && geometry.n_heads > 0)
    geometry.head_dim = geometry.d_model / geometry.n_heads;
  return validated(geometry);
}

Geometry parse_geometry(std::string_view text, Geometry base) {
  set_all(base, text);
  return validated(base);
}

}  // namespace shardcheck
