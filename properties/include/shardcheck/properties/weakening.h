// Checks weakened on purpose, as people weaken them in practice, and the faults that would then survive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/mutators/fault.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

/// One oracle, weakened in one way: it looks at another case, at other weights or at less of what it sees.
/// What is not set stays as it is.
struct Weakening {
  std::string_view name;
  Oracle oracle = Oracle::layout;  // that is weakened
  std::string_view weakened;       // how, one present-tense sentence
  std::string_view practice;       // who checks so, with the report

  /// The case it looks at instead; may leave one that cannot be represented.
  void (*look_at)(Case& c) = nullptr;
  /// The weights it looks at instead.
  void (*reweigh)(const Case& c, TensorMap& weights) = nullptr;
  /// The subject as such a recipe runs it.
  std::shared_ptr<Subject> (*run_as)(std::shared_ptr<Subject> inner) = nullptr;
  /// Whether it sees a difference of shards: once of fingerprints, once of the model's own weights, and
  /// `fingerprints` says which.
  bool (*sees_shards)(const ShardedTensors& right, const ShardedTensors& held, bool fingerprints) = nullptr;
  /// Whether it sees a difference of logits, under the oracle's arithmetic.
  bool (*sees_logits)(const Tensor& reference, const std::vector<Tensor>& logits,
                      const Threshold& native) = nullptr;
  /// The oracle that looks at the result in place of a `sees_` function.
  Oracle judge = Oracle::layout;
};

/// Every weakening, sharpest oracle first.
const std::vector<Weakening>& all_weakenings();
/// Throws InvalidInput naming the nearest one.
const Weakening& weakening_named(std::string_view name);

/// A fault under an oracle and under the same oracle weakened, on the same cases.
struct WeakenedFault {
  std::string fault;  // with its argument
  FaultFamily family = 'F';
  std::int64_t cases = 0;       // it acted on
  std::int64_t seen = 0;        // by the oracle as it is
  std::int64_t still_seen = 0;  // of those, by the weakened one
  std::string example;  // a case that only the oracle as it is sees, with the fault; empty when there is none
  bool survives() const { return seen > 0 && still_seen == 0; }
};

struct WeakeningReport {
  const Weakening* weakening = nullptr;
  std::vector<WeakenedFault> faults;  // by family and fault; those that the oracle sees as it is
  std::int64_t cases = 0;             // without a fault that were judged
  std::int64_t false_alarms = 0;      // of them
  std::int64_t survivors() const;
  bool some_faults = false;                   // a choice of faults: that none of them survives proves nothing
  std::vector<std::string> problems() const;  // no fault survives, or right shards are flagged
  std::vector<std::string> gaps() const;      // nothing is known of the check
};

struct WeakeningOptions {
  std::uint64_t seed = 0;
  std::vector<const Weakening*> weakenings;  // empty: all
  std::vector<FaultChoice> faults;           // empty: all
  std::int64_t cases = 20;                   // per fault
  int jobs = 1;
  ProgressSink progress;
};

/// One report per weakening. Faults that only a law of their own sees have no part in it. The same for any
/// number of jobs.
std::vector<WeakeningReport> weaken(const WeakeningOptions& options);

}  // namespace shardcheck
