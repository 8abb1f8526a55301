#include "json_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace shardcheck {
namespace {

constexpr std::size_t kMaxText = 256;

}  // namespace

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
