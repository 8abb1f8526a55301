#include "promotion.h"

#include <fmt/format.h>

#include <chrono>

#include "replaying.h"
#include "report_json.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

constexpr int kReplays = 3;

/// The case as a law judges it.
Case under(const Law& law, Case c) {
  c.law = law.name;
  if (!speaks_of(law, c.arithmetic)) c.arithmetic = law.arithmetics.front();
  return c;
}

bool is_decided(Verdict verdict) {
  return verdict == Verdict::passed || verdict == Verdict::failed || verdict == Verdict::error;
}

/// Whether the outcome is not the one that the law owes the case. A case that was refused shows nothing.
bool is_finding(const Law& law, const Case& c, const Outcome& outcome) {
  return is_decided(outcome.verdict) && !outcome.refused && outcome.verdict != required_verdict(law, c);
}

/// The smallest case that passes like this one although its fault must be detected: the shrinker of failures
/// does not know such cases.
Failure shrink_undetected(const Law& law, const Case& c, const PromotionRequest& request) {
  Failure found;
  found.original = found.minimal = c;
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return found.shrink_steps >= request.shrink_steps || seconds.count() >= request.shrink_seconds;
  };
  const auto improve = [&] {
    for (const Case& candidate : shrink_case(found.minimal)) {
      if (spent()) return false;
      ++found.shrink_steps;
      if (check_case(law, candidate).verdict != Verdict::passed) continue;
      found.minimal = candidate;
      return true;
    }
    return false;
  };
  while (improve()) {
  }
  return found;
}

Failure shrunk(const Law& law, const Case& c, Verdict observed, const PromotionRequest& request) {
  if (observed == Verdict::passed) return shrink_undetected(law, c, request);
  RunOptions options;
  options.shrink_seconds = request.shrink_seconds;
  options.shrink_steps = request.shrink_steps;
  return shrink_failure(law, c, options, [&](const Case& smaller) {
    if (request.progress) request.progress({ProgressEvent::Kind::stage, "smaller: " + print_case(smaller)});
  });
}

/// The outcome of the first of three runs, or why they are not one answer.
Outcome judged_thrice(const Law& law, const Case& c, std::string& refusal) {
  Outcome first = check_case(law, c);
  for (int i = 1; i < kReplays && refusal.empty(); ++i) {
    const Outcome again = check_case(law, c);
    if (again.verdict != first.verdict)
      refusal = fmt::format("two runs of the minimal case differ: {}, then {}: {}", to_string(first.verdict),
                            to_string(again.verdict), print_case(c));
    else if (again.digest != first.digest)
      refusal = fmt::format("two runs of the minimal case give different digests: {}", print_case(c));
  }
  return first;
}

std::string observation(const Law& law, const Case& c, const Outcome& outcome) {
  if (!outcome.message.empty()) return outcome.message;
  return fmt::format("{} passes a case with the fault {}, which it must detect", law.name, c.fault);
}

}  // namespace

Promotion promote(const PromotionRequest& request) {
  Promotion promotion;
  std::string tried;
  for (const Law* law : request.laws) {
    const Case c = under(*law, request.artifact);
    const Outcome outcome = replay_case(c).outcome;
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", law->name, to_string(outcome.verdict));
    if (!is_finding(*law, c, outcome)) continue;
    const Failure minimal = shrunk(*law, c, outcome.verdict, request);
    promotion.shrink_steps = minimal.shrink_steps;
    const Outcome again = judged_thrice(*law, minimal.minimal, promotion.refusal);
    promotion.observed = observation(*law, minimal.minimal, again);
    const CaseRecord record{.law = std::string(law->name),
                            .verdict = required_verdict(*law, minimal.minimal),
                            .found_by = request.found_by,
                            .commit = build_commit(),
                            .why = request.why.empty() ? promotion.observed : request.why};
    promotion.file = record.file_of(minimal.minimal);
    return promotion;
  }
  promotion.refusal = fmt::format("the case shows no bug ({})", tried);
  return promotion;
}

}  // namespace shardcheck
