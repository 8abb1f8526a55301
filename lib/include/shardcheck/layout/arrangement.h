// How logical tensors lie in one file tensor, before ranks cut it: one after the other, interleaved, padded,
// transposed, stacked over experts, shifted by a constant.
#pragma once

#include <cstdint>
#include <vector>

#include "shardcheck/layout/placement.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

struct Arrangement {
  std::int64_t stacked = 0;  // tensors of each part along file dimension 0 (stacked experts); 0: not stacked
  int dim = 0;               // file dimension along which parts follow each other
  bool transposed = false;   // [in, out] for a logical [out, in] (GPT-2's Conv1D)
  std::vector<Run> order;  // along dim: indices into the parts one after the other, or padding; empty: those
  float shift = 0;         // the file holds value + shift (zero-centred norms: -1)

  bool operator==(const Arrangement&) const = default;

  /// Logical dimension that file dimension `file_dim` runs along, -1 for the stack; `dims` is the number of
  /// the file's dimensions.
  int logical_dim(int file_dim, int dims) const {
    const int d = file_dim - (stacked > 0 ? 1 : 0);
    if (d < 0) return -1;
    return transposed ? dims - 1 - file_dim : d;
  }
};

/// Shape of the file tensor. Throws InvalidLayout when the parts do not fit side by side.
Shape file_shape(const Arrangement& arrangement, const std::vector<LogicalTensor>& parts);

/// Consecutive indices of one part along the dimension of the arrangement.
struct PartRun {
  std::int64_t part = 0;   // kPadding for padding
  std::int64_t begin = 0;  // in the part
  std::int64_t length = 0;
  std::int64_t position = 0;  // along what was asked for
};

/// What `runs`, indices of the file tensor along the arrangement's dimension, hold; `extents` are those of
/// the parts along it. Padding of `runs` and of the order is listed as padding.
std::vector<PartRun> part_runs(const Arrangement& arrangement, const std::vector<std::int64_t>& extents,
                               const std::vector<Run>& runs);

/// Extents of the parts of one stack item along the arrangement's dimension.
std::vector<std::int64_t> part_extents(const Arrangement& arrangement,
                                       const std::vector<LogicalTensor>& parts);

/// Order in which a head's rotary pairs lie side by side (Meta, torchtitan) for rows whose halves are apart
/// (Hugging Face): row h*hd + 2i + p is row h*hd + p*rotary/2 + i; rows from `rotary` on keep their place.
/// Source: torchtitan llama3 state_dict_adapter. Throws UnsupportedLayout unless 0 < rotary <= head_dim,
/// even.
std::vector<Run> interleaved_rotary(std::int64_t heads, std::int64_t head_dim, std::int64_t rotary);

}  // namespace shardcheck
