// Fields of a layout table's JSON: no unknown key, every refusal says where it is.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// A value of a document with the path that messages name: "seed.json: rules[1] (layers.{layer}.qkv):
/// placement.dim".
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& why) const { throw InvalidLayout(path_ + ": " + why); }

  /// Throws InvalidLayout unless this is an object with every key of `required` and no key outside
  /// `required` and `optional`.
  void require_object(std::initializer_list<std::string_view> required,
                      std::initializer_list<std::string_view> optional = {}) const;

  bool has(std::string_view key) const { return value_->contains(key); }
  /// Member `key` of an object that has passed `require_object`.
  JsonField at(std::string_view key) const;
  /// The elements of an array. Throws InvalidLayout for anything else or when their number is outside
  /// [low, high].
  std::vector<JsonField> elements(std::size_t low, std::size_t high) const;

  /// Text of 1..256 characters. Throws InvalidLayout.
  std::string text() const;
  bool boolean() const;
  /// Integer in [low, high]. Throws InvalidLayout.
  std::int64_t integer(std::int64_t low, std::int64_t high) const;

  const nlohmann::json& value() const noexcept { return *value_; }
  const std::string& path() const noexcept { return path_; }
  JsonField named(std::string path) const { return {*value_, std::move(path)}; }

 private:
  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace shardcheck
