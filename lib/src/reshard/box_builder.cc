#include "box_builder.h"

#include <cstdlib>
#include <iterator>
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

bool extend_box(OriginBox& first, const OriginBox& second, std::size_t dim) {
  const auto step = joint_step(first, second, dim);
  if (!step) return false;
  first.step[dim] = *step;
  first.size[dim] += second.size[dim];
  return true;
}

bool SliceStack::extends(const std::vector<OriginBox>& slice) {
  if (boxes_.size() - open_ != slice.size() || slice.empty()) return false;
  for (std::size_t i = 0; i < slice.size(); ++i) {
    if (!joint_step(boxes_[open_ + i], slice[i], dim_)) return false;
  }
  for (std::size_t i = 0; i < slice.size(); ++i) extend_box(boxes_[open_ + i], slice[i], dim_);
  return true;
}

void SliceStack::add(std::vector<OriginBox> slice) {
  if (extends(slice)) return;
  open_ = boxes_.size();
  boxes_.insert(boxes_.end(), std::make_move_iterator(slice.begin()), std::make_move_iterator(slice.end()));
}

std::vector<OriginBox> SliceStack::take() { return std::exchange(boxes_, {}); }

}  // namespace shardcheck
