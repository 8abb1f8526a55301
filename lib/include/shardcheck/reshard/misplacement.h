// Shards that hold what they should not, in words: what arrived, what was expected, what kind of wrong it
// looks like, and a picture of the rows. Rows and columns are those of the file tensor before ranks cut it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/reshard/decode.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

/// The kind of wrong that a shard looks like, the most telling one first.
enum class Symptom : std::uint8_t {
  other_rank,      // the right shard of another rank
  other_tensor,    // elements of another file tensor
  other_addend,    // of a tensor that ranks hold addends of: more or less of it than this rank adds
  one_block,       // one range where several are expected
  transposed,      // rows along columns
  reshaped,        // consecutive elements read in another shape
  never_written,   // zero bits, all or in part
  values_changed,  // bits that no element of the checkpoint has, all or in part
  rolled,          // the right lines from another one on, the first after the last
  reversed,        // the right lines last to first
  reordered,       // the right lines in another order
  displaced,       // as many consecutive lines, beginning elsewhere
  repeated,        // lines more than once
  other_elements   // anything else
};
std::string_view to_string(Symptom symptom) noexcept;

/// One rank's part of one file tensor, whose bytes are not the right ones.
struct Misplacement {
  std::int64_t entry = 0;  // index into Layout::entries
  int rank = 0;
  DecodedShard found;
  Symptom symptom = Symptom::other_elements;
  std::string holds;       // "source rows 192-383 in order"
  std::string expected;    // "128-255, 288-319, 352-383"
  std::string looks_like;  // "the fused tensor was cut as one block"
};

/// What `shard`, found where `right` has other bytes, holds. Addends (Partial) are described by value: as
/// zeros, as the whole tensor or as a share of it. Throws as ShardDecoder::decode.
Misplacement describe_shard(const Layout& layout, std::int64_t entry, int rank, const ShardedTensors& right,
                            const Tensor& shard, ShardDecoder& decoder);

/// "rank 1 of layers.0.qkv holds source rows 192-383 in order; expected 128-255, 288-319, 352-383: the fused
/// tensor was cut as one block".
std::string sentence_of(const Layout& layout, const Misplacement& misplacement);

/// A picture of one file tensor: its parts from top to bottom with their rows (or columns), and beside each
/// what every rank should hold of it and what it holds. `misplaced` are those of one entry, ascending by
/// rank. Empty where a shard does not consist of whole lines along the dimension that ranks cut.
std::string origin_map(const Layout& layout, const std::vector<const Misplacement*>& misplaced);

}  // namespace shardcheck
