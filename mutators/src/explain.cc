#include "shardcheck/mutators/explain.h"

#include <fmt/format.h>

#include "cause_search.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMostBoxesKept = 1000;  // of one shard, once it is described

DType dtype_of(const ShardedTensors& shards) {
  for (const auto& [name, ranks] : shards) {
    for (const Tensor& shard : ranks) {
      if (shard.elements() > 0) return shard.dtype();
    }
  }
  return DType::f32;
}

/// Most shards of a model that holds no fingerprints are of no tensor.
void require_fingerprints(const Layout& layout, const ShardedTensors& shards, const Explanation& found) {
  std::int64_t unknown = 0, all = 0;
  for (const auto& [name, ranks] : shards) {
    for (const Tensor& shard : ranks) all += shard.elements();
  }
  for (const Misplacement& one : found.misplaced) unknown += one.found.elements(OriginBox::Kind::unknown);
  if (2 * unknown <= all) return;
  throw InvalidInput(
      fmt::format("the shards hold no fingerprints of {}: {} of {} elements are none; allowed: a source "
                  "checkpoint to compare "
                  "them with, or shards of a fingerprint checkpoint",
                  to_string(layout.geometry), unknown, all));
}

/// A shifted fingerprint is no number any more: of small ones nothing is left but the shift.
void require_unshifted(const Layout& layout) {
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.arrangement().shift == 0) continue;
    throw InvalidInput(
        fmt::format("{}: {} holds every value {:+}, and a fingerprint does not survive arithmetic; allowed: "
                    "the checkpoint that the shards were made of (--source=DIR), or a layout that stores no "
                    "values shifted",
                    to_string(layout.name), entry.name, entry.arrangement().shift));
  }
}

}  // namespace

std::string KnownCause::text() const {
  if (faults.size() == 1) return faults.front().text();
  return fmt::format("{}{}{}{}", faults.front().text(), any_order ? " and " : ", then ", faults.back().text(),
                     any_order ? " in any order" : "");
}

Explanation explain_shards(const Layout& layout, const ShardedTensors& shards, const TensorMap* source,
                           const ExplainOptions& options) {
  require_shards_of(layout, shards);
  if (source == nullptr) require_unshifted(layout);
  const DType dtype = dtype_of(shards);
  const TensorMap fingerprints =
      source == nullptr ? make_weights(layout.geometry, WeightStyle::fingerprint, 0, dtype) : TensorMap();
  const TensorMap& weights = source == nullptr ? fingerprints : *source;
  const ShardedTensors right = split(weights, layout);
  const std::vector<ShardPlace> differing = differing_places(layout, right, shards);
  const auto decoder = source == nullptr && dtype == DType::f32 ? make_fingerprint_decoder(layout)
                                                                : make_line_matcher(layout, weights);
  Explanation result;
  for (const LayoutEntry& entry : layout.entries) result.places += std::ssize(entry.placed.holders());
  for (const ShardPlace& place : differing) {
    const std::string& name = layout.entries[static_cast<std::size_t>(place.entry)].name;
    const Tensor& shard = shards.at(name)[static_cast<std::size_t>(place.rank)];
    result.misplaced.push_back(describe_shard(layout, place.entry, place.rank, right, shard, *decoder));
    result.misplaced.back().found.keep(kMostBoxesKept);
  }
  if (source == nullptr) require_fingerprints(layout, shards, result);
  if (!differing.empty()) search_causes({layout, right, shards, differing, weights, dtype}, options, result);
  return result;
}

}  // namespace shardcheck
