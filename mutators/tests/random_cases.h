// Random small cases for the tests of the faults: every layout table that a forward pass reads, uneven
// vocabularies, square projections, all options of the geometry. Powered weights.
#pragma once

#include "shardcheck/case/case.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {

inline Geometry draw_geometry(Stream& stream) {
  Geometry g;
  g.n_kv_heads = stream.pick(std::vector<std::int64_t>{1, 2, 3, 4, 6});
  g.n_heads = g.n_kv_heads * stream.integer(1, 3);
  g.head_dim = stream.pick(std::vector<std::int64_t>{2, 4, 6});
  g.d_model = stream.chance(1, 3) ? g.attention_width() : stream.integer(5, 40);
  g.ffn = g.n_kv_heads * (stream.chance(1, 5) ? 1 : stream.integer(1, 7));
  g.vocab = stream.integer(5, 60);
  g.n_layers = stream.integer(1, 3);
  g.rope = stream.chance(1, 2) ? Rope::half : Rope::none;
  g.tied = stream.chance(1, 4);
  g.qkv_bias = stream.chance(1, 3);
  g.qk_norm = stream.chance(1, 4);
  return g;
}

inline LayoutName draw_layout(Stream& stream) {
  static const std::vector<std::string> tables = {
      "seed",       "seed-bias-on-first-rank", "seed-bias-divided", "hf-llama",
      "vllm-llama", "megatron-llama",          "torchtitan-llama"};
  LayoutName name{stream.pick(tables), {}};
  const int degree = stream.pick(std::vector<int>{1, 2, 2, 3, 4, 6});
  if (degree > 1) name.axes = {{"tp", degree}};
  return name;
}

inline bool can_run(const LayoutName& name, const Geometry& geometry) {
  try {
    require_executable(make_layout(name, geometry));
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

/// Case number `index`: both layouts can be represented and run.
inline Case random_case(std::uint64_t index) {
  Stream stream(index, "mutators/tests");
  Case c;
  c.law = "sharded_equals_reference";
  do {
    c.geometry = draw_geometry(stream);
    c.source = draw_layout(stream);
    c.target = draw_layout(stream);
  } while (!can_run(c.source, c.geometry) || !can_run(c.target, c.geometry));
  c.batch = stream.integer(1, 2);
  c.length = stream.pick(std::vector<std::int64_t>{1, 9, 32});
  // Two tokens alone may be the same one, and such logits are vacuous.
  if (c.length == 1) c.batch = 1;
  c.seed = index;
  return c;
}

inline Case hand_picked(const char* source, const char* target) {
  Case c;
  c.law = "sharded_equals_reference";
  c.geometry = {.d_model = 48,
                .n_layers = 2,
                .n_heads = 8,
                .n_kv_heads = 4,
                .head_dim = 6,
                .ffn = 40,
                .vocab = 53,
                .norm_eps = 1e-6,
                .rope = Rope::half,
                .qkv_bias = true,
                .qk_norm = true};
  c.source = parse_layout_name(source);
  c.target = parse_layout_name(target);
  c.length = 32;
  c.seed = 3;
  return c;
}

}  // namespace shardcheck
