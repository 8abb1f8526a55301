#include "model/expert_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/group_bytes.h"
#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {
namespace {

/// Output rows of every expert of the model, token after token.
class ExpertOutputs {
 public:
  ExpertOutputs(const Geometry& geometry, const ExpertSlot& slot, std::int64_t width,
                std::span<const float> values)
      : width_(width), values_(values), next_(static_cast<std::size_t>(geometry.n_experts) + 1) {
    for (const RoutedToken& token : slot.routed) {
      for (const std::int64_t expert : token.experts) ++next_[static_cast<std::size_t>(expert) + 1];
    }
    for (std::size_t i = 1; i < next_.size(); ++i) next_[i] += next_[i - 1];
    if (static_cast<std::size_t>(next_.back() * width) != values.size())
      throw InvalidShards(fmt::format("experts: the ranks sent {} values for {} rows of {}", values.size(),
                                      next_.back(), width));
  }

  /// Of the next token routed to the expert.
  const float* next_row(std::int64_t expert) {
    return values_.data() + next_[static_cast<std::size_t>(expert)]++ * width_;
  }

 private:
  std::int64_t width_;
  std::span<const float> values_;
  std::vector<std::int64_t> next_;  // first row of every expert that was not taken yet
};

std::vector<float> values_of(const RankMatrices& matrices) {
  std::vector<float> all;
  for (const Matrix& matrix : matrices) all.insert(all.end(), matrix.values.begin(), matrix.values.end());
  return all;
}

Matrix combined(const Numerics& numerics, const ForwardSteps& steps, const StepSite& site, int degree,
                int rank, const ExpertSlot& slot, std::span<const float> outputs) {
  const std::int64_t width = site.geometry.d_model;
  ExpertOutputs rows(site.geometry, slot, width, outputs);
  Matrix y(slot.rows, width);
  for (std::int64_t i = 0; i < slot.rows; ++i) {
    const RoutedToken& token = slot.routed[static_cast<std::size_t>(i)];
    std::vector<std::int64_t> order = token.experts;
    steps.order_experts(site, degree, rank, order);
    std::vector<ExpertTerm> terms;
    for (const std::int64_t expert : order) {
      const auto at = std::ranges::find(token.experts, expert) - token.experts.begin();
      terms.push_back({token.weights[static_cast<std::size_t>(at)], rows.next_row(expert)});
    }
    combine_experts(numerics, terms, slot.shared.rows > 0 ? slot.shared.row(i) : nullptr, width, y.row(i));
  }
  numerics.store(y);
  return y;
}

RankMatrices native_combination(const Numerics& numerics, std::span<const StepSite> sites,
                                const std::vector<ExpertSlot*>& members, Collective& collective) {
  RankMatrices sums;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const ExpertSlot& slot = *members[m];
    const Geometry& geometry = sites[m].geometry;
    const std::int64_t held = std::ssize(slot.outputs);
    const std::int64_t first = held * collective.local_ranks()[m];
    Matrix& sum = sums.emplace_back(slot.rows, geometry.d_model);
    std::vector<std::int64_t> next(slot.outputs.size());
    for (std::int64_t i = 0; i < slot.rows; ++i) {
      const RoutedToken& token = slot.routed[static_cast<std::size_t>(i)];
      std::vector<ExpertTerm> terms;
      for (std::size_t e = 0; e < token.experts.size(); ++e) {
        const std::int64_t own = token.experts[e] - first;
        if (own < 0 || own >= held) continue;
        const auto at = static_cast<std::size_t>(own);
        terms.push_back({token.weights[e], slot.outputs[at].row(next[at]++)});
      }
      combine_experts(numerics, terms, nullptr, sum.width, sum.row(i));
    }
  }
  if (collective.degree() > 1) {
    std::vector<std::span<float>> buffers;
    for (Matrix& sum : sums) buffers.emplace_back(sum.values);
    collective.all_reduce_sum(buffers);
  }
  for (std::size_t m = 0; m < members.size(); ++m) {
    if (members[m]->shared.rows > 0) add_in_place(sums[m].values, members[m]->shared.values);
    numerics.store(sums[m]);
  }
  return sums;
}

}  // namespace

RankMatrices combine_over_ranks(const Numerics& numerics, const ForwardSteps& steps,
                                std::span<const StepSite> sites, const std::vector<ExpertSlot*>& members,
                                Collective& collective) {
  if (numerics.arithmetic == Arithmetic::native)
    return native_combination(numerics, sites, members, collective);
  std::vector<std::vector<float>> own;
  std::vector<std::span<const std::byte>> sends;
  for (const ExpertSlot* slot : members) own.push_back(values_of(slot->outputs));
  for (const auto& values : own) sends.push_back(std::as_bytes(std::span(values)));
  std::vector<std::size_t> sizes;
  const auto gathered = collective.all_gather_bytes(sends, sizes);
  const std::vector<float> all = FloatReader(gathered).floats(gathered.size() / sizeof(float));
  RankMatrices out;
  for (std::size_t m = 0; m < members.size(); ++m)
    out.push_back(combined(numerics, steps, sites[m], collective.degree(), collective.local_ranks()[m],
                           *members[m], all));
  return out;
}

}  // namespace shardcheck
