#include "model/vocabulary_head.h"

#include <algorithm>
#include <cstring>

#include "model/group_bytes.h"
#include "model/log_softmax.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

/// Adds `count` logits of zero to sums of exp(logit - maximum).
void add_zero_logits(std::int64_t count, std::span<const float> maxima, std::span<float> sums) {
  for (std::size_t row = 0; row < sums.size() && count > 0; ++row)
    sums[row] += static_cast<float>(count) * exp_f32(-maxima[row]);
}

}  // namespace

VocabularyHead::VocabularyHead(const ShardedModel::State& model, const ForwardPass& pass,
                               const RankMatrices& hidden)
    : model_(model), pass_(pass), parts_(hidden.size()) {
  for (std::size_t slot = 0; slot < hidden.size(); ++slot) {
    if (!model_.is_active(slot, last_stage())) continue;
    const LinearWeights& head = model_.ranks[slot].lm_head;
    Matrix& part = parts_[slot] = Matrix(hidden[slot].rows, head.n());
    model_.numerics.product(hidden[slot], head, model_.hidden_leaf(), {}, part.values.data());
  }
}

std::pair<std::int64_t, std::int64_t> VocabularyHead::range_of(int rank) const {
  if (is_whole()) return {0, model_.geometry.vocab};
  const LocalExtent extent = model_.consumer.extent(model_.geometry, model_.tp_degree(), rank);
  return {extent.head_begin, extent.head_end};
}

std::vector<VocabularyHead::Normaliser> VocabularyHead::normalisers() const {
  std::vector<Normaliser> all(parts_.size());
  for_each_group(Axis::tp, [&](const MeshGroups::Group& group) {
    std::vector<std::vector<float>> maxima;
    for (const std::size_t slot : group.slots) maxima.push_back(row_maxima(parts_[slot]));
    if (!is_whole()) all_reduce_max(*group.collective, maxima);
    auto sums = sums_of_group(group, maxima);
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      add_zero_logits(model_.steps.padding_in_softmax(pass_.site(group.slots[i], -1)), maxima[i], sums[i]);
      Normaliser& own = all[group.slots[i]];
      own.log_sum.resize(sums[i].size());
      log_f32(sums[i], own.log_sum);
      own.maximum = std::move(maxima[i]);
    }
  });
  return all;
}

std::vector<std::vector<float>> VocabularyHead::sums_of_group(
    const MeshGroups::Group& group, const std::vector<std::vector<float>>& maxima) const {
  const StepSite site = pass_.site(group.slots.front(), -1);
  const std::int64_t vocab = model_.geometry.vocab;
  const SumOfExponentials sum(model_.numerics, vocab, model_.steps.leaf(site, "lm_head", vocab, 1));
  for (int rank = 0; rank < model_.tp_degree(); ++rank)
    sum.require_between_leaves(range_of(rank).first, range_of(rank).second);
  std::vector<std::vector<std::byte>> partials;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    const auto [begin, end] = range_of(model_.places[group.slots[i]].tp);
    partials.push_back(sum.partial(parts_[group.slots[i]], maxima[i], begin, end));
  }
  std::vector<std::vector<float>> sums;
  const std::int64_t rows = parts_[group.slots.front()].rows;
  if (is_whole()) {
    for (const auto& partial : partials) sums.push_back(sum.complete(rows, {{{0, vocab}, partial}}));
    return sums;
  }
  const std::vector<std::span<const std::byte>> sends(partials.begin(), partials.end());
  std::vector<std::size_t> sizes;
  const auto gathered = group.collective->all_gather_bytes(sends, sizes);
  std::vector<SumOfExponentials::Part> arrived;
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    arrived.push_back({range_of(static_cast<int>(rank)), std::span(gathered).subspan(at, sizes[rank])});
    at += sizes[rank];
  }
  sums.assign(group.slots.size(), sum.complete(rows, arrived));
  return sums;
}

std::vector<Tensor> VocabularyHead::log_softmax() const {
  const auto normaliser = normalisers();
  RankMatrices parts = parts_;
  for (std::size_t slot = 0; slot < parts.size(); ++slot) {
    for (std::int64_t i = 0; i < parts[slot].rows; ++i) {
      const auto row = static_cast<std::size_t>(i);
      for (std::int64_t j = 0; j < parts[slot].width; ++j) {
        float& value = parts[slot].row(i)[j];
        value = logprob(value, normaliser[slot].maximum[row], normaliser[slot].log_sum[row]);
      }
    }
  }
  return assembled(parts);
}

std::vector<Tensor> VocabularyHead::token_logprobs(std::span<const std::int32_t> targets) const {
  const auto normaliser = normalisers();
  RankMatrices picked(parts_.size());
  for_each_group(Axis::tp, [&](const MeshGroups::Group& group) {
    for (const std::size_t slot : group.slots) picked[slot] = picked_on(slot, targets, normaliser[slot]);
    if (!is_whole()) sum_bits(group, picked);
  });
  gather_context(picked);
  return on_every_stage(std::move(picked), {pass_.rows().rows()});
}

Matrix VocabularyHead::picked_on(std::size_t slot, std::span<const std::int32_t> targets,
                                 const Normaliser& normaliser) const {
  const Matrix& part = parts_[slot];
  const auto [begin, end] = range_of(model_.places[slot].tp);
  Matrix picked(part.rows, 1);
  for (const RowRun& run : pass_.rows().runs_of(model_.places[slot].cp)) {
    for (std::int64_t i = 0; i < run.rows; ++i) {
      const std::int64_t target = targets[static_cast<std::size_t>(run.step_row + i)];
      if (target < begin || target >= end) continue;
      const auto row = static_cast<std::size_t>(run.local_row + i);
      picked.values[row] = logprob(part.row(run.local_row + i)[target - begin], normaliser.maximum[row],
                                   normaliser.log_sum[row]);
    }
  }
  return picked;
}

Matrix VocabularyHead::gathered_columns(const MeshGroups::Group& group, const RankMatrices& parts) const {
  std::vector<std::span<const std::byte>> sends;
  for (const std::size_t slot : group.slots) sends.push_back(std::as_bytes(std::span(parts[slot].values)));
  std::vector<std::size_t> sizes;
  const auto gathered = group.collective->all_gather_bytes(sends, sizes);
  Matrix whole(parts[group.slots.front()].rows, model_.geometry.vocab);
  FloatReader reader(gathered);
  for (int rank = 0; rank < model_.tp_degree(); ++rank) {
    const auto [begin, end] = range_of(rank);
    const auto row_bytes = static_cast<std::size_t>(end - begin) * sizeof(float);
    for (std::int64_t i = 0; i < whole.rows && row_bytes > 0; ++i)
      std::memcpy(whole.row(i) + begin, reader.take(row_bytes).data(), row_bytes);
  }
  return whole;
}

void VocabularyHead::gather_context(RankMatrices& wholes) const {
  if (model_.groups.mesh().degree(Axis::cp) == 1) return;
  for_each_group(Axis::cp, [&](const MeshGroups::Group& group) {
    const std::int64_t width = wholes[group.slots.front()].width;
    gather_rows(group, wholes);
    const Matrix& by_rank = wholes[group.slots.front()];
    Matrix ordered(pass_.rows().rows(), width);
    std::int64_t first = 0;
    for (int rank = 0; rank < group.collective->degree(); ++rank) {
      for (const RowRun& run : pass_.rows().runs_of(rank))
        std::copy(by_rank.row(first + run.local_row), by_rank.row(first + run.local_row + run.rows),
                  ordered.row(run.step_row));
      first += pass_.rows().rows_of(rank);
    }
    for (const std::size_t slot : group.slots) wholes[slot] = ordered;
  });
}

std::vector<Tensor> VocabularyHead::assembled(const RankMatrices& parts) const {
  RankMatrices wholes = parts;
  if (!is_whole()) {
    for_each_group(Axis::tp, [&](const MeshGroups::Group& group) {
      const Matrix whole = gathered_columns(group, parts);
      for (const std::size_t slot : group.slots) wholes[slot] = whole;
    });
  }
  gather_context(wholes);
  return on_every_stage(std::move(wholes), {pass_.rows().rows(), model_.geometry.vocab});
}

std::vector<Tensor> VocabularyHead::on_every_stage(RankMatrices wholes, const Shape& shape) const {
  std::vector<Tensor> out(wholes.size());
  for (const MeshGroups::Group& group : model_.groups.along(Axis::pp)) {
    if (model_.stages() > 1) {
      std::vector<std::span<const std::byte>> sends;
      for (const std::size_t slot : group.slots) {
        // Only the last stage has anything.
        sends.push_back(std::as_bytes(std::span(wholes[slot].values)));
      }
      std::vector<std::size_t> sizes;
      const Matrix last = matrix_of(group.collective->all_gather_bytes(sends, sizes), shape.back());
      for (const std::size_t slot : group.slots) wholes[slot] = last;
    }
    for (const std::size_t slot : group.slots) out[slot] = Tensor::from(shape, wholes[slot].values);
  }
  return out;
}

}  // namespace shardcheck
