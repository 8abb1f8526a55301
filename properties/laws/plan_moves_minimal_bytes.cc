#include <fmt/format.h>

#include <set>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

using Codes = std::vector<std::set<std::uint64_t>>;

/// What each rank holds, by the codes of its elements; 0 is padding.
Codes codes_of(const Layout& layout, const ShardedTensors& shards) {
  Codes codes(static_cast<std::size_t>(layout.degree));
  for (const auto& [name, ranks] : shards) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::int64_t i = 0; i < ranks[rank].elements(); ++i) codes[rank].insert(ranks[rank].bits(i));
    }
  }
  for (auto& held : codes) held.erase(0);
  return codes;
}

/// Elements that target ranks hold in all, and those of them that the same source rank holds.
PlanBound count(const Layout& target, const ShardedTensors& wanted, const Codes& held) {
  PlanBound bound;
  for (const LayoutEntry& entry : target.entries) {
    const std::vector<Tensor>& ranks = wanted.find(entry.name)->second;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::int64_t i = 0; i < ranks[rank].elements(); ++i) {
        const std::uint64_t code = ranks[rank].bits(i);
        if (code == 0) continue;
        ++bound.elements;
        if (rank < held.size() && held[rank].contains(code)) ++bound.held_already;
      }
    }
  }
  return bound;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const TensorMap logical = make_weights(c.geometry, WeightStyle::fingerprint, c.seed, DType::f32);
  const PlanBound bound = count(target, split(logical, target), codes_of(source, split(logical, source)));
  const Plan plan = subject.plan(source, target);
  std::int64_t moved = 0, local = 0;
  for (const Copy& copy : plan.copies) {
    moved += copy.elements();
    if (copy.source_rank == copy.target_rank) local += copy.elements();
  }
  if (moved != bound.elements)
    return Outcome::fail(
        fmt::format("the copies write {} elements, the target holds {}", moved, bound.elements));
  if (local != bound.held_already)
    return Outcome::fail(fmt::format("{} elements come from the rank that wants them, which holds {}", local,
                                     bound.held_already));
  const PlanBound derived = plan_bound(source, target);
  if (derived.elements != bound.elements || derived.held_already != bound.held_already)
    return Outcome::fail(fmt::format("the derived bound is {} of {} elements, counting gives {} of {}",
                                     derived.held_already, derived.elements, bound.held_already,
                                     bound.elements));
  return with_digest(Outcome::pass(),
                     Digest().add(static_cast<double>(moved)).add(static_cast<double>(local)));
}

Case draw(Stream& stream) {
  return draw_for("plan_moves_minimal_bytes", stream, {.forward = false, .meshes = true});
}

}  // namespace

const Law& plan_moves_minimal_bytes() {
  static const Law law{
      .name = "plan_moves_minimal_bytes",
      .claim =
          "A plan writes every element of every target rank once, from an equal one, and fetches nothing "
          "that the process holds.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}, {"source!=target", 0.5}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
