// The one copy loop of split, gather and reshard: a box between two row-major arrays, as few and as long
// memcpy runs as the shapes allow. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Where a box lies in an array: its origin and the array's extents, one per dimension of the array.
struct BoxPlace {
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> origin;
};

/// Copies a box whose extents `size` are listed by dimension of the target. `source_dim` says along which
/// dimension of the source each of them runs, -1 for one that the source lacks, whose size is 1. Throws
/// UnsupportedLayout naming `name` when elements smaller than a byte put a cut inside one.
void copy_box(const std::string& name, DType dtype, std::span<const std::int64_t> size,
              const std::byte* source, BoxPlace from, std::span<const std::int8_t> source_dim,
              std::byte* target, BoxPlace to);

/// The same for arrays whose dimensions are alike.
void copy_box(const std::string& name, DType dtype, std::span<const std::int64_t> size,
              const std::byte* source, BoxPlace from, std::byte* target, BoxPlace to);

/// Uninitialised tensor; UnsupportedLayout naming `name` when its elements do not fill whole bytes.
Tensor allocate_tensor(const std::string& name, DType dtype, const Shape& shape);

}  // namespace shardcheck
