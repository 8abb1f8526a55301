// Effective weights: what the engine of each rank computes with, of tensors that no forward pass here reads
// (quantised weights, adapters, state-space and latent projections, gradients, files). One file each under
// mutators/effective/; the file name is that of the kind.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

/// The law whose cases are about effective weights.
inline constexpr std::string_view kEffectiveLaw = "effective_weights_are_right";

/// Tensors of one kind for a case: functions of its geometry, target degree and seed.
struct EffectiveModel {
  EffectiveKind kind = EffectiveKind::none;
  std::string_view claim;  // what is right, one present-tense sentence
  /// Why the case has no such tensors ("heads 6 do not divide by groups 4"), or nullopt.
  std::optional<std::string> (*why_not)(const Case& c) = nullptr;
  /// By name, what every rank must compute with: worked out on whole tensors, then cut by plain index
  /// arithmetic that no placement or table has a part in.
  ShardedTensors (*expected)(const Case& c) = nullptr;
  /// The same as a right engine gets there, from stored shards.
  ShardedTensors (*delivered)(const Case& c) = nullptr;
};

/// Every model, sorted by name of its kind.
const std::vector<const EffectiveModel*>& all_effective_models();
/// Throws InvalidInput for `none`.
const EffectiveModel& effective_model(EffectiveKind kind);

/// Why the case has no weights of its kind, or of none; nullopt where it has.
std::optional<std::string> why_no_effective_weights(const Case& c);

/// What every rank of the case computes with, the case's fault included where it acts. Throws InvalidInput
/// for effective=none and an unknown fault.
ShardedTensors effective_weights(const Case& c);

/// Passed when every rank's effective weights, with the case's fault if it has one, are bit for bit the
/// expected ones; else names tensor, rank and element. Verdict::skipped where the case has no such tensors.
Outcome judge_effective(const Case& c);
/// The same of weights that are known already: effective_weights(c).
Outcome judge_effective(const Case& c, const ShardedTensors& held);

}  // namespace shardcheck
