// The part of JSON Schema that docs/*.schema.json use.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace shardcheck::test {

class SchemaCheck {
 public:
  explicit SchemaCheck(nlohmann::json schema) : root_(std::move(schema)) {}

  /// What is wrong with the document, one line each; empty when it follows the schema.
  std::vector<std::string> problems(const nlohmann::json& document) const {
    return check(root_, document, "");
  }

 private:
  using Json = nlohmann::json;
  using Problems = std::vector<std::string>;

  static bool has_type(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return type == "null" && value.is_null();
  }

  static bool matches_type(const Json& type, const Json& value) {
    if (type.is_string()) return has_type(type, value);
    for (const auto& one : type)
      if (has_type(one, value)) return true;
    return false;
  }

  Problems check_object(const Json& schema, const Json& value, const std::string& at) const {
    Problems found;
    const Json properties = schema.value("properties", Json::object());
    for (const auto& name : schema.value("required", Json::array()))
      if (!value.contains(name.get<std::string>()))
        found.push_back(at + ": lacks " + name.get<std::string>());
    for (const auto& [key, item] : value.items()) {
      const Json extra = schema.value("additionalProperties", Json(true));
      if (properties.contains(key)) {
        append(found, check(properties[key], item, at + "/" + key));
      } else if (extra.is_object()) {
        append(found, check(extra, item, at + "/" + key));
      } else if (!extra.get<bool>()) {
        found.push_back(at + ": unknown key " + key);
      }
    }
    return found;
  }

  Problems check(const Json& schema, const Json& value, const std::string& at) const {
    if (schema.contains("$ref"))
      return check(root_.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))), value, at);
    if (schema.contains("oneOf")) {
      for (const auto& option : schema["oneOf"])
        if (check(option, value, at).empty()) return {};
      return check(schema["oneOf"].back(), value, at);
    }
    Problems found;
    if (schema.contains("type") && !matches_type(schema["type"], value))
      return {at + ": is no " + schema["type"].dump() + " but " + value.dump().substr(0, 60)};
    if (schema.contains("const") && schema["const"] != value) found.push_back(at + ": is not the constant");
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      found.push_back(at + ": " + value.dump() + " is not in the list");
    if (schema.contains("minimum") && value.is_number() && value < schema["minimum"])
      found.push_back(at + ": below the minimum");
    if (schema.contains("pattern") &&
        !std::regex_match(value.get<std::string>(), std::regex(schema["pattern"].get<std::string>())))
      found.push_back(at + ": does not match its pattern");
    if (value.is_object()) append(found, check_object(schema, value, at));
    if (value.is_array() && schema.contains("items"))
      for (std::size_t i = 0; i < value.size(); ++i)
        append(found, check(schema["items"], value[i], at + "/" + std::to_string(i)));
    return found;
  }

  static void append(Problems& to, const Problems& from) { to.insert(to.end(), from.begin(), from.end()); }

  Json root_;
};

}  // namespace shardcheck::test
