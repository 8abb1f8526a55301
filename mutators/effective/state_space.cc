// Fused input projections, convolutions and state groups of state-space layers.
#include "state_space.h"

#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::effective {
namespace {

constexpr std::int64_t kTaps = 4;

/// Stacked segments along dimension 0; those of the state groups are replicated over more ranks than groups.
class Stack {
 public:
  Stack& cut(std::int64_t items, const char* label) { return add({0, items, 1, label, false}); }
  Stack& groups(std::int64_t items, std::int64_t unit) { return add({0, items, unit, "groups", true}); }
  CutTensor named(const std::string& name, std::int64_t width) const {
    return {name, numbered({rows_, width}), segments_};
  }

 private:
  Stack& add(Segment segment) {
    segment.begin = rows_;
    rows_ += segment.length();
    segments_.segments.push_back(std::move(segment));
    return *this;
  }
  Segments segments_;
  std::int64_t rows_ = 0;
};

/// The rows that a rank holds, section after section.
class Held {
 public:
  Held(const StateSpaceLayer& layer, int degree, int rank) : layer_(layer), degree_(degree), rank_(rank) {}

  Held& inner() { return share(layer_.inner()); }
  Held& heads() { return share(layer_.heads); }
  Held& groups() {
    const std::int64_t own = std::max<std::int64_t>(1, layer_.groups / degree_);
    const std::int64_t first = rank_ * layer_.groups / degree_;
    append_rows(rows_, begin_ + first * layer_.state, own * layer_.state);
    begin_ += layer_.group_rows();
    return *this;
  }
  Tensor of(const Tensor& whole) const { return faults::with_rows(whole, rows_); }

 private:
  Held& share(std::int64_t length) {
    append_rows(rows_, begin_ + rank_ * length / degree_, length / degree_);
    begin_ += length;
    return *this;
  }

  const StateSpaceLayer& layer_;
  std::int64_t degree_, rank_;
  std::int64_t begin_ = 0;
  Rows rows_;
};

Tensor expected_on(const StateSpaceLayer& layer, const CutTensor& tensor, int degree, int rank) {
  const std::string_view kind = std::string_view(tensor.name).substr(layer.name.size() + 1);
  Held held(layer, degree, rank);
  if (kind == "in_proj") return held.inner().inner().groups().groups().heads().of(tensor.whole);
  if (kind == "conv1d") return held.inner().groups().groups().of(tensor.whole);
  if (kind == "dt_bias") return held.heads().of(tensor.whole);
  if (kind == "norm") return held.inner().of(tensor.whole);
  const std::int64_t columns = layer.inner() / degree;
  return columns_of(tensor.whole, rank * columns, columns);
}

ShardedTensors expected(const Case& c) {
  const int degree = c.target.tp_degree();
  ShardedTensors all;
  for (const StateSpaceLayer& layer : state_space_layers(c)) {
    for (const CutTensor& tensor : state_space_tensors(layer)) {
      for (int rank = 0; rank < degree; ++rank)
        all[tensor.name].push_back(expected_on(layer, tensor, degree, rank));
    }
  }
  return all;
}

ShardedTensors delivered(const Case& c) { return loaded_state_space(c, Loader()); }

}  // namespace

std::vector<StateSpaceLayer> state_space_layers(const Case& c) {
  Stream stream(c.seed, "state space");
  const int degree = c.target.tp_degree();
  std::vector<StateSpaceLayer> layers;
  for (const std::int64_t groups : {degree * stream.integer(1, 2), proper_divisor(stream, degree)}) {
    layers.push_back({.name = "layers." + std::to_string(layers.size()),
                      .heads = std::max<std::int64_t>(groups, degree) * stream.integer(1, 2),
                      .head_dim = stream.integer(1, 4),
                      .groups = groups,
                      .state = stream.integer(2, 5),
                      .d_model = stream.integer(3, 8)});
  }
  return layers;
}

std::vector<CutTensor> state_space_tensors(const StateSpaceLayer& layer) {
  const std::int64_t inner = layer.inner(), groups = layer.groups, state = layer.state;
  Stack in_proj, conv, heads, channels;
  in_proj.cut(inner, "z").cut(inner, "x").groups(groups, state).groups(groups, state);
  in_proj.cut(layer.heads, "dt");
  conv.cut(inner, "x").groups(groups, state).groups(groups, state);
  heads.cut(layer.heads, "heads");
  channels.cut(inner, "channels");
  return {in_proj.named(layer.name + ".in_proj", layer.d_model),
          conv.named(layer.name + ".conv1d", kTaps),
          heads.named(layer.name + ".dt_bias", 1),
          channels.named(layer.name + ".norm", 1),
          {layer.name + ".out_proj", numbered({layer.d_model, inner}), Shard{1}}};
}

ShardedTensors loaded_state_space(const Case& c, const Loader& loader) {
  ShardedTensors all;
  for (const StateSpaceLayer& layer : state_space_layers(c))
    all.merge(load_all(state_space_tensors(layer), c.target.tp_degree(), loader));
  return all;
}

const EffectiveModel& state_space() {
  static const EffectiveModel model{
      .kind = EffectiveKind::state_space,
      .claim =
          "Every rank of a state-space layer computes with its part of each section of the fused projection "
          "and of the convolution, and with the state group of its heads.",
      .why_not = needs_few_ranks,
      .expected = expected,
      .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
