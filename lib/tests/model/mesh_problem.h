// Models of every family with their weights and tokens, run over meshes, for the tests of this folder.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck::meshes {

struct Variant {
  std::string name;
  Geometry geometry;

  friend std::ostream& operator<<(std::ostream& out, const Variant& variant) { return out << variant.name; }
};

inline Geometry small_llama() {
  Geometry g;
  g.d_model = 20, g.n_layers = 4, g.n_heads = 4, g.n_kv_heads = 2, g.head_dim = 4, g.ffn = 24, g.vocab = 23;
  g.rope = Rope::half;
  g.qkv_bias = g.o_bias = g.qk_norm = true;
  return g;
}

inline Geometry small_gpt2() {
  Geometry g = small_llama();
  g.n_kv_heads = 4, g.rope = Rope::none, g.qk_norm = g.gated = false;
  g.norm = Norm::layer, g.activation = Activation::gelu_tanh, g.mlp_bias = g.tied = true, g.positions = 16;
  return g;
}

inline Geometry small_mixtral() {
  Geometry g = small_llama();
  g.qkv_bias = g.o_bias = g.qk_norm = false;
  g.n_experts = 4, g.expert_ffn = 12;
  return g;
}

inline Geometry small_deepseek() {
  Geometry g = small_mixtral();
  g.router_bias = true, g.experts_per_token = 3, g.shared_ffn = 8, g.dense_layers = 1;
  return g;
}

inline std::vector<Variant> variants() {
  const Geometry llama = small_llama(), gpt2 = small_gpt2();
  Geometry tied = llama;
  tied.tied = true;
  Geometry neox = gpt2;
  neox.activation = Activation::gelu, neox.rope = Rope::half, neox.positions = 0;
  neox.tied = false, neox.parallel_residual = true, neox.rotary_dim = 2;
  Geometry bloom = gpt2;
  bloom.alibi = true, bloom.positions = 0;
  Geometry sinks = llama;
  sinks.sinks = true, sinks.qk_norm = false;
  return {{"llama", llama},
          {"tied", tied},
          {"gpt2", gpt2},
          {"neox", neox},
          {"bloom", bloom},
          {"sinks", sinks},
          {"mixtral", small_mixtral()},
          {"deepseek", small_deepseek()}};
}

/// "pp2,cp2,tp2": axes outermost first; "" is one rank.
inline LayoutName layout_name(const std::string& axes, const std::string& table = "seed") {
  return parse_layout_name(axes.empty() ? table : table + ":" + axes);
}

/// Small blocks and leaves, so that cuts fall between several of them.
inline Contract small_contract(const Geometry& geometry, DType storage) {
  return contract_for(geometry, {.leaf = 4, .key_block = 4, .storage = storage});
}

/// A model over a mesh in this process, with the groups it needs.
struct MeshRun {
  std::unique_ptr<MeshGroups> groups;
  std::unique_ptr<ShardedModel> model;

  /// Bytes that all groups along an axis sent.
  std::int64_t bytes(Axis axis) const {
    std::int64_t sum = 0;
    for (const MeshGroups::Group& group : groups->along(axis)) sum += group.collective->traffic().bytes;
    return sum;
  }
};

struct Problem {
  explicit Problem(const Geometry& g, DType dtype = DType::f32, std::uint64_t seed = 1)
      : geometry(g),
        weights(make_weights(g, WeightStyle::powered, seed, dtype)),
        tokens(make_tokens(g, 2, 14, seed + 1)),
        contract(small_contract(g, dtype)) {}

  ReferenceModel reference(Arithmetic arithmetic) const {
    return ReferenceModel(geometry, weights, arithmetic, contract);
  }

  /// Logits of one sequence alone.
  Tensor reference_of(Arithmetic arithmetic, const std::vector<std::int32_t>& ids) const {
    return reference(arithmetic).forward({1, std::ssize(ids), ids});
  }

  ShardedTensors shards(const std::string& axes, const std::string& table = "seed") const {
    return split(weights, layout(axes, table));
  }

  Layout layout(const std::string& axes, const std::string& table = "seed") const {
    return make_layout(layout_name(axes, table), geometry);
  }

  /// Ranks that read shards which the table cut; stages end where the layout ends them.
  MeshRun from_shards(const std::string& axes, Arithmetic arithmetic, const Execution& execution = {},
                      const std::string& table = "seed") const {
    return from_shards(axes, arithmetic, execution, table, shards(axes, table));
  }
  MeshRun from_shards(const std::string& axes, Arithmetic arithmetic, const Execution& execution,
                      const std::string& table, const ShardedTensors& given) const {
    MeshRun run = groups_of(axes);
    Execution as_cut = execution;
    const auto bounds = stage_bounds(geometry.n_layers, layout_name(axes, table));
    as_cut.stage_ends.assign(bounds.begin() + 1, bounds.end() - 1);
    run.model = std::make_unique<ShardedModel>(geometry, given, consumer_named(layout(axes, table).consumer),
                                               *run.groups, arithmetic, contract, as_cut);
    return run;
  }

  /// Ranks that read views of the logical tensors.
  MeshRun from_views(const std::string& axes, Arithmetic arithmetic, const Execution& execution = {}) const {
    MeshRun run = groups_of(axes);
    run.model =
        std::make_unique<ShardedModel>(geometry, weights, *run.groups, arithmetic, contract, execution);
    return run;
  }

  /// Ranks that read views of a packed model.
  MeshRun from_packed(const std::string& axes, Arithmetic arithmetic, const Execution& execution = {}) const {
    MeshRun run = groups_of(axes);
    run.model = std::make_unique<ShardedModel>(PackedModel(geometry, weights, arithmetic), *run.groups,
                                               contract, execution);
    return run;
  }

  Geometry geometry;
  TensorMap weights;
  Tokens tokens;
  Contract contract;

 private:
  static MeshRun groups_of(const std::string& axes) {
    return {std::make_unique<MeshGroups>(layout_name(axes).mesh(), make_in_process_collective), nullptr};
  }
};

}  // namespace shardcheck::meshes
