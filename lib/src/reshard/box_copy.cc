#include "box_copy.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "shardcheck/layout/placement.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxDims = 8;

/// A loop around the memcpy; strides in bytes.
struct Loop {
  std::int64_t count = 0;
  std::int64_t source_stride = 0, target_stride = 0;
};

void run_loops(std::span<const Loop> loops, std::size_t run_bytes, const std::byte* source,
               std::byte* target) {
  if (loops.empty()) {
    std::memcpy(target, source, run_bytes);
    return;
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

}  // namespace

void copy_box(const std::string& name, DType dtype, std::span<const std::int64_t> size,
              const std::byte* source, BoxPlace from, std::byte* target, BoxPlace to) {
  // Counted in bits until the end, so that sub-byte elements need no second path.
  const std::int64_t bits = size_bits(dtype);
  std::array<Loop, kMaxDims> loops;
  std::size_t first_loop = kMaxDims;
  std::int64_t run_bits = bits;
  std::int64_t source_stride = bits, target_stride = bits;  // of dimension d
  std::int64_t source_offset = 0, target_offset = 0;
  bool contiguous = true;  // every dimension below d is whole in both arrays
  for (std::size_t d = size.size(); d-- > 0;) {
    if (size[d] == 0) return;
    source_offset += from.origin[d] * source_stride;
    target_offset += to.origin[d] * target_stride;
    if (contiguous) {
      run_bits *= size[d];
    } else if (size[d] > 1) {
      loops.at(--first_loop) = {size[d], whole_bytes(name, source_stride), whole_bytes(name, target_stride)};
    }
    contiguous = contiguous && size[d] == from.shape[d] && size[d] == to.shape[d];
    source_stride *= from.shape[d];
    target_stride *= to.shape[d];
  }
  run_loops(std::span(loops).subspan(first_loop), static_cast<std::size_t>(whole_bytes(name, run_bits)),
            source + whole_bytes(name, source_offset), target + whole_bytes(name, target_offset));
}

Tensor allocate_tensor(const std::string& name, DType dtype, const Shape& shape) {
  if (size_bits(dtype) % 8 != 0 && element_count(shape) * size_bits(dtype) % 8 != 0) {
    throw UnsupportedLayout(fmt::format("{}: shape {} of {} does not fill whole bytes", name,
                                        to_string(shape), short_name(dtype)));
  }
  return Tensor::uninitialized(dtype, shape);
}

}  // namespace shardcheck
