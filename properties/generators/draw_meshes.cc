// Cases over meshes: models of every family, and layouts of the tables that know them over several axes. None
// of these laws runs a forward pass, so the models are as small as their cuts allow.
#include <algorithm>
#include <string>
#include <vector>

#include "layout_probe.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

constexpr int kMaxRanks = 8;
constexpr int kTries = 12;

const std::vector<std::string> kLlamaTables = {
    "seed",           "hf-llama",         "hf-phi3",  "vllm-llama",       "megatron-llama",
    "megatron-llama", "torchtitan-llama", "fsdp2-tp", "deepspeed-autotp", "sglang-llama"};
const std::vector<std::string> kMoeTables = {"hf-moe", "vllm-moe", "megatron-moe", "megatron-moe", "seed"};
const std::vector<std::string> kLatentTables = {"hf-mla-moe", "vllm-mla-moe", "megatron-mla-moe",
                                                "sglang-mla-moe"};
const std::vector<std::string> kGpt2Tables = {"hf-gpt2", "seed"};
const std::vector<std::string> kNeoxTables = {"hf-neox", "seed"};

Geometry draw_llama(Stream& stream) {
  Geometry g;
  g.d_model = stream.integer(3, 16);
  g.n_layers = stream.pick<std::int64_t>({1, 2, 2, 3, 4, 4});
  g.n_kv_heads = stream.pick<std::int64_t>({1, 2, 2, 3, 4, 4});
  g.n_heads = g.n_kv_heads * stream.pick<std::int64_t>({1, 2, 2, 3, 4});
  g.head_dim = 2 * stream.integer(1, 3);
  g.ffn = 4 * stream.integer(1, 6);
  g.vocab = stream.chance(1, 2) ? 4 * stream.integer(2, 20) : stream.integer(5, 80);
  g.tied = stream.chance(1, 3);
  g.qkv_bias = stream.chance(1, 3);
  g.o_bias = stream.chance(1, 4);
  g.qk_norm = stream.chance(1, 3);
  return g;
}

void add_experts(Stream& stream, Geometry& g) {
  g.n_experts = stream.pick<std::int64_t>({2, 4, 4, 6, 8});
  g.expert_ffn = 4 * stream.integer(1, 3);
  g.shared_ffn = stream.chance(1, 2) ? 4 * stream.integer(1, 3) : 0;
  g.dense_layers = stream.chance(1, 2) ? stream.integer(0, g.n_layers - 1) : 0;
  g.router_bias = stream.chance(1, 2);
}

void make_latent(Stream& stream, Geometry& g) {
  g.qkv_bias = g.qk_norm = false;
  g.q_lora = stream.chance(3, 4) ? stream.integer(1, 6) : 0;
  g.kv_lora = stream.integer(1, 6);
  g.nope_dim = stream.integer(1, 4);
  g.rope_dim = 2 * stream.integer(1, 2);
  g.v_dim = stream.integer(1, 4);
}

void make_gpt(Stream& stream, Geometry& g, bool learned_positions) {
  g.n_kv_heads = g.n_heads;
  g.norm = Norm::layer;
  g.activation = learned_positions ? Activation::gelu_tanh : Activation::gelu;
  g.parallel_residual = !learned_positions;
  if (learned_positions) g.rope = Rope::none;
  g.gated = g.qk_norm = false;
  g.qkv_bias = g.o_bias = g.mlp_bias = true;
  g.positions = learned_positions ? stream.integer(1, 9) : 0;
}

/// A table over some of its axes in random order; the table alone when no draw can be represented.
LayoutName draw_layout(Stream& stream, const std::string& table, const Geometry& g) {
  std::vector<Axis> axes = LayoutTable::built_in(table).axes();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    stream.shuffle(std::span(axes));
    LayoutName name{table, {}};
    int ranks = 1;
    for (const Axis axis : axes) {
      const int degree = stream.pick<int>({1, 1, 2, 2, 3, 4, 8});
      // etp of degree 1 is a statement of its own: experts are not cut.
      const bool says_nothing = degree == 1 && axis != Axis::etp;
      if (says_nothing || ranks * degree > kMaxRanks || !stream.chance(2, 3)) continue;
      name.axes.emplace_back(to_string(axis), degree);
      ranks *= degree;
    }
    if (name.degree("pp") > 1 && stream.chance(1, 3)) {
      name.first_stage_layers = static_cast<int>(stream.integer(0, g.n_layers - 1));
      name.last_stage_layers = static_cast<int>(stream.integer(0, g.n_layers - 1));
    }
    if (is_representable(name, g)) return name;
  }
  return {table, {}};
}

}  // namespace

Case draw_mesh_case(Stream& stream, const DrawOptions& options) {
  Case c;
  c.geometry = draw_llama(stream);
  const std::vector<std::string>* tables = &kLlamaTables;
  switch (stream.pick<int>({0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4})) {
    case 1:
      tables = &kMoeTables;
      add_experts(stream, c.geometry);
      break;
    case 2:
      tables = &kLatentTables;
      add_experts(stream, c.geometry);
      make_latent(stream, c.geometry);
      break;
    case 3:
      tables = &kGpt2Tables;
      make_gpt(stream, c.geometry, true);
      break;
    case 4:
      tables = &kNeoxTables;
      make_gpt(stream, c.geometry, false);
      break;
    default:
      break;
  }
  c.source = draw_layout(stream, stream.pick(*tables), c.geometry);
  c.target = draw_layout(stream, stream.pick(*tables), c.geometry);
  if (options.three_layouts) c.via = draw_layout(stream, stream.pick(*tables), c.geometry);
  if (options.any_dtype) c.dtype = stream.pick<DType>({DType::f32, DType::f32, DType::bf16, DType::f16});
  c.seed = static_cast<std::uint64_t>(stream.integer(0, 999'999));
  return c;
}

}  // namespace shardcheck
