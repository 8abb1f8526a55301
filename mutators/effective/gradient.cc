// Gradients of parameters that every rank of a tensor-parallel group holds whole, and of shards.
#include <fmt/format.h>

#include "cut_tensors.h"
#include "gradients.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::effective {
namespace {

struct Parameter {
  std::string name;
  std::int64_t width;
};

std::vector<Parameter> replicated_parameters(const Geometry& g) {
  return {{"layers.0.attn_norm", g.d_model}, {"layers.0.q_norm", g.head_dim}, {"layers.0.o_bias", g.d_model}};
}

constexpr std::string_view kColumnParallel = "layers.0.up";

/// The whole gradient of a column-parallel weight, [rows, 3].
Tensor column_parallel_gradient(const Case& c) {
  const std::int64_t rows = c.target.tp_degree() * Stream(c.seed, "rows of a shard").integer(2, 4);
  return whole_numbers(Stream(c.seed, "gradient of shards"), {rows, 3}, 1000);
}

/// What rank `rank` adds to the gradient.
Tensor partial_gradient(const Case& c, const Parameter& parameter, int rank) {
  Stream stream = Stream(c.seed, "gradient").child(fmt::format("{} {}", parameter.name, rank));
  Tensor gradient = Tensor::uninitialized(DType::f32, {parameter.width});
  for (float& value : gradient.mutable_f32()) value = static_cast<float>(stream.integer(-1000, 1000));
  return gradient;
}

Tensor sum_over_ranks(const Case& c, const Parameter& parameter) {
  Tensor sum = Tensor::zeros(DType::f32, {parameter.width});
  for (int rank = 0; rank < c.target.tp_degree(); ++rank) {
    const Tensor partial = partial_gradient(c, parameter, rank);
    for (std::size_t i = 0; i < partial.f32().size(); ++i) sum.mutable_f32()[i] += partial.f32()[i];
  }
  return sum;
}

ShardedTensors expected(const Case& c) {
  ShardedTensors all;
  for (const Parameter& parameter : replicated_parameters(c.geometry))
    all[parameter.name].assign(static_cast<std::size_t>(c.target.tp_degree()), sum_over_ranks(c, parameter));
  const Tensor whole = column_parallel_gradient(c);
  const std::int64_t rows = whole.dim(0) / c.target.tp_degree();
  for (std::int64_t rank = 0; rank < c.target.tp_degree(); ++rank)
    all[std::string(kColumnParallel)].push_back(whole.rows(rank * rows, rows));
  return all;
}

ShardedTensors delivered(const Case& c) { return reduced_gradients(c, GradientSteps()); }

void all_reduce(std::vector<Tensor>& ranks) {
  Tensor sum = ranks.front();
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < sum.f32().size(); ++i) sum.mutable_f32()[i] += ranks[rank].f32()[i];
  }
  ranks.assign(ranks.size(), sum);
}

}  // namespace

ShardedTensors reduced_gradients(const Case& c, const GradientSteps& steps) {
  const int degree = c.target.tp_degree();
  ShardedTensors all;
  for (const Parameter& parameter : replicated_parameters(c.geometry)) {
    std::vector<Tensor>& ranks = all[parameter.name];
    for (int rank = 0; rank < degree; ++rank) ranks.push_back(partial_gradient(c, parameter, rank));
    for (int i = 0; i < steps.reductions(); ++i) all_reduce(ranks);
    for (Tensor& gradient : ranks) {
      for (float& value : gradient.mutable_f32()) value /= steps.divisor(parameter.name, degree);
    }
  }
  std::vector<Tensor>& shards = all[std::string(kColumnParallel)];
  shards = Loader().load({"gradient", column_parallel_gradient(c), Shard{0}}, degree);
  for (int i = 0; i < steps.reductions_of_shards(); ++i) all_reduce(shards);
  return all;
}

const EffectiveModel& gradient() {
  static const EffectiveModel model{.kind = EffectiveKind::gradient,
                                    .claim =
                                        "The gradient of a parameter that every rank holds is the sum of "
                                        "what the ranks add to it, and that "
                                        "of a shard is the rank's own.",
                                    .why_not = needs_few_ranks,
                                    .expected = expected,
                                    .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
