#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

const LayoutEntry* tied_entry(const Layout& layout) {
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.tied) return &entry;
  }
  return nullptr;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const LayoutEntry* copy = tied_entry(target);
  if (copy == nullptr) return Outcome::of(Verdict::vacuous, "the target holds no tied copy");
  const ShardedTensors moved = subject.reshard(subject.split(fingerprints_of(c), source), source, target);
  const LayoutEntry& original = target.entry_of(copy->parts.front().name);
  const Tensor one = gather_tensor(original.placed, moved.find(original.name)->second);
  const Tensor other = gather_tensor(copy->placed, moved.find(copy->name)->second);
  if (!one.same_bytes(other)) {
    Difference d;
    d.parameter = copy->name;
    d.target_degree = target.degree;
    d.worst_index = one.first_difference(other);
    return Outcome::fail(fmt::format("{} differs from {}", copy->name, original.name), d);
  }
  ShardedTensors damaged = moved;
  for (Tensor& tensor : damaged.find(copy->name)->second) {
    if (tensor.elements() > 0) tensor.set_bits(0, tensor.bits(0) ^ 1U);
  }
  try {
    (void)subject.reshard(damaged, target, source);
    return Outcome::fail(fmt::format("{}: a copy that differs is accepted", copy->name));
  } catch (const InvalidShards&) {
    return with_digest(Outcome::pass(), Digest().add(moved));
  }
}

Case draw(Stream& stream) {
  Case c = draw_for("tied_stay_tied", stream, {.forward = false});
  c.geometry.tied = true;
  c.geometry.n_layers = 2;
  c.source = {"hf-llama", {}};
  c.target = {"megatron-llama", {{"pp", 2}}};
  if (stream.chance(1, 2))
    c.target.axes.insert(c.target.axes.begin() + (stream.chance(1, 2) ? 1 : 0), {"tp", 2});
  if (!is_representable(c.target, c.geometry)) c.target.axes = {{"pp", 2}};
  return c;
}

}  // namespace

const Law& tied_stay_tied() {
  static const Law law{.name = "tied_stay_tied",
                       .claim =
                           "A tensor that two stages of a pipeline share is the same bytes in both, and "
                           "copies that differ are rejected.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"tied", 0.9}, {"pipeline", 0.9}},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
