// Hugging Face folders with random weights, for the tests that run the program on them.
#pragma once

#include <nlohmann/json.hpp>

#include "program.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck::test {

/// config.json and model.safetensors of a Llama, whose weights are powered and drawn from `seed`.
inline void write_hugging_face(const std::filesystem::path& folder, const Geometry& geometry,
                               const nlohmann::json& config, std::uint64_t seed, DType dtype) {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", config.dump());
  const Layout names = LayoutTable::built_in("hf-llama").instantiate(geometry, 1);
  TensorMap tensors;
  for (const auto& [name, shards] : split(make_weights(geometry, WeightStyle::powered, seed, dtype), names))
    tensors.emplace(name, shards.at(0));
  write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace shardcheck::test
