// Random cases for faults: the same model for every oracle, moved toward a fault where few draws suit it.
#pragma once

#include <cstdint>
#include <vector>

#include "shardcheck/mutators/case_search.h"

namespace shardcheck {

/// Case `index` of a seed: f32, without a fault. `law` draws it; empty: sharded_equals_reference under
/// native.
Case drawn_case(std::uint64_t seed, std::uint64_t index, std::string_view law = {});

/// The first `wanted` drawn cases that the choice acts on as suited_to moves them, fewer where 20 draws for
/// each do not suffice.
std::vector<Case> acting_cases(const FaultChoice& choice, std::uint64_t seed, std::int64_t wanted);

/// Cases on which each choice acts `wanted` times, as far as find_cases finds them.
std::vector<SharedCase> shared_cases(const std::vector<FaultChoice>& choices, std::uint64_t seed,
                                     std::int64_t wanted);

}  // namespace shardcheck
