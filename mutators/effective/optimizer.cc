// Moments of an optimiser and random states.
#include "optimizer_state.h"
#include "plan_fault.h"

namespace shardcheck::effective {
namespace {

Placement stacked_pair(std::int64_t rows) { return fused_paired({0, rows}, {rows, 2 * rows}); }
Placement alternating(std::int64_t rows) { return Grouped{0, {rows, {1, 1}}}; }

Tensor held_after(const MovedTensor& tensor, int degree, int rank) {
  const Tensor& whole = tensor.whole;
  if (tensor.name.starts_with("layers.0.down"))
    return columns_of(whole, rank * whole.dim(1) / degree, whole.dim(1) / degree);
  Rows rows;
  if (tensor.name == "random_state") {
    rows = {rank};
  } else {
    const std::int64_t half = whole.dim(0) / 2, own = half / degree;
    append_rows(rows, rank * own, own);
    append_rows(rows, half + rank * own, own);
  }
  return faults::with_rows(whole, rows);
}

ShardedTensors expected(const Case& c) {
  const int degree = c.target.tp_degree();
  ShardedTensors all;
  for (const MovedTensor& tensor : training_state(c)) {
    for (int rank = 0; rank < degree; ++rank) all[tensor.name].push_back(held_after(tensor, degree, rank));
  }
  return all;
}

ShardedTensors delivered(const Case& c) { return moved_state(c, StateMove()); }

/// What the processes held before.
std::vector<Tensor> held_before(const MovedTensor& tensor, const Regrouping& regrouping) {
  const auto by_rank = Loader().load({tensor.name, tensor.whole, tensor.before}, regrouping.degree);
  std::vector<Tensor> held;
  for (int process = 0; process < regrouping.degree; ++process)
    held.push_back(by_rank[static_cast<std::size_t>(regrouping.before(process))]);
  return held;
}

}  // namespace

std::vector<MovedTensor> training_state(const Case& c) {
  Stream stream(c.seed, "optimizer");
  const std::int64_t degree = c.target.tp_degree(), d_model = stream.integer(2, 6);
  const std::int64_t ffn = degree * stream.integer(2, 4);
  std::vector<MovedTensor> tensors;
  std::int64_t first = 1;
  const auto add = [&](std::string name, const Shape& shape, Placement before, Placement after) {
    tensors.push_back({std::move(name), numbered(shape, first), std::move(before), std::move(after)});
    first += element_count(shape);
  };
  for (const char* suffix : {"", ".exp_avg", ".exp_avg_sq"}) {
    add(std::string("layers.0.gate_up") + suffix, {2 * ffn, d_model}, alternating(ffn), stacked_pair(ffn));
    add(std::string("layers.0.down") + suffix, {d_model, ffn}, Shard{1}, Shard{1});
  }
  add("random_state", {degree, 4}, Shard{0}, Shard{0});
  return tensors;
}

Regrouping regrouping_of(const Case& c) {
  const int degree = c.target.tp_degree();
  return {degree, static_cast<int>(Stream(c.seed, "regrouping").integer(1, degree - 1))};
}

std::vector<Tensor> StateMove::moved(const MovedTensor& tensor, const std::vector<Tensor>& held,
                                     const Regrouping& regrouping) const {
  std::vector<Tensor> by_rank(held.size());
  for (int process = 0; process < regrouping.degree; ++process)
    by_rank[static_cast<std::size_t>(regrouping.before(process))] = held[static_cast<std::size_t>(process)];
  const PlacedTensor before(tensor.name, tensor.whole.shape(), tensor.before, regrouping.degree);
  const PlacedTensor after(tensor.name, tensor.whole.shape(), tensor.after, regrouping.degree);
  return split_tensor(after, gather_tensor(before, by_rank));
}

ShardedTensors moved_state(const Case& c, const StateMove& move) {
  const Regrouping regrouping = regrouping_of(c);
  ShardedTensors all;
  for (const MovedTensor& tensor : training_state(c))
    all[tensor.name] = move.moved(tensor, held_before(tensor, regrouping), regrouping);
  return all;
}

const EffectiveModel& optimizer() {
  static const EffectiveModel model{
      .kind = EffectiveKind::optimizer,
      .claim =
          "When ranks are laid out anew, the moments of an optimiser lie as the rows of their parameters do, "
          "and a random state goes with its rank.",
      .why_not = needs_few_ranks,
      .expected = expected,
      .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
