#include "shardcheck/mutators/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shardcheck/mutators/effective.h"

namespace shardcheck {
namespace {

constexpr std::array<std::pair<FaultFamily, std::string_view>, 19> kFamilies = {{
    {'F', "fused"},
    {'A', "axis"},
    {'R', "rank"},
    {'G', "grouped-query attention"},
    {'U', "uneven"},
    {'X', "mesh"},
    {'B', "bias and reduction"},
    {'N', "norm"},
    {'V', "vocabulary"},
    {'P', "position and pipeline"},
    {'E', "experts"},
    {'Q', "quantised"},
    {'S', "sync and values"},
    {'L', "adapters"},
    {'H', "state space and latent"},
    {'C', "container"},
    {'D', "determinism"},
    {'K', "gradient and state"},
    {'Z', "control"},
}};

const Fault& fault_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Fault* fault : all_faults()) {
    if (fault->name == name) return *fault;
    names.emplace_back(fault->name);
  }
  const std::string near = nearest_name(name, names);
  const std::string hint = near.empty() ? "allowed: " + fmt::format("{}", fmt::join(names, ", "))
                                        : "the nearest known one is " + near;
  throw InvalidInput(fmt::format("fault '{}' is not known; {}", name, hint));
}

}  // namespace

bool Fault::expects(Oracle oracle) const {
  const auto declares = [this](Oracle one) { return std::ranges::find(oracles, one) != oracles.end(); };
  if (oracle == Oracle::exact) return declares(Oracle::exact) || (declares(Oracle::tree) && family != 'D');
  return declares(oracle);
}

std::string_view family_name(FaultFamily family) noexcept {
  for (const auto& [letter, name] : kFamilies) {
    if (letter == family) return name;
  }
  return "unknown";
}

std::string_view to_string(FaultLevel level) noexcept {
  switch (level) {
    case FaultLevel::plan:
      return "plan";
    case FaultLevel::collective:
      return "collective";
    case FaultLevel::forward:
      return "forward";
    case FaultLevel::value:
      return "value";
    case FaultLevel::sync:
      return "sync";
    case FaultLevel::container:
      return "container";
    case FaultLevel::gradient:
      return "gradient";
  }
  return "unknown";
}

bool Fault::is_relabel_control() const { return relabels != nullptr && oracles.empty() && law.empty(); }

Case Fault::judged_on(Case c) const {
  if (kind == EffectiveKind::none) return c;
  c.law = kEffectiveLaw;
  c.effective = kind;
  return c;
}

std::optional<std::string> Fault::why_inapplicable(const Case& c, std::string_view argument) const {
  if (c.effective != kind) {
    return kind == EffectiveKind::none ? "the case is about weights that no forward pass reads"
                                       : fmt::format("the case is not about effective={}", to_string(kind));
  }
  if (kind != EffectiveKind::none) {
    if (auto reason = effective_model(kind).why_not(c)) return reason;
  } else if (!meshes && acts_on_shards(*this)) {
    for (const auto& [axis, degree] : c.target.axes) {
      if (axis != "tp" && degree > 1) return fmt::format("the target has ranks along {}", axis);
    }
  }
  return not_applicable(c, argument);
}

std::string FaultChoice::text() const {
  const std::string name(fault == nullptr ? std::string_view() : fault->name);
  return argument.empty() ? name : name + ":" + argument;
}

FaultChoice parse_fault(std::string_view text) {
  const std::size_t colon = text.find(':');
  const Fault& fault = fault_named(text.substr(0, colon));
  if (colon == std::string_view::npos) {
    return {&fault, fault.arguments.empty() ? std::string() : std::string(fault.arguments.front())};
  }
  const std::string_view argument = text.substr(colon + 1);
  if (fault.arguments.empty()) {
    throw InvalidInput(fmt::format("fault {} takes no argument, got '{}'", fault.name, argument));
  }
  if (std::ranges::find(fault.arguments, argument) == fault.arguments.end()) {
    throw InvalidInput(fmt::format("fault {}: argument '{}' is not allowed; allowed: {}", fault.name,
                                   argument, fmt::join(fault.arguments, ", ")));
  }
  return {&fault, std::string(argument)};
}

std::vector<FaultChoice> choices_of(const Fault& fault) {
  if (fault.arguments.empty()) return {{&fault, ""}};
  std::vector<FaultChoice> choices;
  for (const std::string_view argument : fault.arguments) choices.push_back({&fault, std::string(argument)});
  return choices;
}

std::vector<FaultChoice> every_choice() {
  std::vector<FaultChoice> choices;
  for (const Fault* fault : all_faults()) std::ranges::move(choices_of(*fault), std::back_inserter(choices));
  return choices;
}

std::vector<FaultChoice> by_family(std::vector<FaultChoice> choices) {
  std::ranges::sort(choices, {}, [](const FaultChoice& c) { return std::pair(c.fault->family, c.text()); });
  return choices;
}

bool acts_on_shards(const Fault& fault) noexcept {
  return fault.inject != nullptr && fault.level != FaultLevel::collective &&
         fault.level != FaultLevel::forward;
}

std::optional<std::string> why_equivalent(const FaultChoice& choice, const Case& c) {
  const Fault& fault = *choice.fault;
  if (fault.equivalent != nullptr) {
    if (auto witness = fault.equivalent(c, choice.argument)) return witness;
  }
  if (fault.relabels == nullptr || fault.is_relabel_control()) return std::nullopt;
  const auto relabelling = fault.relabels(c, choice.argument);
  return relabelling ? std::optional(describe(*relabelling)) : std::nullopt;
}

bool acts_on(const FaultChoice& choice, const Case& c) {
  return !choice.fault->why_inapplicable(c, choice.argument) && !why_equivalent(choice, c);
}

Case suited_to(const FaultChoice& choice, Case drawn, std::uint64_t index) {
  const Fault& fault = *choice.fault;
  Case c = fault.judged_on(std::move(drawn));
  if (fault.steer == nullptr || acts_on(choice, c)) return c;
  Stream stream = Stream(c.seed, fault.name).child(std::to_string(index));
  fault.steer(c, stream);
  return c;
}

std::optional<std::string> why_fault_is_inert(const Case& c) {
  if (c.fault.empty()) return std::nullopt;
  const FaultChoice choice = parse_fault(c.fault);
  auto reason = choice.fault->why_inapplicable(c, choice.argument);
  if (!reason) reason = why_equivalent(choice, c);
  if (!reason && choice.fault->is_relabel_control() && c.arithmetic == Arithmetic::tree)
    reason = kTreeIsNotAsked;
  if (!reason) return std::nullopt;
  return fmt::format("fault {} cannot act here: {}", choice.text(), *reason);
}

std::shared_ptr<Subject> subject_of(const Case& c) {
  auto right = std::make_shared<Subject>();
  if (c.fault.empty()) return right;
  const FaultChoice choice = parse_fault(c.fault);
  if (choice.fault->inject == nullptr || choice.fault->why_inapplicable(c, choice.argument)) return right;
  return choice.fault->inject(std::move(right), c, choice.argument);
}

}  // namespace shardcheck
