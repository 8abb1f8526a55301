#include "shardcheck/properties/law_cells.h"

#include <fmt/format.h>

#include <chrono>

#include "fault_draws.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {
namespace {

/// With the fault, on a case that passes without it.
KillCell judged_cell(const FaultChoice& choice, const Law& law, Case c, double timeout_seconds) {
  KillCell cell;
  cell.fault = choice.text();
  cell.family = choice.fault->family;
  cell.law = law.name;
  cell.case_line = print_case(c);
  cell.config = "random";
  c.fault = cell.fault;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = check_case(law, c);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  cell.status = elapsed.count() > timeout_seconds ? CellStatus::timeout : status_of(outcome.verdict);
  cell.deviation = outcome.deviation;
  cell.threshold = outcome.threshold;
  if (cell.status != CellStatus::killed) cell.message = outcome.message;
  return cell;
}

}  // namespace

LawCells judge_by_law(const FaultChoice& choice, std::uint64_t seed, std::int64_t cases,
                      double timeout_seconds) {
  const Law& law = law_named(choice.fault->law);
  LawCells result;
  std::int64_t number = 0;
  for (const Case& c : acting_cases(choice, seed, cases)) {
    ++number;
    const Outcome right = check_case(law, c);
    if (right.verdict == Verdict::failed || right.verdict == Verdict::error) {
      result.baseline_failures.push_back(
          fmt::format("{} fails without a fault: {}", print_case(c), right.message));
      continue;
    }
    result.cells.push_back(judged_cell(choice, law, c, timeout_seconds));
    if (right.verdict != Verdict::passed) {
      result.cells.back().status = status_of(right.verdict);
      result.cells.back().message = right.message;
    }
    result.cells.back().case_number = number;
  }
  return result;
}

}  // namespace shardcheck
