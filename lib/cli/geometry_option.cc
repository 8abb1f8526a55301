#include "geometry_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "options.h"
#include "shardcheck/case/case.h"

namespace shardcheck {
namespace {

/// Keys of a case line that describe the model: those in front of the first that says what to do with it.
const std::vector<std::string>& geometry_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> list;
    for (const CaseKey& key : case_keys()) {
      if (key.key == "dtype") break;
      list.push_back(key.key);
    }
    return list;
  }();
  return keys;
}

/// Sets the keys of the text and returns them.
std::set<std::string_view> set_all(Case& c, std::string_view text) {
  std::set<std::string_view> given;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const std::size_t equals = item.find('=');
    if (equals == item.npos)
      throw InvalidInput(fmt::format("--geometry: '{}' has no value; allowed: KEY=VALUE,...", item));
    const std::string key(item.substr(0, equals));
    const std::vector<std::string>& known = geometry_keys();
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse_unknown("--geometry: key", key, known);
    if (!given.insert(item.substr(0, equals)).second)
      throw InvalidInput(fmt::format("--geometry: {} is given twice", key));
    try {
      set_case_key(c, key, item.substr(equals + 1));
    } catch (const InvalidInput& error) {
      throw InvalidInput(fmt::format("--geometry: {}", error.what()));
    }
  }
  return given;
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
  Case c;
  const std::set<std::string_view> given = set_all(c, text);
  Geometry& geometry = c.geometry;
  if (!given.contains("kv_heads")) geometry.n_kv_heads = geometry.n_heads;
  if (!given.contains("head_dim"))
    geometry.head_dim = std::max<std::int64_t>(1, geometry.d_model / geometry.n_heads);
  return validated(geometry);
}

Geometry parse_geometry(std::string_view text, Geometry base) {
  Case c;
  c.geometry = base;
  set_all(c, text);
  return validated(c.geometry);
}

}  // namespace shardcheck
