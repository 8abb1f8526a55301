// What the frameworks call their tensors, as the conventions that read them know it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// The models, or the layers of a model, that have a name.
enum class NamedIn : std::uint8_t { every, gated, expert_layers };

struct RoleName {
  std::string_view role, tensor;  // "layers.{layer}.experts.{expert}.up"
  NamedIn where = NamedIn::every;
};

/// Names of a framework; roles of one tensor are stacked in it. What is not among its own is as in `base`.
struct ConsumerNames {
  std::span<const RoleName> own;
  const ConsumerNames* base = nullptr;

  /// The name of a role's tensor with its placeholders, empty when there is none.
  std::string_view find(std::string_view role, const Geometry& geometry, std::int64_t layer) const;
};

extern const ConsumerNames kSeedNames, kHuggingFaceNames, kHuggingFaceMoeNames, kMixtralNames, kGpt2Names,
    kNeoxNames, kVllmNames, kVllmMoeNames, kMegatronNames, kMegatronMoeNames, kTorchtitanNames;

}  // namespace shardcheck
