// One copy of a plan carried out on bytes. Private to the library.
#pragma once

#include <string>

#include "box_copy.h"
#include "shardcheck/reshard/plan.h"

namespace shardcheck {

/// What the copy reads from a rank's tensor of shape `from`, in the target's order, its values shifted.
/// Throws UnsupportedLayout naming `name` for elements that cannot be cut or shifted.
Tensor read_copy(const std::string& name, DType dtype, const Copy& copy, const std::byte* source,
                 const Shape& from);

/// Writes it at a place of an array. Throws as `read_copy`.
void run_copy(const std::string& name, DType dtype, const Copy& copy, const std::byte* source,
              const Shape& from, std::byte* target, BoxPlace to);

}  // namespace shardcheck
