#include "neighbours.h"

#include <optional>

namespace shardcheck {
namespace {

std::vector<std::string> other_values(const Case& c, const std::string& key) {
  if (key == "source" || key == "target" || key == "via") {
    LayoutName name = parse_layout_name(get_case_key(c, key));
    std::vector<std::string> values;
    for (const int degree : {2, 3, 4}) {
      if (degree == name.tp_degree()) continue;
      name.axes = {{"tp", degree}};
      values.push_back(to_string(name));
    }
    return values;
  }
  const std::string value = get_case_key(c, key);
  if (value == "true") return {"false"};
  if (key == "dtype") return {"f32", "bf16", "f16"};
  if (key == "rope") return {"none"};
  if (key == "norm_eps" || key == "rope_theta") return {"0.001", "123"};
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos || value.size() > 18)
    return {};
  const std::int64_t number = std::stoll(value);
  return {std::to_string(number + 1), std::to_string(number * 2), std::to_string(number * 3 + 2)};
}

std::optional<Case> with_value(const Case& c, const std::string& key, const std::string& value) {
  try {
    Case changed = c;
    set_case_key(changed, key, value);
    changed = parse_case(print_case(changed));
    if (changed == c) return std::nullopt;
    return changed;
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<Case> neighbours(const Case& c, const std::string& key) {
  std::vector<Case> cases;
  for (const std::string& value : other_values(c, key))
    if (std::optional<Case> changed = with_value(c, key, value)) cases.push_back(std::move(*changed));
  return cases;
}

}  // namespace shardcheck
