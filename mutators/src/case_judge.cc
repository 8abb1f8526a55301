#include "case_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "caching_subject.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck {
namespace {

std::string config_of(const Geometry& geometry) {
  if (geometry == toy()) return "kv2";
  return geometry == toy_kv4() ? "kv4" : "random";
}

/// Why the faulty shards are no shards of the layout: another set of tensors, shapes or dtypes.
std::optional<std::string> changed_shape(const ShardedTensors& right, const ShardedTensors& faulty) {
  if (right.size() != faulty.size()) return "the fault changes the set of tensors";
  for (const auto& [name, shards] : right) {
    const auto found = faulty.find(name);
    const bool kept = found != faulty.end() &&
                      std::ranges::equal(shards, found->second, [](const Tensor& a, const Tensor& b) {
                        return a.shape() == b.shape() && a.dtype() == b.dtype();
                      });
    if (!kept) return "the fault changes a shape or dtype of " + name;
  }
  return std::nullopt;
}

bool runs_the_model(const FaultChoice& choice) { return choice.fault->effective == nullptr; }

class CaseJudge {
 public:
  CaseJudge(const KillWork& work, const KillOptions& options)
      : work_(work),
        options_(options),
        line_(print_case(work.value)),
        config_(config_of(work.value.geometry)) {}

  JudgedWork run() {
    if (std::ranges::any_of(work_.faults, runs_the_model)) open_bench();
    if (!result_.baseline_failure.empty()) return std::move(result_);
    for (const FaultChoice& choice : work_.faults) add(judge_in_time(choice));
    return std::move(result_);
  }

 private:
  void fail_baseline(const std::string& line, const std::string& why) {
    if (result_.baseline_failure.empty())
      result_.baseline_failure = fmt::format("{} fails without a fault: {}", line, why);
  }

  void open_bench() {
    try {
      bench_.emplace(work_.value);
    } catch (const UnsupportedLayout& refusal) {
      refusal_ = refusal.what();
      return;
    } catch (const std::exception& failure) {
      return fail_baseline(line_, failure.what());
    }
    for (const Oracle oracle : options_.oracles) {
      const auto asks = [&](const FaultChoice& choice) {
        return runs_the_model(choice) && is_asked(options_, *choice.fault, oracle);
      };
      if (std::ranges::none_of(work_.faults, asks)) continue;
      const Outcome& outcome = baseline_.emplace(oracle, right_outcome(oracle)).first->second;
      if (outcome.verdict == Verdict::failed || outcome.verdict == Verdict::error)
        fail_baseline(line_, fmt::format("under {}: {}", to_string(oracle), outcome.message));
    }
  }

  void add(std::vector<KillCell> cells) { std::ranges::move(cells, std::back_inserter(result_.cells)); }

  Outcome right_outcome(Oracle oracle) {
    if (oracle == Oracle::native && work_.value.dtype != DType::f32)
      return Outcome::of(Verdict::skipped, "the threshold of native is measured on models of f32");
    try {
      return bench_->judge(oracle, *right_);
    } catch (const UnsupportedLayout& refusal) {
      return Outcome::of(Verdict::skipped, refusal.what());
    } catch (const std::exception& failure) {
      return Outcome::of(Verdict::error, failure.what());
    }
  }

  std::vector<KillCell> cells_of(const FaultChoice& choice, CellStatus status,
                                 const std::string& message) const {
    std::vector<KillCell> cells;
    for (const Oracle oracle : options_.oracles) {
      if (!is_asked(options_, *choice.fault, oracle)) continue;
      cells.push_back({choice.text(), choice.fault->family, oracle, choice.fault->expects(oracle),
                       choice.fault->is_relabel_control(), line_, config_, work_.number, status, 0.0, 0.0,
                       message});
    }
    return cells;
  }

  /// The limit is for everything that one fault costs: its shards, every oracle and what settles a witness.
  std::vector<KillCell> judge_in_time(const FaultChoice& choice) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<KillCell> cells = judge(choice);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() <= options_.case_timeout_seconds) return cells;
    for (KillCell& cell : cells) {
      if (cell.status == CellStatus::not_applicable || cell.status == CellStatus::error) continue;
      cell.status = CellStatus::timeout;
      cell.message =
          fmt::format("took {:.1f} s, allowed {:.1f} s", elapsed.count(), options_.case_timeout_seconds);
    }
    return cells;
  }

  std::vector<KillCell> judge(const FaultChoice& choice) {
    try {
      const Case judged = choice.fault->judged_on(work_.value);
      if (const auto reason = choice.fault->why_inapplicable(judged, choice.argument)) {
        return cells_of(choice, CellStatus::not_applicable, *reason);
      }
      if (!runs_the_model(choice)) return judge_effective_weights(choice, judged);
      if (!bench_) return cells_of(choice, CellStatus::not_applicable, refusal_);
      return judge_faulty(choice, *choice.fault->inject(right_, work_.value, choice.argument));
    } catch (const std::exception& raised) {
      return cells_of(choice, CellStatus::error, fmt::format("the fault raises: {}", raised.what()));
    }
  }

  const Outcome& right_effective(const Case& judged) {
    const auto found = effective_baseline_.find(judged.effective);
    if (found != effective_baseline_.end()) return found->second;
    return effective_baseline_.emplace(judged.effective, judge_effective(judged)).first->second;
  }

  std::vector<KillCell> judge_effective_weights(const FaultChoice& choice, Case judged) {
    auto cells = cells_of(choice, CellStatus::not_applicable, "no forward pass here reads these weights");
    const Outcome& baseline = right_effective(judged);
    const std::string line = print_case(judged);
    if (baseline.verdict != Verdict::passed) {
      fail_baseline(line, baseline.message);
      return cells_of(choice, CellStatus::error, baseline.message);
    }
    judged.fault = choice.text();
    const Outcome outcome = judge_effective(judged);
    const auto witness = choice.fault->equivalent == nullptr
                             ? std::nullopt
                             : choice.fault->equivalent(judged, choice.argument);
    for (KillCell& cell : cells) {
      cell.case_line = line;
      if (cell.oracle != Oracle::layout) continue;
      cell.status = status_of(outcome.verdict);
      cell.message = cell.status == CellStatus::killed ? "" : outcome.message;
      if (cell.status != CellStatus::survived || !witness) continue;
      cell.status = CellStatus::equivalent;
      cell.message = *witness;
    }
    return cells;
  }

  std::vector<KillCell> judge_faulty(const FaultChoice& choice, Subject& faulty) {
    const ShardedTensors shards = bench_->moved(faulty, bench_->weights());
    if (const auto reason = changed_shape(bench_->moved(*right_, bench_->weights()), shards)) {
      return cells_of(choice, CellStatus::error, *reason);
    }
    const auto relabelling = choice.fault->relabels == nullptr
                                 ? std::nullopt
                                 : choice.fault->relabels(work_.value, choice.argument);
    auto cells = cells_of(choice, CellStatus::survived, "");
    for (KillCell& cell : cells) {
      if (relabelling && cell.oracle == Oracle::tree) {
        cell.status = CellStatus::not_applicable;
        cell.message = kTreeIsNotAsked;
      } else {
        fill(cell, baseline_.at(cell.oracle), faulty, shards);
      }
    }
    if (relabelling) {
      settle_relabelling(*relabelling, cells, faulty, shards);
    } else {
      settle_equivalence(choice, cells, faulty, shards);
    }
    return cells;
  }

  void fill(KillCell& cell, const Outcome& baseline, Subject& faulty, const ShardedTensors& shards) {
    if (baseline.verdict != Verdict::passed) {
      cell.status = status_of(baseline.verdict);
      cell.message = baseline.message;
      return;
    }
    // The layout oracle reads fingerprints, the others the case's own weights.
    const Outcome outcome = cell.oracle == Oracle::layout ? bench_->judge(cell.oracle, faulty)
                                                          : bench_->judge_shards(cell.oracle, faulty, shards);
    cell.deviation = outcome.deviation;
    cell.threshold = outcome.threshold;
    cell.status = status_of(outcome.verdict);
    if (cell.status != CellStatus::killed) cell.message = outcome.message;
  }

  /// Whether the faulty subject delivers the shards of the right model under other names, or under its own.
  bool delivers(const Relabelling& relabelling, Subject& faulty, const ShardedTensors& shards) {
    const auto same = [&](const TensorMap& full, const ShardedTensors& actual) {
      const TensorMap renamed = relabelled(work_.value.geometry, full, relabelling);
      return !Workbench::first_difference(bench_->target(), bench_->moved(*right_, renamed), actual);
    };
    const TensorMap& fingerprints = bench_->fingerprints();
    return same(bench_->weights(), shards) && same(fingerprints, bench_->moved(faulty, fingerprints));
  }

  bool passes(Oracle oracle, Subject& faulty, const ShardedTensors& shards) {
    return bench_->judge_shards(oracle, faulty, shards).verdict == Verdict::passed;
  }

  /// Exact comparisons alone, whichever oracles were chosen: below a threshold much can hide.
  bool is_bit_for_bit_right(const Fault& fault, Subject& faulty, const ShardedTensors& shards) {
    if (acts_on_shards(fault)) return delivers({}, faulty, shards);
    return passes(Oracle::tree, faulty, shards) && passes(Oracle::exact, faulty, shards);
  }

  /// The function is preserved when the bytes are those of the permutation, which preserves every function,
  /// and `exact` agrees. The layout oracle then says which permutation it sees.
  void settle_relabelling(const Relabelling& relabelling, std::vector<KillCell>& cells, Subject& faulty,
                          const ShardedTensors& shards) {
    if (!why_not_preserved(work_.value.geometry, relabelling).empty()) return;
    if (!delivers(relabelling, faulty, shards) || !passes(Oracle::exact, faulty, shards)) return;
    for (KillCell& cell : cells) {
      const bool seen = cell.oracle == Oracle::layout && cell.status == CellStatus::killed;
      if (!seen && cell.status != CellStatus::survived) continue;
      cell.status = seen ? CellStatus::relabelled : CellStatus::equivalent;
      cell.message = describe(relabelling);
    }
  }

  /// Equivalent needs all three: the witness, the agreement of every oracle that judged, and equal bits.
  void settle_equivalence(const FaultChoice& choice, std::vector<KillCell>& cells, Subject& faulty,
                          const ShardedTensors& shards) {
    if (choice.fault->equivalent == nullptr) return;
    const auto witness = choice.fault->equivalent(work_.value, choice.argument);
    const auto agrees = [](const KillCell& cell) {
      return cell.status == CellStatus::survived || cell.status == CellStatus::not_applicable;
    };
    if (!witness || !std::ranges::all_of(cells, agrees)) return;
    if (!is_bit_for_bit_right(*choice.fault, faulty, shards)) return;
    for (KillCell& cell : cells) {
      if (cell.status != CellStatus::survived) continue;
      cell.status = CellStatus::equivalent;
      cell.message = *witness;
    }
  }

  const KillWork& work_;
  const KillOptions& options_;
  std::string line_;
  std::string config_;
  std::optional<Workbench> bench_;  // none when the layouts are refused
  std::string refusal_;
  std::shared_ptr<Subject> right_ = std::make_shared<CachingSubject>();
  std::map<Oracle, Outcome> baseline_;  // of the oracles that are asked
  std::map<EffectiveKind, Outcome> effective_baseline_;
  JudgedWork result_;
};

}  // namespace

bool is_asked(const KillOptions& options, const Fault& fault, Oracle oracle) {
  if (fault.is_relabel_control()) return oracle != Oracle::tree || !options.only_declared;
  return !options.only_declared || fault.expects(oracle);
}

JudgedWork judge_work(const KillWork& work, const KillOptions& options) {
  try {
    return CaseJudge(work, options).run();
  } catch (const std::exception& failure) {
    return {{}, fmt::format("a case of {} cannot be judged: {}", work.value.law, failure.what())};
  }
}

}  // namespace shardcheck
