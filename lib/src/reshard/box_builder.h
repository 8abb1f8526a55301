// Boxes put together from runs of elements. Private to the room.
#pragma once

#include <vector>

#include "shardcheck/reshard/decode.h"

namespace shardcheck {

/// All of a shard of the shape.
OriginBox box_of(const Shape& shape, OriginBox::Kind kind);

/// Extends `first` along local dimension `dim` by `second`, which lies behind it there, when both are one
/// box.
bool extend_box(OriginBox& first, const OriginBox& second, std::size_t dim);

/// Boxes of slices that follow each other along `dim`: slices of equal structure become one. Beyond
/// DecodedShard::kMostBoxes, boxes that can grow no more are counted and dropped.
class SliceStack {
 public:
  explicit SliceStack(std::size_t dim) : dim_(dim) {}
  /// Boxes of one slice, with `local` along `dim` already set.
  void add(DecodedShard slice);
  DecodedShard take();

 private:
  bool extends(const DecodedShard& slice);

  std::size_t dim_;
  std::size_t open_ = 0;  // of the boxes, the first that may still grow
  DecodedShard stacked_;
};

}  // namespace shardcheck
