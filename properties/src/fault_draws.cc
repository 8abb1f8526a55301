#include "fault_draws.h"

#include <numeric>
#include <string>

#include "shardcheck/properties/law.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kDrawsPerActingCase = 20;
constexpr std::int64_t kEnoughTokens = 64;

/// More sequences of the lengths that the case has, until one rounding more or less is sure to show
/// somewhere.
void add_tokens(Case& c) {
  const std::vector<std::int64_t> lengths = lengths_of(c);
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const std::int64_t copies = (kEnoughTokens + tokens - 1) / tokens;
  if (c.lengths.empty()) {
    c.batch *= copies;
    return;
  }
  for (std::int64_t i = 1; i < copies; ++i) c.lengths.insert(c.lengths.end(), lengths.begin(), lengths.end());
}

}  // namespace

Case drawn_case(std::uint64_t seed, std::uint64_t index, std::string_view law) {
  Stream stream = Stream(seed, "fault draws").child(std::to_string(index));
  Case c = law_named(law.empty() ? "sharded_equals_reference" : law).draw(stream);
  c.fault.clear();
  // Thresholds of native are those of f32, and 16-bit results round another order of sums away: every oracle
  // and law judges models of f32.
  c.dtype = DType::f32;
  if (law.empty()) {
    c.arithmetic = Arithmetic::native;
  } else {
    add_tokens(c);
  }
  return c;
}

std::vector<Case> acting_cases(const FaultChoice& choice, std::uint64_t seed, std::int64_t wanted) {
  std::vector<Case> cases;
  for (std::int64_t i = 0; i < wanted * kDrawsPerActingCase && std::ssize(cases) < wanted; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    Case c = suited_to(choice, drawn_case(seed, index, choice.fault->law), index);
    if (acts_on(choice, c)) cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<SharedCase> shared_cases(const std::vector<FaultChoice>& choices, std::uint64_t seed,
                                     std::int64_t wanted) {
  const auto draw = [seed](std::uint64_t index) { return drawn_case(seed, index); };
  const auto suits = [](const FaultChoice& choice, const Case& judged) {
    return acts_on(choice, judged) ? Suits::yes : Suits::no;
  };
  return find_cases(choices, {wanted, draw, suits}).cases;
}

}  // namespace shardcheck
