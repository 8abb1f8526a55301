// Naming elements: what a local element holds, and where a fingerprint element came from.
#pragma once

#include <cstdint>
#include <string>

#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// "[2, 5]": coordinates of a flat index.
std::string coordinates(const Shape& shape, std::int64_t flat);

/// The element as text: its value, or its bits when the dtype has no value here.
std::string element_text(const Tensor& tensor, std::int64_t flat);

/// "layers.0.q[64, 0]" for an f32 fingerprint element, "no element of the checkpoint (bits 0x...)" otherwise.
std::string origin_text(const Geometry& geometry, const Tensor& tensor, std::int64_t flat);

}  // namespace shardcheck
