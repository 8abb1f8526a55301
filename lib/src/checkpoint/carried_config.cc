#include "checkpoint/carried_config.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "checkpoint/files.h"
#include "checkpoint/limits.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";

/// Which table has the names of a model_type's files in transformers.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kTables = {{
    {"llama", "hf-llama"},
    {"mistral", "hf-llama"},
    {"qwen2", "hf-llama"},
    {"qwen3", "hf-llama"},
    {"phi3", "hf-phi3"},
    {"mixtral", "hf-mixtral"},
    {"gpt2", "hf-gpt2"},
    {"gpt_neox", "hf-neox"},
    {"qwen3_moe", "hf-moe"},
    {"glm4_moe", "hf-moe"},
    {"dots1", "hf-moe"},
    {"deepseek_v2", "hf-mla-moe"},
    {"deepseek_v3", "hf-mla-moe"},
    {"kimi_k2", "hf-mla-moe"},
}};

/// "d_model" -> "256", as a geometry is printed; what is not printed has its usual value.
std::map<std::string, std::string> fields_of(const Geometry& geometry) {
  std::map<std::string, std::string> fields;
  std::istringstream words(to_string(geometry));
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    fields[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return fields;
}

/// "layers=2, here 4; tied=true, here false".
std::string differences(const Geometry& config, const Geometry& used) {
  const auto here = fields_of(used);
  std::string text;
  const auto add = [&](const std::string& key, const std::string& one, const std::string& other) {
    text += fmt::format("{}{}={}, here {}", text.empty() ? "" : "; ", key, one, other);
  };
  const auto said = fields_of(config);
  for (const auto& [key, value] : said) {
    const auto other = here.find(key);
    if (other == here.end() || other->second != value)
      add(key, value, other == here.end() ? "as usual" : other->second);
  }
  for (const auto& [key, value] : here) {
    if (!said.contains(key)) add(key, "as usual", value);
  }
  return text;
}

std::optional<std::string> config_text(const fs::path& folder) {
  if (!is_present(folder / kConfig)) return std::nullopt;
  return read_text(folder / kConfig, kMaxConfigBytes);
}

std::optional<Geometry> geometry_in(const std::string& text) {
  try {
    return parse_config(text, kConfig).geometry;
  } catch (const InvalidCheckpoint&) {
    return std::nullopt;  // of a family, or with a field, that is not read here
  }
}

std::string model_type_in(const std::string& text) {
  try {
    return parse_json_object<InvalidCheckpoint>(text, kConfig, kMaxConfigBytes)
        .at("model_type")
        .get<std::string>();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

void require_config_of(const fs::path& folder, const Layout& layout) {
  const auto text = config_text(folder);
  const auto geometry = text ? geometry_in(*text) : std::nullopt;
  if (!geometry || *geometry == layout.geometry) return;
  throw InvalidCheckpoint(fmt::format(
      "{}: is carried along to the target and would not describe it: {}; allowed: the geometry of the files",
      (folder / kConfig).string(), differences(*geometry, layout.geometry)));
}

std::string config_warning(const fs::path& folder, const Layout& layout) {
  const auto text = config_text(folder);
  if (!text) return {};
  const std::string type = model_type_in(*text);
  const std::string_view target = layout.name.table;
  std::string_view table;
  bool known = false;
  for (const auto& [model_type, name] : kTables) {
    if (model_type == type) table = name;
    known |= name == target;
  }
  if (!known || table.empty() || table == target) return {};
  return fmt::format(
      "config.json is carried along unchanged: its model_type is {}, the files are those of {}", quote(type),
      target);
}

}  // namespace shardcheck
