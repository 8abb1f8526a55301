#include <fmt/format.h>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// One replicated entry of the layout, chosen by the seed; nullptr when there is none.
const LayoutEntry* replicated_entry(const Layout& layout, std::uint64_t seed) {
  std::vector<const LayoutEntry*> replicated;
  for (const LayoutEntry& entry : layout.entries) {
    if (std::holds_alternative<Replicate>(entry.placed.placement())) replicated.push_back(&entry);
  }
  return replicated.empty() ? nullptr : replicated[seed % replicated.size()];
}

/// Even seeds: one bit on one rank. Odd seeds: every byte 0xff, a NaN in every dtype, on all ranks but 0.
void diverge(std::vector<Tensor>& replicas, std::uint64_t seed) {
  if (seed % 2 == 0) {
    const std::uint64_t choice = seed / 2;
    auto bytes = replicas[1 + choice % (replicas.size() - 1)].mutable_bytes();
    bytes[choice % bytes.size()] ^= std::byte{1};
    return;
  }
  for (std::size_t rank = 1; rank < replicas.size(); ++rank) {
    for (std::byte& b : replicas[rank].mutable_bytes()) b = std::byte{0xff};
  }
}

/// Passed when `use` refuses the shards and names the parameter.
template <typename Use>
Outcome refuses(std::string_view what, const LayoutEntry& entry, int degree, Use use) {
  Difference d;
  d.parameter = entry.name;
  d.target_degree = degree;
  d.expected = "InvalidShards naming the parameter";
  try {
    use();
    d.actual = "accepted";
  } catch (const InvalidShards& refusal) {
    if (std::string_view(refusal.what()).find(entry.name) != std::string_view::npos) return Outcome::pass();
    d.actual = refusal.what();
  }
  return Outcome::fail(fmt::format("{} of replicas of {} that differ: {}", what, entry.name, d.actual), d);
}

Outcome check(const Case& c, Subject& subject) {
  const Layout layout = make_layout(c.target, c.geometry);
  const LayoutEntry* entry = replicated_entry(layout, c.seed / 2);
  if (layout.degree == 1 || entry == nullptr)
    return Outcome::of(Verdict::vacuous, "no parameter has a second replica: nothing can diverge");
  ShardedTensors shards = subject.split(fingerprints_of(c), layout);
  diverge(shards.at(entry->name), c.seed);
  const Outcome gathered =
      refuses("gather", *entry, layout.degree, [&] { (void)subject.gather(shards, layout); });
  if (gathered.verdict != Verdict::passed) return gathered;
  const Layout other = make_layout(c.source, c.geometry);
  return with_digest(
      refuses("reshard", *entry, layout.degree, [&] { (void)subject.reshard(shards, layout, other); }),
      Digest().add(shards));
}

Case draw(Stream& stream) {
  return draw_where("divergent_replicas_are_rejected", stream, {.forward = false, .any_dtype = true},
                    target_is_sharded);
}

}  // namespace

const Law& divergent_replicas_are_rejected() {
  static const Law law{
      .name = "divergent_replicas_are_rejected",
      .claim = "Gather and reshard refuse replicas that differ in a single bit, and name the parameter.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.9}, {"source!=target", 0.3}, {"two_tables", 0.2}},
      .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
