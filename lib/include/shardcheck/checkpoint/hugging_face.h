// A Hugging Face checkpoint folder: config.json, model.safetensors or a sharded index, Llama-family names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// What config.json says. Supported model_type: llama, mistral, qwen2, qwen3; architectures, where present,
/// must be the ForCausalLM class of that type.
struct HuggingFaceConfig {
  Geometry geometry;
  std::string model_type;
  /// Where max_position_embeddings is absent, what transformers takes: llama 2048, mistral 131072, qwen2 and
  /// qwen3 32768.
  std::int64_t max_positions = 0;
};

/// Absent fields take the defaults of the model_type's configuration class in transformers
/// (num_key_value_heads 8 in mistral and 32 in qwen, head_dim 128 in qwen3, rms_norm_eps 1e-6, ...). Refuses
/// by name: a missing required field; every field that is not known to leave the function as it is
/// (rope_scaling, sliding_window in use, hidden_act other than silu, a field nobody knows, ...), unless null;
/// rms_norm_eps outside 1e-12..1; bos_token_id or eos_token_id outside the vocabulary; a torch_dtype or dtype
/// that is no dtype name. The dtype named may differ from the stored one, which counts. Throws
/// InvalidCheckpoint.
HuggingFaceConfig parse_config(std::string_view json, const std::string& origin);

/// model.safetensors.index.json: tensor name -> file name. Refuses file names with a path separator or "..",
/// non-string entries, an empty map, and a metadata.total_size that is no integer from 0 (its value is not
/// compared: writers count tied copies differently). Throws InvalidCheckpoint.
std::map<std::string, std::string> parse_index(std::string_view json, const std::string& origin);

/// A folder's tensors under their names on disk. With an index: every name of the map must be in its file,
/// every tensor of every named file in the map (duplicates elsewhere are allowed when the index names the
/// authoritative copy). Without one: model.safetensors alone. Throws InvalidCheckpoint or IoError.
TensorMap load_tensors(const std::filesystem::path& folder);

/// Config and logical tensors of a Llama-family folder: names mapped through the hf-llama table at degree 1,
/// shapes checked, a tied head that is stored as well must equal the embedding. Missing and extra tensors are
/// named ("rotary_emb.inv_freq" buffers are ignored).
struct Checkpoint {
  HuggingFaceConfig config;
  TensorMap logical;
  DType dtype = DType::f32;
};
Checkpoint load_checkpoint(const std::filesystem::path& folder);

}  // namespace shardcheck
