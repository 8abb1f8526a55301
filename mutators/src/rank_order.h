// Shards handed to the wrong ranks: what the reversed and the rotated order share.
#pragma once

#include "plan_fault.h"

namespace shardcheck::faults {

/// Rank whose shard a rank receives.
using SourceRank = int (*)(int rank, int degree);

/// Parameters whose shards can be handed around, as arguments of a fault.
inline const std::vector<std::string_view> kReassignable = {"o_proj",  "down",    "qkv",
                                                            "gate_up", "lm_head", "embed"};

/// A cut tensor of the group whose ranks all hold one and the same non-empty shape, so that a reassignment
/// keeps shapes.
bool can_be_reassigned(const LayoutEntry& entry, std::string_view group);

/// Gives every rank the shard of `source(rank)`.
void reassign(std::vector<Tensor>& shards, SourceRank source);

/// Why a reassignment cannot act: nothing of the group is cut evenly, or no sampled token has its embedding
/// row on a rank that receives another shard.
std::optional<std::string> cannot_reassign(const Case& c, std::string_view group, SourceRank source);

}  // namespace shardcheck::faults
