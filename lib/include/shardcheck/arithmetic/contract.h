// The contract of a model's arithmetic: everything that fixes the bits of `tree` and is not the model
// itself. It is derived from the geometry and a printed set of degrees, never from the source or target
// of a run, and it is hashed so that two runs can be told to agree before a number is compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

struct Contract {
  TreeShape shape = TreeShape::halving;
  std::vector<int> degrees;          // ascending; every one can be run
  std::int64_t leaf_d_model = 1;     // K = d_model: qkv, gate_up, lm_head, norm statistics
  std::int64_t leaf_attention = 1;   // K = n_heads*head_dim: o_proj
  std::int64_t leaf_ffn = 1;         // K = ffn: down
  std::int64_t leaf_expert_ffn = 0;  // K = expert_ffn: down of one expert; 0 without experts
  std::int64_t leaf_shared_ffn = 0;  // K = shared_ffn: down of the shared expert; 0 without one
  std::int64_t key_block = 64;       // absolute positions per leaf of the softmax sums
  DType storage = DType::f32;        // what activations are rounded to; nodes of a tree stay f32

  /// One line, e.g. "halving degrees=1,2,4 leaf.d_model=128 leaf.attention=64 leaf.ffn=88 key_block=64
  /// storage=f32".
  std::string text() const;
  /// XXH3 64 of `text()`.
  std::uint64_t hash() const;
};

/// Largest leaf width that is at most `limit` and divides every rank boundary of a sum of length k at
/// every degree of the list: the largest divisor of gcd(k / t) not above `limit`. Degrees that do not
/// divide k are refused with std::invalid_argument.
std::int64_t leaf_width(std::int64_t k, const std::vector<int>& degrees, std::int64_t limit = 128);

/// What is chosen about a contract; the rest follows from the geometry.
struct ContractChoice {
  TreeShape shape = TreeShape::halving;
  std::vector<int> degrees = {};  // empty: every degree in 1..1024 that heads, KV heads and ffn divide by
  std::int64_t leaf = 128;        // the widest leaf allowed
  std::int64_t key_block = 64;
  DType storage = DType::f32;

  bool operator==(const ContractChoice&) const = default;
};

/// Throws std::invalid_argument naming a given degree that does not divide n_heads or ffn, a leaf or key
/// block below 1, or a storage dtype other than f32, bf16 and f16.
Contract contract_for(const Geometry& geometry, const ContractChoice& choice = {});

}  // namespace shardcheck
