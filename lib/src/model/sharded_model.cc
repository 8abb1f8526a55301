#include "shardcheck/model/sharded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "model/blocks.h"
#include "model/packed_reader.h"
#include "model/row_parallel.h"
#include "model/shard_reader.h"
#include "shardcheck/arithmetic/kernels.h"
#include "shardcheck/model/row_parallel_linear.h"

namespace shardcheck {
namespace {

struct RankLayer {
  RankLayer(const RankSource& source, std::int64_t layer)
      : q(source.linear("q", layer)),
        k(source.linear("k", layer)),
        v(source.linear("v", layer)),
        gate(source.linear("gate", layer)),
        up(source.linear("up", layer)),
        attn_norm(source.values("attn_norm", layer)),
        ffn_norm(source.values("ffn_norm", layer)),
        q_bias(source.values("q_bias", layer)),
        k_bias(source.values("k_bias", layer)),
        v_bias(source.values("v_bias", layer)),
        o_bias(source.values("o_bias", layer)),
        q_norm(source.values("q_norm", layer)),
        k_norm(source.values("k_norm", layer)) {}

  LinearWeights q, k, v, gate, up;
  LinearWeights o_proj, down;  // built by agreement of all ranks
  std::vector<float> attn_norm, ffn_norm, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
};

struct RankState {
  RankState(const Geometry& geometry, const RankSource& source, int own_rank, LocalExtent own_extent)
      : rank(own_rank),
        extent(own_extent),
        embed(source.rows("embed", -1)),
        lm_head(source.linear("lm_head", -1)),
        final_norm(source.values("final_norm", -1)) {
    for (std::int64_t layer = 0; layer < geometry.n_layers; ++layer) layers.emplace_back(source, layer);
  }

  int rank;
  LocalExtent extent;
  Tensor embed;
  LinearWeights lm_head;
  std::vector<float> final_norm;
  std::vector<RankLayer> layers;
};

/// The local ranks' sources, in slot order.
using RankSources = std::vector<std::unique_ptr<RankSource>>;

}  // namespace

struct ShardedModel::State {
  State(Geometry g, const Consumer& used_consumer, Collective& used_collective, Numerics used_numerics,
        const ForwardSteps& used_steps, CoverExchange exchange)
      : geometry(g),
        consumer(used_consumer),
        collective(used_collective),
        numerics(std::move(used_numerics)),
        steps(used_steps),
        row_parallel(geometry, numerics, consumer, collective, steps, exchange) {
    consumer.require_supported(geometry, degree());
    if (numerics.arithmetic == Arithmetic::exact && degree() > ExactPartial::kMaxRanks)
      throw UnsupportedLayout(fmt::format("TP degree {}: arithmetic exact merges at most {} ranks", degree(),
                                          ExactPartial::kMaxRanks));
  }

  /// Reads every local rank's weights.
  void load(const RankSources& sources) {
    for (std::size_t slot = 0; slot < sources.size(); ++slot) {
      const int rank = collective.local_ranks()[slot];
      ranks.emplace_back(geometry, *sources[slot], rank, extent(rank));
    }
    for (std::int64_t layer = 0; layer < geometry.n_layers; ++layer) {
      load_row_parallel(sources, "o_proj", layer, &RankLayer::o_proj);
      load_row_parallel(sources, "down", layer, &RankLayer::down);
    }
  }
  void load_row_parallel(const RankSources& sources, std::string_view role, std::int64_t layer,
                         LinearWeights RankLayer::*member);

  int degree() const { return collective.degree(); }
  LocalExtent extent(int rank) const { return consumer.extent(geometry, degree(), rank); }

  StepSite site(const RankState& rank, std::int64_t layer) const {
    return {geometry, numerics.contract, numerics.arithmetic, degree(), rank.rank, layer};
  }

  std::int64_t hidden_leaf() const { return numerics.contract.leaf_d_model; }

  RankMatrices embed(const Tokens& tokens) const;
  /// Bits are summed, not floats: one owner's row passes unchanged, -0.0 included, under any reduction order.
  void sum_bits(RankMatrices& xs) const;
  Matrix normalized(const RankState& rank, std::int64_t layer, Matrix x,
                    const std::vector<float>& weight) const;
  Matrix attention(const RankState& rank, std::int64_t layer, const Matrix& x, const Tokens& tokens,
                   const RotaryTables& rotary) const;
  Matrix mlp(const RankState& rank, std::int64_t layer, const Matrix& x) const;
  RankMatrices o_proj(std::int64_t layer, const RankMatrices& xs) const;
  RankMatrices down(std::int64_t layer, const RankMatrices& xs) const;
  std::vector<Tensor> logits(const RankMatrices& xs) const;
  std::vector<Tensor> gather_vocabulary(const RankMatrices& parts) const;

  Geometry geometry;
  const Consumer& consumer;
  Collective& collective;
  Numerics numerics;
  const ForwardSteps& steps;
  RowParallelSum row_parallel;
  std::vector<RankState> ranks;
};

/// Under exact the ranks agree on the tops of the rows they hold parts of, so that sums merge as plain words.
void ShardedModel::State::load_row_parallel(const RankSources& sources, std::string_view role,
                                            std::int64_t layer, LinearWeights RankLayer::*member) {
  std::vector<std::vector<std::int32_t>> tops(sources.size());
  if (numerics.arithmetic == Arithmetic::exact) {
    std::vector<std::span<std::int32_t>> buffers;
    for (std::size_t slot = 0; slot < sources.size(); ++slot) {
      tops[slot] = weight_tops(sources[slot]->rows(role, layer));
      buffers.emplace_back(tops[slot]);
    }
    collective.all_reduce_max_i32(buffers);
  }
  for (std::size_t slot = 0; slot < sources.size(); ++slot)
    ranks[slot].layers[static_cast<std::size_t>(layer)].*member =
        sources[slot]->linear(role, layer, tops[slot]);
}

RankMatrices ShardedModel::State::embed(const Tokens& tokens) const {
  RankMatrices xs;
  for (const RankState& rank : ranks) {
    Matrix x(tokens.count(), geometry.d_model);
    const auto [begin, end] = steps.embedding_range(site(rank, -1), rank.extent);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t id = tokens.ids[static_cast<std::size_t>(i)];
      const std::int64_t row = id - rank.extent.embed_begin;
      const bool local = id >= begin && id < end && row >= 0 && row < rank.embed.dim(0);
      if (local) std::ranges::copy(rank.embed.rows(row, 1).to(DType::f32).f32(), x.row(i));
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
  numerics.store(x);
  return x;
}

Matrix ShardedModel::State::attention(const RankState& rank, std::int64_t layer, const Matrix& x,
                                      const Tokens& tokens, const RotaryTables& rotary) const {
  const RankLayer& weights = rank.layers[static_cast<std::size_t>(layer)];
  const StepSite here = site(rank, layer);
  const Matrix normed = normalized(rank, layer, x, weights.attn_norm);
  Matrix q = numerics.linear(normed, weights.q, hidden_leaf(), weights.q_bias);
  Matrix k = numerics.linear(normed, weights.k, hidden_leaf(), weights.k_bias);
  const Matrix v = numerics.linear(normed, weights.v, hidden_leaf(), weights.v_bias);
  if (geometry.qk_norm) {
    const auto eps = static_cast<float>(geometry.norm_eps);
    normalize_heads(numerics, q, geometry.head_dim, eps, weights.q_norm);
    normalize_heads(numerics, k, geometry.head_dim, eps, weights.k_norm);
  }
  rotary.apply(numerics, q, geometry.head_dim, steps.rope_is_half_split(here));
  rotary.apply(numerics, k, geometry.head_dim, steps.rope_is_half_split(here));
  std::vector<std::int64_t> kv_of_head;
  for (std::int64_t head = 0; head < rank.extent.heads; ++head) {
    kv_of_head.push_back(steps.kv_head_of(here, consumer, rank.extent, head));
  }
  return attend(geometry, numerics, tokens, q, k, v, kv_of_head, steps.causal(here));
}

Matrix ShardedModel::State::mlp(const RankState& rank, std::int64_t layer, const Matrix& x) const {
  const RankLayer& weights = rank.layers[static_cast<std::size_t>(layer)];
  const Matrix normed = normalized(rank, layer, x, weights.ffn_norm);
  return gated(numerics, numerics.linear(normed, weights.gate, hidden_leaf()),
               numerics.linear(normed, weights.up, hidden_leaf()));
}

RankMatrices ShardedModel::State::o_proj(std::int64_t layer, const RankMatrices& xs) const {
  std::vector<RowParallelPart> parts;
  for (const RankState& rank : ranks) {
    const RankLayer& weights = rank.layers[static_cast<std::size_t>(layer)];
    parts.push_back({rank.rank, weights.o_proj, weights.o_bias});
  }
  return row_parallel(
      {"o_proj", layer, even_cuts(geometry.attention_width(), degree()), numerics.contract.leaf_attention},
      parts, xs);
}

RankMatrices ShardedModel::State::down(std::int64_t layer, const RankMatrices& xs) const {
  std::vector<RowParallelPart> parts;
  for (const RankState& rank : ranks)
    parts.push_back({rank.rank, rank.layers[static_cast<std::size_t>(layer)].down, {}});
  return row_parallel({"down", layer, even_cuts(geometry.ffn, degree()), numerics.contract.leaf_ffn}, parts,
                      xs);
}

std::vector<Tensor> ShardedModel::State::logits(const RankMatrices& xs) const {
  RankMatrices parts;
  for (std::size_t slot = 0; slot < ranks.size(); ++slot) {
    const Matrix normed = normalized(ranks[slot], -1, xs[slot], ranks[slot].final_norm);
    Matrix& part = parts.emplace_back(normed.rows, ranks[slot].lm_head.n());
    numerics.product(normed, ranks[slot].lm_head, hidden_leaf(), {}, part.values.data());
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
  Tensor logits = Tensor::poisoned(DType::f32, {rows, geometry.vocab});
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
                           const ForwardSteps& steps, CoverExchange exchange) {
  validate(geometry);
  require_forward(geometry);
  state_ = std::make_unique<State>(geometry, consumer, collective, Numerics{arithmetic, std::move(contract)},
                                   steps, exchange);
  RankSources sources;
  for (std::size_t slot = 0; slot < collective.local_ranks().size(); ++slot) {
    sources.push_back(std::make_unique<ShardReader>(state_->geometry, consumer, collective.degree(),
                                                    collective.local_ranks()[slot], slot, shards,
                                                    arithmetic));
  }
  state_->load(sources);
}

ShardedModel::ShardedModel(const PackedModel& model, Collective& collective, Contract contract,
                           const ForwardSteps& steps, CoverExchange exchange) {
  state_ = std::make_unique<State>(model.geometry(), consumer_named("seed"), collective,
                                   Numerics{model.arithmetic(), std::move(contract)}, steps, exchange);
  RankSources sources;
  for (const int rank : collective.local_ranks())
    sources.push_back(std::make_unique<PackedReader>(model.state(), state_->extent(rank), rank));
  state_->load(sources);
}

ShardedModel::~ShardedModel() = default;
ShardedModel::ShardedModel(ShardedModel&&) noexcept = default;
ShardedModel& ShardedModel::operator=(ShardedModel&&) noexcept = default;

std::vector<Tensor> ShardedModel::forward(const Tokens& tokens) const {
  const State& s = *state_;
  require_tokens_of(s.geometry, tokens);
  const RotaryTables rotary(s.geometry, tokens);
  RankMatrices xs = s.embed(tokens);
  const auto add_each = [&](const RankMatrices& sums) {
    for (std::size_t slot = 0; slot < xs.size(); ++slot) add_residual(s.numerics, xs[slot], sums[slot]);
  };
  for (std::int64_t layer = 0; layer < s.geometry.n_layers; ++layer) {
    RankMatrices attended;
    for (std::size_t slot = 0; slot < xs.size(); ++slot) {
      attended.push_back(s.attention(s.ranks[slot], layer, xs[slot], tokens, rotary));
    }
    add_each(s.o_proj(layer, attended));
    RankMatrices hidden;
    for (std::size_t slot = 0; slot < xs.size(); ++slot)
      hidden.push_back(s.mlp(s.ranks[slot], layer, xs[slot]));
    add_each(s.down(layer, hidden));
  }
  return s.logits(xs);
}

}  // namespace shardcheck
