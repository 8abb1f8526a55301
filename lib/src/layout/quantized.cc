#include "shardcheck/layout/quantized.h"

#include <fmt/format.h>

#include <algorithm>

#include "arithmetic/ceil_div.h"
#include "layout/quant_format.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxListedDegree = 1024;
constexpr std::size_t kMaxListedDegrees = 8;

void check_extents(const QuantizedMatrix& m, const Refuser& refuser) {
  refuser.require_range("", "out", m.out, kMaxQuantizedExtent);
  refuser.require_range("", "in", m.in, kMaxQuantizedExtent);
  std::int64_t rest = m.out;
  for (const std::int64_t part : m.stacked()) {
    refuser.require(part >= 1 && part <= rest, "", "part", part, fmt::format("1..{} of out={}", rest, m.out));
    rest -= part;
  }
  refuser.require(rest == 0, "", "out", m.out, fmt::format("the sum of its parts, {}", m.out - rest));
}

/// A stored word or block belongs to one logical matrix.
void check_parts(const QuantizedMatrix& m, const Stored& stored, const Refuser& refuser) {
  const auto parts = m.stacked();
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    refuser.require_multiple(stored.name, fmt::format("part {} of out", i), parts[i], stored.out.unit,
                             stored.out.noun);
}

/// The logical lengths that a style cuts, each on its own.
std::vector<std::int64_t> cut_lengths(const QuantizedMatrix& m, ParallelStyle style) {
  return style == ParallelStyle::column ? m.stacked() : std::vector{m.in};
}

/// The first length whose part on a rank is no whole number of units, if any.
std::optional<std::int64_t> misaligned(const Stored& stored, const QuantizedMatrix& m, ParallelStyle style,
                                       int degree) {
  const StoredAxis& axis = stored.cut(style);
  if (degree == 1 || axis.dim < 0) return std::nullopt;
  for (const std::int64_t length : cut_lengths(m, style)) {
    if (length % degree != 0 || length / degree % axis.unit != 0) return length;
  }
  return std::nullopt;
}

/// "degrees 1, 2, 4": those at which no stored tensor is misaligned.
std::string allowed_degrees(const std::vector<Stored>& all, const QuantizedMatrix& m, ParallelStyle style) {
  std::string text = "degree 1";
  std::size_t listed = 1;
  const std::int64_t last = std::min(kMaxListedDegree, std::ranges::min(cut_lengths(m, style)));
  for (int degree = 2; degree <= last; ++degree) {
    if (std::ranges::any_of(all,
                            [&](const Stored& s) { return misaligned(s, m, style, degree).has_value(); }))
      continue;
    if (listed++ == kMaxListedDegrees) return text + ", ...";
    text += fmt::format(", {}", degree);
  }
  return text;
}

bool is_swizzled(const QuantFormat& format) {
  const auto* mx = std::get_if<Mxfp8>(&format);
  return mx != nullptr && mx->swizzled;
}

void check_cuts(const std::vector<Stored>& all, const QuantizedMatrix& m, ParallelStyle style, int degree,
                const Refuser& refuser) {
  if (degree > 1 && is_swizzled(m.format))
    refuser.refuse("weight_scale", "swizzled", 1,
                   "swizzled scales cannot be sliced; allowed is degree 1, or scales [out, in/32]");
  const std::string_view field = style == ParallelStyle::column ? "out" : "in";
  for (const Stored& stored : all) {
    const auto length = misaligned(stored, m, style, degree);
    if (!length) continue;
    const StoredAxis& axis = stored.cut(style);
    refuser.refuse(stored.name, m.parts.empty() || style == ParallelStyle::row ? field : "part of out",
                   *length,
                   fmt::format("{} parallel needs a multiple of {} ({}) on every rank; allowed is {}",
                               to_string(style), axis.unit, axis.noun, allowed_degrees(all, m, style)));
  }
}

PlacedCompanion placed(const Stored& stored, const QuantizedMatrix& m, ParallelStyle style) {
  PlacedCompanion companion{stored.name, stored.dtype, stored.shape};
  const StoredAxis& axis = stored.cut(style);
  if (axis.dim < 0) return companion;
  companion.shard = Shard{axis.dim, SplitPolicy::even};
  for (const std::int64_t length : cut_lengths(m, style))
    companion.parts.push_back(ceil_div(length, axis.unit) * axis.stored);
  return companion;
}

}  // namespace

std::string_view to_string(ParallelStyle style) noexcept {
  return style == ParallelStyle::column ? "column" : "row";
}

std::vector<std::int64_t> QuantizedMatrix::stacked() const {
  return parts.empty() ? std::vector{out} : parts;
}

Shape PlacedCompanion::local_shape(int degree) const {
  Shape local = shape;
  if (shard) local.at(static_cast<std::size_t>(shard->dim)) /= degree;
  return local;
}

std::vector<std::pair<std::int64_t, std::int64_t>> PlacedCompanion::ranges(int degree, int rank) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> held;
  std::int64_t offset = 0;
  for (const std::int64_t part : parts) {
    const auto [begin, end] = part_of(shard->policy, part, degree, rank);
    held.emplace_back(offset + begin, offset + end);
    offset += part;
  }
  return held;
}

PlacedQuantized::PlacedQuantized(QuantizedMatrix matrix, ParallelStyle style, int degree)
    : matrix_(std::move(matrix)), style_(style), degree_(degree) {
  const Refuser refuser(matrix_.name, degree_);
  if (degree_ < 1) throw UnsupportedLayout(fmt::format("{}: TP degree {} is below 1", matrix_.name, degree_));
  check_extents(matrix_, refuser);
  const std::vector<Stored> all = stored_tensors(matrix_, refuser);
  for (const Stored& stored : all) check_parts(matrix_, stored, refuser);
  check_cuts(all, matrix_, style_, degree_, refuser);
  for (const Stored& stored : all) companions_.push_back(placed(stored, matrix_, style_));
}

std::int64_t PlacedQuantized::local_out() const {
  return style_ == ParallelStyle::column ? matrix_.out / degree_ : matrix_.out;
}

std::int64_t PlacedQuantized::local_in() const {
  return style_ == ParallelStyle::row ? matrix_.in / degree_ : matrix_.in;
}

std::vector<std::int64_t> PlacedQuantized::local_parts() const {
  std::vector<std::int64_t> local = matrix_.stacked();
  if (style_ == ParallelStyle::column) {
    for (std::int64_t& part : local) part /= degree_;
  }
  return local;
}

bool is_aligned(const QuantizedMatrix& matrix, ParallelStyle style, int degree) {
  try {
    const PlacedQuantized placed(matrix, style, degree);
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

}  // namespace shardcheck
