// A square column-parallel weight cut along its input: shapes cannot tell.
#include "plan_fault.h"
#include "steering.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  if (!is_cut(entry) || !(stacks(entry, {"gate", "up"}) || stacks(entry, {"gate"}))) return false;
  const Shape& part = entry.parts.front().shape;
  return part[0] == part[1] && part[1] % entry.placed.degree() == 0;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  recut(entry, Shard{1}, shards);
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    shards[rank] = shards[rank].reshaped(entry.placed.local_shape(static_cast<int>(rank)));
  }
}

}  // namespace

// Never equivalent: with two ranks or more the first row of rank 0 is made of the beginnings of two rows.
const Fault& cut_input_of_square_gate() {
  static const Fault fault{
      .name = "cut_input_of_square_gate",
      .family = 'A',
      .level = FaultLevel::plan,
      .claim =
          "A square gate is cut along its input and its block read in the shape of a cut along its output.",
      .reports = {"A31", "A33", "A69"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "the gate is not square or not cut over several ranks");
          },
      .equivalent = nullptr,
      .inject = with_hurt<hits, hurt>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(2, 4));
            fit_ranks(c.geometry, ranks);
            c.geometry.d_model = c.geometry.ffn;
            c.target = over_ranks(stream.pick<std::string>({"seed", "hf-llama"}), ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
