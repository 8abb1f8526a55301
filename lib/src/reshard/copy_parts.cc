#include "copy_parts.h"

#include <algorithm>

#include "tensor/at.h"

namespace shardcheck {
namespace {

/// Elements between neighbours along each dimension.
Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// Adds the boxes of [begin, end), which lie in one index of every dimension before `dim`.
void add_boxes(const Shape& shape, const Shape& strides, std::size_t dim, std::int64_t begin,
               std::int64_t end, const Shape& fixed, std::vector<Box>& boxes) {
  if (begin >= end) return;
  const std::int64_t stride = strides[dim], base = begin / (stride * shape[dim]) * (stride * shape[dim]);
  const std::int64_t first = (begin - base + stride - 1) / stride, last = (end - base) / stride;
  const auto add_inside = [&](std::int64_t index, std::int64_t from, std::int64_t to) {
    Shape inner = fixed;
    inner[dim] = index;
    add_boxes(shape, strides, dim + 1, from, to, inner, boxes);
  };
  if (first > last) return add_inside(last, begin, end);
  if (begin < base + first * stride) add_inside(first - 1, begin, base + first * stride);
  if (first < last) {
    Box box{fixed, shape, base + first * stride};
    std::fill_n(box.size.begin(), dim, 1);
    box.origin[dim] = first;
    box.size[dim] = last - first;
    boxes.push_back(std::move(box));
  }
  if (base + last * stride < end) add_inside(last, base + last * stride, end);
}

/// The target dimension of more than one index that runs along the outermost dimension of the source.
int outermost(const Copy& copy) {
  int found = -1;
  for (int d = 0; d < copy.dims; ++d) {
    if (copy.size[at(d)] < 2) continue;
    if (found < 0 || copy.source_dim[at(d)] < copy.source_dim[at(found)]) found = d;
  }
  return found;
}

}  // namespace

std::vector<Box> boxes_of_range(const Shape& shape, std::int64_t begin, std::int64_t end) {
  std::vector<Box> boxes;
  if (shape.empty()) {
    if (begin < end) boxes.push_back({});
    return boxes;
  }
  add_boxes(shape, strides_of(shape), 0, begin, end, Shape(shape.size(), 0), boxes);
  return boxes;
}

std::optional<Copy> part_in(const Copy& copy, const Box& box) {
  Copy part = copy;
  for (std::size_t d = 0; d < box.size.size(); ++d) {
    const std::int64_t begin = std::max(copy.target_origin[d], box.origin[d]);
    const std::int64_t end = std::min(copy.target_origin[d] + copy.size[d], box.origin[d] + box.size[d]);
    if (begin >= end) return std::nullopt;
    part.target_origin[d] = begin;
    part.size[d] = end - begin;
    if (copy.source_dim[d] >= 0) {
      part.source_origin[at(copy.source_dim[d])] += begin - copy.target_origin[d];
    }
  }
  return part;
}

std::pair<std::int64_t, std::int64_t> source_span(const Copy& copy, const Shape& source) {
  const Shape strides = strides_of(source);
  std::int64_t first = 0, last = 0;
  for (std::size_t d = 0; d < source.size(); ++d) first += copy.source_origin[d] * strides[d];
  last = first;
  for (int d = 0; d < copy.dims; ++d) {
    const int along = copy.source_dim[at(d)];
    if (along >= 0) last += (copy.size[at(d)] - 1) * strides[at(along)];
  }
  return {first, last + 1};
}

void for_each_part(const Copy& copy, const Shape& source, std::int64_t limit,
                   const std::function<void(const Copy&)>& use) {
  const auto [first, end] = source_span(copy, source);
  const int dim = outermost(copy);
  if (dim < 0 || end - first <= limit) return use(copy);
  constexpr std::int64_t kGrain = 8;  // elements smaller than a byte stay together
  const std::int64_t size = copy.size[at(dim)];
  const std::int64_t half = size < 2 * kGrain ? size / 2 : size / 2 / kGrain * kGrain;
  Copy part = copy;
  part.size[at(dim)] = half;
  for_each_part(part, source, limit, use);
  part.size[at(dim)] = size - half;
  part.target_origin[at(dim)] += half;
  part.source_origin[at(copy.source_dim[at(dim)])] += half;
  for_each_part(part, source, limit, use);
}

}  // namespace shardcheck
