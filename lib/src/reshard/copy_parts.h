// Parts of copies: what a plan copies into a range of a target tensor, a piece at a time. Private to the
// library.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "shardcheck/reshard/plan.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A box of a tensor whose elements are consecutive.
struct Box {
  Shape origin, size;
  std::int64_t first = 0;  // flat index of its first element
};

/// Elements [begin, end) of a row-major tensor as boxes, in order: at most two per dimension and one more.
std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end);

/// The part of a copy that lies in a box of its target tensor, nullopt when none does.
std::optional<Copy> part_in(const Copy& copy, const Box& box);

/// Flat indices of the source's elements that a copy reads first and, plus one, last.
std::pair<std::int64_t, std::int64_t> source_span(const Copy& copy, const Shape& source);

/// Calls `use` with parts of the copy whose spans in the source have at most `limit` elements, in the
/// source's order; parts of one index where a single one has more.
void for_each_part(const Copy& copy, const Shape& source, std::int64_t limit,
                   const std::function<void(const Copy&)>& use);

}  // namespace shardcheck
