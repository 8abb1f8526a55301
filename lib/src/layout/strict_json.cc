#include "strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

namespace shardcheck {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxText = 256;

/// Deepest nesting of brackets outside strings. Malformed text is left to the parser.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

/// Parser callback that refuses a key its object already has.
class DuplicateGuard {
 public:
  explicit DuplicateGuard(const std::string& origin) : origin_(origin) {}

  bool operator()(int /*depth*/, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw InvalidLayout(fmt::format("{}: key '{:.64}' appears twice in one object", origin_, key));
      }
    }
    return true;
  }

 private:
  const std::string& origin_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& origin, std::size_t limit_bytes) {
  if (text.size() > limit_bytes) {
    throw InvalidLayout(
        fmt::format("{}: {} bytes, at most {} are allowed", origin, text.size(), limit_bytes));
  }
  if (nesting_depth(text) > kMaxDepth) {
    throw InvalidLayout(fmt::format("{}: nested deeper than {}", origin, kMaxDepth));
  }
  try {
    DuplicateGuard guard(origin);
    return json::parse(text, std::ref(guard));
  } catch (const json::exception& error) {
    throw InvalidLayout(fmt::format("{}: not JSON: {:.300}", origin, error.what()));
  }
}

void JsonField::require_object(std::initializer_list<std::string_view> required,
                               std::initializer_list<std::string_view> optional) const {
  if (!value_->is_object()) fail(fmt::format("expected an object, got {}", value_->type_name()));
  std::vector<std::string_view> known(required);
  known.insert(known.end(), optional);
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      fail(fmt::format("unknown key '{:.64}' (allowed: {})", key, fmt::join(known, " ")));
    }
  }
  for (const std::string_view key : required) {
    if (!has(key)) fail(fmt::format("key '{}' is missing", key));
  }
}

JsonField JsonField::at(std::string_view key) const {
  return {value_->at(std::string(key)), fmt::format("{}: {}", path_, key)};
}

std::vector<JsonField> JsonField::elements(std::size_t low, std::size_t high) const {
  if (!value_->is_array()) fail(fmt::format("expected an array, got {}", value_->type_name()));
  if (value_->size() < low || value_->size() > high) {
    fail(fmt::format("{} elements, allowed {}..{}", value_->size(), low, high));
  }
  std::vector<JsonField> fields;
  for (std::size_t i = 0; i < value_->size(); ++i)
    fields.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
  return fields;
}

std::string JsonField::text() const {
  if (!value_->is_string()) fail(fmt::format("expected a string, got {}", value_->type_name()));
  const auto& text = value_->get_ref<const std::string&>();
  if (text.empty() || text.size() > kMaxText) {
    fail(fmt::format("text of {} bytes, allowed 1..{}", text.size(), kMaxText));
  }
  return text;
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("expected true or false, got {}", value_->type_name()));
  return value_->get<bool>();
}

std::int64_t JsonField::integer(std::int64_t low, std::int64_t high) const {
  const bool fits = value_->is_number_integer() &&
                    !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX);
  if (!fits || value_->get<std::int64_t>() < low || value_->get<std::int64_t>() > high) {
    fail(fmt::format("expected an integer in {}..{}, got {}", low, high,
                     value_->is_number() ? value_->dump() : value_->type_name()));
  }
  return value_->get<std::int64_t>();
}

}  // namespace shardcheck
