#include "box_builder.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace shardcheck {
namespace {

constexpr std::size_t kDims = Piece::kMaxRank;

/// The step from one place to another that differ by one along one dimension.
std::optional<std::int8_t> unit_step(const OriginBox::Index& from, const OriginBox::Index& to) {
  std::int8_t step = 0;
  for (std::size_t d = 0; d < kDims; ++d) {
    const std::int64_t by = to[d] - from[d];
    if (by == 0) continue;
    if (step != 0 || std::abs(by) != 1) return std::nullopt;
    step = static_cast<std::int8_t>(by * static_cast<std::int64_t>(d + 1));
  }
  if (step == 0) return std::nullopt;
  return step;
}

/// Where the last slice of the box along `dim` begins.
OriginBox::Index last_origin(const OriginBox& box, std::size_t dim) {
  OriginBox::Index at = box.origin;
  if (const int step = box.step[dim]; step != 0) {
    at[static_cast<std::size_t>(std::abs(step) - 1)] += (box.size[dim] - 1) * (step > 0 ? 1 : -1);
  }
  return at;
}

/// The step along `dim` of both boxes as one, nullopt when they are not.
std::optional<std::int8_t> joint_step(const OriginBox& first, const OriginBox& second, std::size_t dim) {
  if (first.kind != second.kind || first.entry != second.entry) return std::nullopt;
  for (std::size_t d = 0; d < kDims; ++d) {
    if (d == dim) continue;
    if (first.local[d] != second.local[d] || first.size[d] != second.size[d] ||
        first.step[d] != second.step[d]) {
      return std::nullopt;
    }
  }
  if (first.kind != OriginBox::Kind::element) return std::int8_t{0};
  const auto step = unit_step(last_origin(first, dim), second.origin);
  if (!step || (first.step[dim] != 0 && first.step[dim] != *step)) return std::nullopt;
  if (second.step[dim] != 0 && second.step[dim] != *step) return std::nullopt;
  for (std::size_t d = 0; d < kDims; ++d) {  // the same dimension cannot grow with two
    if (d != dim && std::abs(first.step[d]) == std::abs(*step)) return std::nullopt;
  }
  return step;
}

}  // namespace

OriginBox box_of(const Shape& shape, OriginBox::Kind kind) {
  OriginBox box;
  box.kind = kind;
  std::ranges::copy(shape, box.size.begin());
  return box;
}

bool extend_box(OriginBox& first, const OriginBox& second, std::size_t dim) {
  const auto step = joint_step(first, second, dim);
  if (!step) return false;
  first.step[dim] = *step;
  first.size[dim] += second.size[dim];
  return true;
}

bool SliceStack::extends(const DecodedShard& slice) {
  std::vector<OriginBox>& boxes = stacked_.boxes;
  if (slice.boxes_left_out > 0 || slice.boxes.empty()) return false;
  if (boxes.size() - open_ != slice.boxes.size()) return false;
  for (std::size_t i = 0; i < slice.boxes.size(); ++i) {
    if (!joint_step(boxes[open_ + i], slice.boxes[i], dim_)) return false;
  }
  for (std::size_t i = 0; i < slice.boxes.size(); ++i) extend_box(boxes[open_ + i], slice.boxes[i], dim_);
  return true;
}

void SliceStack::add(DecodedShard slice) {
  if (extends(slice)) return;
  stacked_.keep(DecodedShard::kMostBoxes);
  open_ = stacked_.boxes.size();
  stacked_.boxes.insert(stacked_.boxes.end(), slice.boxes.begin(), slice.boxes.end());
  stacked_.boxes_left_out += slice.boxes_left_out;
  for (std::size_t kind = 0; kind < slice.elements_left_out.size(); ++kind)
    stacked_.elements_left_out[kind] += slice.elements_left_out[kind];
}

DecodedShard SliceStack::take() {
  stacked_.keep(DecodedShard::kMostBoxes);
  return std::exchange(stacked_, {});
}

std::int64_t DecodedShard::elements(OriginBox::Kind of_kind) const {
  std::int64_t elements = elements_left_out[static_cast<std::size_t>(of_kind)];
  for (const OriginBox& box : boxes) elements += box.kind == of_kind ? box.elements() : 0;
  return elements;
}

void DecodedShard::keep(std::size_t count) {
  if (boxes.size() <= count) return;
  for (std::size_t i = count; i < boxes.size(); ++i)
    elements_left_out[static_cast<std::size_t>(boxes[i].kind)] += boxes[i].elements();
  boxes_left_out += static_cast<std::int64_t>(boxes.size() - count);
  boxes.resize(count);
  if (boxes.capacity() > 2 * count) boxes.shrink_to_fit();
}

}  // namespace shardcheck
