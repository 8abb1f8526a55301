#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// How many ranks hold an element: all of them or one.
int holders(const LayoutEntry& entry, int degree) {
  return std::holds_alternative<Replicate>(entry.placed.placement()) ? degree : 1;
}

/// A rank of a Partial tensor holds an addend, and addends are no elements: the claim does not speak of them.
bool has_partial(const Layout& layout) {
  return std::ranges::any_of(layout.entries, [](const LayoutEntry& entry) {
    return std::holds_alternative<Partial>(entry.placed.placement());
  });
}

/// Padding is no element either, and is zero, the code of none.
bool has_padding(const Layout& layout) {
  return std::ranges::any_of(
      layout.entries, [](const LayoutEntry& entry) { return padding_in(entry.arrangement().order) > 0; });
}

Outcome wrong_count(const std::string& parameter, int degree, std::int64_t index, std::int64_t expected,
                    std::int64_t actual) {
  Difference d;
  d.parameter = parameter;
  d.target_degree = degree;
  d.worst_index = index;
  d.worst_place = fmt::format("element {} of {}", index, parameter);
  d.expected = fmt::format("{} ranks", expected);
  d.actual = fmt::format("{} ranks", actual);
  return Outcome::fail(fmt::format("{}: {} ranks of {} hold element {}, expected {}", parameter, actual,
                                   degree, index, expected),
                       d);
}

/// Adds a rank's runs to the count of each index of the cut dimension; false when a run leaves it.
bool count_runs(const Selection& selection, std::vector<std::int64_t>& counts) {
  const auto extent = static_cast<std::int64_t>(counts.size());
  if (selection.dim < 0) {
    for (auto& count : counts) ++count;
    return true;
  }
  for (const Run& run : selection.runs) {
    if (run.global < 0 || run.length < 0 || run.global > extent - run.length) return false;
    for (std::int64_t i = 0; i < run.length; ++i) ++counts[static_cast<std::size_t>(run.global + i)];
  }
  return true;
}

/// The placement's own runs against a count array.
std::optional<Outcome> check_runs(const LayoutEntry& entry, int degree) {
  const PlacedTensor& placed = entry.placed;
  const int dim = std::max(0, placed.selection(0).dim);
  std::vector<std::int64_t> counts(
      static_cast<std::size_t>(placed.shape().at(static_cast<std::size_t>(dim))));
  for (int rank = 0; rank < degree; ++rank) {
    const Selection selection = placed.selection(rank);
    if (std::max(0, selection.dim) != dim || !count_runs(selection, counts))
      return Outcome::fail(fmt::format("{}: the runs of rank {} leave the tensor", entry.name, rank));
    Shape local = placed.shape();
    if (selection.dim >= 0) local[static_cast<std::size_t>(dim)] = selection.length();
    if (local != placed.local_shape(rank))
      return Outcome::fail(fmt::format("{}: rank {} selects {} but its local shape is {}", entry.name, rank,
                                       to_string(local), to_string(placed.local_shape(rank))));
  }
  const int expected = holders(entry, degree);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != expected)
      return wrong_count(entry.name, degree, static_cast<std::int64_t>(i), expected, counts[i]);
  }
  return std::nullopt;
}

std::optional<Outcome> check_shards(const Layout& layout, const ShardedTensors& shards) {
  const std::vector<LogicalTensor> tensors = logical_tensors(layout.geometry);
  const std::vector<std::int64_t> counts = count_codes(layout.geometry, shards);
  if (counts[0] != 0 && !has_padding(layout))
    return Outcome::fail(fmt::format("the shards hold {} elements that no parameter has", counts[0]));
  std::size_t code = 1;
  for (const LogicalTensor& tensor : tensors) {
    const int expected = holders(layout.entry_of(tensor.name), layout.degree);
    for (std::int64_t i = 0; i < element_count(tensor.shape); ++i, ++code) {
      if (counts[code] != expected) return wrong_count(tensor.name, layout.degree, i, expected, counts[code]);
    }
  }
  return std::nullopt;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout layout = make_layout(c.target, c.geometry);
  if (has_partial(layout))
    return Outcome::of(Verdict::vacuous, "the layout has partial tensors, whose ranks hold addends");
  for (const LayoutEntry& entry : layout.entries) {
    if (auto wrong = check_runs(entry, layout.degree)) return *wrong;
  }
  const ShardedTensors shards =
      subject.split(make_weights(c.geometry, WeightStyle::fingerprint, c.seed, DType::f32), layout);
  if (auto wrong = check_shards(layout, shards)) return *wrong;
  return with_digest(Outcome::pass(), Digest().add(shards));
}

/// More ranks than KV heads replicate them where a table allows it: mesh_covers_once speaks of that.
bool replicates_no_heads(const Case& c) { return c.target.tp_degree() <= c.geometry.n_kv_heads; }

Case draw(Stream& stream) {
  return draw_where("placement_covers_once", stream, {.forward = false}, replicates_no_heads);
}

}  // namespace

const Law& placement_covers_once() {
  static const Law law{.name = "placement_covers_once",
                       .claim =
                           "Every element of a parameter is held by exactly one rank, or by every rank where "
                           "it is replicated.",
                       .check = check,
                       .draw = draw,
                       .shares = byte_shares(),
                       .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
