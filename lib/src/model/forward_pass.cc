#include "model/forward_pass.h"

#include <algorithm>
#include <utility>

#include "model/context_attention.h"
#include "model/expert_exchange.h"
#include "model/group_bytes.h"
#include "shardcheck/arithmetic/kernels.h"
#include "shardcheck/model/row_parallel_linear.h"

namespace shardcheck {

ForwardPass::ForwardPass(const ShardedModel::State& model, const BatchStep& step, KvCache::State& cache)
    : model_(model),
      cache_(cache),
      rows_(step, model.execution.context_ends),
      sequences_(std::ssize(step)),
      decodes_(std::ranges::all_of(
          step, [](const SequenceChunk& chunk) { return chunk.ids.size() == 1 && chunk.first > 0; })) {
  for (const SequenceChunk& chunk : step) ids_.insert(ids_.end(), chunk.ids.begin(), chunk.ids.end());
  Geometry turned = model.geometry;
  turned.rope_theta = model.steps.rope_theta(site(0, -1));
  for (int rank = 0; rank < model.groups.mesh().degree(Axis::cp); ++rank)
    rotary_.emplace_back(turned, rotary_positions(step, rank));
}

std::vector<std::int32_t> ForwardPass::rotary_positions(const BatchStep& step, int context_rank) const {
  std::vector<std::int32_t> positions;
  for (const RowRun& run : rows_.runs_of(context_rank)) {
    const auto chunk = std::ranges::find(step, run.sequence, &SequenceChunk::sequence);
    RotaryPlace place{run.first_position, rows_.first_position(context_rank), chunk->first};
    for (std::int64_t i = 0; i < run.rows; ++i, ++place.position)
      positions.push_back(static_cast<std::int32_t>(model_.steps.rotary_position(site(0, -1), place)));
  }
  return positions;
}

StepSite ForwardPass::site(std::size_t slot, std::int64_t layer) const {
  StepSite site{model_.geometry,    model_.numerics.contract, model_.numerics.arithmetic,
                model_.tp_degree(), place(slot).tp,           layer};
  site.sequences = sequences_;
  site.decodes = decodes_;
  site.sequence_parallel = model_.sequence_parallel();
  return site;
}

template <typename Visit>
void ForwardPass::for_each_slot(int stage, const Visit& visit) const {
  for (std::size_t slot = 0; slot < model_.slots(); ++slot) {
    if (model_.is_active(slot, stage)) visit(slot);
  }
}

RankMatrices ForwardPass::hidden() {
  RankMatrices xs(model_.slots());
  embed(xs);
  for (int stage = 0; stage < model_.stages(); ++stage) {
    if (stage > 0) hand_over(stage, xs);
    std::int64_t first = 0, last = 0;
    for_each_slot(stage, [&](std::size_t slot) {
      first = place(slot).first_layer;
      last = place(slot).last_layer;
    });
    for (std::int64_t layer = first; layer < last; ++layer) {
      RankMatrices attended = attention(stage, layer, xs);
      if (!model_.geometry.parallel_residual) add_to(stage, xs, std::exchange(attended, {}));
      const RankMatrices hidden = mlp(stage, layer, xs);
      add_to(stage, xs, attended);
      add_to(stage, xs, hidden);
    }
  }
  const int last_stage = model_.stages() - 1;
  for_each_slot(last_stage, [&](std::size_t slot) {
    xs[slot] = normalized(slot, -1, std::move(xs[slot]), model_.ranks[slot].final_norm);
  });
  return gathered(last_stage, std::move(xs));
}

void ForwardPass::embed(RankMatrices& xs) const {
  for_each_slot(0, [&](std::size_t slot) {
    const RankWeights& rank = model_.ranks[slot];
    const LocalExtent& extent = rank.place.extent;
    Matrix& x = xs[slot] = Matrix(own_rows(slot), model_.geometry.d_model);
    const auto [begin, end] = model_.steps.embedding_range(site(slot, -1), extent);
    const bool masks = rank.embed->dim(0) == 0 || model_.steps.masks_embedding(site(slot, -1));
    for (const RowRun& run : rows_.runs_of(rank.place.cp)) {
      for (std::int64_t i = 0; i < run.rows; ++i) {
        const std::int64_t id = ids_[static_cast<std::size_t>(run.step_row + i)];
        std::int64_t row = id - extent.embed_begin;
        if (!masks) row = std::clamp<std::int64_t>(row, 0, rank.embed->dim(0) - 1);
        const bool local = !masks || (id >= begin && id < end && row >= 0 && row < rank.embed->dim(0));
        if (local) std::ranges::copy(rank.embed->rows(row, 1).to(DType::f32).f32(), x.row(run.local_row + i));
      }
    }
  });
  if (model_.tp_degree() > 1 && !model_.consumer.embedding_is_whole(model_.geometry))
    model_.for_each_group(Axis::tp, 0, [&](const MeshGroups::Group& group) {
      model_.steps.masks_embedding(site(0, -1)) ? sum_bits(group, xs) : sum_values(group, xs);
    });
  if (model_.geometry.positions > 0) add_positions(xs);
  if (model_.sequence_parallel())
    for_each_slot(0, [&](std::size_t slot) { xs[slot] = share_of(slot, xs[slot]); });
}

void ForwardPass::add_positions(RankMatrices& xs) const {
  for_each_slot(0, [&](std::size_t slot) {
    const std::vector<float>& learned = model_.ranks[slot].positions;
    Matrix& x = xs[slot];
    for (const RowRun& run : rows_.runs_of(place(slot).cp)) {
      for (std::int64_t i = 0; i < run.rows; ++i) {
        const float* position = learned.data() + (run.first_position + i) * x.width;
        float* row = x.row(run.local_row + i);
        for (std::int64_t j = 0; j < x.width; ++j) row[j] += position[j];
      }
    }
    model_.numerics.store(x);
  });
}

/// Point to point within each pipeline group: everyone but the stage before sends nothing.
void ForwardPass::hand_over(int stage, RankMatrices& xs) const {
  for_each_slot(stage - 1, [&](std::size_t slot) {
    model_.steps.at_stage_boundary(site(slot, place(slot).last_layer - 1), xs[slot].values);
  });
  const int stages = model_.stages();
  for (const MeshGroups::Group& group : model_.groups.along(Axis::pp)) {
    std::vector<std::vector<std::span<const std::byte>>> sends;
    for (const std::size_t slot : group.slots) {
      auto& own = sends.emplace_back(static_cast<std::size_t>(stages));
      if (model_.is_active(slot, stage - 1))
        own[static_cast<std::size_t>(stage)] = std::as_bytes(std::span(xs[slot].values));
    }
    const auto received = group.collective->all_to_all_bytes(sends);
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      const std::size_t slot = group.slots[i];
      if (model_.is_active(slot, stage - 1)) xs[slot] = Matrix();
      if (model_.is_active(slot, stage)) xs[slot] = matrix_of(received[i], model_.geometry.d_model);
    }
  }
}

Matrix ForwardPass::share_of(std::size_t slot, const Matrix& x) const {
  const auto [first, last] = StepRows::share(x.rows, model_.tp_degree(), place(slot).tp);
  return x.part(first, last);
}

RankMatrices ForwardPass::gathered(int stage, RankMatrices xs) const {
  if (!model_.sequence_parallel()) return xs;
  model_.for_each_group(Axis::tp, stage, [&](const MeshGroups::Group& group) { gather_rows(group, xs); });
  return xs;
}

Matrix ForwardPass::normalized(std::size_t slot, std::int64_t layer, Matrix x,
                               const NormWeights& weights) const {
  const StepSite here = site(slot, layer);
  std::vector<float> sums(static_cast<std::size_t>(x.rows));
  model_.steps.before_norm(here, x.values.data(), x.rows, x.width);
  if (model_.geometry.norm == Norm::layer) subtract_row_means(model_.numerics, x);
  const float divisor = model_.steps.norm_statistics(here, x.values.data(), x.rows, x.width, sums.data());
  finish_norm(model_.numerics, x, sums, divisor, static_cast<float>(model_.geometry.norm_eps), weights.gain,
              weights.bias);
  return x;
}

RankMatrices ForwardPass::all_normalized(int stage, std::int64_t layer, const RankMatrices& xs,
                                         NormWeights LayerWeights::*norm) const {
  RankMatrices normed(xs.size());
  for_each_slot(stage, [&](std::size_t slot) {
    normed[slot] = normalized(slot, layer, xs[slot], model_.ranks[slot].layer(layer).*norm);
  });
  return gathered(stage, std::move(normed));
}

ForwardPass::Projections ForwardPass::project(std::size_t slot, std::int64_t layer,
                                              const Matrix& normed) const {
  const LayerWeights& weights = model_.ranks[slot].layer(layer);
  const Geometry& geometry = model_.geometry;
  const Numerics& numerics = model_.numerics;
  const std::int64_t leaf = model_.hidden_leaf();
  Projections out{numerics.linear(normed, weights.q, leaf, weights.q_bias),
                  numerics.linear(normed, weights.k, leaf, weights.k_bias),
                  numerics.linear(normed, weights.v, leaf, weights.v_bias)};
  if (geometry.qk_norm) {
    const auto eps = static_cast<float>(geometry.norm_eps);
    normalize_heads(numerics, out.q, geometry.head_dim, eps, weights.q_norm);
    normalize_heads(numerics, out.k, geometry.head_dim, eps, weights.k_norm);
  }
  const bool half_split = model_.steps.rope_is_half_split(site(slot, layer));
  const RotaryTables& rotary = rotary_[static_cast<std::size_t>(place(slot).cp)];
  rotary.apply(numerics, out.q, geometry.head_dim, half_split);
  rotary.apply(numerics, out.k, geometry.head_dim, half_split);
  return out;
}

/// Rows of positions that an earlier, unfinished step left behind are overwritten.
void ForwardPass::remember(std::size_t slot, std::int64_t layer, const Projections& projections) {
  const RankPlace& here = place(slot);
  auto& sequences = cache_.slots[slot][static_cast<std::size_t>(layer - here.first_layer)];
  for (const RowRun& run : rows_.runs_of(here.cp)) {
    CachedRows& cached = sequences[run.sequence];
    const std::int64_t before = run.first_position - rows_.first_position(here.cp);
    const auto append = [&](std::vector<float>& to, const Matrix& from) {
      to.resize(static_cast<std::size_t>(before * from.width));
      to.insert(to.end(), from.row(run.local_row), from.row(run.local_row + run.rows));
    };
    append(cached.keys, projections.k);
    append(cached.values, projections.v);
  }
}

void ForwardPass::add_to(int stage, RankMatrices& xs, const RankMatrices& sums) const {
  if (sums.empty()) return;
  for_each_slot(stage, [&](std::size_t slot) { add_residual(model_.numerics, xs[slot], sums[slot]); });
}

RankMatrices ForwardPass::attention(int stage, std::int64_t layer, const RankMatrices& xs) {
  const RankMatrices normed = all_normalized(stage, layer, xs, &LayerWeights::attn_norm);
  std::vector<Projections> projections(xs.size());
  for_each_slot(stage, [&](std::size_t slot) {
    projections[slot] = project(slot, layer, normed[slot]);
    remember(slot, layer, projections[slot]);
  });
  RankMatrices attended = attend(stage, layer, projections);
  return row_parallel(
      stage,
      {"o_proj", layer, model_.geometry.attention_width(), model_.numerics.contract.leaf_attention, true},
      std::move(attended), [&](std::size_t slot) -> RowParallelPart {
        const LayerWeights& weights = model_.ranks[slot].layer(layer);
        return {place(slot).tp, weights.o_proj, weights.o_bias};
      });
}

RankMatrices ForwardPass::attend(int stage, std::int64_t layer,
                                 const std::vector<Projections>& projections) const {
  RankMatrices out(projections.size());
  model_.for_each_group(Axis::cp, stage, [&](const MeshGroups::Group& group) {
    std::vector<ContextSlot> members;
    for (const std::size_t slot : group.slots) {
      const RankPlace& here = place(slot);
      const LayerWeights& weights = model_.ranks[slot].layer(layer);
      const auto stage_layer = static_cast<std::size_t>(layer - here.first_layer);
      members.push_back({site(slot, layer),
                         here,
                         projections[slot].q,
                         cache_.slots[slot][stage_layer],
                         weights.sinks,
                         model_.ranks[slot].slopes,
                         {}});
      ContextSlot& member = members.back();
      for (std::int64_t head = 0; head < here.extent.heads; ++head)
        member.kv_of_head.push_back(model_.steps.kv_head_of(member.site, model_.consumer, here.extent, head));
    }
    const ContextAttention attention(model_.numerics, model_.steps, rows_, *group.collective);
    RankMatrices attended = attention(members);
    for (std::size_t i = 0; i < group.slots.size(); ++i) out[group.slots[i]] = std::move(attended[i]);
  });
  return out;
}

template <typename Weights>
RankMatrices ForwardPass::row_parallel(int stage, const RowProduct& product, RankMatrices xs,
                                       const Weights& weights_of) const {
  RankMatrices out(xs.size());
  const RowParallelSum::Layer layer{product.role, product.layer, even_cuts(product.k, model_.tp_degree()),
                                    product.leaf, product.scatters && model_.sequence_parallel()};
  model_.for_each_group(Axis::tp, stage, [&](const MeshGroups::Group& group) {
    std::vector<RowParallelPart> parts;
    RankMatrices own;
    for (const std::size_t slot : group.slots) {
      parts.push_back(weights_of(slot));
      own.push_back(std::move(xs[slot]));
    }
    const RowParallelSum sum(model_.geometry, model_.numerics, model_.consumer, *group.collective,
                             model_.steps, model_.execution.exchange);
    RankMatrices sums = sum(layer, parts, own);
    for (std::size_t i = 0; i < group.slots.size(); ++i) out[group.slots[i]] = std::move(sums[i]);
  });
  return out;
}

RankMatrices ForwardPass::mlp(int stage, std::int64_t layer, const RankMatrices& xs) const {
  const RankMatrices normed = all_normalized(stage, layer, xs, &LayerWeights::ffn_norm);
  return model_.geometry.has_experts(layer) ? experts(stage, layer, normed) : dense(stage, layer, normed);
}

Matrix ForwardPass::mlp_hidden(const MlpWeights& weights, const Matrix& normed) const {
  const Numerics& numerics = model_.numerics;
  const Matrix up = numerics.linear(normed, weights.up, model_.hidden_leaf(), weights.up_bias);
  if (!model_.geometry.gated) return activated(numerics, model_.geometry.activation, up);
  return gated(numerics, model_.geometry.activation,
               numerics.linear(normed, weights.gate, model_.hidden_leaf(), weights.gate_bias), up);
}

RankMatrices ForwardPass::dense(int stage, std::int64_t layer, const RankMatrices& normed) const {
  RankMatrices hidden(normed.size());
  for_each_slot(stage, [&](std::size_t slot) {
    hidden[slot] = mlp_hidden(*model_.ranks[slot].layer(layer).dense, normed[slot]);
  });
  return row_parallel(stage, {"down", layer, model_.geometry.ffn, model_.numerics.contract.leaf_ffn, true},
                      std::move(hidden), [&](std::size_t slot) -> RowParallelPart {
                        const MlpWeights& weights = *model_.ranks[slot].layer(layer).dense;
                        return {place(slot).tp, weights.down, weights.down_bias};
                      });
}

/// Every rank of an expert-parallel group routes the same tokens, runs the experts it holds, and combines
/// what all of them give.
RankMatrices ForwardPass::experts(int stage, std::int64_t layer, const RankMatrices& normed) const {
  const Geometry& geometry = model_.geometry;
  const Contract& contract = model_.numerics.contract;
  std::vector<ExpertSlot> slots(normed.size());
  for_each_slot(stage, [&](std::size_t slot) {
    const ExpertWeights& weights = *model_.ranks[slot].layer(layer).experts;
    Matrix logits(normed[slot].rows, geometry.n_experts);
    model_.numerics.product(normed[slot], weights.router, model_.hidden_leaf(), {}, logits.values.data());
    slots[slot].routed = route(geometry, model_.numerics.arithmetic, logits, weights.router_bias);
    slots[slot].rows = normed[slot].rows;
  });
  const auto run = [&](const RowProduct& product, const RankMatrices& inputs, const auto& weights_of) {
    RankMatrices hidden(inputs.size());
    for_each_slot(stage, [&](std::size_t slot) {
      hidden[slot] = mlp_hidden(weights_of(*model_.ranks[slot].layer(layer).experts), inputs[slot]);
    });
    return row_parallel(stage, product, std::move(hidden), [&](std::size_t slot) -> RowParallelPart {
      return {place(slot).tp, weights_of(*model_.ranks[slot].layer(layer).experts).down, {}};
    });
  };
  const std::int64_t held = geometry.n_experts / model_.groups.mesh().degree(Axis::ep);
  for (std::int64_t own = 0; own < held; ++own) {
    RankMatrices inputs(normed.size());
    for_each_slot(stage, [&](std::size_t slot) {
      inputs[slot] = rows_routed_to(normed[slot], slots[slot].routed, place(slot).first_expert + own);
    });
    RankMatrices outputs = run(
        {"expert_down", layer, geometry.expert_ffn, contract.leaf_expert_ffn, false}, inputs,
        [own](const ExpertWeights& w) -> const MlpWeights& { return w.own[static_cast<std::size_t>(own)]; });
    for_each_slot(stage, [&](std::size_t slot) { slots[slot].outputs.push_back(std::move(outputs[slot])); });
  }
  if (geometry.shared_ffn > 0) {
    RankMatrices shared = run({"shared_down", layer, geometry.shared_ffn, contract.leaf_shared_ffn, false},
                              normed, [](const ExpertWeights& w) -> const MlpWeights& { return *w.shared; });
    for_each_slot(stage, [&](std::size_t slot) { slots[slot].shared = std::move(shared[slot]); });
  }
  RankMatrices out(normed.size());
  model_.for_each_group(Axis::ep, stage, [&](const MeshGroups::Group& group) {
    std::vector<ExpertSlot*> members;
    std::vector<StepSite> sites;
    for (const std::size_t slot : group.slots) {
      members.push_back(&slots[slot]);
      sites.push_back(site(slot, layer));
    }
    RankMatrices combined =
        combine_over_ranks(model_.numerics, model_.steps, sites, members, *group.collective);
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      const std::size_t slot = group.slots[i];
      out[slot] = model_.sequence_parallel() ? share_of(slot, combined[i]) : std::move(combined[i]);
    }
  });
  return out;
}

}  // namespace shardcheck
