// Cells of the kill matrix for faults that no oracle sees: their law in the oracle's place.
#pragma once

#include <cstdint>

#include "shardcheck/mutators/kill_matrix.h"

namespace shardcheck {

/// The fault under its law, on the first `cases` random cases of that law that it acts on: killed where the
/// law passes without the fault and fails with it. A function of its arguments, but for cells that took
/// longer than `timeout_seconds`.
LawCells judge_by_law(const FaultChoice& choice, std::uint64_t seed, std::int64_t cases,
                      double timeout_seconds = 60.0);

}  // namespace shardcheck
