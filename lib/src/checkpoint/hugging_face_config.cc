// config.json: what it must say, what it may not say.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "checkpoint/limits.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kModelTypes = {"llama", "mistral", "qwen2", "qwen3"};
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;

/// A field that changes the function unless it is absent, null or one of `allowed` (a JSON array).
struct NeutralField {
  const char* name;
  const char* allowed;
};

// Fields of transformers configurations, of these families or of relatives that reuse their model_type.
constexpr NeutralField kNeutralFields[] = {
    {"hidden_act", R"(["silu"])"},
    {"hidden_activation", R"(["silu"])"},
    // In llama and qwen3 it adds a bias to o_proj as well.
    {"attention_bias", "[false]"},
    {"attention_out_bias", "[false]"},
    {"mlp_bias", "[false]"},
    {"use_bias", "[false]"},
    // Positions.
    {"rope_scaling", "[]"},
    {"partial_rotary_factor", "[1]"},
    {"rotary_pct", "[1]"},
    {"rope_interleave", "[false]"},
    {"rope_interleaved", "[false]"},
    {"rope_local_base_freq", "[]"},
    {"no_rope_layers", "[[]]"},
    {"no_rope_layer_interval", "[0]"},
    {"alibi", "[false]"},
    {"use_alibi", "[false]"},
    // Attention.
    {"use_sliding_window", "[false]"},
    {"sliding_window_pattern", "[]"},
    {"attention_chunk_size", "[]"},
    {"attn_logit_softcapping", "[]"},
    {"final_logit_softcapping", "[]"},
    {"logit_softcapping", "[]"},
    {"query_pre_attn_scalar", "[]"},
    {"attn_temperature_tuning", "[false]"},
    {"clip_qkv", "[]"},
    {"use_qk_norm", "[false]"},
    {"qk_layernorm", "[false]"},
    {"is_causal", "[true]"},
    {"use_bidirectional_attention", "[false]"},
    {"add_cross_attention", "[false]"},
    {"is_encoder_decoder", "[false]"},
    {"pruned_heads", "[{}]"},
    // Scales.
    {"attention_multiplier", "[]"},
    {"embedding_multiplier", "[1]"},
    {"residual_multiplier", "[1]"},
    {"logits_scaling", "[1]"},
    {"logit_scale", "[1]"},
    {"scale_emb", "[1]"},
    {"scale_depth", "[]"},
    {"dim_model_base", "[]"},
    // Structure.
    {"num_experts", "[0]"},
    {"num_local_experts", "[0]"},
    {"n_routed_experts", "[0]"},
    {"num_nextn_predict_layers", "[0]"},
    {"parallel_attn", "[false]"},
    {"use_parallel_residual", "[false]"},
    {"pretraining_tp", "[1]"},
    {"quantization_config", "[]"},
    {"compression_config", "[]"},
    {"text_config", "[]"},
    {"vision_config", "[]"},
    {"auto_map", "[]"},
};

class ConfigReader {
 public:
  ConfigReader(const json& document, std::string where) : document_(document), where_(std::move(where)) {}

  /// nullptr when absent or null: transformers treats the two alike.
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

  double number(const char* field) const { return number(field, require(field, "a number above 0")); }
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

void require_neutral_fields(const ConfigReader& config) {
  for (const NeutralField& field : kNeutralFields) {
    const json* value = config.find(field.name);
    if (value == nullptr) continue;
    const json allowed = json::parse(field.allowed);
    const bool neutral = std::find(allowed.begin(), allowed.end(), *value) != allowed.end();
    if (!neutral) config.refuse(field.name, *value, neutral_text(allowed));
  }
}

/// Qwen records a window that use_sliding_window switches; Mistral's is in use unless it is null, and 4096
/// when the field is absent (transformers, configuration_mistral.py).
void require_no_sliding_window(const ConfigReader& config, const json& document,
                               const std::string& model_type) {
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
  constexpr double kDefault = 10000.0;
  const json* top = config.find("rope_theta");
  const json* parameters = config.find("rope_parameters");
  if (parameters == nullptr) return top == nullptr ? kDefault : config.number("rope_theta", *top);
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
  if (inner == parameters->end()) return top == nullptr ? kDefault : config.number("rope_theta", *top);
  const double theta = config.number("rope_parameters.rope_theta", *inner);
  if (top != nullptr && config.number("rope_theta", *top) != theta) {
    config.refuse("rope_theta", *top, "the value of rope_parameters.rope_theta");
  }
  return theta;
}

std::string model_type_of(const ConfigReader& config) {
  const std::string allowed = fmt::format("{}", fmt::join(kModelTypes, ", "));
  const json& value = config.require("model_type", allowed);
  const bool known = value.is_string() && std::find(kModelTypes.begin(), kModelTypes.end(),
                                                    value.get_ref<const std::string&>()) != kModelTypes.end();
  if (!known) config.refuse("model_type", value, allowed);
  return value.get<std::string>();
}

std::int64_t default_head_dim(const ConfigReader& config, const Geometry& g) {
  if (config.find("head_dim") == nullptr && g.d_model % g.n_heads != 0) {
    config.refuse("head_dim", nullptr,
                  fmt::format("a value, because hidden_size {} is no multiple of num_attention_heads {}",
                              g.d_model, g.n_heads));
  }
  return std::max<std::int64_t>(1, g.d_model / g.n_heads);
}

Geometry geometry_of(const ConfigReader& config, const std::string& model_type) {
  Geometry g;
  g.d_model = config.integer("hidden_size");
  g.n_layers = config.integer("num_hidden_layers");
  g.n_heads = config.integer("num_attention_heads");
  g.n_kv_heads = config.integer_or("num_key_value_heads", g.n_heads);
  g.head_dim = config.integer_or("head_dim", default_head_dim(config, g));
  g.ffn = config.integer("intermediate_size");
  g.vocab = config.integer("vocab_size");
  g.norm_eps = config.number("rms_norm_eps");
  g.rope = Rope::half;
  g.rope_theta = rope_theta_of(config);
  g.tied = config.boolean_or("tie_word_embeddings", false);
  g.qkv_bias = model_type == "qwen2";
  g.qk_norm = model_type == "qwen3";
  return g;
}

}  // namespace

HuggingFaceConfig parse_config(std::string_view text, const std::string& origin) {
  const json document = parse_json_object<InvalidCheckpoint>(text, origin, kMaxConfigBytes);
  const ConfigReader reader(document, origin);
  HuggingFaceConfig config;
  config.model_type = model_type_of(reader);
  require_neutral_fields(reader);
  require_no_sliding_window(reader, document, config.model_type);
  config.geometry = geometry_of(reader, config.model_type);
  require_full_attention(reader, config.geometry.n_layers);
  config.max_positions = reader.integer_or("max_position_embeddings", 0);
  try {
    validate(config.geometry);
  } catch (const InvalidInput& error) {
    throw InvalidCheckpoint(fmt::format("{}: {}", origin, error.what()));
  }
  return config;
}

}  // namespace shardcheck
