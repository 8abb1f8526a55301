// Faults of the catalogue on cases that nobody chose; with a planted fault, cases that have to show it.
#include <fmt/format.h>

#include <algorithm>

#include "case_input.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck::fuzz::targets {
namespace {

constexpr Bounds kBounds{
    .width = 128, .layers = 4, .ranks = 16, .elements = 1 << 20, .tokens = 96, .multiply_adds = 0x1p24};

std::shared_ptr<Subject> own_subject(const Case& c) { return subject_of(c); }

/// The laws that some fault is detected by.
const std::vector<std::string_view>& detecting_laws() {
  static const std::vector<std::string_view> laws = [] {
    std::vector<std::string_view> names;
    for (const Fault* fault : all_faults()) {
      const std::string_view name = laws_against(*fault).front()->name;
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    return names;
  }();
  return laws;
}

/// Whether the case hides no bug by itself: as large and as random as drawn ones.
bool is_powered(const Case& c) {
  const Geometry& g = c.geometry;
  return c.weights == WeightStyle::powered && c.dtype == DType::f32 && g.d_model >= 4 && g.vocab >= 8 &&
         g.head_dim >= 2 && g.ffn >= 4 && lengths_of(c).size() * static_cast<std::size_t>(c.length) >= 8;
}

/// The case as the law against the fault asks it, under the sharpest arithmetic that must see the fault.
Case asked(Case c, const Fault& fault, const Law& law) {
  c = fault.judged_on(std::move(c));
  c.law = law.name;
  if (law.name == "sharded_equals_reference")
    c.arithmetic = fault.expects(Oracle::tree)                                  ? Arithmetic::tree
                   : fault.expects(Oracle::exact) || fault.is_relabel_control() ? Arithmetic::exact
                                                                                : Arithmetic::native;
  return c;
}

bool is_seen_in_bytes(const FaultChoice& choice, const Case& c) {
  if (!choice.fault->expects(Oracle::layout) || choice.fault->kind != EffectiveKind::none) return false;
  return Workbench(c).judge(Oracle::layout, *subject_of(c)).verdict == Verdict::failed;
}

/// Another order of a sum may round to the same bits: no evidence either way.
bool may_round_alike(const Fault& fault) { return fault.family == 'D' || !fault.law.empty(); }

void check_fault(const Case& given) {
  const FaultChoice choice = parse_fault(given.fault);
  const Law& law = *laws_against(*choice.fault).front();
  const Case c = asked(given, *choice.fault, law);
  if (why_fault_is_inert(c)) return;
  const Outcome outcome = outcome_of(law, c, own_subject);
  if (choice.fault->is_relabel_control()) {
    if (says_failed(outcome)) report(law, outcome);
    return;
  }
  if (outcome.verdict == Verdict::error && !outcome.refused) report(law, outcome);
  if (outcome.verdict != Verdict::passed || may_round_alike(*choice.fault) || is_seen_in_bytes(choice, c))
    return;
  throw Finding(fmt::format("fault {} acts and survives {}: {}", choice.text(), law.name, print_case(c)));
}

/// The engine has the planted fault, the case's own does not count: whatever law fails has found it.
void check_planted(Case c, const std::string& planted) {
  const Law* const law = law_of(c, detecting_laws());
  if (law == nullptr) return;
  c.fault = planted;
  if (why_fault_is_inert(c)) return;
  const Outcome outcome = outcome_of(*law, c, own_subject);
  if (says_failed(outcome)) report(*law, outcome);
}

void check(std::string_view input) {
  const auto c = read_case(input);
  if (!c || !is_within(kBounds, *c)) return;
  try {
    if (const std::string planted = planted_fault(); !planted.empty()) {
      check_planted(*c, planted);
    } else if (!c->fault.empty() && is_powered(*c)) {
      check_fault(*c);
    }
  } catch (const InvalidInput&) {  // no such fault, or a case that it cannot be asked about
  } catch (const UnsupportedLayout&) {
  }
}

std::string draw(Stream& stream) {
  static const std::vector<FaultChoice> choices = every_choice();
  const FaultChoice& choice = stream.pick(choices);
  const Law& law = *laws_against(*choice.fault).front();
  Case c = law.draw(stream);
  c.dtype = DType::f32;
  c.fault.clear();
  c = asked(suited_to(choice, std::move(c), stream.next_u64()), *choice.fault, law);
  c.fault = choice.text();
  return print_case(c);
}

}  // namespace

const Target& fault_detection() {
  static const Target target{.name = "fault_detection",
                             .claim =
                                 "A fault of the catalogue that acts on a case is detected there, or its "
                                 "equivalence is known; a relabelling is never flagged.",
                             .format = InputFormat::case_line,
                             .max_bytes = 4096,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
