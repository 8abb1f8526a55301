// Random cases for many faults at once: what one of them takes is offered to all, so that they share what is
// computed without a fault.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shardcheck/mutators/fault.h"

namespace shardcheck {

/// What a case is to a fault: nothing, evidence of its witness (kept, but not one of those wanted), or one
/// that it acts on.
enum class Suits : std::uint8_t { no, as_witness, yes };

struct CaseSearch {
  std::int64_t wanted = 1;                        // cases per choice
  std::function<Case(std::uint64_t index)> draw;  // case `index`; its fault is dropped
  std::function<Suits(const FaultChoice& choice, const Case& judged)> suits;  // asked of judged_on(case)
};

/// One case for the faults that take it.
struct SharedCase {
  Case value;               // without a fault
  std::uint64_t index = 0;  // of its draw
  std::vector<FaultChoice> faults;
};

struct FoundCases {
  std::vector<SharedCase> cases;
  std::vector<std::int64_t> found;  // by choice: cases it acts on, at most `wanted`, no two of one draw alike
};

/// First as they are drawn, then, for choices that still want some, moved by the `steer` of their fault. Ends
/// after 20 draws for each wanted case, but not before 400. A function of its arguments.
FoundCases find_cases(const std::vector<FaultChoice>& choices, const CaseSearch& search);

}  // namespace shardcheck
