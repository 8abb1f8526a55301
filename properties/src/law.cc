#include "shardcheck/properties/law.h"

#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/mutators/effective.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

/// * matches any run of characters, ? any one. Linear in text times stars: only the last star is retried.
bool matches(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0;
  std::size_t star = std::string_view::npos, retry = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      retry = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++retry;
    } else {
      return false;
    }
  }
  return std::all_of(glob.begin() + static_cast<std::ptrdiff_t>(g), glob.end(),
                     [](char c) { return c == '*'; });
}

std::vector<std::string> law_names() {
  std::vector<std::string> names;
  for (const Law* law : all_laws()) names.emplace_back(law->name);
  return names;
}

[[noreturn]] void refuse_law(std::string_view what, std::string_view word) {
  const std::vector<std::string> names = law_names();
  const std::string nearest = nearest_name(word, names);
  throw InvalidInput(fmt::format("{} '{:.80}'{}; known are {}", what, word,
                                 nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                 fmt::join(names, " ")));
}

/// A law's answer, or what its exception means.
Outcome checked(const Law& law, const Case& c, Subject& subject) {
  try {
    if (const auto reason = why_shares_are_inexact(c, false)) return Outcome::of(Verdict::skipped, *reason);
    if (!speaks_of(law, c.arithmetic))
      return Outcome::of(Verdict::vacuous, fmt::format("arithmetic={}: {} says nothing of it",
                                                       to_string(c.arithmetic), law.name));
    return law.check(c, subject);
  } catch (const UnsupportedLayout& refusal) {
    return Outcome::of(Verdict::skipped, refusal.what());
  } catch (const InvalidShards& refusal) {
    return Outcome::fail(refusal.what());
  } catch (const CollectiveMismatch& refusal) {
    return Outcome::fail(refusal.what());
  } catch (const InvalidInput& refusal) {
    Outcome outcome = Outcome::of(Verdict::error, refusal.what());
    outcome.refused = true;
    return outcome;
  } catch (const std::exception& error) {
    return Outcome::of(Verdict::error, error.what());
  } catch (...) {
    return Outcome::of(Verdict::error, "an exception that is no std::exception");
  }
}

}  // namespace

bool speaks_of(const Law& law, Arithmetic arithmetic) {
  return law.arithmetics.empty() || std::ranges::find(law.arithmetics, arithmetic) != law.arithmetics.end();
}

const Law& law_named(std::string_view name) {
  if (name == canary_law().name) return canary_law();
  for (const Law* law : all_laws()) {
    if (law->name == name) return *law;
  }
  refuse_law("unknown law", name);
}

std::vector<const Law*> laws_matching(std::string_view glob) {
  if (glob == canary_law().name) return {&canary_law()};
  std::vector<const Law*> found;
  for (const Law* law : all_laws()) {
    if (matches(glob, law->name)) found.push_back(law);
  }
  if (found.empty()) refuse_law("no law matches", glob);
  return found;
}

std::vector<const Law*> laws_against(const Fault& fault) {
  if (!fault.law.empty()) return {&law_named(fault.law)};
  if (fault.kind != EffectiveKind::none) return {&law_named(kEffectiveLaw)};
  const bool by_logits = fault.is_relabel_control() || fault.expects(Oracle::exact) ||
                         fault.expects(Oracle::tree) || fault.expects(Oracle::native);
  return {&law_named(by_logits ? "sharded_equals_reference" : "unused_rows_are_compared")};
}

Outcome check_case(const Law& law, const Case& c) {
  std::shared_ptr<Subject> subject;
  try {
    if (const auto reason = why_fault_is_inert(c)) {
      Outcome outcome = Outcome::of(Verdict::skipped, *reason);
      outcome.labels = labels_of(c);
      return outcome;
    }
    subject = subject_of(c);
  } catch (const std::exception& error) {
    return Outcome::of(Verdict::error, error.what());
  }
  return check_case(law, c, *subject);
}

Outcome check_case(const Law& law, const Case& c, Subject& subject) {
  Outcome outcome = checked(law, c, subject);
  for (std::string& label : labels_of(c)) outcome.labels.push_back(std::move(label));
  std::sort(outcome.labels.begin(), outcome.labels.end());
  outcome.labels.erase(std::unique(outcome.labels.begin(), outcome.labels.end()), outcome.labels.end());
  return outcome;
}

}  // namespace shardcheck
