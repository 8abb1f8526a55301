#include "fault_draws.h"

#include <algorithm>
#include <string>

#include "shardcheck/properties/law.h"

namespace shardcheck {

Case drawn_case(std::uint64_t seed, std::uint64_t index, std::string_view law) {
  Stream stream = Stream(seed, "fault draws").child(std::to_string(index));
  Case c = law_named(law.empty() ? "sharded_equals_reference" : law).draw(stream);
  c.fault.clear();
  if (!law.empty()) return c;
  // Thresholds of native are those of f32: every oracle judges the same model.
  c.dtype = DType::f32;
  c.arithmetic = Arithmetic::native;
  return c;
}

std::optional<Case> acting_case(const FaultChoice& choice, const Case& drawn, std::uint64_t index) {
  Case c = suited_to(choice, drawn, index);
  return acts_on(choice, c) ? std::optional(std::move(c)) : std::nullopt;
}

std::vector<Case> acting_cases(const FaultChoice& choice, std::uint64_t seed, std::int64_t wanted) {
  std::vector<Case> cases;
  for (std::int64_t i = 0; i < wanted * kDrawsPerActingCase && std::ssize(cases) < wanted; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    if (auto c = acting_case(choice, drawn_case(seed, index, choice.fault->law), index))
      cases.push_back(std::move(*c));
  }
  return cases;
}

namespace {

/// How many cases each choice still wants.
class Wanted {
 public:
  Wanted(const std::vector<FaultChoice>& choices, std::int64_t wanted)
      : choices_(choices), left_(choices.size(), wanted) {}

  bool any() const { return std::ranges::any_of(left_, is_open); }
  bool open(std::size_t i) const { return is_open(left_[i]); }

  /// The case for every choice that wants it and acts on it as it is.
  SharedCase offer(const Case& c) {
    SharedCase shared{c, {}};
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (!open(i) || !acts_on(choices_[i], choices_[i].fault->judged_on(c))) continue;
      --left_[i];
      shared.faults.push_back(choices_[i]);
    }
    return shared;
  }

 private:
  static bool is_open(std::int64_t left) { return left > 0; }

  const std::vector<FaultChoice>& choices_;
  std::vector<std::int64_t> left_;
};

}  // namespace

std::vector<SharedCase> shared_cases(const std::vector<FaultChoice>& choices, std::uint64_t seed,
                                     std::int64_t wanted) {
  std::vector<SharedCase> cases;
  Wanted open(choices, wanted);
  const auto offer = [&](const Case& c) {
    if (SharedCase shared = open.offer(c); !shared.faults.empty()) cases.push_back(std::move(shared));
  };
  const auto draws = static_cast<std::uint64_t>(wanted * kDrawsPerActingCase);
  for (std::uint64_t index = 0; index < draws && open.any(); ++index) offer(drawn_case(seed, index));
  for (std::uint64_t index = 0; index < draws && open.any(); ++index) {
    const Case drawn = drawn_case(seed, index);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (!open.open(i) || choices[i].fault->steer == nullptr) continue;
      if (const auto moved = acting_case(choices[i], drawn, index)) offer(*moved);
    }
  }
  return cases;
}

}  // namespace shardcheck
