#include "shardcheck/properties/weakening.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "fault_draws.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/mutators/counted_work.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck {
namespace {

/// What one case says about a fault under one weakening.
struct Finding {
  std::size_t weakening = 0;
  std::string fault;
  bool seen = false;        // by the oracle as it is
  bool still_seen = false;  // by the weakened one
  std::string example;
};

/// What one case says about right shards.
struct Alarm {
  std::size_t weakening = 0;
  bool flagged = false;
};

struct JudgedCase {
  std::vector<Finding> findings;
  std::vector<Alarm> alarms;
};

/// A case made concrete, with what a right subject delivers.
class Bench {
 public:
  explicit Bench(const Case& c) : bench_(c) {}
  Bench(const Case& c, TensorMap weights)
      : bench_(c, std::move(weights), make_tokens(c.geometry, c.batch, c.length, 10000 + c.seed)) {}

  Workbench& get() { return bench_; }

  const ShardedTensors& right(bool fingerprints) {
    auto& shards = right_[fingerprints ? 1 : 0];
    Subject subject;
    if (!shards) shards = bench_.moved(subject, weights(fingerprints));
    return *shards;
  }
  const TensorMap& weights(bool fingerprints) {
    return fingerprints ? bench_.fingerprints() : bench_.weights();
  }

  /// Whether a forward pass runs here; layouts without one are judged by their bytes alone.
  bool runs() const { return has_running_consumer(bench_.value().target, bench_.value().geometry); }

 private:
  Workbench bench_;
  std::array<std::optional<ShardedTensors>, 2> right_;
};

bool asks_for_logits(const Weakening& weakening) {
  return weakening.oracle != Oracle::layout ||
         (weakening.sees_shards == nullptr && weakening.judge != Oracle::layout);
}

/// A subject at a bench: what it delivers is computed once. A new subject each time, because faults may
/// remember what they moved before.
class Run {
 public:
  using MakeSubject = std::function<std::shared_ptr<Subject>()>;
  Run(Bench& bench, MakeSubject make_subject) : bench_(bench), make_subject_(std::move(make_subject)) {}

  /// Whether the oracle finds a difference; what raises is one.
  bool is_seen_by(Oracle oracle) {
    return raises_or([&] {
      const auto subject = make_subject_();
      const Outcome outcome = oracle == Oracle::layout
                                  ? bench_.get().judge(oracle, *subject)
                                  : bench_.get().judge_shards(oracle, *subject, delivered(false));
      return outcome.verdict == Verdict::failed;
    });
  }

  bool is_seen_by(const Weakening& weakening) {
    if (weakening.sees_shards != nullptr) {
      return raises_or([&] {
        const auto sees = [&](bool fingerprints) {
          return weakening.sees_shards(bench_.right(fingerprints), delivered(fingerprints), fingerprints);
        };
        return sees(true) || sees(false);
      });
    }
    if (weakening.sees_logits == nullptr) return is_seen_by(weakening.judge);
    return raises_or([&] {
      const bool native = weakening.oracle == Oracle::native;
      const Arithmetic arithmetic = native ? Arithmetic::native : Arithmetic::tree;
      return weakening.sees_logits(bench_.get().reference(arithmetic), logits(arithmetic),
                                   native ? bench_.get().threshold() : Threshold());
    });
  }

 private:
  template <typename Sees>
  static bool raises_or(const Sees& sees) {
    try {
      return sees();
    } catch (const std::exception&) {
      return true;
    }
  }

  const ShardedTensors& delivered(bool fingerprints) {
    auto& shards = delivered_[fingerprints ? 1 : 0];
    if (!shards) shards = bench_.get().moved(*make_subject_(), bench_.weights(fingerprints));
    return *shards;
  }

  const std::vector<Tensor>& logits(Arithmetic arithmetic) {
    const auto found = logits_.find(arithmetic);
    if (found != logits_.end()) return found->second;
    const auto subject = make_subject_();
    return logits_.emplace(arithmetic, bench_.get().execute(*subject, delivered(false), arithmetic))
        .first->second;
  }

  Bench& bench_;
  MakeSubject make_subject_;
  std::array<std::optional<ShardedTensors>, 2> delivered_;
  std::map<Arithmetic, std::vector<Tensor>> logits_;
};

/// One case under every weakening.
class CaseJudge {
 public:
  CaseJudge(const SharedCase& shared, const std::vector<const Weakening*>& weakenings)
      : shared_(shared), weakenings_(weakenings), places_(weakenings.size()) {}

  JudgedCase run() {
    const auto runs_the_model = [](const FaultChoice& choice) {
      return choice.fault->kind == EffectiveKind::none;
    };
    if (std::ranges::any_of(shared_.faults, runs_the_model)) set_up();
    for (const FaultChoice& choice : shared_.faults)
      runs_the_model(choice) ? judge(choice) : judge_effective_weights(choice);
    return std::move(result_);
  }

 private:
  /// Where one weakening looks: `bench` is empty where the case cannot be made concrete.
  struct Place {
    Case value;
    std::shared_ptr<Bench> bench;
  };

  void set_up() {
    plain_ = std::make_shared<Bench>(shared_.value);
    for (std::size_t i = 0; i < weakenings_.size(); ++i) {
      Place& place = places_[i] = place_of(*weakenings_[i]);
      if (place.bench && asks_for_logits(*weakenings_[i]) && !(plain_->runs() && place.bench->runs()))
        place.bench = nullptr;
      if (!place.bench) continue;
      Run right(*places_[i].bench, [] { return std::make_shared<Subject>(); });
      result_.alarms.push_back({i, right.is_seen_by(*weakenings_[i])});
    }
  }

  Place place_of(const Weakening& weakening) const {
    Place place{shared_.value, plain_};
    if (weakening.look_at == nullptr && weakening.reweigh == nullptr) return place;
    if (weakening.look_at != nullptr) weakening.look_at(place.value);
    const Case& c = place.value;
    try {
      if (weakening.reweigh == nullptr) {
        place.bench = std::make_shared<Bench>(c);
      } else {
        TensorMap weights = plain_->get().weights();
        weakening.reweigh(c, weights);
        place.bench = std::make_shared<Bench>(c, std::move(weights));
      }
    } catch (const UnsupportedLayout&) {
      place.bench = nullptr;
    } catch (const InvalidInput&) {
      place.bench = nullptr;
    }
    return place;
  }

  static std::shared_ptr<Subject> inject(const FaultChoice& choice, const Case& c,
                                         const Weakening* weakening = nullptr) {
    auto subject = choice.fault->inject(std::make_shared<Subject>(), c, choice.argument);
    return weakening == nullptr || weakening->run_as == nullptr ? subject : weakening->run_as(subject);
  }

  void judge(const FaultChoice& choice) {
    Run faulty(*plain_, [&] { return inject(choice, shared_.value); });
    std::map<Oracle, bool> seen;
    for (std::size_t i = 0; i < weakenings_.size(); ++i) {
      const Weakening& weakening = *weakenings_[i];
      if (!places_[i].bench) continue;
      auto known = seen.find(weakening.oracle);
      if (known == seen.end())
        known = seen.emplace(weakening.oracle, faulty.is_seen_by(weakening.oracle)).first;
      const bool still_seen = known->second && is_still_seen(choice, i, faulty);
      add(i, choice, shared_.value, known->second, still_seen);
    }
  }

  bool is_still_seen(const FaultChoice& choice, std::size_t i, Run& faulty) {
    const Weakening& weakening = *weakenings_[i];
    const Place& place = places_[i];
    if (place.bench == plain_) return faulty.is_seen_by(weakening);
    if (!acts_on(choice, place.value)) return false;
    return Run(*place.bench, [&] { return inject(choice, place.value, &weakening); }).is_seen_by(weakening);
  }

  /// Weights that no forward pass reads: what is looked at in place of every byte.
  void judge_effective_weights(const FaultChoice& choice) {
    const Case c = choice.fault->judged_on(shared_.value);
    const EffectiveModel& model = effective_model(c.effective);
    const ShardedTensors right = model.expected(c), held = choice.fault->effective(c, choice.argument);
    const bool seen = judge_effective(c, held).verdict == Verdict::failed;
    for (std::size_t i = 0; i < weakenings_.size(); ++i) {
      const Weakening& weakening = *weakenings_[i];
      if (weakening.sees_shards == nullptr || weakening.reweigh != nullptr) continue;
      add(i, choice, c, seen, seen && weakening.sees_shards(right, held, false));
    }
  }

  void add(std::size_t weakening, const FaultChoice& choice, Case c, bool seen, bool still_seen) {
    c.fault = choice.text();
    const bool missed = seen && !still_seen;
    result_.findings.push_back({weakening, c.fault, seen, still_seen, missed ? print_case(c) : ""});
  }

  const SharedCase& shared_;
  const std::vector<const Weakening*>& weakenings_;
  std::shared_ptr<Bench> plain_;
  std::vector<Place> places_;  // by weakening
  JudgedCase result_;
};

std::vector<const Weakening*> chosen(const WeakeningOptions& options) {
  if (!options.weakenings.empty()) return options.weakenings;
  std::vector<const Weakening*> all;
  for (const Weakening& weakening : all_weakenings()) all.push_back(&weakening);
  return all;
}

/// What oracles judge, by family and text.
std::vector<FaultChoice> judged_by_oracles(const WeakeningOptions& options) {
  std::vector<FaultChoice> choices = options.faults.empty() ? every_choice() : options.faults;
  std::erase_if(choices, [](const FaultChoice& choice) { return choice.fault->oracles.empty(); });
  return by_family(std::move(choices));
}

void count(WeakenedFault& row, const Finding& finding) {
  ++row.cases;
  row.seen += finding.seen ? 1 : 0;
  row.still_seen += finding.still_seen ? 1 : 0;
  if (row.example.empty()) row.example = finding.example;
}

}  // namespace

std::int64_t WeakeningReport::survivors() const {
  return std::ranges::count_if(faults, [](const WeakenedFault& fault) { return fault.survives(); });
}

std::vector<std::string> WeakeningReport::problems() const {
  std::vector<std::string> found;
  if (survivors() == 0 && !faults.empty() && !some_faults)
    found.push_back(fmt::format("{}: no fault survives", weakening->name));
  if (false_alarms > 0)
    found.push_back(
        fmt::format("{}: right shards are flagged in {} of {} cases", weakening->name, false_alarms, cases));
  return found;
}

std::vector<std::string> WeakeningReport::gaps() const {
  if (faults.empty())
    return {fmt::format("{}: {} sees none of the faults", weakening->name, to_string(weakening->oracle))};
  if (some_faults && survivors() == 0)
    return {fmt::format("{}: none of the chosen faults survives", weakening->name)};
  return {};
}

std::vector<WeakeningReport> weaken(const WeakeningOptions& options) {
  const std::vector<const Weakening*> weakenings = chosen(options);
  const std::vector<FaultChoice> choices = judged_by_oracles(options);
  const std::vector<SharedCase> cases = shared_cases(choices, options.seed, options.cases);
  std::vector<JudgedCase> judged(cases.size());
  do_counted(cases.size(), options.jobs, options.progress, "cases",
             [&](std::size_t i) { judged[i] = CaseJudge(cases[i], weakenings).run(); });

  std::vector<WeakeningReport> reports(weakenings.size());
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < weakenings.size(); ++i) {
    reports[i].weakening = weakenings[i];
    reports[i].some_faults = !options.faults.empty();
    for (const FaultChoice& choice : choices) {
      place.emplace(choice.text(), reports[i].faults.size());
      reports[i].faults.push_back({.fault = choice.text(), .family = choice.fault->family, .example = {}});
    }
  }
  for (const JudgedCase& one : judged) {
    for (const Finding& finding : one.findings)
      count(reports[finding.weakening].faults[place.at(finding.fault)], finding);
    for (const Alarm& alarm : one.alarms) {
      ++reports[alarm.weakening].cases;
      reports[alarm.weakening].false_alarms += alarm.flagged ? 1 : 0;
    }
  }
  for (WeakeningReport& report : reports)
    std::erase_if(report.faults, [](const WeakenedFault& fault) { return fault.seen == 0; });
  return reports;
}

}  // namespace shardcheck
