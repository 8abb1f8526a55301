#include "taken.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace shardcheck::faults {
namespace {

std::shared_ptr<const Layout> layout_on(const Case& c, Side side) {
  return side == Side::source ? source_layout(c) : target_layout(c);
}

std::vector<Tensor> taken_shards(const Case& c, const LayoutEntry& entry, std::string_view argument,
                                 TakenBy taken, const std::vector<Tensor>& shards) {
  const Tensor full = gather_tensor(entry.placed, shards);
  std::vector<Tensor> wrong;
  for (int rank = 0; rank < entry.placed.degree(); ++rank) {
    const auto part = taken(c, entry, rank, argument);
    wrong.push_back(selected(full, part->dim, part->runs));
  }
  return wrong;
}

void take_all(const Case& c, const Layout& layout, std::string_view argument, TakenBy taken,
              ShardedTensors& shards) {
  for (const LayoutEntry& entry : layout.entries) {
    if (!taken(c, entry, 0, argument)) continue;
    std::vector<Tensor>& of_entry = shards.at(entry.name);
    of_entry = taken_shards(c, entry, argument, taken, of_entry);
  }
}

class TakesWrongly final : public SubjectDecorator {
 public:
  TakesWrongly(std::shared_ptr<Subject> inner, Case c, std::string_view argument, Side side, TakenBy taken)
      : SubjectDecorator(std::move(inner)),
        case_(std::move(c)),
        argument_(argument),
        side_(side),
        taken_(taken) {}

  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    if (side_ == Side::target) {
      ShardedTensors delivered = inner().reshard(shards, source, target);
      take_all(case_, target, argument_, taken_, delivered);
      return delivered;
    }
    ShardedTensors read = shards;
    take_all(case_, source, argument_, taken_, read);
    return inner().reshard(read, source, target);
  }

 private:
  Case case_;
  std::string argument_;
  Side side_;
  TakenBy taken_;
};

}  // namespace

Tensor selected(const Tensor& full, int dim, std::span<const Run> runs) {
  const auto at = static_cast<std::size_t>(dim);
  Shape shape = full.shape();
  std::size_t inner = static_cast<std::size_t>(size_bits(full.dtype()) / 8);
  for (std::size_t d = at + 1; d < shape.size(); ++d) inner *= static_cast<std::size_t>(shape[d]);
  const std::size_t stride = inner * static_cast<std::size_t>(shape[at]);
  const std::size_t outer = stride == 0 ? 0 : full.bytes().size() / stride;
  shape[at] = length_of({runs.begin(), runs.end()});
  Tensor out = Tensor::zeros(full.dtype(), shape);
  std::byte* to = out.mutable_bytes().data();
  for (std::size_t block = 0; block < outer; ++block) {
    const std::byte* from = full.bytes().data() + block * stride;
    for (const Run& run : runs) {
      const std::size_t size = static_cast<std::size_t>(run.length) * inner;
      if (run.global != kPadding) std::memcpy(to, from + static_cast<std::size_t>(run.global) * inner, size);
      to += size;
    }
  }
  return out;
}

std::vector<Run> owned(const LayoutEntry& entry, int rank, int dim) {
  const Selection selection = entry.placed.selection(rank);
  if (selection.dim == dim) return selection.runs;
  return {{0, entry.placed.shape().at(static_cast<std::size_t>(dim))}};
}

std::optional<Run> owned_range(const LayoutEntry& entry, int rank, int dim) {
  const auto runs = owned(entry, rank, dim);
  if (runs.size() != 1 || runs.front().global == kPadding) return std::nullopt;
  return runs.front();
}

const Shard* sharded(const LayoutEntry& entry) {
  if (!is_cut(entry)) return nullptr;
  const auto* shard = std::get_if<Shard>(&entry.placed.placement());
  return shard == nullptr || shard->policy == SplitPolicy::padded ? nullptr : shard;
}

std::int64_t uneven_items(const LayoutEntry& entry, SplitPolicy policy) {
  const Shard* shard = sharded(entry);
  if (shard == nullptr || shard->policy != policy) return 0;
  const std::int64_t items = entry.placed.shape()[static_cast<std::size_t>(shard->dim)] / shard->unit;
  return items % entry.placed.degree() == 0 ? 0 : items;
}

bool stacks_qkv(const LayoutEntry& entry) {
  return stacks(entry, {"q", "k", "v"}) || stacks(entry, {"q_bias", "k_bias", "v_bias"});
}

bool rearranges(const LayoutEntry& entry, std::initializer_list<std::string_view> roles) {
  const Arrangement& arrangement = entry.arrangement();
  return arrangement.order.size() > 1 && arrangement.dim == 0 && arrangement.stacked == 0 &&
         !arrangement.transposed && padding_in(arrangement.order) == 0 &&
         std::ranges::equal(entry.parts, roles, {}, &LogicalTensor::role);
}

bool is_evenly_cut(const LayoutEntry& entry) {
  if (!is_cut(entry)) return false;
  const int degree = entry.placed.degree();
  if (const auto* segments = std::get_if<Segments>(&entry.placed.placement())) {
    const auto copied = [&](const Segment& segment) { return segment.items < degree; };
    if (std::ranges::any_of(segments->segments, copied)) return false;
  }
  const Shape first = entry.placed.local_shape(0);
  for (int rank = 1; rank < degree; ++rank) {
    if (entry.placed.local_shape(rank) != first) return false;
  }
  return element_count(first) > 0;
}

std::int64_t kv_replicas(const Geometry& geometry, const LayoutEntry& entry) {
  return std::max<std::int64_t>(1, entry.placed.degree() / geometry.n_kv_heads);
}

bool shares_kv_heads(const Geometry& geometry, const LayoutEntry& entry) {
  return is_cut(entry) && stacks_qkv(entry) && kv_replicas(geometry, entry) > 1;
}

std::vector<Run> heads_by_member(const Geometry& geometry) {
  const std::int64_t members = geometry.n_heads / geometry.n_kv_heads;
  std::vector<Run> order;
  for (std::int64_t member = 0; member < members; ++member) {
    for (std::int64_t group = 0; group < geometry.n_kv_heads; ++group) {
      append_run(order, {(group * members + member) * geometry.head_dim, geometry.head_dim});
    }
  }
  return order;
}

Taken begun_at(const LayoutEntry& entry, int rank, std::int64_t begin) {
  const int dim = sharded(entry)->dim;
  const std::int64_t length = entry.placed.shape()[static_cast<std::size_t>(dim)];
  const std::int64_t own = length_of(owned(entry, rank, dim));
  Taken taken{dim, {}};
  append_run(taken.runs, {std::min(begin, length - own), own});
  return taken;
}

Taken cut_in_order(const LayoutEntry& entry, int rank, const std::vector<Run>& order) {
  return {0, compose_runs(order, owned(entry, rank, 0))};
}

QkvRows qkv_rows(const Geometry& geometry, const LayoutEntry& entry) {
  QkvRows rows;
  rows.q = geometry.attention_width();
  rows.kv = geometry.kv_width();
  rows.local_q = rows.q / entry.placed.degree();
  rows.local_kv = (entry.placed.local_shape(0)[0] - rows.local_q) / 2;
  return rows;
}

Taken with_kv_from(const Geometry& geometry, const LayoutEntry& entry, int rank, std::int64_t k,
                   std::int64_t v) {
  const QkvRows rows = qkv_rows(geometry, entry);
  Taken taken;
  append_run(taken.runs, {rank * rows.local_q, rows.local_q});
  append_run(taken.runs, {k, rows.local_kv});
  append_run(taken.runs, {v, rows.local_kv});
  return taken;
}

std::optional<std::string> unless_taken(const Case& c, std::string_view argument, Side side, TakenBy taken,
                                        std::string_view otherwise) {
  const auto layout = layout_on(c, side);
  if (!layout || !target_layout(c)) return std::string(kUnrepresentable);
  for (const auto& [axis, degree] : layout->name.axes) {
    if (axis != "tp" && degree > 1) return "the layout has ranks along " + axis;
  }
  for (const LayoutEntry& entry : layout->entries) {
    if (taken(c, entry, 0, argument)) return std::nullopt;
  }
  return std::string(otherwise);
}

bool takes_rightly(const Case& c, std::string_view argument, Side side, TakenBy taken) {
  const auto layout = layout_on(c, side);
  if (!layout) return false;
  for (const LayoutEntry& entry : layout->entries) {
    for (int rank = 0; rank < layout->degree; ++rank) {
      const auto wrong = taken(c, entry, rank, argument);
      if (!wrong) break;
      if (wrong->runs != owned(entry, rank, wrong->dim)) return false;
    }
  }
  return true;
}

std::shared_ptr<Subject> take_wrongly(std::shared_ptr<Subject> inner, const Case& c,
                                      std::string_view argument, Side side, TakenBy taken) {
  return std::make_shared<TakesWrongly>(std::move(inner), c, argument, side, taken);
}

std::optional<std::string> needs_two_positions(const Case& c) {
  if (std::ranges::max(lengths_of(c)) > 1) return std::nullopt;
  return "one position: attention returns its value whatever the score";
}

}  // namespace shardcheck::faults
