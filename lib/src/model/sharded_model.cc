#include "shardcheck/model/sharded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "model/blocks.h"
#include "model/shard_reader.h"
#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {
namespace {

struct RankLayer {
  RankLayer(const ShardReader& reader, std::int64_t layer)
      : q(reader.packed("q", layer)),
        k(reader.packed("k", layer)),
        v(reader.packed("v", layer)),
        o_proj(reader.packed("o_proj", layer)),
        gate(reader.packed("gate", layer)),
        up(reader.packed("up", layer)),
        down(reader.packed("down", layer)),
        attn_norm(reader.values("attn_norm", layer)),
        ffn_norm(reader.values("ffn_norm", layer)),
        q_bias(reader.values("q_bias", layer)),
        k_bias(reader.values("k_bias", layer)),
        v_bias(reader.values("v_bias", layer)),
        q_norm(reader.values("q_norm", layer)),
        k_norm(reader.values("k_norm", layer)) {}

  PackedWeights q, k, v, o_proj, gate, up, down;
  std::vector<float> attn_norm, ffn_norm, q_bias, k_bias, v_bias, q_norm, k_norm;
};

struct RankState {
  RankState(const Geometry& geometry, const ShardReader& reader, int own_rank, LocalExtent own_extent)
      : rank(own_rank),
        extent(own_extent),
        embed(reader.rows("embed", -1).to(DType::f32)),
        lm_head(reader.packed("lm_head", -1)),
        final_norm(reader.values("final_norm", -1)) {
    for (std::int64_t layer = 0; layer < geometry.n_layers; ++layer) layers.emplace_back(reader, layer);
  }

  int rank;
  LocalExtent extent;
  Tensor embed;
  PackedWeights lm_head;
  std::vector<float> final_norm;
  std::vector<RankLayer> layers;
};

/// One matrix per local rank.
using RankMatrices = std::vector<Matrix>;

std::vector<std::span<float>> buffers_of(RankMatrices& matrices) {
  std::vector<std::span<float>> buffers;
  for (auto& matrix : matrices) buffers.emplace_back(matrix.values);
  return buffers;
}

/// A row-parallel layer: its name, the sum it computes and the leaf of its tree.
struct RowParallel {
  std::string_view role;
  PackedWeights RankLayer::*weights;
  std::int64_t k;
  std::int64_t leaf;
};

}  // namespace

struct ShardedModel::State {
  State(Geometry g, const ShardedTensors& shards, const Consumer& used_consumer, Collective& used_collective,
        Arithmetic a, Contract c, const ForwardSteps& used_steps)
      : geometry(g),
        consumer(used_consumer),
        collective(used_collective),
        arithmetic(a),
        contract(std::move(c)),
        steps(used_steps) {
    consumer.require_supported(geometry, degree());
    const auto local = collective.local_ranks();
    for (std::size_t slot = 0; slot < local.size(); ++slot) {
      const ShardReader reader(geometry, consumer, degree(), local[slot], slot, shards);
      ranks.emplace_back(geometry, reader, local[slot], consumer.extent(geometry, degree(), local[slot]));
    }
  }

  int degree() const { return collective.degree(); }

  StepSite site(const RankState& rank, std::int64_t layer) const {
    return {geometry, contract, arithmetic, degree(), rank.rank, layer};
  }

  Reduction over_hidden() const {
    return whole_reduction(arithmetic, contract, geometry.d_model, contract.leaf_d_model);
  }

  RankMatrices embed(const Tokens& tokens) const;
  /// Bits are summed, not floats: one owner's row passes unchanged, -0.0 included, under any reduction order.
  void sum_bits(RankMatrices& xs) const;
  Matrix normalized(const RankState& rank, std::int64_t layer, Matrix x,
                    const std::vector<float>& weight) const;
  Matrix attention(const RankState& rank, std::int64_t layer, const Matrix& x, const Tokens& tokens,
                   const RotaryTables& rotary) const;
  Matrix mlp(const RankState& rank, std::int64_t layer, const Matrix& x) const;
  RankMatrices row_parallel(const RowParallel& what, std::int64_t layer, const RankMatrices& xs) const;
  RankMatrices native_sum(const RowParallel& what, std::int64_t layer, const RankMatrices& xs) const;
  RankMatrices tree_sum(const RowParallel& what, std::int64_t layer, const RankMatrices& xs) const;
  Matrix complete(const RowParallel& what, std::span<const std::byte> gathered, std::int64_t rows) const;
  void reduce_again(RankMatrices& sums, int times) const;
  std::vector<Tensor> logits(const RankMatrices& xs) const;
  std::vector<Tensor> gather_vocabulary(const RankMatrices& parts) const;

  Geometry geometry;
  const Consumer& consumer;
  Collective& collective;
  Arithmetic arithmetic;
  Contract contract;
  const ForwardSteps& steps;
  std::vector<RankState> ranks;
};

RankMatrices ShardedModel::State::embed(const Tokens& tokens) const {
  RankMatrices xs;
  for (const RankState& rank : ranks) {
    Matrix x(tokens.count(), geometry.d_model);
    const auto [begin, end] = steps.embedding_range(site(rank, -1), rank.extent);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t id = tokens.ids[static_cast<std::size_t>(i)];
      const std::int64_t row = id - rank.extent.embed_begin;
      const bool local = id >= begin && id < end && row >= 0 && row < rank.embed.dim(0);
      if (local)
        std::memcpy(x.row(i), rank.embed.rows(row, 1).bytes().data(), static_cast<std::size_t>(x.width) * 4);
    }
    xs.push_back(std::move(x));
  }
  if (degree() > 1 && !consumer.embedding_is_whole(geometry)) sum_bits(xs);
  return xs;
}

void ShardedModel::State::sum_bits(RankMatrices& xs) const {
  std::vector<std::vector<std::uint32_t>> bits;
  std::vector<std::span<std::uint32_t>> buffers;
  for (const Matrix& x : xs) {
    bits.emplace_back(x.values.size());
    std::memcpy(bits.back().data(), x.values.data(), x.values.size() * sizeof(float));
  }
  for (auto& buffer : bits) buffers.emplace_back(buffer);
  collective.all_reduce_sum_u32(buffers);
  for (std::size_t slot = 0; slot < xs.size(); ++slot) {
    std::memcpy(xs[slot].values.data(), bits[slot].data(), bits[slot].size() * sizeof(float));
  }
}

Matrix ShardedModel::State::normalized(const RankState& rank, std::int64_t layer, Matrix x,
                                       const std::vector<float>& weight) const {
  std::vector<float> sums(static_cast<std::size_t>(x.rows));
  steps.before_norm(site(rank, layer), x.values.data(), x.rows, x.width);
  const float divisor =
      steps.norm_statistics(site(rank, layer), x.values.data(), x.rows, x.width, sums.data());
  rms_scale(x.values.data(), x.rows, x.width, sums.data(), divisor, static_cast<float>(geometry.norm_eps),
            weight.data(), x.values.data());
  return x;
}

Matrix ShardedModel::State::attention(const RankState& rank, std::int64_t layer, const Matrix& x,
                                      const Tokens& tokens, const RotaryTables& rotary) const {
  const RankLayer& weights = rank.layers[static_cast<std::size_t>(layer)];
  const StepSite here = site(rank, layer);
  const Matrix normed = normalized(rank, layer, x, weights.attn_norm);
  Matrix q = linear(normed, weights.q, over_hidden(), weights.q_bias);
  Matrix k = linear(normed, weights.k, over_hidden(), weights.k_bias);
  const Matrix v = linear(normed, weights.v, over_hidden(), weights.v_bias);
  if (geometry.qk_norm) {
    normalize_heads(q, geometry.head_dim, static_cast<float>(geometry.norm_eps), weights.q_norm);
    normalize_heads(k, geometry.head_dim, static_cast<float>(geometry.norm_eps), weights.k_norm);
  }
  rotary.apply(q, geometry.head_dim, steps.rope_is_half_split(here));
  rotary.apply(k, geometry.head_dim, steps.rope_is_half_split(here));
  std::vector<std::int64_t> kv_of_head;
  for (std::int64_t head = 0; head < rank.extent.heads; ++head) {
    kv_of_head.push_back(steps.kv_head_of(here, consumer, rank.extent, head));
  }
  return attend(geometry, arithmetic, contract, tokens, q, k, v, kv_of_head, steps.causal(here));
}

Matrix ShardedModel::State::mlp(const RankState& rank, std::int64_t layer, const Matrix& x) const {
  const RankLayer& weights = rank.layers[static_cast<std::size_t>(layer)];
  const Matrix normed = normalized(rank, layer, x, weights.ffn_norm);
  return gated(linear(normed, weights.gate, over_hidden()), linear(normed, weights.up, over_hidden()));
}

RankMatrices ShardedModel::State::native_sum(const RowParallel& what, std::int64_t layer,
                                             const RankMatrices& xs) const {
  RankMatrices sums;
  for (std::size_t slot = 0; slot < ranks.size(); ++slot) {
    const RankLayer& weights = ranks[slot].layers[static_cast<std::size_t>(layer)];
    sums.push_back(linear(xs[slot], weights.*what.weights, Reduction::chain()));
    steps.after_partial(site(ranks[slot], layer), what.role, sums.back().values);
  }
  reduce_again(sums, degree() > 1 ? steps.reductions(site(ranks.front(), layer), what.role) : 0);
  return sums;
}

void ShardedModel::State::reduce_again(RankMatrices& sums, int times) const {
  for (int i = 0; i < times; ++i) collective.all_reduce_sum(buffers_of(sums));
}

RankMatrices ShardedModel::State::tree_sum(const RowParallel& what, std::int64_t layer,
                                           const RankMatrices& xs) const {
  const std::int64_t rows = xs.front().rows;
  std::vector<std::vector<float>> nodes;  // per local rank: the nodes of its cover, each [rows, d_model]
  for (std::size_t slot = 0; slot < ranks.size(); ++slot) {
    const PackedWeights& weights = ranks[slot].layers[static_cast<std::size_t>(layer)].*what.weights;
    const std::int64_t begin = what.k / degree() * ranks[slot].rank;
    const auto part = Reduction::part(contract.shape, what.k, what.leaf, begin, begin + weights.k());
    const auto count = nodes_of(part, weights.k()).size();
    nodes.emplace_back(count * static_cast<std::size_t>(rows * weights.n()));
    gemm_nodes(xs[slot].values.data(), xs[slot].width, rows, weights, part, nodes.back().data());
    steps.after_partial(site(ranks[slot], layer), what.role, nodes.back());
  }
  const int times = degree() > 1 ? steps.reductions(site(ranks.front(), layer), what.role) : 1;
  RankMatrices sums;
  if (times == 0) {
    // A partial sum kept as if it were the whole: what is left of the tree when nothing was exchanged.
    for (const auto& own : nodes) {
      Matrix sum(rows, geometry.d_model);
      for (std::size_t i = 0; i < own.size(); ++i) sum.values[i % sum.values.size()] += own[i];
      sums.push_back(std::move(sum));
    }
    return sums;
  }
  std::vector<std::span<const std::byte>> sends;
  for (const auto& own : nodes) sends.push_back(std::as_bytes(std::span(own)));
  std::vector<std::size_t> sizes;
  const auto gathered = collective.all_gather_bytes(sends, sizes);
  sums.assign(ranks.size(), complete(what, gathered, rows));
  reduce_again(sums, times - 1);
  return sums;
}

Matrix ShardedModel::State::complete(const RowParallel& what, std::span<const std::byte> gathered,
                                     std::int64_t rows) const {
  const std::int64_t width = rows * geometry.d_model;
  const std::int64_t leaves = Reduction::whole(contract.shape, what.k, what.leaf).leaves;
  std::vector<TreeNode> nodes;
  for (int rank = 0; rank < degree(); ++rank) {
    const std::int64_t share = what.k / degree();
    const auto part = Reduction::part(contract.shape, what.k, what.leaf, share * rank, share * (rank + 1));
    for (const TreeNode& node : nodes_of(part, share)) nodes.push_back(node);
  }
  if (gathered.size() != nodes.size() * static_cast<std::size_t>(width) * sizeof(float)) {
    throw InvalidShards(fmt::format("{}: the ranks sent {} bytes of tree nodes, expected {}", what.role,
                                    gathered.size(),
                                    nodes.size() * static_cast<std::size_t>(width) * sizeof(float)));
  }
  std::vector<float> values(gathered.size() / sizeof(float));
  std::memcpy(values.data(), gathered.data(), gathered.size());
  std::vector<const float*> starts;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    starts.push_back(values.data() + i * static_cast<std::size_t>(width));
  Matrix sum(rows, geometry.d_model);
  complete_tree(contract.shape, leaves, nodes, starts, width, sum.values.data());
  return sum;
}

RankMatrices ShardedModel::State::row_parallel(const RowParallel& what, std::int64_t layer,
                                               const RankMatrices& xs) const {
  return arithmetic == Arithmetic::native ? native_sum(what, layer, xs) : tree_sum(what, layer, xs);
}

std::vector<Tensor> ShardedModel::State::logits(const RankMatrices& xs) const {
  RankMatrices parts;
  for (std::size_t slot = 0; slot < ranks.size(); ++slot) {
    const Matrix normed = normalized(ranks[slot], -1, xs[slot], ranks[slot].final_norm);
    parts.push_back(linear(normed, ranks[slot].lm_head, over_hidden()));
  }
  if (!consumer.head_is_whole(geometry)) return gather_vocabulary(parts);
  std::vector<Tensor> all;
  for (const auto& part : parts) all.push_back(Tensor::from({part.rows, part.width}, part.values));
  return all;
}

std::vector<Tensor> ShardedModel::State::gather_vocabulary(const RankMatrices& parts) const {
  std::vector<std::span<const std::byte>> sends;
  for (const auto& part : parts) sends.push_back(std::as_bytes(std::span(part.values)));
  std::vector<std::size_t> sizes;
  const auto gathered = collective.all_gather_bytes(sends, sizes);
  const std::int64_t rows = parts.front().rows;
  Tensor logits = Tensor::uninitialized(DType::f32, {rows, geometry.vocab});
  float* out = logits.mutable_f32().data();
  const std::byte* in = gathered.data();
  for (int rank = 0; rank < degree(); ++rank) {
    const LocalExtent extent = consumer.extent(geometry, degree(), rank);
    const auto row_bytes = static_cast<std::size_t>(extent.head_end - extent.head_begin) * sizeof(float);
    for (std::int64_t i = 0; i < rows && row_bytes > 0; ++i, in += row_bytes) {
      std::memcpy(out + i * geometry.vocab + extent.head_begin, in, row_bytes);
    }
  }
  return std::vector<Tensor>(ranks.size(), logits);
}

ShardedModel::ShardedModel(Geometry geometry, const ShardedTensors& shards, const Consumer& consumer,
                           Collective& collective, Arithmetic arithmetic, Contract contract,
                           const ForwardSteps& steps) {
  validate(geometry);
  require_arithmetic(arithmetic);
  state_ =
      std::make_unique<State>(geometry, shards, consumer, collective, arithmetic, std::move(contract), steps);
}

ShardedModel::~ShardedModel() = default;
ShardedModel::ShardedModel(ShardedModel&&) noexcept = default;
ShardedModel& ShardedModel::operator=(ShardedModel&&) noexcept = default;

std::vector<Tensor> ShardedModel::forward(const Tokens& tokens) const {
  const State& s = *state_;
  require_tokens_of(s.geometry, tokens);
  const RotaryTables rotary(s.geometry, tokens);
  const RowParallel o_proj{"o_proj", &RankLayer::o_proj, s.geometry.attention_width(),
                           s.contract.leaf_attention};
  const RowParallel down{"down", &RankLayer::down, s.geometry.ffn, s.contract.leaf_ffn};
  RankMatrices xs = s.embed(tokens);
  const auto add_to_residual = [&](const RowParallel& what, std::int64_t layer, const RankMatrices& inputs) {
    const RankMatrices sums = s.row_parallel(what, layer, inputs);
    for (std::size_t slot = 0; slot < xs.size(); ++slot) add_in_place(xs[slot].values, sums[slot].values);
  };
  for (std::int64_t layer = 0; layer < s.geometry.n_layers; ++layer) {
    RankMatrices attended;
    for (std::size_t slot = 0; slot < xs.size(); ++slot) {
      attended.push_back(s.attention(s.ranks[slot], layer, xs[slot], tokens, rotary));
    }
    add_to_residual(o_proj, layer, attended);
    RankMatrices hidden;
    for (std::size_t slot = 0; slot < xs.size(); ++slot)
      hidden.push_back(s.mlp(s.ranks[slot], layer, xs[slot]));
    add_to_residual(down, layer, hidden);
  }
  return s.logits(xs);
}

}  // namespace shardcheck
