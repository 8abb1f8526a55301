// From wrong shards to their cause: what every rank holds in place of what it should, and which known faults,
// alone or two of them one after the other, leave exactly these bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/mutators/delivery.h"
#include "shardcheck/reshard/misplacement.h"

namespace shardcheck {

/// Faults that leave exactly the given shards, in the order in which they act.
struct KnownCause {
  std::vector<FaultChoice> faults;  // one or two
  bool any_order = true;            // of two: either one may act first
  LayoutName source;                // the layout that the weights came from
  bool source_matters = false;      // from one rank these faults cannot act
  std::string text() const;         // "slice_fused_qkv_contiguously", "A, then B", "A and B in any order"
};

/// The fault that explains most places without touching another one.
struct PartialCause {
  FaultChoice fault;
  std::int64_t places = 0;
};

struct Explanation {
  std::int64_t places = 0;  // compared: (parameter, rank) pairs
  std::vector<Misplacement> misplaced;
  std::vector<KnownCause> causes;  // single faults; compositions of two only where no single fault is one
  std::optional<PartialCause> nearest;               // where there is no cause
  std::int64_t faults_tried = 0;                     // forms of faults that change shards of this layout
  std::int64_t pairs_tried = 0, pairs_left_out = 0;  // compositions put to the test; those beyond the budget
};

struct ExplainOptions {
  /// Layout that the weights came from; absent: the target's table on one rank, and over several ranks for
  /// the faults that act on no other source.
  std::optional<LayoutName> source;
  std::uint64_t seed = 0;  // of faults that draw
  int jobs = 1;
};

/// `shards` of the layout against the right ones of `source`, or of fingerprints where it is nullptr. With
/// f32 fingerprints every element is traced, otherwise lines by their hash. A table that is not built in has
/// no known faults. Throws InvalidShards when shards do not fit the layout, InvalidInput when `source` lacks
/// a tensor or has another dtype, and, without a source, when the layout stores values shifted or most
/// elements are no fingerprints of its geometry.
Explanation explain_shards(const Layout& layout, const ShardedTensors& shards, const TensorMap* source,
                           const ExplainOptions& options = {});

}  // namespace shardcheck
