// Multi-head latent attention over a tensor-parallel group.
#pragma once

#include "cut_tensors.h"
#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

struct LatentSizes {
  int degree = 1;
  std::int64_t heads = 1;  // of a rank
  std::int64_t q_lora = 1, kv_lora = 1, rope = 1, nope = 1, value = 1, d_model = 1;
};
LatentSizes latent_sizes(const Case& c);

/// A head's row of kv_b, whose rows are, per head, those of its key and those of its value.
struct KvRow {
  std::int64_t head;  // of the rank
  std::int64_t row;   // of the head's key or value
};

class LatentEngine : public Loader {
 public:
  /// Where a rank's part of kv_b has a row of a key, or of a value.
  virtual std::int64_t key_row(const LatentSizes& s, const KvRow& at) const;
  virtual std::int64_t value_row(const LatentSizes& s, const KvRow& at) const;
};

/// qkv_a rows [q_a; kv_a], kv_a being [latent; rope], and both cut; q_b rows per head [nope; rope]; the keys
/// and the values of a rank's heads out of kv_b; o_proj, cut along its columns.
ShardedTensors loaded_latent(const Case& c, const LatentEngine& engine);

}  // namespace shardcheck::effective
