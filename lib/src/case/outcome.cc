#include "shardcheck/case/outcome.h"

#include <array>
#include <utility>

namespace shardcheck {
namespace {

constexpr std::array<std::pair<Verdict, std::string_view>, 7> kVerdicts = {{
    {Verdict::passed, "passed"},
    {Verdict::failed, "failed"},
    {Verdict::vacuous, "vacuous"},
    {Verdict::mistrusted, "mistrusted"},
    {Verdict::skipped, "skipped"},
    {Verdict::timeout, "timeout"},
    {Verdict::error, "error"},
}};

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  for (const auto& [value, text] : kVerdicts) {
    if (value == verdict) return text;
  }
  return "unknown";
}

std::optional<Verdict> verdict_from(std::string_view text) noexcept {
  for (const auto& [value, name] : kVerdicts) {
    if (name == text) return value;
  }
  return std::nullopt;
}

Outcome Outcome::fail(std::string message, std::optional<Difference> difference) {
  Outcome outcome = of(Verdict::failed, std::move(message));
  if (difference) {
    outcome.deviation = difference->max_abs;
    outcome.threshold = difference->threshold;
  }
  outcome.difference = std::move(difference);
  return outcome;
}

Outcome Outcome::of(Verdict verdict, std::string message) {
  Outcome outcome;
  outcome.verdict = verdict;
  outcome.message = std::move(message);
  return outcome;
}

}  // namespace shardcheck
