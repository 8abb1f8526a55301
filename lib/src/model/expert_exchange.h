// What the ranks of an expert-parallel group exchange: every rank runs the experts it holds on all tokens
// routed to them, and every rank combines what all experts gave.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/experts.h"
#include "model/row_parallel.h"

namespace shardcheck {

/// One local rank's part of a layer of experts.
struct ExpertSlot {
  std::int64_t rows = 0;            // tokens
  std::vector<RoutedToken> routed;  // by token, the same on every rank of the group
  RankMatrices outputs;             // of the experts held here, ascending: a row for each token routed there
  Matrix shared;                    // of the shared expert; no rows without one
};

/// The stored combination [rows, d_model] on every member, in the order of the collective's local ranks. A
/// token's experts are added ascending wherever they ran; under native every rank adds its own up first and
/// the sums are all-reduced, as engines do.
RankMatrices combine_over_ranks(const Numerics& numerics, const ForwardSteps& steps,
                                std::span<const StepSite> sites, const std::vector<ExpertSlot*>& members,
                                Collective& collective);

}  // namespace shardcheck
