#include "shardcheck/mutators/delivery.h"

#include <fmt/format.h>

#include "shards_match.h"

namespace shardcheck {
namespace {

[[noreturn]] void refuse(const FaultChoice& choice, std::string_view reason) {
  throw InvalidInput(fmt::format("fault {} cannot be delivered: {}", choice.text(), reason));
}

}  // namespace

bool same_shard(const Tensor& a, const Tensor& b) {
  const bool shared =
      a.bytes().data() == b.bytes().data() && a.shape() == b.shape() && a.dtype() == b.dtype();
  return shared || a.same_bytes(b);
}

bool are_shards_of(const Layout& layout, const ShardedTensors& right, const ShardedTensors& other) {
  if (other.size() != right.size()) return false;
  for (const LayoutEntry& entry : layout.entries) {
    const auto found = other.find(entry.name);
    const std::vector<Tensor>& expected = right.at(entry.name);
    if (found == other.end() || found->second.size() != expected.size()) return false;
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
      const Tensor& shard = found->second[rank];
      if (shard.shape() != expected[rank].shape() || shard.dtype() != expected[rank].dtype()) return false;
    }
  }
  return true;
}

std::vector<ShardPlace> differing_places(const Layout& layout, const ShardedTensors& right,
                                         const ShardedTensors& other) {
  std::vector<ShardPlace> places;
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    const LayoutEntry& entry = layout.entries[e];
    const std::vector<Tensor>&expected = right.at(entry.name), &found = other.at(entry.name);
    for (const int rank : entry.placed.holders()) {
      const auto at = static_cast<std::size_t>(rank);
      if (!same_shard(expected.at(at), found.at(at))) places.push_back({static_cast<std::int64_t>(e), rank});
    }
  }
  return places;
}

Case delivery_case(const Layout& target, const LayoutName& source, DType dtype, std::uint64_t seed) {
  Case c;
  c.law = "sharded_equals_reference";
  c.geometry = target.geometry;
  c.dtype = dtype;
  c.source = source;
  c.target = target.name;
  c.seed = seed;
  return c;
}

Delivery deliver(const FaultChoice& choice, const Case& c, const TensorMap& weights) {
  const Fault& fault = *choice.fault;
  if (!acts_on_shards(fault)) {
    refuse(choice, fault.inject == nullptr
                       ? std::string("it is one of tensors that no forward pass here reads")
                       : fmt::format("it acts on the {} level, the shards it runs on are right",
                                     to_string(fault.level)));
  }
  if (const auto reason = fault.why_inapplicable(c, choice.argument)) refuse(choice, *reason);
  if (fault.equivalent != nullptr) {
    if (const auto reason = fault.equivalent(c, choice.argument)) refuse(choice, *reason);
  }
  const Layout source = make_layout(c.source, c.geometry), target = make_layout(c.target, c.geometry);
  const auto ours = std::make_shared<Subject>();
  const ShardedTensors moved = ours->split(weights, source);
  Delivery delivery;
  delivery.right = ours->reshard(moved, source, target);
  const auto faulty = fault.inject(ours, c, choice.argument);
  delivery.faulty = faulty->reshard(faulty->split(weights, source), source, target);
  if (!are_shards_of(target, delivery.right, delivery.faulty)) refuse(choice, "it changes a shape or dtype");
  delivery.touched = differing_places(target, delivery.right, delivery.faulty);
  if (delivery.touched.empty()) refuse(choice, "on these weights its shards are bit for bit right");
  return delivery;
}

}  // namespace shardcheck
