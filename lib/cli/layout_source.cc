#include "layout_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/checkpoint/shard_folder.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kConfig = "config.json";
constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

Geometry with_experts() {
  Geometry g = toy();
  g.n_experts = 8, g.expert_ffn = 128;
  return g;
}

Geometry with_latent_attention() {
  Geometry g = with_experts();
  g.n_kv_heads = g.n_heads;
  g.shared_ffn = 128, g.dense_layers = 1, g.router_bias = true;
  g.q_lora = 96, g.kv_lora = 64, g.nope_dim = 32, g.rope_dim = 16, g.v_dim = 32;
  return g;
}

Geometry with_layer_norms() {
  Geometry g = toy();
  g.n_kv_heads = g.n_heads;
  g.norm = Norm::layer, g.gated = false;
  g.mlp_bias = g.qkv_bias = g.o_bias = true;
  return g;
}

Geometry with_positions() {
  Geometry g = with_layer_norms();
  g.positions = 1024, g.tied = true;
  return g;
}

bool takes(const LayoutTable& table, const Geometry& geometry) {
  try {
    table.instantiate(geometry, 1);
    return true;
  } catch (const InvalidLayout&) {
    return false;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

std::set<std::string> file_names(const fs::path& folder) {
  std::set<std::string> names;
  if (fs::exists(folder / kIndex)) {
    for (const auto& [tensor, file] :
         parse_index(read_text(folder / kIndex, kMaxIndexBytes), (folder / kIndex).string())) {
      names.insert(file);
    }
    return names;
  }
  if (fs::exists(folder / kSingle)) return {kSingle};
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    if (file.path().extension() == ".safetensors") names.insert(file.path().filename().string());
  }
  return names;
}

void read_config(const fs::path& folder, TensorFolder& result) {
  if (!fs::exists(folder / kConfig)) return;
  try {
    result.geometry = parse_config(read_text(folder / kConfig, kMaxConfigBytes), kConfig).geometry;
    result.geometry_source = kConfig;
  } catch (const InvalidCheckpoint& error) {
    result.geometry_source = fmt::format("the shapes ({})", error.what());
  }
}

/// The record says how many there are.
void require_rank_files(const fs::path& folder, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = shard_file_name(rank, ranks);
    if (!fs::exists(folder / name))
      throw InvalidCheckpoint(
          fmt::format("{}: missing rank file {}, one of {}", folder.string(), name, ranks));
  }
}

}  // namespace

Geometry example_geometry(const LayoutTable& table) {
  for (const Geometry& geometry :
       {toy(), with_experts(), with_latent_attention(), with_positions(), with_layer_norms()}) {
    if (takes(table, geometry)) return geometry;
  }
  return toy();
}

TensorFolder read_tensor_folder(const fs::path& folder) {
  const auto info = read_shard_folder_info(folder);
  if (info) require_rank_files(folder, info->layout.mesh().size());
  TensorFolder result;
  for (const std::string& name : file_names(folder)) {
    FileTensors file{name, {}};
    const SafetensorsFile opened(folder / name);
    for (const SafetensorsEntry& entry : opened.header().entries) {
      file.shapes.emplace(entry.name, entry.shape);
    }
    result.files.push_back(std::move(file));
  }
  if (result.files.empty()) throw InvalidInput(fmt::format("{}: holds no *.safetensors", folder.string()));
  result.geometry_source = "the shapes";
  if (info) {
    result.recorded = info->layout;
    result.geometry = info->geometry;
    if (info->geometry) result.geometry_source = "shardcheck.json";
  }
  if (!result.geometry) read_config(folder, result);
  return result;
}

}  // namespace shardcheck
