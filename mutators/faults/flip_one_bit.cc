// The smallest change there is.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, const Layout& layout) {
  return stacks(entry, {"down"}) && entry.parts.front().layer == layout.geometry.n_layers - 1;
}

void damage(const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!hits(entry, target)) continue;
    Tensor& last = last_held(shards.at(entry.name));
    const auto element = static_cast<std::size_t>(size_bits(last.dtype()) / 8);
    last.mutable_bytes().last(element).front() ^= std::byte{1};  // little-endian: the lowest bit
  }
}

}  // namespace

const Fault& flip_one_bit() {
  static const Fault fault{
      .name = "flip_one_bit",
      .family = 'S',
      .level = FaultLevel::value,
      .claim =
          "The lowest bit of the last element of the last down projection is flipped on the last rank "
          "that has one.",
      .reports = {"A110"},
      .oracles = {Oracle::layout},  // it may round away before it reaches a logit
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view) {
            return unless_any(c, hits, "the last layer has no dense down projection");
          },
      .equivalent = nullptr,
      .inject = with_damage<damage>};
  return fault;
}

}  // namespace shardcheck::faults
