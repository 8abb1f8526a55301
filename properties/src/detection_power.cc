#include "shardcheck/properties/detection_power.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fault_draws.h"
#include "sees_shards.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/mutators/counted_work.h"
#include "shardcheck/mutators/effective.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck {
namespace {

constexpr double kZ = 1.959963984540054;  // 97.5 % quantile of N(0, 1)
constexpr int kShrinkSteps = 200;
/// 2^-k of the largest difference of two weights rounds to nothing well before.
constexpr int kSmallestPower = 63;

double wilson(const Rate& rate, double sign) {
  const auto n = static_cast<double>(rate.trials);
  const double centre = rate.share() + kZ * kZ / (2 * n);
  const double spread = kZ * std::sqrt(rate.share() * (1 - rate.share()) / n + kZ * kZ / (4 * n * n));
  return (centre + sign * spread) / (1 + kZ * kZ / n);
}

std::int64_t parameters_of(const Geometry& geometry) {
  std::int64_t count = 0;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) count += element_count(tensor.shape);
  return count;
}

/// A law that asks one oracle, so that the shrinker can.
template <Oracle oracle>
Law asking() {
  return {.name = "sharded_equals_reference",
          .claim = "The oracle sees no difference.",
          .check = [](const Case& c, Subject& subject) { return Workbench(c).judge(oracle, subject); },
          .shares = {}};
}

/// Who judges a fault, and under which arithmetic its case line is spelled.
struct Judge {
  std::string name;
  Law law;
  std::optional<Arithmetic> arithmetic;
  bool expected = false;
};

std::vector<Judge> judges_of(const Fault& fault) {
  if (!fault.law.empty()) {
    const Law& law = law_named(fault.law);
    return {{std::string(law.name), law, std::nullopt, true}};
  }
  if (fault.kind != EffectiveKind::none)
    return {{"layout", law_named(kEffectiveLaw), std::nullopt, fault.expects(Oracle::layout)}};
  return {{"layout", asking<Oracle::layout>(), Arithmetic::native, fault.expects(Oracle::layout)},
          {"exact", asking<Oracle::exact>(), Arithmetic::exact, fault.expects(Oracle::exact)},
          {"tree", asking<Oracle::tree>(), Arithmetic::tree, fault.expects(Oracle::tree)},
          {"native", asking<Oracle::native>(), Arithmetic::native, fault.expects(Oracle::native)}};
}

SmallestModel smallest_model(const FaultChoice& choice, const Judge& judge, const std::vector<Case>& cases) {
  SmallestModel result{.judge = judge.name, .expected = judge.expected};
  RunOptions options;
  options.shrink_steps = kShrinkSteps;
  options.shrink_seconds = std::numeric_limits<double>::infinity();  // the same on every machine
  for (Case c : cases) {
    c.fault = choice.text();
    if (judge.arithmetic) c.arithmetic = *judge.arithmetic;
    const Verdict verdict = check_case(judge.law, c).verdict;
    if (verdict == Verdict::skipped) continue;  // no forward pass runs there
    ++result.cases;
    if (verdict != Verdict::failed) continue;
    const Failure failure = shrink_failure(judge.law, c, options);
    result.detected = true;
    result.parameters = parameters_of(failure.minimal.geometry);
    result.minimal = print_case(failure.minimal);
    break;
  }
  return result;
}

bool is_finite(const ShardedTensors& shards) {
  for (const auto& [name, ranks] : shards) {
    for (const Tensor& tensor : ranks) {
      const Tensor values = tensor.to(DType::f32);
      if (!std::ranges::all_of(values.f32(), [](float value) { return std::isfinite(value); })) return false;
    }
  }
  return true;
}

/// right + share (faulty - right), in f64 and rounded once to f32 and once to the dtype.
Tensor blend(const Tensor& right, const Tensor& faulty, double share) {
  const Tensor from = right.to(DType::f32), to = faulty.to(DType::f32);
  Tensor mixed = Tensor::uninitialized(DType::f32, right.shape());
  const auto out = mixed.mutable_f32();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double start = from.f32()[i];
    out[i] = static_cast<float>(start + share * (static_cast<double>(to.f32()[i]) - start));
  }
  return mixed.to(right.dtype());
}

/// One case of a fault of the shards, at any amplitude.
class Faded {
 public:
  Faded(const FaultChoice& choice, const Case& c)
      : bench_(c), right_(bench_.moved(subject_, bench_.weights())) {
    const auto faulty = choice.fault->inject(std::make_shared<Subject>(), c, choice.argument);
    faulty_ = bench_.moved(*faulty, bench_.weights());
  }

  bool is_finite() const { return shardcheck::is_finite(faulty_); }

  /// Largest k that is seen while k + 1 is not, by halving the range; -1 when the whole fault is not.
  int power(Oracle oracle) {
    if (!sees(oracle, 0)) return -1;
    int seen = 0, unseen = kSmallestPower;
    while (unseen - seen > 1) {
      const int middle = (seen + unseen) / 2;
      (sees(oracle, middle) ? seen : unseen) = middle;
    }
    return seen;
  }

 private:
  bool sees(Oracle oracle, int k) {
    const ShardedTensors shards = k == 0 ? faulty_ : faded(std::ldexp(1.0, -k));
    const auto differs = [&] {
      return Workbench::first_difference(bench_.target(), right_, shards).has_value();
    };
    if (oracle == Oracle::layout || !differs()) return differs();
    return sees_shards(bench_, oracle, subject_, shards);
  }

  ShardedTensors faded(double share) const {
    ShardedTensors shards = right_;
    for (auto& [name, ranks] : shards) {
      const auto& faulty = faulty_.at(name);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (!ranks[rank].same_bytes(faulty[rank])) ranks[rank] = blend(ranks[rank], faulty[rank], share);
      }
    }
    return shards;
  }

  Subject subject_;
  Workbench bench_;
  ShardedTensors right_, faulty_;
};

void widen(std::optional<Amplitude>& range, int power) {
  if (!range) range = Amplitude{0, power, power};
  ++range->cases;
  range->least = std::min(range->least, power);
  range->largest = std::max(range->largest, power);
}

void measure_amplitudes(const FaultChoice& choice, const std::vector<Case>& cases, FaultPower& result) {
  for (const Case& c : cases) {
    Faded faded(choice, c);
    if (!faded.is_finite()) continue;
    widen(result.layout, faded.power(Oracle::layout));
    if (!has_running_consumer(c.target, c.geometry)) continue;
    widen(result.exact, faded.power(Oracle::exact));
    widen(result.native, faded.power(Oracle::native));
  }
}

FaultPower measure_fault(const FaultChoice& choice, const PowerOptions& options) {
  FaultPower result{.fault = choice.text(), .family = choice.fault->family};
  const std::vector<Case> cases = acting_cases(choice, options.seed, options.cases);
  for (const Judge& judge : judges_of(*choice.fault))
    result.models.push_back(smallest_model(choice, judge, cases));
  if (acts_on_shards(*choice.fault)) measure_amplitudes(choice, cases, result);
  return result;
}

/// Without negative controls, which nobody may detect.
std::vector<FaultChoice> choices_to_measure(const PowerOptions& options) {
  std::vector<FaultChoice> choices = options.faults.empty() ? every_choice() : options.faults;
  std::erase_if(choices, [](const FaultChoice& choice) {
    return choice.fault->oracles.empty() && choice.fault->law.empty();
  });
  return by_family(std::move(choices));
}

}  // namespace

double Rate::share() const {
  return trials == 0 ? 0.0 : static_cast<double>(detected) / static_cast<double>(trials);
}
// At either end the interval ends there too, which rounding would not quite reach.
double Rate::low() const { return detected == 0 ? 0.0 : wilson(*this, -1.0); }
double Rate::high() const { return detected == trials ? 1.0 : wilson(*this, 1.0); }

bool FaultPower::acted() const {
  return std::ranges::any_of(models, [](const SmallestModel& model) { return model.cases > 0; });
}

std::vector<std::string> FaultPower::problems() const {
  std::vector<std::string> found;
  for (const SmallestModel& model : models) {
    if (!model.expected || model.detected || model.cases == 0) continue;
    found.push_back(fmt::format("{} is not seen by {} in {} cases", fault, model.judge, model.cases));
  }
  return found;
}

std::vector<std::string> FaultPower::gaps() const {
  if (!acted()) return {fmt::format("{} acted in no case", fault)};
  std::vector<std::string> found;
  for (const SmallestModel& model : models) {
    if (model.expected && model.cases == 0)
      found.push_back(fmt::format("{} was put to {} in no case", fault, model.judge));
  }
  return found;
}

std::vector<FaultPower> measure_faults(const PowerOptions& options) {
  const std::vector<FaultChoice> choices = choices_to_measure(options);
  std::vector<FaultPower> rows(choices.size());
  do_counted(choices.size(), options.jobs, options.progress, "faults",
             [&](std::size_t i) { rows[i] = measure_fault(choices[i], options); });
  return rows;
}

}  // namespace shardcheck
