#include "shardcheck/checkpoint/hugging_face.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint_fixture.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The least a config.json may say, for `small_geometry()`.
json minimal_config(const std::string& model_type = "llama") {
  json config = {{"model_type", model_type}, {"hidden_size", 24},        {"num_hidden_layers", 2},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"intermediate_size", 20},
                 {"vocab_size", 36},         {"rms_norm_eps", 1e-5}};
  if (model_type == "mistral") config["sliding_window"] = nullptr;
  if (model_type == "qwen3") config["head_dim"] = 6;
  return config;
}

HuggingFaceConfig parse(const json& config) { return parse_config(config.dump(), "dir/config.json"); }

TEST(Config, MinimalLlamaHasTheDocumentedDefaults) {
  const HuggingFaceConfig config = parse(minimal_config());
  EXPECT_EQ(config.geometry, small_geometry());
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.max_positions, 2048);
}

TEST(Config, EveryFieldReachesTheGeometry) {
  json document = minimal_config();
  document.update({{"head_dim", 10},
                   {"num_key_value_heads", 4},
                   {"rope_theta", 500000},
                   {"tie_word_embeddings", true},
                   {"max_position_embeddings", 2048}});
  const HuggingFaceConfig config = parse(document);
  Geometry expected = small_geometry();
  expected.head_dim = 10;
  expected.n_kv_heads = 4;
  expected.rope_theta = 500000.0;
  expected.tied = true;
  EXPECT_EQ(config.geometry, expected);
  EXPECT_EQ(config.max_positions, 2048);
}

TEST(Config, NullMeansAbsent) {
  json document = minimal_config();
  for (const char* field :
       {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rope_parameters",
        "tie_word_embeddings", "max_position_embeddings", "layer_types", "hidden_act"}) {
    document[field] = nullptr;
  }
  Geometry expected = small_geometry();
  expected.n_kv_heads = expected.n_heads;
  EXPECT_EQ(parse(document).geometry, expected);
}

TEST(Config, FamiliesDifferInBiasAndNorm) {
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Geometry geometry = parse(minimal_config(type)).geometry;
    EXPECT_EQ(geometry.qkv_bias, type == "qwen2") << type;
    EXPECT_EQ(geometry.qk_norm, type == "qwen3") << type;
    EXPECT_EQ(geometry.rope, Rope::half) << type;
    EXPECT_FALSE(geometry.tied) << type;
  }
}

TEST(Config, AbsentMaxPositionsAreThoseOfTheFamily) {
  const auto positions = [](const std::string& type) { return parse(minimal_config(type)).max_positions; };
  EXPECT_EQ(positions("llama"), 2048);
  EXPECT_EQ(positions("mistral"), 131072);
  EXPECT_EQ(positions("qwen2"), 32768);
  EXPECT_EQ(positions("qwen3"), 32768);
}

TEST(Config, ArchitecturesMustBeTheClassOfTheModelType) {
  const std::map<std::string, std::string> classes = {{"llama", "LlamaForCausalLM"},
                                                      {"mistral", "MistralForCausalLM"},
                                                      {"qwen2", "Qwen2ForCausalLM"},
                                                      {"qwen3", "Qwen3ForCausalLM"}};
  for (const auto& [type, own] : classes) {
    for (const auto& [other, name] : classes) {
      json document = minimal_config(type);
      document["architectures"] = json::array({name});
      if (type == other) {
        EXPECT_EQ(parse(document).model_type, type);
      } else {
        EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }),
                    AllOf(HasSubstr("architectures"), HasSubstr(name), HasSubstr(own)));
      }
    }
  }
}

TEST(Config, BiasAndNormFlagsMustSayWhatTheFamilyHas) {
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Geometry geometry = parse(minimal_config(type)).geometry;
    for (const auto& [field, has] :
         {std::pair("qk_norm", geometry.qk_norm), std::pair("use_qk_norm", geometry.qk_norm),
          std::pair("qkv_bias", geometry.qkv_bias), std::pair("use_qkv_bias", geometry.qkv_bias)}) {
      json document = minimal_config(type);
      document[field] = has;
      EXPECT_EQ(parse(document).geometry, geometry) << type;
      document[field] = !has;
      EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }), HasSubstr(field)) << type;
    }
  }
}

TEST(Config, TheNamedDtypeIsCheckedForItsTypeAlone) {
  for (const char* field : {"torch_dtype", "dtype"}) {
    for (const char* name : {"float32", "bfloat16", "float16", "torch.float16", "auto"}) {
      json document = minimal_config();
      document[field] = name;
      EXPECT_EQ(parse(document).geometry, small_geometry()) << field << " " << name;
    }
  }
}

TEST(Config, TokenNumbersInTheVocabularyAreAccepted) {
  for (const char* eos : {"0", "35", "[]", "[0,35]", "null"}) {
    json document = minimal_config();
    document.update({{"bos_token_id", 35}, {"pad_token_id", -1}, {"eos_token_id", json::parse(eos)}});
    EXPECT_EQ(parse(document).geometry, small_geometry()) << eos;
  }
}

TEST(Config, NormEpsilonMayBeAtEitherEndOfItsRange) {
  for (const double eps : {1e-12, 1.0}) {
    json document = minimal_config();
    document["rms_norm_eps"] = eps;
    EXPECT_EQ(parse(document).geometry.norm_eps, eps);
  }
}

TEST(Config, RopeParametersOfTransformersFive) {
  json document = minimal_config();
  document["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_EQ(parse(document).geometry.rope_theta, 1e6);
  document["rope_theta"] = 1000000;
  EXPECT_EQ(parse(document).geometry.rope_theta, 1e6);
  document["rope_parameters"].erase("rope_theta");
  document["rope_theta"] = 77;
  EXPECT_EQ(parse(document).geometry.rope_theta, 77.0);
}

TEST(Config, FieldsThatDoNotChangeTheFunctionAreIgnored) {
  json document = minimal_config("qwen2");
  document.update({{"architectures", {"Qwen2ForCausalLM"}},
                   {"bos_token_id", 1},
                   {"eos_token_id", {2, 3}},
                   {"torch_dtype", "bfloat16"},
                   {"attention_dropout", 0.1},
                   {"initializer_range", 0.02},
                   {"use_cache", true},
                   {"transformers_version", "4.50.0"},
                   {"sliding_window", 131072},
                   {"max_window_layers", 28},
                   {"temperature", 0.6},
                   {"some_future_field", nullptr}});
  EXPECT_TRUE(parse(document).geometry.qkv_bias);
}

TEST(Config, NeutralValuesOfUnsupportedFieldsAreAccepted) {
  json document = minimal_config();
  document.update({{"attention_bias", false},
                   {"mlp_bias", false},
                   {"hidden_act", "silu"},
                   {"rope_scaling", nullptr},
                   {"partial_rotary_factor", 1.0},
                   {"pretraining_tp", 1},
                   {"use_sliding_window", false},
                   {"embedding_multiplier", 1.0},
                   {"num_local_experts", 0},
                   {"pruned_heads", json::object()},
                   {"layer_types", {"full_attention", "full_attention"}},
                   {"quantization_config", nullptr}});
  EXPECT_EQ(parse(document).geometry, small_geometry());
}

// The fields the classes of transformers take for what a file leaves out.
TEST(Config, AbsentFieldsTakeTheDefaultsOfTheFamily) {
  struct Row {
    const char* type;
    std::int64_t n_kv_heads, head_dim;
  };
  for (const Row& row :
       {Row{"llama", 64, 4}, Row{"mistral", 8, 4}, Row{"qwen2", 32, 4}, Row{"qwen3", 32, 128}}) {
    json document = minimal_config(row.type);
    document.update({{"hidden_size", 256}, {"num_attention_heads", 64}});
    for (const char* field : {"num_key_value_heads", "rms_norm_eps", "head_dim"}) document.erase(field);
    const Geometry geometry = parse(document).geometry;
    EXPECT_EQ(geometry.n_kv_heads, row.n_kv_heads) << row.type;
    EXPECT_EQ(geometry.head_dim, row.head_dim) << row.type;
    EXPECT_EQ(geometry.norm_eps, 1e-6) << row.type;
    EXPECT_EQ(geometry.rope_theta, 10000.0) << row.type;
    EXPECT_FALSE(geometry.tied) << row.type;
    // Null is not absent: it stands for one KV head per head.
    document["num_key_value_heads"] = nullptr;
    EXPECT_EQ(parse(document).geometry.n_kv_heads, 64) << row.type;
  }
}

TEST(Config, NullIsRefusedWhereTransformersCannotUseIt) {
  json document = minimal_config("qwen3");
  document["head_dim"] = nullptr;
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }),
              AllOf(HasSubstr("head_dim"), HasSubstr("128")));
  document = minimal_config();
  document["rms_norm_eps"] = nullptr;
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }),
              AllOf(HasSubstr("rms_norm_eps is null"), HasSubstr("1e-06")));
}

// Whatever a file from elsewhere says, it is refused rather than ignored.
TEST(Config, AFieldNobodyKnowsIsRefusedByName) {
  for (const char* value : {"true", "false", "0", "1", R"("x")", "[]", R"({"nested":true})"}) {
    json document = minimal_config();
    document["hyper_attention"] = json::parse(value);
    EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }),
                AllOf(HasSubstr("dir/config.json"), HasSubstr("hyper_attention"), HasSubstr("not known")));
  }
}

struct BadField {
  const char* model_type;
  const char* field;
  const char* value;  // JSON
  const char* allowed;
};

void PrintTo(const BadField& bad, std::ostream* out) { *out << bad.field << "=" << bad.value; }

class ConfigRefuses : public ::testing::TestWithParam<BadField> {};

TEST_P(ConfigRefuses, TheFieldByNameWithItsValueAndWhatIsAllowed) {
  const BadField& bad = GetParam();
  json document = minimal_config(bad.model_type);
  document[bad.field] = json::parse(bad.value);
  const auto message = refusal<InvalidCheckpoint>([&] { parse(document); });
  const std::string value = json::parse(bad.value).is_string() ? json::parse(bad.value).get<std::string>()
                                                               : json::parse(bad.value).dump();
  EXPECT_THAT(message, AllOf(HasSubstr("dir/config.json"), HasSubstr(bad.field),
                             HasSubstr(value.substr(0, 40)), HasSubstr("allowed"), HasSubstr(bad.allowed)));
}

INSTANTIATE_TEST_SUITE_P(
    FunctionChangingFields, ConfigRefuses,
    ::testing::Values(
        BadField{"llama", "rope_scaling", R"({"rope_type":"llama3","factor":8.0})", "null"},
        BadField{"llama", "rope_scaling", R"({"type":"linear","factor":2.0})", "null"},
        BadField{"llama", "hidden_act", R"("gelu")", "silu"},
        BadField{"llama", "hidden_act", R"("relu")", "silu"},
        BadField{"llama", "hidden_activation", R"("gelu_pytorch_tanh")", "silu"},
        BadField{"llama", "attention_bias", "true", "false"},
        BadField{"qwen3", "attention_bias", "true", "false"},
        BadField{"qwen2", "attention_bias", "true", "false"},
        BadField{"llama", "attention_bias", "1", "false"}, BadField{"llama", "mlp_bias", "true", "false"},
        BadField{"llama", "partial_rotary_factor", "0.5", "1"}, BadField{"llama", "rotary_pct", "0.25", "1"},
        BadField{"llama", "rope_interleave", "true", "false"},
        BadField{"llama", "no_rope_layers", "[1,1,1,0]", "[]"}, BadField{"llama", "pretraining_tp", "2", "1"},
        BadField{"mistral", "sliding_window", "4096", "null"},
        BadField{"llama", "sliding_window", "4096", "null"},
        BadField{"qwen2", "use_sliding_window", "true", "false"},
        BadField{"qwen3", "use_sliding_window", "true", "false"},
        BadField{"llama", "attention_chunk_size", "8192", "null"},
        BadField{"llama", "attn_logit_softcapping", "50.0", "null"},
        BadField{"llama", "final_logit_softcapping", "30.0", "null"},
        BadField{"llama", "query_pre_attn_scalar", "256", "null"},
        BadField{"llama", "clip_qkv", "8.0", "null"}, BadField{"llama", "is_causal", "false", "true"},
        BadField{"llama", "use_bidirectional_attention", "true", "false"},
        BadField{"llama", "pruned_heads", R"({"0":[1]})", "{}"},
        BadField{"llama", "attention_multiplier", "0.0078125", "null"},
        BadField{"llama", "embedding_multiplier", "12.0", "1"},
        BadField{"llama", "residual_multiplier", "0.22", "1"},
        BadField{"llama", "logits_scaling", "8.0", "1"}, BadField{"llama", "num_experts", "8", "0"},
        BadField{"llama", "num_local_experts", "8", "0"},
        BadField{"llama", "quantization_config", R"({"quant_method":"gptq"})", "null"},
        BadField{"llama", "compression_config", R"({"format":"dense"})", "null"},
        BadField{"llama", "text_config", R"({"hidden_size":24})", "null"},
        BadField{"llama", "auto_map", R"({"AutoModelForCausalLM":"m.M"})", "null"}));

INSTANTIATE_TEST_SUITE_P(
    FieldsOfRelatives, ConfigRefuses,
    ::testing::Values(
        BadField{"llama", "norm_type", R"("layernorm")", "rmsnorm"},
        BadField{"llama", "lm_head_bias", "true", "false"},
        BadField{"llama", "add_bias_linear", "true", "false"}, BadField{"llama", "bias", "true", "false"},
        BadField{"llama", "no_bias", "false", "true"}, BadField{"llama", "rmsnorm", "false", "true"},
        BadField{"llama", "apply_layernorm_1p", "true", "false"},
        BadField{"llama", "position_embedding_type", R"("nope")", "rope"},
        BadField{"llama", "use_rope", "false", "true"}, BadField{"llama", "rope_ratio", "2.0", "1"},
        BadField{"llama", "rotary_dim", "4", "null"},
        BadField{"qwen2", "dual_chunk_attention_config", R"({"chunk_size":262144})", "null"},
        BadField{"llama", "attention_sinks", "true", "false"},
        BadField{"qwen3", "headwise_attn_output_gate", "true", "false"},
        BadField{"qwen3", "elementwise_attn_output_gate", "true", "false"},
        BadField{"llama", "lm_head_multiplier", "0.5", "1"},
        BadField{"llama", "num_kv_shared_layers", "1", "0"}, BadField{"llama", "swiglu_limit", "7.0", "null"},
        BadField{"llama", "block_configs", R"([{"attention":{}}])", "null"}));

INSTANTIATE_TEST_SUITE_P(
    Labels, ConfigRefuses,
    ::testing::Values(BadField{"llama", "architectures", R"(["GPT2"])", "LlamaForCausalLM"},
                      BadField{"llama", "architectures", "[]", "LlamaForCausalLM"},
                      BadField{"llama", "architectures", R"("LlamaForCausalLM")", "LlamaForCausalLM"},
                      BadField{"llama", "architectures", R"(["LlamaModel"])", "LlamaForCausalLM"},
                      BadField{"llama", "architectures", R"(["LlamaForCausalLM","X"])", "LlamaForCausalLM"},
                      BadField{"llama", "torch_dtype", "5", "float32"},
                      BadField{"llama", "torch_dtype", "[]", "float32"},
                      BadField{"llama", "dtype", R"("int7")", "float32"},
                      BadField{"llama", "bos_token_id", "-1", "0 to 35"},
                      BadField{"llama", "bos_token_id", "36", "0 to 35"},
                      BadField{"llama", "bos_token_id", "18446744073709551615", "0 to 35"},
                      BadField{"llama", "bos_token_id", "1.0", "0 to 35"},
                      BadField{"llama", "bos_token_id", "[1]", "0 to 35"},
                      BadField{"llama", "bos_token_id", "true", "0 to 35"},
                      BadField{"llama", "eos_token_id", "-1", "0 to 35"},
                      BadField{"llama", "eos_token_id", "[2,36]", "0 to 35"},
                      BadField{"llama", "eos_token_id", R"("2")", "0 to 35"}));

INSTANTIATE_TEST_SUITE_P(
    Positions, ConfigRefuses,
    ::testing::Values(
        BadField{"llama", "rope_parameters", R"({"rope_type":"yarn","rope_theta":1e6})", "default"},
        BadField{"llama", "rope_parameters", R"({"rope_theta":1000000})", "default"},
        BadField{"llama", "rope_parameters", "3", "default"},
        BadField{"llama", "rope_parameters", R"({"full_attention":{"rope_type":"default"}})", "default"},
        BadField{"llama", "rope_theta", "0", "above 0"}, BadField{"llama", "rope_theta", "-1.0", "above 0"},
        BadField{"llama", "rope_theta", R"("1e4")", "above 0"},
        BadField{"llama", "layer_types", R"(["full_attention"])", "2 times"},
        BadField{"llama", "layer_types", R"("full_attention")", "2 times"}));

INSTANTIATE_TEST_SUITE_P(
    Extents, ConfigRefuses,
    ::testing::Values(BadField{"llama", "model_type", R"("gpt2")", "llama, mistral, qwen2, qwen3"},
                      BadField{"llama", "model_type", "7", "llama"},
                      BadField{"llama", "hidden_size", "0", "from 1 to"},
                      BadField{"llama", "hidden_size", "-24", "from 1 to"},
                      BadField{"llama", "hidden_size", "24.0", "an integer"},
                      BadField{"llama", "hidden_size", R"("24")", "an integer"},
                      BadField{"llama", "hidden_size", "[24]", "an integer"},
                      BadField{"llama", "hidden_size", "true", "an integer"},
                      BadField{"llama", "hidden_size", "16777217", "16777216"},
                      BadField{"llama", "hidden_size", "18446744073709551615", "16777216"},
                      BadField{"llama", "vocab_size", "9223372036854775808", "16777216"},
                      BadField{"llama", "num_hidden_layers", "-9223372036854775808", "from 1 to"},
                      BadField{"llama", "intermediate_size", "1.5", "an integer"},
                      BadField{"llama", "num_attention_heads", "0", "from 1 to"},
                      BadField{"llama", "num_key_value_heads", "0", "from 1 to"},
                      BadField{"llama", "head_dim", "-6", "from 1 to"},
                      BadField{"llama", "max_position_embeddings", "0", "from 1 to"},
                      BadField{"llama", "rms_norm_eps", "0.0", "from 1e-12 to 1"},
                      BadField{"llama", "rms_norm_eps", "false", "from 1e-12 to 1"},
                      BadField{"llama", "rms_norm_eps", "-1e-6", "from 1e-12 to 1"},
                      BadField{"llama", "rms_norm_eps", "1e-320", "from 1e-12 to 1"},
                      BadField{"llama", "rms_norm_eps", "9e-13", "from 1e-12 to 1"},
                      BadField{"llama", "rms_norm_eps", "1.5", "from 1e-12 to 1"},
                      BadField{"llama", "tie_word_embeddings", "1", "true, false"}));

TEST(Config, ContradictionsAreRefusedByTheGeometry) {
  const auto message_with = [](const char* field, std::int64_t value) {
    json document = minimal_config();
    document[field] = value;
    return refusal<InvalidCheckpoint>([&] { parse(document); });
  };
  EXPECT_THAT(message_with("num_key_value_heads", 3), AllOf(HasSubstr("dir/config.json"), HasSubstr("3")));
  EXPECT_THAT(message_with("num_hidden_layers", 100'000), HasSubstr("100000"));
  EXPECT_THAT(message_with("head_dim", 7), AllOf(HasSubstr("head_dim"), HasSubstr("7")));
  EXPECT_THAT(message_with("hidden_size", 26), AllOf(HasSubstr("head_dim"), HasSubstr("26"), HasSubstr("4")));
}

TEST(Config, EveryLayerMustAttendToEveryPosition) {
  json document = minimal_config("qwen3");
  document["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }),
              AllOf(HasSubstr("layer_types[1] is 'sliding_attention'"), HasSubstr("full_attention")));
  document["layer_types"][1] = 1;
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }), HasSubstr("layer_types[1] is 1"));
}

TEST(Config, RopeThetaMayNotBeSaidTwiceDifferently) {
  json document = minimal_config();
  document["rope_theta"] = 10000.0;
  document["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }), HasSubstr("rope_theta"));
  document["rope_parameters"] = {{"rope_type", "default"}, {"factor", 2.0}};
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }), HasSubstr("rope_parameters.factor"));
}

// In transformers an absent sliding_window of a Mistral model is a window of 4096.
TEST(Config, MistralMustSayThatItHasNoWindow) {
  json document = minimal_config("mistral");
  document.erase("sliding_window");
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }), HasSubstr("sliding_window"));
}

TEST(Config, MissingFieldsAreNamed) {
  for (const char* field : {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "intermediate_size", "vocab_size"}) {
    json document = minimal_config();
    document.erase(field);
    EXPECT_THAT(refusal<InvalidCheckpoint>([&] { parse(document); }),
                AllOf(HasSubstr("dir/config.json"), HasSubstr(field), HasSubstr("missing")));
  }
}

TEST(Config, BrokenJsonIsRefused) {
  const auto message = [](const std::string& text) {
    return refusal<InvalidCheckpoint>([&] { parse_config(text, "dir/config.json"); });
  };
  EXPECT_THAT(message(""), AllOf(HasSubstr("dir/config.json"), HasSubstr("not valid JSON")));
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[1]"), HasSubstr("a JSON object"));
  EXPECT_THAT(message("null"), HasSubstr("a JSON object"));
  EXPECT_THAT(message(std::string("{}\0", 3)), HasSubstr("NUL"));
  EXPECT_THAT(message("{\"\xFF\":1}"), HasSubstr("UTF-8"));
  EXPECT_THAT(message(R"({"a":{"b":1,"b":2}})"), AllOf(HasSubstr("'b'"), HasSubstr("twice")));
  EXPECT_THAT(message(R"({"a":1e999})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(std::string(100'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(message("{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}"), HasSubstr("128"));
  EXPECT_THAT(message(std::string(5U << 20, ' ')), HasSubstr("4194304"));
  std::string many = "{\"a\":[0";
  for (int i = 0; i < 1'000'000; ++i) many += ",0";
  EXPECT_THAT(message(many + "]}"), HasSubstr("1000000 JSON values"));
}

TEST(Config, StoriesCheckpoint) {
  const fs::path file = stories_folder() / "config.json";
  const HuggingFaceConfig config = parse_config(read_text(file, 1 << 20), file.string());
  Geometry expected;
  expected.d_model = 64;
  expected.n_layers = 5;
  expected.n_heads = 8;
  expected.n_kv_heads = 4;
  expected.head_dim = 8;
  expected.ffn = 172;
  expected.vocab = 512;
  expected.norm_eps = 1e-5;
  expected.rope = Rope::half;
  expected.tied = true;
  EXPECT_EQ(config.geometry, expected);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.max_positions, 512);
}

std::string index_of(const json& weight_map) { return json{{"weight_map", weight_map}}.dump(); }

TEST(Index, MapsTensorsToFiles) {
  const json document = {{"metadata", {{"total_size", 12}}},
                         {"weight_map", {{"b", "x.safetensors"}, {"a", "..y.safetensors"}}}};
  EXPECT_EQ(parse_index(document.dump(), "i.json"),
            (std::map<std::string, std::string>{{"a", "..y.safetensors"}, {"b", "x.safetensors"}}));
}

TEST(Index, TotalSizeIsAnIntegerFromZeroOfAnyValue) {
  const auto index = [](const std::string& metadata) {
    return parse_index(R"({"weight_map":{"a":"x"},"metadata":)" + metadata + "}", "i.json");
  };
  for (const char* metadata : {"null", "{}", R"({"total_size":0})", R"({"total_size":18446744073709551615})",
                               R"({"total_size":1,"total_parameters":3})"}) {
    EXPECT_EQ(index(metadata).at("a"), "x") << metadata;
  }
  for (const char* size : {"-1", "1.5", R"("12")", "null", "[1]", "true"}) {
    EXPECT_THAT(refusal<InvalidCheckpoint>([&] { index(fmt::format(R"({{"total_size":{}}})", size)); }),
                AllOf(HasSubstr("i.json"), HasSubstr("metadata.total_size"), HasSubstr("an integer from 0")));
  }
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { index("[12]"); }), HasSubstr("metadata is [12]"));
}

TEST(Index, FileNamesCannotLeaveTheFolder) {
  for (const std::string name :
       {"../x", "/etc/passwd", "a/b", "a\\b", "..", ".", "", "./x", "a/..", "\\\\host"}) {
    EXPECT_THAT(
        refusal<InvalidCheckpoint>([&] {
          parse_index(index_of({{"t", name}}), "i.json");
        }),
        AllOf(HasSubstr("i.json"), HasSubstr("'t'"), HasSubstr("'" + name), HasSubstr("same folder")));
  }
  EXPECT_THAT(refusal<InvalidCheckpoint>(
                  [] { parse_index(R"({"weight_map":{"t":"a\u0000.safetensors"}})", "i.json"); }),
              HasSubstr("\\x00"));
}

TEST(Index, EntriesMustBeStringsAndTheMapMustHoldSome) {
  const auto message = [](const std::string& text) {
    return refusal<InvalidCheckpoint>([&] { parse_index(text, "i.json"); });
  };
  EXPECT_THAT(message("{}"), AllOf(HasSubstr("weight_map"), HasSubstr("missing")));
  EXPECT_THAT(message(index_of(json::object())), HasSubstr("empty"));
  EXPECT_THAT(message(index_of(json::array({"x"}))), HasSubstr("an object that maps"));
  EXPECT_THAT(message(index_of("x")), HasSubstr("'x'"));
  EXPECT_THAT(message(index_of({{"t", 1}})), AllOf(HasSubstr("'t'"), HasSubstr("1")));
  EXPECT_THAT(message(index_of({{"t", nullptr}})), HasSubstr("null"));
  EXPECT_THAT(message(R"({"weight_map":{"t":"x","t":"y"}})"), HasSubstr("twice"));
  EXPECT_THAT(message("{"), HasSubstr("not valid JSON"));
}

Tensor filled(DType dtype, const Shape& shape, unsigned char first) {
  Tensor tensor = Tensor::zeros(dtype, shape);
  for (std::byte& byte : tensor.mutable_bytes()) byte = std::byte{first++};
  return tensor;
}

constexpr const char* kIndex = "model.safetensors.index.json";

/// Two files, "a" in one, "b" in two, and the index that says so.
class TwoFiles : public ::testing::Test {
 protected:
  TwoFiles() {
    write_safetensors(folder_ / "one.safetensors", {{"a", filled(DType::u8, {2}, 1)}});
    write_safetensors(folder_ / "two.safetensors", {{"b", filled(DType::u8, {3}, 7)}});
    write_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  }

  void write_index(const json& weight_map) { write_file(folder_ / kIndex, index_of(weight_map)); }
  TensorMap load() { return load_tensors(folder_.path()); }
  std::string message() {
    return refusal<InvalidCheckpoint>([&] { load(); });
  }

  TemporaryFolder folder_;
};

TEST_F(TwoFiles, LoadAsOne) {
  const TensorMap tensors = load();
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_TRUE(tensors.at("a").same_bytes(filled(DType::u8, {2}, 1)));
  EXPECT_TRUE(tensors.at("b").same_bytes(filled(DType::u8, {3}, 7)));
}

TEST_F(TwoFiles, FilesOutsideTheIndexAreNotRead) {
  write_file(folder_ / "three.safetensors", "no safetensors file");
  EXPECT_EQ(load().size(), 2U);
}

TEST_F(TwoFiles, ANamedFileMustBeThere) {
  fs::remove(folder_ / "two.safetensors");
  EXPECT_THAT(message(), AllOf(HasSubstr("'two.safetensors'"), HasSubstr("missing")));
}

TEST_F(TwoFiles, ANamedTensorMustBeInItsFile) {
  write_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}, {"c", "one.safetensors"}});
  EXPECT_THAT(message(), AllOf(HasSubstr("'c'"), HasSubstr("'one.safetensors'")));
  write_index({{"a", "two.safetensors"}, {"b", "two.safetensors"}});
  EXPECT_THAT(message(), AllOf(HasSubstr("'a'"), HasSubstr("'two.safetensors'")));
}

TEST_F(TwoFiles, AStoredTensorMustBeInTheIndex) {
  write_safetensors(folder_ / "one.safetensors",
                    {{"a", filled(DType::u8, {2}, 1)}, {"stale", filled(DType::u8, {1}, 0)}});
  EXPECT_THAT(message(), AllOf(HasSubstr("stale in one.safetensors"), HasSubstr("not in the index")));
}

TEST_F(TwoFiles, TheIndexNamesTheCopyThatCounts) {
  write_safetensors(folder_ / "two.safetensors",
                    {{"a", filled(DType::u8, {2}, 100)}, {"b", filled(DType::u8, {3}, 7)}});
  EXPECT_TRUE(load().at("a").same_bytes(filled(DType::u8, {2}, 1)));
}

TEST_F(TwoFiles, ABrokenFileIsNamed) {
  write_file(folder_ / "two.safetensors", "short");
  EXPECT_THAT(message(), AllOf(HasSubstr("two.safetensors"), HasSubstr("5 bytes")));
}

/// A snapshot of the Hugging Face cache: every file is a link into a folder of blobs beside it.
TEST_F(TwoFiles, LinksIntoACacheOfBlobsAreFollowed) {
  const TemporaryFolder blobs;
  fs::rename(folder_ / "two.safetensors", blobs / "0123");
  fs::create_symlink("../" + blobs.path().filename().string() + "/0123", folder_ / "two.safetensors");
  EXPECT_EQ(load().size(), 2U);
}

TEST_F(TwoFiles, DanglingAndCircularLinksAreMissingFiles) {
  for (const char* target : {"nowhere", "two.safetensors"}) {
    fs::remove(folder_ / "two.safetensors");
    fs::create_symlink(target, folder_ / "two.safetensors");
    EXPECT_THAT(message(), AllOf(HasSubstr("'two.safetensors'"), HasSubstr("missing")));
  }
}

TEST_F(TwoFiles, LinksInsideTheFolderAndToItAreFollowed) {
  fs::create_directory(folder_ / "blobs");
  fs::rename(folder_ / "two.safetensors", folder_ / "blobs" / "0123");
  fs::create_symlink("blobs/0123", folder_ / "two.safetensors");
  EXPECT_EQ(load().size(), 2U);
  const TemporaryFolder elsewhere;
  fs::create_directory_symlink(folder_.path(), elsewhere / "model");
  EXPECT_EQ(load_tensors(elsewhere / "model").size(), 2U);
}

TEST(LoadTensors, WithoutAnIndexModelSafetensorsAloneCounts) {
  const TemporaryFolder folder;
  write_safetensors(folder / "other.safetensors", {{"x", filled(DType::u8, {1}, 0)}});
  EXPECT_THAT(refusal<IoError>([&] { load_tensors(folder.path()); }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr(kIndex)));
  write_safetensors(folder / "model.safetensors", {{"y", filled(DType::u8, {1}, 0)}});
  const TensorMap tensors = load_tensors(folder.path());
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors.begin()->first, "y");
}

TEST(LoadTensors, TheFolderMustBeOne) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  EXPECT_THAT(refusal<IoError>([&] { load_tensors(folder / "absent"); }), HasSubstr("no such folder"));
  EXPECT_THAT(refusal<IoError>([&] { load_tensors(folder / "file"); }), HasSubstr("not a folder"));
}

/// Names on disk, spelled out here on their own: the library takes them from its layout table.
std::string disk_name(const LogicalTensor& tensor) {
  static const std::map<std::string, std::string> kNames = {{"embed", "model.embed_tokens.weight"},
                                                            {"final_norm", "model.norm.weight"},
                                                            {"lm_head", "lm_head.weight"},
                                                            {"q", "self_attn.q_proj.weight"},
                                                            {"k", "self_attn.k_proj.weight"},
                                                            {"v", "self_attn.v_proj.weight"},
                                                            {"q_bias", "self_attn.q_proj.bias"},
                                                            {"k_bias", "self_attn.k_proj.bias"},
                                                            {"v_bias", "self_attn.v_proj.bias"},
                                                            {"o_proj", "self_attn.o_proj.weight"},
                                                            {"q_norm", "self_attn.q_norm.weight"},
                                                            {"k_norm", "self_attn.k_norm.weight"},
                                                            {"gate", "mlp.gate_proj.weight"},
                                                            {"up", "mlp.up_proj.weight"},
                                                            {"down", "mlp.down_proj.weight"},
                                                            {"attn_norm", "input_layernorm.weight"},
                                                            {"ffn_norm", "post_attention_layernorm.weight"}};
  const std::string& name = kNames.at(tensor.role);
  return tensor.layer < 0 ? name : fmt::format("model.layers.{}.{}", tensor.layer, name);
}

/// A checkpoint folder of a random model that a test then damages.
class ModelFolder : public ::testing::Test {
 protected:
  void write(const std::string& model_type, bool tied, DType dtype) {
    json document = minimal_config(model_type);
    document["tie_word_embeddings"] = tied;
    write_file(folder_ / "config.json", document.dump());
    const Geometry geometry = parse(document).geometry;
    logical_ = make_weights(geometry, WeightStyle::fingerprint, 1, dtype);
    stored_.clear();
    for (const LogicalTensor& tensor : logical_tensors(geometry)) {
      stored_[disk_name(tensor)] = logical_.at(tensor.name);
    }
    store();
  }

  void store() { write_safetensors(folder_ / "model.safetensors", stored_); }
  Checkpoint load() { return load_checkpoint(folder_.path()); }
  std::string message() {
    store();
    return refusal<InvalidInput>([&] { load(); });
  }

  TemporaryFolder folder_;
  TensorMap logical_, stored_;
};

TEST_F(ModelFolder, LoadsEveryFamilyAndDTypeByteForByte) {
  for (const std::string type : {"llama", "mistral", "qwen2", "qwen3"}) {
    for (const bool tied : {false, true}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        write(type, tied, dtype);
        const Checkpoint checkpoint = load();
        EXPECT_EQ(checkpoint.dtype, dtype);
        EXPECT_EQ(checkpoint.config.model_type, type);
        ASSERT_EQ(checkpoint.logical.size(), logical_.size());
        for (const auto& [name, tensor] : logical_) {
          EXPECT_TRUE(checkpoint.logical.at(name).same_bytes(tensor)) << type << " " << name;
        }
      }
    }
  }
}

TEST_F(ModelFolder, NamesMissingAndExtraTensors) {
  write("llama", false, DType::f32);
  stored_.erase("model.norm.weight");
  stored_.emplace("model.layers.2.mlp.up_proj.weight", Tensor::zeros(DType::f32, {20, 24}));
  EXPECT_THAT(message(), AllOf(HasSubstr("1 missing: 'model.norm.weight'"),
                               HasSubstr("1 extra: 'model.layers.2.mlp.up_proj.weight'")));
}

TEST_F(ModelFolder, NamesAtMostFiveOfMany) {
  write("qwen2", false, DType::f32);
  std::erase_if(stored_, [](const auto& item) { return item.first.ends_with(".bias"); });
  EXPECT_THAT(message(), AllOf(HasSubstr("6 missing"), HasSubstr("'model.layers.1.self_attn.k_proj.bias'"),
                               HasSubstr("and 1 more")));
}

TEST_F(ModelFolder, AnUntiedModelNeedsItsHead) {
  write("llama", false, DType::f32);
  stored_.erase("lm_head.weight");
  EXPECT_THAT(message(), HasSubstr("1 missing: 'lm_head.weight'"));
}

TEST_F(ModelFolder, AStoredTiedHeadMustBeTheEmbedding) {
  write("llama", true, DType::f32);
  Tensor head = stored_.at("model.embed_tokens.weight");
  stored_["lm_head.weight"] = head;
  store();
  EXPECT_FALSE(load().logical.contains("lm_head"));

  head.mutable_bytes().back() ^= std::byte{1};
  stored_["lm_head.weight"] = head;
  EXPECT_THAT(message(), AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("'model.embed_tokens.weight'")));
  stored_["lm_head.weight"] = stored_.at("model.embed_tokens.weight").to(DType::bf16);
  EXPECT_THAT(message(), HasSubstr("'lm_head.weight'"));
}

TEST_F(ModelFolder, RotaryBuffersAreIgnored) {
  write("llama", false, DType::f32);
  stored_["model.layers.0.self_attn.rotary_emb.inv_freq"] = Tensor::zeros(DType::f32, {3});
  stored_["model.rotary_emb.inv_freq"] = Tensor::zeros(DType::f32, {3});
  store();
  EXPECT_EQ(load().logical.size(), logical_.size());
}

TEST_F(ModelFolder, ShapesFollowTheConfig) {
  write("llama", false, DType::f32);
  stored_["model.layers.1.mlp.down_proj.weight"] = Tensor::zeros(DType::f32, {20, 24});
  EXPECT_THAT(message(), AllOf(HasSubstr("'model.layers.1.mlp.down_proj.weight'"), HasSubstr("[20, 24]"),
                               HasSubstr("[24, 20]")));
  write("llama", false, DType::f32);
  stored_["model.norm.weight"] = Tensor::zeros(DType::f32, {24, 1});
  EXPECT_THAT(message(), AllOf(HasSubstr("[24, 1]"), HasSubstr("[24]")));
}

TEST_F(ModelFolder, DTypesAreThoseAForwardPassReads) {
  write("llama", false, DType::bf16);
  stored_["model.layers.0.mlp.up_proj.weight"] = Tensor::zeros(DType::f8_e4m3, {20, 24});
  EXPECT_THAT(message(), AllOf(HasSubstr("'model.layers.0.mlp.up_proj.weight'"), HasSubstr("F8_E4M3"),
                               HasSubstr("F32, BF16 or F16")));
}

TEST_F(ModelFolder, MatricesShareOneDTypeAndNormsMayBeWider) {
  write("llama", false, DType::bf16);
  stored_["model.norm.weight"] = stored_.at("model.norm.weight").to(DType::f32);
  store();
  EXPECT_EQ(load().dtype, DType::bf16);
  EXPECT_EQ(load().logical.at("final_norm").dtype(), DType::f32);
  stored_["lm_head.weight"] = stored_.at("lm_head.weight").to(DType::f32);
  EXPECT_THAT(message(), AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("F32"), HasSubstr("BF16")));
}

TEST_F(ModelFolder, TheStoredDtypeCountsWhateverTheConfigNames) {
  write("llama", false, DType::bf16);
  json document = minimal_config();
  document["torch_dtype"] = "float32";
  write_file(folder_ / "config.json", document.dump());
  EXPECT_EQ(load().dtype, DType::bf16);
}

TEST_F(ModelFolder, TheConfigMustBeThere) {
  write("llama", false, DType::f32);
  fs::remove(folder_ / "config.json");
  EXPECT_THAT(refusal<IoError>([&] { load(); }), HasSubstr("config.json"));
}

TEST(LoadCheckpoint, StoriesHasTheLogicalTensorsOfItsGeometry) {
  const Checkpoint checkpoint = load_checkpoint(stories_folder());
  EXPECT_EQ(checkpoint.dtype, DType::f32);
  EXPECT_NO_THROW(require_weights_of(checkpoint.config.geometry, checkpoint.logical));
  const SafetensorsFile file(stories_folder() / "model.safetensors");
  ASSERT_EQ(checkpoint.logical.size(), file.header().entries.size());
  for (const LogicalTensor& tensor : logical_tensors(checkpoint.config.geometry)) {
    EXPECT_TRUE(checkpoint.logical.at(tensor.name).same_bytes(file.tensor(disk_name(tensor)))) << tensor.name;
  }
}

}  // namespace
}  // namespace shardcheck
