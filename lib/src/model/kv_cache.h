// The keys and values that a model's slots hold of every sequence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "shardcheck/model/sharded_model.h"

namespace shardcheck {

/// Rows of one sequence in one layer on one slot: row i belongs to the slot's first position + i.
struct CachedRows {
  std::vector<float> keys, values;  // [positions, width]
};

struct KvCache::State {
  std::shared_ptr<const void> owner;             // identity of the model that made it
  std::map<std::int64_t, std::int64_t> lengths;  // tokens of each sequence, by its number
  std::vector<std::vector<std::map<std::int64_t, CachedRows>>> slots;  // [slot][layer of its stage][sequence]
};

}  // namespace shardcheck
