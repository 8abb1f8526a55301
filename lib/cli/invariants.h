// The seed document's invariant on the recorded configurations: every ordered pair of supported degrees.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

/// One ordered pair of degrees of one configuration, under both arithmetics.
struct InvariantCell {
  std::string config;  // "TOY" or "TOY_KV4"
  Case value;          // replays the cell: native, source and target degree, fault
  int source_degree = 1, target_degree = 1;
  std::string not_applicable;                 // why the fault cannot act here: nothing was judged then
  double max_deviation = 0.0, max_ulp = 0.0;  // native
  double threshold = 0.0;
  bool native_holds = false;
  std::int64_t tree_differing = 0;  // logits whose bits differ under tree
  bool tree_holds = false;
  std::string mistrusted;                // why a deviation below the threshold is no evidence
  std::string message;                   // why it does not hold; empty when it does
  std::optional<Difference> difference;  // first mismatching parameter, when bytes differ

  bool judged() const { return not_applicable.empty(); }
  /// skipped when not judged; failed; mistrusted when it only holds under a threshold that may not be
  /// trusted; passed.
  Verdict verdict() const;
  bool holds() const { return verdict() == Verdict::passed; }
};

struct InvariantOptions {
  std::string fault;  // injected into every cell it can act on
  int jobs = 1;
  ProgressSink progress;
};

struct InvariantReport {
  std::vector<InvariantCell> cells;
  std::string threshold_source;
  double seconds = 0.0;
  std::int64_t judged() const;  // cells
  bool holds() const;           // every judged cell does
  bool failed() const;          // a cell fails: neither holds nor is undecided
};

/// ReferenceModel(full, x) == ShardedModel(reshard(full, source -> target), x) on TOY and TOY_KV4: 4 + 9
/// cells, their degrees derived by probing. Target degree 1 must deviate by exactly 0.
InvariantReport check_invariants(const InvariantOptions& options);

}  // namespace shardcheck
