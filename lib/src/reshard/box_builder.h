// Boxes put together from runs of elements. Private to the room.
#pragma once

#include <vector>

#include "shardcheck/reshard/decode.h"

namespace shardcheck {

/// Extends `first` along local dimension `dim` by `second`, which lies behind it there, when both are one
/// box.
bool extend_box(OriginBox& first, const OriginBox& second, std::size_t dim);

/// Boxes of slices that follow each other along `dim`: slices of equal structure become one.
class SliceStack {
 public:
  explicit SliceStack(std::size_t dim) : dim_(dim) {}
  /// Boxes of one slice, with `local` along `dim` already set.
  void add(std::vector<OriginBox> slice);
  std::vector<OriginBox> take();

 private:
  bool extends(const std::vector<OriginBox>& slice);

  std::size_t dim_;
  std::size_t open_ = 0;  // of the boxes, the first that may still grow
  std::vector<OriginBox> boxes_;
};

}  // namespace shardcheck
