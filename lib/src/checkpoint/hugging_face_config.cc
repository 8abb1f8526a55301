// config.json: what it must say, what it may not say.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "checkpoint/hugging_face_fields.h"
#include "checkpoint/limits.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

using nlohmann::json;

/// One model_type of transformers, and what its configuration class takes for fields that are absent: the
/// defaults of the class, which are those of one model and not always derived from the other fields.
/// (transformers 4.40 to 5.0, src/transformers/models/NAME/configuration_NAME.py)
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  std::int64_t max_positions;
  std::int64_t n_kv_heads = 0;  // 0: num_attention_heads, which null stands for in every family
  std::int64_t head_dim = 0;    // 0: hidden_size / num_attention_heads
  bool qkv_bias = false;
  bool qk_norm = false;
};

constexpr std::array<Family, 4> kFamilies = {
    Family{.model_type = "llama", .architecture = "LlamaForCausalLM", .max_positions = 2048},
    Family{.model_type = "mistral",
           .architecture = "MistralForCausalLM",
           .max_positions = 131072,
           .n_kv_heads = 8},
    Family{.model_type = "qwen2",
           .architecture = "Qwen2ForCausalLM",
           .max_positions = 32768,
           .n_kv_heads = 32,
           .qkv_bias = true},
    Family{.model_type = "qwen3",
           .architecture = "Qwen3ForCausalLM",
           .max_positions = 32768,
           .n_kv_heads = 32,
           .head_dim = 128,
           .qk_norm = true},
};
// The same in all four; attention_bias and mlp_bias are false as well.
constexpr double kDefaultNormEps = 1e-6;
constexpr double kDefaultRopeTheta = 10000.0;
constexpr bool kDefaultTied = false;
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;

class ConfigReader {
 public:
  ConfigReader(const json& document, std::string where) : document_(document), where_(std::move(where)) {}

  bool is_absent(const char* field) const { return !document_.contains(field); }

  /// nullptr when absent or null.
  const json* find(const char* field) const {
    const auto found = document_.find(field);
    return found == document_.end() || found->is_null() ? nullptr : &*found;
  }

  const json& require(const char* field, std::string_view allowed) const {
    const json* value = find(field);
    if (value == nullptr) {
      throw InvalidCheckpoint(
          fmt::format("{}: required field {} is missing; allowed: {}", where_, field, allowed));
    }
    return *value;
  }

  [[noreturn]] void refuse(std::string_view field, const json& value, std::string_view allowed) const {
    throw InvalidCheckpoint(fmt::format("{}: {} is {}; allowed: {}", where_, field, shown(value), allowed));
  }

  std::int64_t integer(const char* field) const { return integer(field, require(field, extent_text())); }
  std::int64_t integer_or(const char* field, std::int64_t otherwise) const {
    const json* value = find(field);
    return value == nullptr ? otherwise : integer(field, *value);
  }

  /// null is no number here: transformers keeps it and fails.
  double number_within(const char* field, double low, double high, double otherwise) const {
    if (is_absent(field)) return otherwise;
    const std::string allowed = fmt::format("a number from {} to {}, or absent for {}", low, high, otherwise);
    const json& value = document_[field];
    const bool within = value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
    if (!within) refuse(field, value, allowed);
    return value.get<double>();
  }
  double number(const char* field, const json& value) const {
    if (!value.is_number() || !(value.get<double>() > 0.0)) refuse(field, value, "a number above 0");
    return value.get<double>();
  }

  bool boolean_or(const char* field, bool otherwise) const {
    const json* value = find(field);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(field, *value, "true, false, null or absent");
    return value->get<bool>();
  }

 private:
  static std::string extent_text() { return fmt::format("an integer from 1 to {}", kMaxExtent); }

  std::int64_t integer(const char* field, const json& value) const {
    // Unsigned first: a value above 2^63 would turn negative.
    const bool fits =
        value.is_number_unsigned() ? value.get<std::uint64_t>() <= kMaxExtent : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < 1) refuse(field, value, extent_text());
    return value.get<std::int64_t>();
  }

  const json& document_;
  std::string where_;
};

std::string neutral_text(const json& allowed) {
  std::string text;
  for (const json& value : allowed) text += value.dump() + ", ";
  return text + "null or absent";
}

void require_one_of(const ConfigReader& config, const char* field, const json& allowed) {
  const json* value = config.find(field);
  if (value == nullptr) return;
  const bool neutral = std::find(allowed.begin(), allowed.end(), *value) != allowed.end();
  if (!neutral) config.refuse(field, *value, neutral_text(allowed));
}

void require_neutral_fields(const ConfigReader& config, const Family& family) {
  for (const NeutralField& field : kNeutralFields) {
    require_one_of(config, field.name, json::parse(field.allowed));
  }
  for (const char* field : kQkvBiasFields) require_one_of(config, field, json::array({family.qkv_bias}));
  for (const char* field : kQkNormFields) require_one_of(config, field, json::array({family.qk_norm}));
}

/// Nothing is ignored that is not known to be harmless: a field from elsewhere may stand for another
/// function.
void require_known_fields(const ConfigReader& config, const json& document) {
  const auto is_in = [](const auto& list, const std::string& name) {
    return std::any_of(std::begin(list), std::end(list), [&](const char* known) { return name == known; });
  };
  const auto is_neutral = [](const std::string& name) {
    return std::any_of(std::begin(kNeutralFields), std::end(kNeutralFields),
                       [&](const NeutralField& field) { return name == field.name; });
  };
  for (const auto& [name, value] : document.items()) {
    const bool known = is_in(kUnderstoodFields, name) || is_in(kHarmlessFields, name) || is_neutral(name) ||
                       is_in(kQkvBiasFields, name) || is_in(kQkNormFields, name);
    if (known || value.is_null()) continue;
    config.refuse(shorten(name, kShownBytes), value,
                  "null or absent (the field is not known, and may change the function)");
  }
}

/// Another class under the same model_type (a classifier, a model without a head) computes something else.
void require_architecture(const ConfigReader& config, const Family& family) {
  const json* value = config.find("architectures");
  if (value == nullptr || *value == json::array({family.architecture})) return;
  config.refuse(
      "architectures", *value,
      fmt::format("[\"{}\"] for model_type {}, null or absent", family.architecture, family.model_type));
}

/// The stored dtype counts, which real checkpoints do not always repeat here; only nonsense is refused.
void require_dtype_names(const ConfigReader& config) {
  constexpr std::string_view kPrefix = "torch.";
  constexpr std::array<std::string_view, 5> kNames = {"auto", "float32", "bfloat16", "float16", "float64"};
  for (const char* field : {"torch_dtype", "dtype"}) {
    const json* value = config.find(field);
    if (value == nullptr) continue;
    std::string_view name;
    if (value->is_string()) name = value->get_ref<const std::string&>();
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
      config.refuse(field, *value, fmt::format("{}, null or absent", fmt::join(kNames, ", ")));
    }
  }
}

bool is_token(const json& value, std::int64_t vocab) {
  return value.is_number_integer() && value >= 0 && value < vocab;
}

/// Padding is left alone: -1 and the row after the last stand for "none" in real checkpoints.
void require_tokens(const ConfigReader& config, std::int64_t vocab) {
  const json* begin = config.find("bos_token_id");
  if (begin != nullptr && !is_token(*begin, vocab)) {
    config.refuse("bos_token_id", *begin, fmt::format("0 to {}, null or absent", vocab - 1));
  }
  const json* end = config.find("eos_token_id");
  if (end == nullptr || is_token(*end, vocab)) return;
  const bool all = end->is_array() && std::all_of(end->begin(), end->end(), [vocab](const json& token) {
                     return is_token(token, vocab);
                   });
  if (!all) {
    config.refuse("eos_token_id", *end,
                  fmt::format("0 to {}, a list of such numbers, null or absent", vocab - 1));
  }
}

/// Qwen records a window that use_sliding_window switches; Mistral's is in use unless it is null, and 4096
/// when the field is absent (transformers, configuration_mistral.py).
void require_no_sliding_window(const ConfigReader& config, const json& document,
                               std::string_view model_type) {
  if (model_type == "qwen2" || model_type == "qwen3") return;
  if (const json* window = config.find("sliding_window")) {
    config.refuse("sliding_window", *window, "null (attention over every earlier position)");
  }
  if (model_type == "mistral" && !document.contains("sliding_window")) {
    config.refuse("sliding_window", "absent, which means 4096", "null");
  }
}

void require_full_attention(const ConfigReader& config, std::int64_t n_layers) {
  const json* types = config.find("layer_types");
  if (types == nullptr) return;
  const std::string allowed = fmt::format("{} times \"full_attention\"", n_layers);
  if (!types->is_array() || types->size() != static_cast<std::size_t>(n_layers)) {
    config.refuse("layer_types", *types, allowed);
  }
  for (std::size_t layer = 0; layer < types->size(); ++layer) {
    const json& type = (*types)[layer];
    if (type != "full_attention") {
      config.refuse(fmt::format("layer_types[{}]", layer), type, "\"full_attention\"");
    }
  }
}

/// transformers 5 keeps theta in rope_parameters, transformers 4 at the top.
double rope_theta_of(const ConfigReader& config) {
  const json* top = config.find("rope_theta");
  const json* parameters = config.find("rope_parameters");
  if (parameters == nullptr) return top == nullptr ? kDefaultRopeTheta : config.number("rope_theta", *top);
  if (!parameters->is_object() || parameters->value("rope_type", json()) != "default") {
    config.refuse("rope_parameters", *parameters, R"({"rope_type":"default","rope_theta":number})");
  }
  for (const auto& [key, value] : parameters->items()) {
    const bool known = key == "rope_type" || key == "rope_theta" ||
                       (key == "partial_rotary_factor" && (value == 1 || value.is_null()));
    if (!known)
      config.refuse("rope_parameters." + shorten(key, kShownBytes), value, "rope_type and rope_theta only");
  }
  const auto inner = parameters->find("rope_theta");
  if (inner == parameters->end())
    return top == nullptr ? kDefaultRopeTheta : config.number("rope_theta", *top);
  const double theta = config.number("rope_parameters.rope_theta", *inner);
  if (top != nullptr && config.number("rope_theta", *top) != theta) {
    config.refuse("rope_theta", *top, "the value of rope_parameters.rope_theta");
  }
  return theta;
}

std::string model_types() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  return fmt::format("{}", fmt::join(names, ", "));
}

const Family& family_of(const ConfigReader& config) {
  const json& value = config.require("model_type", model_types());
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(), [&value](const Family& candidate) {
    return value == candidate.model_type;
  });
  if (family == kFamilies.end()) config.refuse("model_type", value, model_types());
  return *family;
}

std::int64_t kv_heads_of(const ConfigReader& config, const Family& family, std::int64_t n_heads) {
  const bool takes_default = config.is_absent("num_key_value_heads") && family.n_kv_heads > 0;
  return config.integer_or("num_key_value_heads", takes_default ? family.n_kv_heads : n_heads);
}

std::int64_t head_dim_of(const ConfigReader& config, const Family& family, const Geometry& g) {
  if (config.find("head_dim") != nullptr) return config.integer_or("head_dim", 0);
  if (family.head_dim > 0) {
    if (config.is_absent("head_dim")) return family.head_dim;
    config.refuse("head_dim", nullptr, fmt::format("an integer, or absent for {}", family.head_dim));
  }
  if (g.d_model % g.n_heads != 0) {
    config.refuse("head_dim", nullptr,
                  fmt::format("a value, because hidden_size {} is no multiple of num_attention_heads {}",
                              g.d_model, g.n_heads));
  }
  return g.d_model / g.n_heads;
}

Geometry geometry_of(const ConfigReader& config, const Family& family) {
  Geometry g;
  g.d_model = config.integer("hidden_size");
  g.n_layers = config.integer("num_hidden_layers");
  g.n_heads = config.integer("num_attention_heads");
  g.n_kv_heads = kv_heads_of(config, family, g.n_heads);
  g.head_dim = head_dim_of(config, family, g);
  g.ffn = config.integer("intermediate_size");
  g.vocab = config.integer("vocab_size");
  g.norm_eps = config.number_within("rms_norm_eps", 1e-12, 1.0, kDefaultNormEps);
  g.rope = Rope::half;
  g.rope_theta = rope_theta_of(config);
  g.tied = config.boolean_or("tie_word_embeddings", kDefaultTied);
  g.qkv_bias = family.qkv_bias;
  g.qk_norm = family.qk_norm;
  return g;
}

}  // namespace

HuggingFaceConfig parse_config(std::string_view text, const std::string& origin) {
  const json document = parse_json_object<InvalidCheckpoint>(text, origin, kMaxConfigBytes);
  const ConfigReader reader(document, origin);
  HuggingFaceConfig config;
  const Family& family = family_of(reader);
  config.model_type = family.model_type;
  require_architecture(reader, family);
  require_neutral_fields(reader, family);
  require_no_sliding_window(reader, document, family.model_type);
  require_known_fields(reader, document);
  require_dtype_names(reader);
  config.geometry = geometry_of(reader, family);
  require_full_attention(reader, config.geometry.n_layers);
  require_tokens(reader, config.geometry.vocab);
  config.max_positions = reader.integer_or("max_position_embeddings", family.max_positions);
  try {
    validate(config.geometry);
  } catch (const InvalidInput& error) {
    throw InvalidCheckpoint(fmt::format("{}: {}", origin, error.what()));
  }
  return config;
}

}  // namespace shardcheck
