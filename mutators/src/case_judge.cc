#include "case_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "caching_subject.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck {
namespace {

std::string config_of(const Geometry& geometry) {
  if (geometry == toy()) return "kv2";
  return geometry == toy_kv4() ? "kv4" : "random";
}

CellStatus status_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return CellStatus::survived;
    case Verdict::failed:
      return CellStatus::killed;
    case Verdict::vacuous:
    case Verdict::mistrusted:
      return CellStatus::vacuous;
    case Verdict::skipped:
      return CellStatus::not_applicable;
    case Verdict::timeout:
      return CellStatus::timeout;
    case Verdict::error:
      return CellStatus::error;
  }
  return CellStatus::error;
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

class CaseJudge {
 public:
  CaseJudge(const KillWork& work, const std::vector<Oracle>& oracles, double timeout_seconds)
      : work_(work),
        oracles_(oracles),
        timeout_seconds_(timeout_seconds),
        line_(print_case(work.value)),
        config_(config_of(work.value.geometry)) {}

  JudgedWork run() {
    try {
      bench_.emplace(work_.value);
    } catch (const UnsupportedLayout& refusal) {
      for (const FaultChoice& choice : work_.faults)
        add(cells_of(choice, CellStatus::not_applicable, refusal.what()));
      return std::move(result_);
    } catch (const std::exception& failure) {
      return failed_baseline(failure.what());
    }
    for (const Oracle oracle : oracles_) {
      baseline_.push_back(right_outcome(oracle));
      const Verdict verdict = baseline_.back().verdict;
      if (verdict == Verdict::failed || verdict == Verdict::error) {
        return failed_baseline(fmt::format("under {}: {}", to_string(oracle), baseline_.back().message));
      }
    }
    for (const FaultChoice& choice : work_.faults) add(judge(choice));
    return std::move(result_);
  }

 private:
  JudgedWork failed_baseline(const std::string& why) const {
    return {{}, fmt::format("{} fails without a fault: {}", line_, why)};
  }

  void add(std::vector<KillCell> cells) { std::ranges::move(cells, std::back_inserter(result_.cells)); }

  Outcome right_outcome(Oracle oracle) {
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
    for (const Oracle oracle : oracles_) {
      cells.push_back({choice.text(), choice.fault->family, oracle, choice.fault->expects(oracle), line_,
                       config_, status, 0.0, 0.0, message});
    }
    return cells;
  }

  std::vector<KillCell> judge(const FaultChoice& choice) {
    try {
      const Case judged = choice.fault->judged_on(work_.value);
      if (const auto reason = choice.fault->why_inapplicable(judged, choice.argument)) {
        return cells_of(choice, CellStatus::not_applicable, *reason);
      }
      if (choice.fault->effective != nullptr) return judge_effective_weights(choice, judged);
      return judge_faulty(choice, *choice.fault->inject(right_, work_.value, choice.argument));
    } catch (const std::exception& raised) {
      return cells_of(choice, CellStatus::error, fmt::format("the fault raises: {}", raised.what()));
    }
  }

  std::vector<KillCell> judge_effective_weights(const FaultChoice& choice, Case judged) {
    auto cells = cells_of(choice, CellStatus::not_applicable, "no forward pass here reads these weights");
    const Outcome baseline = judge_effective(judged);
    const std::string line = print_case(judged);
    if (baseline.verdict != Verdict::passed) {
      const std::string why = fmt::format("{} fails without a fault: {}", line, baseline.message);
      if (result_.baseline_failure.empty()) result_.baseline_failure = why;
      return cells_of(choice, CellStatus::error, why);
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
    auto cells = cells_of(choice, CellStatus::survived, "");
    for (std::size_t i = 0; i < cells.size(); ++i) fill(cells[i], baseline_[i], faulty, shards);
    settle_equivalence(choice, cells, faulty, shards);
    return cells;
  }

  void fill(KillCell& cell, const Outcome& baseline, Subject& faulty, const ShardedTensors& shards) {
    if (baseline.verdict != Verdict::passed) {
      cell.status = status_of(baseline.verdict);
      cell.message = baseline.message;
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    // The layout oracle reads fingerprints, the others the case's own weights.
    const Outcome outcome = cell.oracle == Oracle::layout ? bench_->judge(cell.oracle, faulty)
                                                          : bench_->judge_shards(cell.oracle, faulty, shards);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    cell.deviation = outcome.deviation;
    cell.threshold = outcome.threshold;
    cell.status = status_of(outcome.verdict);
    if (cell.status != CellStatus::killed) cell.message = outcome.message;
    if (elapsed.count() <= timeout_seconds_) return;
    cell.status = CellStatus::timeout;
    cell.message = fmt::format("took {:.1f} s, allowed {:.1f} s", elapsed.count(), timeout_seconds_);
  }

  bool moves_the_right_bytes(Subject& faulty, const ShardedTensors& shards) {
    const auto differs = [&](const ShardedTensors& expected, const ShardedTensors& actual) {
      return Workbench::first_difference(bench_->target(), expected, actual).has_value();
    };
    const TensorMap& fingerprints = bench_->fingerprints();
    return !differs(bench_->moved(*right_, bench_->weights()), shards) &&
           !differs(bench_->moved(*right_, fingerprints), bench_->moved(faulty, fingerprints));
  }

  /// Exact comparisons alone, whichever oracles were chosen: below a threshold much can hide.
  bool is_bit_for_bit_right(FaultLevel level, Subject& faulty, const ShardedTensors& shards) {
    if (level == FaultLevel::plan || level == FaultLevel::value) return moves_the_right_bytes(faulty, shards);
    return bench_->judge_shards(Oracle::tree, faulty, shards).verdict == Verdict::passed;
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
    if (!is_bit_for_bit_right(choice.fault->level, faulty, shards)) return;
    for (KillCell& cell : cells) {
      if (cell.status != CellStatus::survived) continue;
      cell.status = CellStatus::equivalent;
      cell.message = *witness;
    }
  }

  const KillWork& work_;
  const std::vector<Oracle>& oracles_;
  double timeout_seconds_;
  std::string line_;
  std::string config_;
  std::optional<Workbench> bench_;
  std::shared_ptr<Subject> right_ = std::make_shared<CachingSubject>();
  std::vector<Outcome> baseline_;  // by oracle
  JudgedWork result_;
};

}  // namespace

JudgedWork judge_work(const KillWork& work, const std::vector<Oracle>& oracles, double timeout_seconds) {
  try {
    return CaseJudge(work, oracles, timeout_seconds).run();
  } catch (const std::exception& failure) {
    return {{}, fmt::format("a case of {} cannot be judged: {}", work.value.law, failure.what())};
  }
}

}  // namespace shardcheck
