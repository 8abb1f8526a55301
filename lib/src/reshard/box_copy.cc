#include "box_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "shardcheck/layout/placement.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxDims = 8;

/// A loop around the copy of one run; strides in bytes.
struct Loop {
  std::int64_t count = 0;
  std::int64_t source_stride = 0, target_stride = 0;
};

/// The innermost loop or two over runs of `Bytes`, in square tiles: a transposition then stays in the caches.
template <std::size_t Bytes>
void copy_elements(const Loop& rows, const Loop& columns, const std::byte* source, std::byte* target) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t r0 = 0; r0 < rows.count; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < columns.count; c0 += kTile) {
      for (std::int64_t r = r0; r < std::min(r0 + kTile, rows.count); ++r) {
        const std::byte* from = source + r * rows.source_stride + c0 * columns.source_stride;
        std::byte* to = target + r * rows.target_stride + c0 * columns.target_stride;
        for (std::int64_t c = c0; c < std::min(c0 + kTile, columns.count); ++c) {
          std::memcpy(to, from, Bytes);
          from += columns.source_stride;
          to += columns.target_stride;
        }
      }
    }
  }
}

void run_loops(std::span<const Loop> loops, std::size_t run_bytes, const std::byte* source,
               std::byte* target) {
  if (loops.empty()) {
    std::memcpy(target, source, run_bytes);
    return;
  }
  if (loops.size() <= 2) {
    const Loop once{1, 0, 0};
    const Loop& rows = loops.size() == 2 ? loops[0] : once;
    const Loop& columns = loops.back();
    if (run_bytes == 1) return copy_elements<1>(rows, columns, source, target);
    if (run_bytes == 2) return copy_elements<2>(rows, columns, source, target);
    if (run_bytes == 4) return copy_elements<4>(rows, columns, source, target);
    if (run_bytes == 8) return copy_elements<8>(rows, columns, source, target);
  }
  const Loop& loop = loops.front();
  for (std::int64_t i = 0; i < loop.count; ++i) {
    run_loops(loops.subspan(1), run_bytes, source + i * loop.source_stride, target + i * loop.target_stride);
  }
}

std::int64_t whole_bytes(const std::string& name, std::int64_t bits) {
  if (bits % 8 != 0) throw UnsupportedLayout(name + ": a copy would cut a byte that holds several elements");
  return bits / 8;
}

/// Distance in bits between neighbours along each dimension.
std::array<std::int64_t, kMaxDims> strides_of(std::span<const std::int64_t> shape, std::int64_t bits) {
  std::array<std::int64_t, kMaxDims> strides{};
  std::int64_t stride = bits;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides.at(d) = stride;
    stride *= shape[d];
  }
  return strides;
}

}  // namespace

void copy_box(const std::string& name, DType dtype, std::span<const std::int64_t> size,
              const std::byte* source, BoxPlace from, std::span<const std::int8_t> source_dim,
              std::byte* target, BoxPlace to) {
  // Counted in bits until the end, so that sub-byte elements need no second path.
  const std::int64_t bits = size_bits(dtype);
  const auto source_strides = strides_of(from.shape, bits), target_strides = strides_of(to.shape, bits);
  std::int64_t source_offset = 0, target_offset = 0;
  for (std::size_t d = 0; d < from.shape.size(); ++d) source_offset += from.origin[d] * source_strides.at(d);
  for (std::size_t d = 0; d < to.shape.size(); ++d) target_offset += to.origin[d] * target_strides.at(d);
  std::array<Loop, kMaxDims> loops;
  std::size_t first_loop = kMaxDims;
  std::int64_t run_bits = bits;
  for (std::size_t d = size.size(); d-- > 0;) {
    if (size[d] == 0) return;
    if (size[d] == 1) continue;
    const std::int64_t source_stride = source_strides.at(static_cast<std::size_t>(source_dim[d]));
    const std::int64_t target_stride = target_strides.at(d);
    const bool continues = first_loop == kMaxDims && source_stride == run_bits && target_stride == run_bits;
    if (continues) {
      run_bits *= size[d];
    } else {
      loops.at(--first_loop) = {size[d], whole_bytes(name, source_stride), whole_bytes(name, target_stride)};
    }
  }
  run_loops(std::span(loops).subspan(first_loop), static_cast<std::size_t>(whole_bytes(name, run_bits)),
            source + whole_bytes(name, source_offset), target + whole_bytes(name, target_offset));
}

void copy_box(const std::string& name, DType dtype, std::span<const std::int64_t> size,
              const std::byte* source, BoxPlace from, std::byte* target, BoxPlace to) {
  std::array<std::int8_t, kMaxDims> same{};
  std::iota(same.begin(), same.end(), std::int8_t{0});
  copy_box(name, dtype, size, source, from, std::span(same).first(size.size()), target, to);
}

Tensor allocate_tensor(const std::string& name, DType dtype, const Shape& shape) {
  if (size_bits(dtype) % 8 != 0 && element_count(shape) * size_bits(dtype) % 8 != 0) {
    throw UnsupportedLayout(fmt::format("{}: shape {} of {} does not fill whole bytes", name,
                                        to_string(shape), short_name(dtype)));
  }
  return Tensor::uninitialized(dtype, shape);
}

}  // namespace shardcheck
