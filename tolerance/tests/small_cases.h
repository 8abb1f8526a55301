// Small cases of the tolerance tests.
#pragma once

#include "shardcheck/case/case.h"

namespace shardcheck {

inline Case small_case(const char* source, const char* target) {
  Case c;
  c.law = "sharded_equals_reference";
  c.geometry = {.d_model = 24,
                .n_layers = 2,
                .n_heads = 8,
                .n_kv_heads = 4,
                .head_dim = 4,
                .ffn = 40,
                .vocab = 52,
                .norm_eps = 1e-6,
                .rope = Rope::half};
  c.source = parse_layout_name(source);
  c.target = parse_layout_name(target);
  c.seed = 5;
  return c;
}

}  // namespace shardcheck
