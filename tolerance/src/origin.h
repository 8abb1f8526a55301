// Naming elements: what a local element holds, and where a fingerprint element came from.
#pragma once

#include <cstdint>
#include <string>

#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// The element as text: its value, or its bits when the dtype has no value here.
std::string element_text(const Tensor& tensor, std::int64_t flat);

/// "layers.0.q[64, 0]" for an f32 fingerprint element, "no element of the checkpoint (bits 0x...)" otherwise.
std::string origin_text(const Geometry& geometry, const Tensor& tensor, std::int64_t flat);

/// Elements whose bytes differ. Shapes and dtypes must agree.
std::int64_t differing_elements(const Tensor& expected, const Tensor& actual);

}  // namespace shardcheck
