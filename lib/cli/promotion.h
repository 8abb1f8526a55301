// What a fuzzer or a random run left behind, as a case file worth keeping: the smallest case that shows the
// same, judged three times.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "corpus.h"
#include "shardcheck/case/case.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck {

struct PromotionRequest {
  Case artifact;
  std::vector<const Law*> laws;  // tried in this order; the first that the case breaks is taken
  std::string found_by;
  std::string why;  // empty: what the law says of the minimal case
  double shrink_seconds = 30.0;
  int shrink_steps = 500;
  ProgressSink progress;
};

struct Promotion {
  CaseFile file;         // its recorded verdict is the one that must hold, so it fails until the bug is gone
  int shrink_steps = 0;  // cases tried
  std::string observed;  // what the law says of it now
  std::string refusal;   // why there is nothing to keep; empty: there is
};

/// Throws InvalidInput for a case that no law can judge: unknown fault or layout.
Promotion promote(const PromotionRequest& request);

}  // namespace shardcheck
