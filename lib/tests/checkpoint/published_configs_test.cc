// config.json of models that many people load, as published.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "checkpoint_fixture.h"
#include "shardcheck/checkpoint/hugging_face.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using nlohmann::json;
using ::testing::HasSubstr;

HuggingFaceConfig published(const std::string& text) { return parse_config(text, "dir/config.json"); }

constexpr const char* kLlama3 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0",
  "use_cache": true, "vocab_size": 128256})";

constexpr const char* kLlama2 = R"({
  "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16",
  "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})";

constexpr const char* kMistral = R"({
  "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})";

constexpr const char* kQwen25 = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
  "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
  "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
  "use_sliding_window": false, "vocab_size": 152064})";

constexpr const char* kQwen3 = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
  "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
  "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
  "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";

TEST(PublishedConfig, ModelsAreRead) {
  const Geometry llama3 = published(kLlama3).geometry;
  EXPECT_EQ(llama3.n_kv_heads, 8);
  EXPECT_EQ(llama3.rope_theta, 500000.0);
  EXPECT_EQ(llama3.head_dim, 128);
  EXPECT_EQ(published(kLlama2).geometry.rope_theta, 10000.0);
  EXPECT_EQ(published(kLlama2).max_positions, 4096);
  const Geometry qwen25 = published(kQwen25).geometry;
  EXPECT_TRUE(qwen25.qkv_bias);
  EXPECT_EQ(qwen25.head_dim, 128);
  const Geometry qwen3 = published(kQwen3).geometry;
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.n_layers, 36);
}

TEST(PublishedConfig, ModelsWithAnotherFunctionAreRefused) {
  EXPECT_THAT(refusal<InvalidCheckpoint>([] { published(kMistral); }), HasSubstr("sliding_window is 4096"));
  json without_window = json::parse(kMistral);
  without_window["sliding_window"] = nullptr;  // as published from version 0.2 on
  EXPECT_EQ(published(without_window.dump()).geometry.n_kv_heads, 8);
  json llama31 = json::parse(kLlama3);
  llama31["rope_scaling"] = {{"factor", 8.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192},
                             {"rope_type", "llama3"}};
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { published(llama31.dump()); }), HasSubstr("rope_scaling"));
  json windowed = json::parse(kQwen25);
  windowed["use_sliding_window"] = true;
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { published(windowed.dump()); }),
              HasSubstr("use_sliding_window"));
}

}  // namespace
}  // namespace shardcheck
