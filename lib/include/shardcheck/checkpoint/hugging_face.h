// A Hugging Face checkpoint folder: config.json, model.safetensors or a sharded index, Llama-family names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// What config.json says. Fields that change the function and are not supported (rope_scaling, sliding_window
/// in use, hidden_act other than silu, attention_multiplier, ...) are refused by name; a missing required
/// field is named. Supported model_type: llama, mistral, qwen2, qwen3.
struct HuggingFaceConfig {
  Geometry geometry;
  std::string model_type;
  std::int64_t max_positions = 0;
};
HuggingFaceConfig parse_config(std::string_view json, const std::string& origin);

/// model.safetensors.index.json: tensor name -> file name. Refuses file names with a path separator or "..",
/// non-string entries, an empty map. Throws InvalidCheckpoint.
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
