// Shared by the faults of family D: where a different reduction order can show.
#pragma once

#include <optional>
#include <string>

#include "plan_fault.h"

namespace shardcheck::faults {

/// Why a wrong leaf width cannot act: no tree, or the width of both row-parallel sums is the contract's own.
using LeafRule = std::int64_t (*)(std::int64_t k, int degree);
std::optional<std::string> needs_other_leaf(const Case& c, LeafRule rule);

}  // namespace shardcheck::faults
