#include "plan_fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace shardcheck::faults {
namespace {

struct Remembered {
  LayoutName name;
  Geometry geometry;
  std::shared_ptr<const Layout> layout;
  bool filled = false;
};

std::shared_ptr<const Layout> layout_or_null(const LayoutName& name, const Geometry& geometry,
                                             Remembered& last) {
  if (last.filled && last.name == name && last.geometry == geometry) return last.layout;
  last = {name, geometry, nullptr, true};
  try {
    last.layout = std::make_shared<const Layout>(make_layout(name, geometry));
  } catch (const UnsupportedLayout&) {
    // Remembered as null: the case cannot be made concrete.
  }
  return last.layout;
}

class DamagedDelivery final : public SubjectDecorator {
 public:
  DamagedDelivery(std::shared_ptr<Subject> inner, Case c, std::string_view argument, Damage damage)
      : SubjectDecorator(std::move(inner)), case_(std::move(c)), argument_(argument), damage_(damage) {}

  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors delivered = inner().reshard(shards, source, target);
    damage_(case_, target, argument_, delivered);
    return delivered;
  }

 private:
  Case case_;
  std::string argument_;
  Damage damage_;
};

class DamagedEntries final : public SubjectDecorator {
 public:
  DamagedEntries(std::shared_ptr<Subject> inner, std::string_view argument, Hits hits, Hurt hurt)
      : SubjectDecorator(std::move(inner)), argument_(argument), hits_(hits), hurt_(hurt) {}

  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    ShardedTensors delivered = inner().reshard(shards, source, target);
    for (const LayoutEntry& entry : target.entries) {
      if (hits_(entry, argument_)) hurt_(entry, argument_, delivered.at(entry.name));
    }
    return delivered;
  }

 private:
  std::string argument_;
  Hits hits_;
  Hurt hurt_;
};

}  // namespace

std::shared_ptr<const Layout> target_layout(const Case& c) {
  thread_local Remembered last;
  return layout_or_null(c.target, c.geometry, last);
}

std::shared_ptr<const Layout> source_layout(const Case& c) {
  thread_local Remembered last;
  return layout_or_null(c.source, c.geometry, last);
}

std::optional<std::string> needs_layout(const Case& c) {
  if (target_layout(c)) return std::nullopt;
  return std::string(kUnrepresentable);
}

std::optional<std::string> needs_ranks(const Case& c) {
  if (c.target.tp_degree() > 1) return needs_layout(c);
  return std::string(kOneRank);
}

std::optional<std::string> needs_rope(const Case& c) {
  if (c.geometry.rope == Rope::none) return "the model has no rotary embedding";
  return needs_layout(c);
}

std::int64_t longest_sequence(const Case& c) { return std::ranges::max(lengths_of(c)); }

Tokens tokens_of(const Case& c) { return make_tokens(c.geometry, c.batch, c.length, 10000 + c.seed); }

bool stacks(const LayoutEntry& entry, std::initializer_list<std::string_view> roles) {
  return !entry.arranged && std::ranges::equal(entry.parts, roles, {}, &LogicalTensor::role);
}

bool is_padded(const LayoutEntry& entry) { return padding_in(entry.arrangement().order) > 0; }

bool is_head_of_two_ranks(const LayoutEntry& entry, const Layout& layout) {
  if (!is_head(entry, layout) || !is_cut(entry) || layout.mesh.degree(Axis::tp) == 1) return false;
  const std::vector<int> holders = entry.placed.holders();
  if (holders.size() < 2) return false;
  const Selection second = entry.placed.selection(holders[1]);
  return second.dim == 0 && !second.runs.empty() && second.runs.front().global < entry.parts.front().shape[0];
}

std::optional<std::string> needs_sum_of(const Case& c, std::string_view role) {
  if (auto reason = needs_ranks(c)) return reason;
  const auto adds = [&](const LayoutEntry& entry, const Layout&) { return stacks(entry, {role}); };
  return unless_any(c, adds, "no layer has such a sum");
}

std::optional<std::string> needs_plain_heads(const Case& c) {
  return unless_any(
      c,
      [](const LayoutEntry& entry, const Layout&) {
        return stacks(entry, {"q", "k", "v"}) || stacks(entry, {"k"});
      },
      "the rows of q and k are dealt out or reordered");
}

bool belongs_to(const LayoutEntry& entry, std::string_view group) {
  return std::ranges::all_of(entry.parts, [&](const LogicalTensor& part) {
    if (group == "qkv") return part.role == "q" || part.role == "k" || part.role == "v";
    if (group == "gate_up") return part.role == "gate" || part.role == "up";
    return part.role == group;
  });
}

bool is_norm(const LayoutEntry& entry) { return entry.parts.front().role.ends_with("norm"); }

bool is_head(const LayoutEntry& entry, const Layout& layout) {
  return belongs_to(entry, layout.geometry.tied ? "embed" : "lm_head");
}

bool is_cut(const LayoutEntry& entry) {
  const Placement& placement = entry.placed.placement();
  return entry.placed.degree() > 1 &&
         (std::holds_alternative<Shard>(placement) || std::holds_alternative<Segments>(placement));
}

const LayoutEntry* unfused(const Layout& layout, std::string_view logical_name) {
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.parts.size() == 1 && entry.parts.front().name == logical_name) return &entry;
  }
  return nullptr;
}

std::size_t row_bytes(const Tensor& tensor) {
  return tensor.dim(0) == 0 ? 0 : tensor.bytes().size() / static_cast<std::size_t>(tensor.dim(0));
}

Tensor with_rows(const Tensor& tensor, std::span<const std::int64_t> order) {
  Shape shape = tensor.shape();
  shape[0] = std::ssize(order);
  Tensor out = Tensor::uninitialized(tensor.dtype(), shape);
  const std::size_t size = row_bytes(tensor);
  std::byte* to = out.mutable_bytes().data();
  const std::byte* from = tensor.bytes().data();
  for (std::size_t i = 0; i < order.size() && size > 0; ++i) {
    std::memcpy(to + i * size, from + static_cast<std::size_t>(order[i]) * size, size);
  }
  return out;
}

Tensor rolled(const Tensor& tensor, std::int64_t shift) {
  const std::int64_t n = tensor.dim(0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[static_cast<std::size_t>((i + shift) % n)] = i;
  return with_rows(tensor, order);
}

Tensor stacked(std::span<const Tensor> parts) {
  Shape shape = parts.front().shape();
  shape[0] = 0;
  for (const Tensor& part : parts) shape[0] += part.dim(0);
  Tensor out = Tensor::uninitialized(parts.front().dtype(), shape);
  std::byte* to = out.mutable_bytes().data();
  for (const Tensor& part : parts) to = std::ranges::copy(part.bytes(), to).out;
  return out;
}

void swap_rows(Tensor& tensor, std::int64_t first, std::int64_t second, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(tensor.dim(0)));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::swap_ranges(order.begin() + first, order.begin() + first + count, order.begin() + second);
  tensor = with_rows(tensor, order);
}

void clear_rows(Tensor& tensor, std::int64_t first, std::int64_t count) {
  const std::size_t size = row_bytes(tensor);
  const auto bytes = tensor.mutable_bytes().subspan(static_cast<std::size_t>(first) * size,
                                                    static_cast<std::size_t>(count) * size);
  std::ranges::fill(bytes, std::byte{0});
}

Tensor& last_held(std::vector<Tensor>& shards) {
  const auto is_held = [](const Tensor& shard) { return shard.elements() > 0; };
  const auto last = std::find_if(shards.rbegin(), shards.rend(), is_held);
  if (last == shards.rend()) throw std::logic_error("no rank holds anything of the tensor");
  return *last;
}

bool recuts(const LayoutEntry& entry, const Placement& placement) {
  const PlacedTensor wrong(entry.name, entry.placed.shape(), placement, entry.placed.degree());
  bool differs = false;
  for (int rank = 0; rank < entry.placed.degree(); ++rank) {
    if (wrong.local_shape(rank) != entry.placed.local_shape(rank)) return false;
    differs = differs || wrong.selections(rank) != entry.placed.selections(rank);
  }
  return differs;
}

void recut(const LayoutEntry& entry, Placement placement, std::vector<Tensor>& shards) {
  const PlacedTensor wrong(entry.name, entry.placed.shape(), std::move(placement), entry.placed.degree());
  shards = split_tensor(wrong, gather_tensor(entry.placed, shards));
}

Tensor transposed(const Tensor& matrix) {
  const auto rows = static_cast<std::size_t>(matrix.dim(0)),
             columns = static_cast<std::size_t>(matrix.dim(1));
  Tensor out = Tensor::uninitialized(matrix.dtype(), {matrix.dim(1), matrix.dim(0)});
  const auto size = static_cast<std::size_t>(size_bits(matrix.dtype()) / 8);
  std::byte* to = out.mutable_bytes().data();
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t row = 0; row < rows; ++row, to += size)
      std::memcpy(to, matrix.bytes().data() + (row * columns + column) * size, size);
  }
  return out;
}

std::int64_t number_in(std::string_view argument) { return std::stoll(std::string(argument)); }

void change_values(Tensor& tensor, const std::function<float(float)>& change) {
  const DType dtype = tensor.dtype();
  Tensor values = tensor.to(DType::f32);
  for (float& value : values.mutable_f32()) value = change(value);
  tensor = values.to(dtype);
}

bool has_two_kinds_of_layers(const Geometry& g) {
  return g.n_experts > 0 && g.dense_layers > 0 && g.dense_layers < g.n_layers;
}

const LayoutEntry& in_layer(const Layout& layout, const LayoutEntry& entry, std::int64_t layer) {
  const LogicalTensor& part = entry.parts.front();
  return layout.entry_of(logical_name(part.role, layer, part.expert));
}

TensorMap earlier_weights(const Case& c, DType dtype) {
  return make_weights(c.geometry, c.weights, c.seed + 1, dtype);
}

DType dtype_of(const ShardedTensors& shards) {
  for (const auto& [name, ranks] : shards) {
    for (const Tensor& shard : ranks) {
      if (shard.elements() > 0) return shard.dtype();
    }
  }
  return DType::f32;
}

void use_seed_tables(Case& c) {
  for (LayoutName* name : {&c.source, &c.target, &c.via}) {
    if (!name->table.starts_with("seed")) name->table = "seed";
  }
}

void run_over(Case& c, std::string_view axis) {
  const int ranks = c.target.tp_degree();
  c.target = {c.target.table, {}};
  if (axis != "tp") c.target.axes.emplace_back(axis, 2);
  if (ranks > 1) c.target.axes.emplace_back("tp", ranks);
  c.context_ends.clear();
}

void use_plain_llama(Case& c) {
  Geometry& g = c.geometry;
  g.n_experts = g.expert_ffn = g.shared_ffn = g.dense_layers = g.positions = 0;
  g.norm = Norm::rms;
  g.gated = true;
  g.sinks = g.mlp_bias = g.router_bias = false;
  use_seed_tables(c);
}

void give_row_biases(Case& c, Stream& stream) {
  use_plain_llama(c);
  c.geometry.o_bias = c.geometry.mlp_bias = true;
  for (LayoutName* name : {&c.source, &c.target, &c.via}) name->table = "seed";
  const bool exact_shares = std::has_single_bit(static_cast<unsigned>(c.target.tp_degree()));
  switch (stream.integer(exact_shares ? 0 : 1, 2)) {
    case 0:
      c.target.table = "seed-bias-divided";
      break;
    case 1:
      c.target.table = "seed-bias-on-first-rank";
      break;
    default:
      break;
  }
}

void give_shared_expert(Case& c, Stream& /*stream*/) {
  use_plain_llama(c);
  c.geometry.n_experts = 4;
  c.geometry.expert_ffn = c.geometry.shared_ffn = c.geometry.ffn;
}

std::shared_ptr<Subject> damage_delivery(std::shared_ptr<Subject> inner, const Case& c,
                                         std::string_view argument, Damage damage) {
  return std::make_shared<DamagedDelivery>(std::move(inner), c, argument, damage);
}

std::shared_ptr<Subject> damage_entries(std::shared_ptr<Subject> inner, std::string_view argument, Hits hits,
                                        Hurt hurt) {
  return std::make_shared<DamagedEntries>(std::move(inner), argument, hits, hurt);
}

std::optional<std::string> unless_any(const Case& c, const HoldsOf& holds, std::string_view otherwise) {
  const auto layout = target_layout(c);
  if (!layout) return std::string(kUnrepresentable);
  for (const LayoutEntry& entry : layout->entries) {
    if (holds(entry, *layout)) return std::nullopt;
  }
  return std::string(otherwise);
}

std::optional<std::string> unless_hit(const Case& c, std::string_view argument, Hits hits,
                                      std::string_view otherwise) {
  return unless_any(
      c, [&](const LayoutEntry& entry, const Layout&) { return hits(entry, argument); }, otherwise);
}

}  // namespace shardcheck::faults
