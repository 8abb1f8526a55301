// Weights with low-rank adapters.
#include <algorithm>

#include "adapters.h"
#include "plan_fault.h"

namespace shardcheck::effective {
namespace {

constexpr float kScale = 2.0F;
/// Of a number in a weight or factor: sums stay below 2^24, and random ones hardly ever agree.
constexpr std::int64_t kLargest = 64;

float at(const Tensor& matrix, std::int64_t row, std::int64_t column) {
  return matrix.f32()[static_cast<std::size_t>(row * matrix.dim(1) + column)];
}

void add_to(Tensor& sum, const Tensor& addend) {
  const auto values = sum.mutable_f32();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += addend.f32()[i];
}

/// base[o, i] += times * scale * B[o, k] A[part(o) * rank + k, i] for the products k in [first, second).
template <typename PartOf>
void merge(Tensor& base, const Tensor& a, const Tensor& b, float times, const PartOf& part_of,
           std::pair<std::int64_t, std::int64_t> products) {
  const auto out = base.mutable_f32();
  for (std::int64_t o = 0; o < base.dim(0); ++o) {
    const std::int64_t first = part_of(o) * b.dim(1);
    for (std::int64_t i = 0; i < base.dim(1); ++i) {
      float delta = 0.0F;
      for (std::int64_t k = products.first; k < products.second; ++k)
        delta += at(b, o, k) * at(a, first + k, i);
      out[static_cast<std::size_t>(o * base.dim(1) + i)] += times * kScale * delta;
    }
  }
}

std::int64_t part_at(const std::vector<std::int64_t>& lengths, std::int64_t row) {
  std::int64_t part = 0;
  for (std::int64_t end = lengths[0]; row >= end; end += lengths[static_cast<std::size_t>(part)]) ++part;
  return part;
}

std::int64_t first_part(std::int64_t) { return 0; }

/// Draws the adapters of one layer.
class Drawing {
 public:
  explicit Drawing(const Case& c)
      : stream_(c.seed, "adapter"),
        degree_(c.target.tp_degree()),
        rank_(degree_ * stream_.integer(1, 2)),
        d_model_(stream_.integer(4, 8)) {}

  AdaptedWeight qkv() {
    const bool replicates = stream_.chance(1, 2);
    const std::int64_t kv = replicates ? proper_divisor(stream_, degree_) : degree_ * stream_.integer(1, 2);
    const std::int64_t heads = std::max<std::int64_t>(kv, degree_) * stream_.integer(1, 3);
    const std::int64_t head_dim = stream_.integer(1, 3);
    return column("layers.0.qkv", {{0, heads, head_dim, "n_heads"},
                                   {0, kv, head_dim, "n_kv_heads", true},
                                   {0, kv, head_dim, "n_kv_heads", true}});
  }
  AdaptedWeight gate_up() {
    const std::int64_t ffn = degree_ * stream_.integer(2, 3);
    return column("layers.0.gate_up", {{0, ffn, 1, "gate"}, {0, ffn, 1, "up"}});
  }
  AdaptedWeight o_proj() {
    const std::int64_t in = degree_ * stream_.integer(2, 4);
    return finish({{"layers.0.o_proj", {}, Shard{1}}, {d_model_}, {}, {}, {}}, in);
  }
  ExpertAdapter expert_down() {
    const std::int64_t in = degree_ * stream_.integer(1, 3);
    return {"layers.0.experts.0.down", numbers("base", {d_model_, in}), numbers("a", {rank_, in}),
            numbers("b", {d_model_, rank_})};
  }

 private:
  Tensor numbers(std::string_view name, Shape shape) {
    return whole_numbers(stream_.child(name), std::move(shape), kLargest);
  }
  AdaptedWeight column(std::string name, std::vector<Segment> segments) {
    AdaptedWeight weight;
    std::int64_t begin = 0;
    for (Segment& segment : segments) {
      segment.begin = begin;
      begin += segment.length();
      weight.parts.push_back(segment.length());
    }
    weight.base = {std::move(name), {}, Segments{0, std::move(segments)}};
    return finish(std::move(weight), d_model_);
  }
  AdaptedWeight finish(AdaptedWeight weight, std::int64_t in) {
    std::int64_t out = 0;
    for (const std::int64_t rows : weight.parts) out += rows;
    const std::string& name = weight.base.name;
    const Shape stacked = {std::ssize(weight.parts) * rank_, in};
    weight.base.whole = numbers(name, {out, in});
    weight.a = numbers(name + ".a", stacked);
    weight.b = numbers(name + ".b", {out, rank_});
    for (int rank = 0; rank < degree_; ++rank)
      weight.updates.push_back(whole_numbers(stream_.child(name + std::to_string(rank)), stacked, 1));
    return weight;
  }

  Stream stream_;
  int degree_;
  std::int64_t rank_, d_model_;
};

ExpertAdapter expert_adapter(const Case& c) { return Drawing(c).expert_down(); }

/// The whole weight with its adapter.
Tensor whole(const AdaptedWeight& weight) {
  Tensor a = weight.a, sum = weight.base.whole;
  for (const Tensor& update : weight.updates) add_to(a, update);
  const auto part_of = [&](std::int64_t row) { return part_at(weight.parts, row); };
  merge(sum, a, weight.b, 1.0F, part_of, {0, weight.rank()});
  return sum;
}

/// A rank's part of a whole weight: columns, or its rows of every part.
Tensor share_of(const AdaptedWeight& weight, const Tensor& sum, int degree, int rank) {
  const auto* segments = std::get_if<Segments>(&weight.base.placement);
  if (segments == nullptr) return columns_of(sum, rank * sum.dim(1) / degree, sum.dim(1) / degree);
  Rows rows;
  for (const Segment& part : segments->segments) {
    const std::int64_t items = std::max<std::int64_t>(1, part.items / degree);
    append_rows(rows, part.begin + rank * part.items / degree * part.unit, items * part.unit);
  }
  return faults::with_rows(sum, rows);
}

ShardedTensors expected(const Case& c) {
  const int degree = c.target.tp_degree();
  ShardedTensors all;
  for (const AdaptedWeight& weight : adapted_weights(c)) {
    const Tensor sum = whole(weight);
    for (int rank = 0; rank < degree; ++rank)
      all[weight.base.name].push_back(share_of(weight, sum, degree, rank));
  }
  const ExpertAdapter expert = expert_adapter(c);
  Tensor sum = expert.base;
  merge(sum, expert.a, expert.b, 1.0F, first_part, {0, expert.b.dim(1)});
  all[expert.name].assign(static_cast<std::size_t>(degree), sum);
  return all;
}

ShardedTensors delivered(const Case& c) { return adapted(c, AdapterEngine()); }

/// Weights of an adapted weight on every rank, from shards of its base, of A and of B.
std::vector<Tensor> adapted_shards(const AdaptedWeight& weight, int degree, const AdapterEngine& engine) {
  std::vector<Tensor> shards = Loader().load(weight.base, degree);
  const bool by_columns = std::holds_alternative<Shard>(weight.base.placement);
  const CutTensor a{"a", engine.stepped_a(weight), by_columns ? Placement(Shard{1}) : Placement(Replicate{})};
  const std::vector<Tensor> local_a = Loader().load(a, degree), local_b = engine.local_b(weight, degree);
  const std::vector<std::int64_t> parts = local_parts(weight, degree);
  const auto part_of = [&](std::int64_t row) { return engine.part_of(parts, row); };
  for (int rank = 0; rank < degree; ++rank) {
    const auto on = static_cast<std::size_t>(rank);
    merge(shards[on], local_a[on], local_b[on], static_cast<float>(engine.merges()), part_of,
          engine.products(weight.rank(), degree, rank));
  }
  return shards;
}

/// What the partial weights of the ranks add up to: their columns in place, and the adapter of every rank
/// that adds it.
Tensor summed_expert(const ExpertAdapter& expert, int degree, const AdapterEngine& engine) {
  Tensor sum = gather_tensor(PlacedTensor(expert.name, expert.base.shape(), Shard{1}, degree),
                             Loader().load({expert.name, expert.base, Shard{1}}, degree));
  for (int rank = 0; rank < engine.adding_ranks(degree); ++rank)
    merge(sum, expert.a, expert.b, 1.0F, first_part, {0, expert.b.dim(1)});
  return sum;
}

}  // namespace

std::vector<AdaptedWeight> adapted_weights(const Case& c) {
  Drawing drawing(c);
  return {drawing.qkv(), drawing.gate_up(), drawing.o_proj()};
}

std::vector<std::int64_t> local_parts(const AdaptedWeight& weight, int degree) {
  const auto* segments = std::get_if<Segments>(&weight.base.placement);
  if (segments == nullptr) return weight.parts;
  std::vector<std::int64_t> lengths;
  for (const Segment& part : segments->segments)
    lengths.push_back(std::max<std::int64_t>(1, part.items / degree) * part.unit);
  return lengths;
}

Tensor AdapterEngine::stepped_a(const AdaptedWeight& weight) const {
  Tensor a = weight.a;
  for (const Tensor& update : weight.updates) add_to(a, update);
  return a;
}

std::vector<Tensor> AdapterEngine::local_b(const AdaptedWeight& weight, int degree) const {
  const bool by_columns = std::holds_alternative<Shard>(weight.base.placement);
  return Loader().load({"b", weight.b, by_columns ? Placement(Replicate{}) : weight.base.placement}, degree);
}

std::int64_t AdapterEngine::part_of(const std::vector<std::int64_t>& parts, std::int64_t row) const {
  return part_at(parts, row);
}

ShardedTensors adapted(const Case& c, const AdapterEngine& engine) {
  const int degree = c.target.tp_degree();
  ShardedTensors all;
  for (const AdaptedWeight& weight : adapted_weights(c))
    all[weight.base.name] = adapted_shards(weight, degree, engine);
  const ExpertAdapter expert = expert_adapter(c);
  all[expert.name].assign(static_cast<std::size_t>(degree), summed_expert(expert, degree, engine));
  return all;
}

const EffectiveModel& adapter() {
  static const EffectiveModel model{.kind = EffectiveKind::adapter,
                                    .claim =
                                        "Every rank computes with its part of the weight with its adapter, "
                                        "and partial sums hold the adapter "
                                        "once.",
                                    .why_not = needs_few_ranks,
                                    .expected = expected,
                                    .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
