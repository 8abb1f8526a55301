#include <fmt/format.h>

#include <map>
#include <set>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

std::optional<std::string> wrong_names(const Layout& layout) {
  for (int rank = 0; rank < layout.degree; ++rank) {
    std::set<std::string_view> names;
    for (const LayoutEntry& entry : layout.entries) {
      if (entry.placed.held_by(rank) && !names.insert(entry.file_name()).second)
        return fmt::format("rank {} has two tensors named {}", rank, entry.file_name());
    }
  }
  return std::nullopt;
}

/// The elements of the file tensors are those of their parts and padding.
std::optional<std::string> wrong_size(const LayoutEntry& entry) {
  std::int64_t parts = 0;
  for (const LogicalTensor& part : entry.parts) parts += element_count(part.shape);
  const Shape& shape = entry.placed.shape();
  const std::int64_t padding = padding_in(entry.arrangement().order);
  const std::int64_t along = shape.empty() ? 1 : shape[static_cast<std::size_t>(entry.arrangement().dim)];
  const std::int64_t elements = element_count(shape);
  const std::int64_t padded = along == 0 ? 0 : elements / along * padding;
  if (elements - padded == parts) return std::nullopt;
  return fmt::format("{} has {} elements and {} of padding, its parts have {}", entry.name, elements, padded,
                     parts);
}

Outcome check(const Case& c, Subject& subject) {
  const Layout layout = make_layout(c.target, c.geometry);
  std::map<std::string, int> held;
  for (const LayoutEntry& entry : layout.entries) {
    if (const auto wrong = wrong_size(entry)) return Outcome::fail(*wrong);
    for (const LogicalTensor& part : entry.parts) held[part.name] += entry.tied ? 0 : 1;
  }
  for (const LogicalTensor& tensor : logical_tensors(c.geometry)) {
    if (held[tensor.name] != 1)
      return Outcome::fail(
          fmt::format("{} is in {} file tensors, expected one", tensor.name, held[tensor.name]));
  }
  if (held.size() != logical_tensors(c.geometry).size())
    return Outcome::fail("a file tensor holds what the model does not have");
  if (const auto wrong = wrong_names(layout)) return Outcome::fail(*wrong);
  const ShardedTensors shards = subject.split(fingerprints_of(c), layout);
  require_shards_of(layout, shards);
  return with_digest(Outcome::pass(), Digest().add(shards));
}

Case draw(Stream& stream) {
  return draw_for("table_covers_model", stream, {.forward = false, .meshes = true});
}

}  // namespace

const Law& table_covers_model() {
  static const Law law{.name = "table_covers_model",
                       .claim =
                           "A table puts every logical tensor of a model into one file tensor, under names "
                           "that are unique on each rank, and shards hold those tensors and no others.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
