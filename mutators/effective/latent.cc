// Fused and per-head projections of multi-head latent attention.
#include "latent.h"

#include "plan_fault.h"

namespace shardcheck::effective {
namespace {

CutTensor qkv_a(const LatentSizes& s) {
  const std::int64_t kv = s.kv_lora + s.rope;
  return {"layers.0.qkv_a", numbered({s.q_lora + kv, s.d_model}),
          Segments{0, {{0, s.q_lora, 1, "q_a"}, {s.q_lora, kv, 1, "kv_a"}}}};
}
CutTensor q_b(const LatentSizes& s) {
  return {"layers.0.q_b", numbered({s.degree * s.heads * (s.nope + s.rope), s.q_lora}),
          Shard{.dim = 0, .unit = s.nope + s.rope}};
}
CutTensor kv_b(const LatentSizes& s) {
  return {"layers.0.kv_b", numbered({s.degree * s.heads * (s.nope + s.value), s.kv_lora}),
          Shard{.dim = 0, .unit = s.nope + s.value}};
}
CutTensor o_proj(const LatentSizes& s) {
  return {"layers.0.o_proj", numbered({s.d_model, s.degree * s.heads * s.value}), Shard{1}};
}

Tensor expected_qkv_a(const LatentSizes& s, int rank) {
  const std::int64_t q = s.q_lora / s.degree, kv = (s.kv_lora + s.rope) / s.degree;
  Rows rows;
  append_rows(rows, rank * q, q);
  append_rows(rows, s.q_lora + rank * kv, kv);
  return faults::with_rows(qkv_a(s).whole, rows);
}

/// Rows [from, from + count) of each of a rank's heads, which are `unit` rows apart.
Tensor rows_of_heads(const Tensor& whole, const LatentSizes& s, int rank, std::int64_t unit,
                     std::int64_t from, std::int64_t count) {
  Rows rows;
  for (std::int64_t head = 0; head < s.heads; ++head)
    append_rows(rows, (rank * s.heads + head) * unit + from, count);
  return faults::with_rows(whole, rows);
}

ShardedTensors expected(const Case& c) {
  const LatentSizes s = latent_sizes(c);
  const std::int64_t query = s.nope + s.rope, pair = s.nope + s.value, columns = s.heads * s.value;
  ShardedTensors all;
  for (int rank = 0; rank < s.degree; ++rank) {
    all["layers.0.qkv_a"].push_back(expected_qkv_a(s, rank));
    all["layers.0.q_b"].push_back(rows_of_heads(q_b(s).whole, s, rank, query, 0, query));
    all["layers.0.kv_b.keys"].push_back(rows_of_heads(kv_b(s).whole, s, rank, pair, 0, s.nope));
    all["layers.0.kv_b.values"].push_back(rows_of_heads(kv_b(s).whole, s, rank, pair, s.nope, s.value));
    all["layers.0.o_proj"].push_back(columns_of(o_proj(s).whole, rank * columns, columns));
  }
  return all;
}

ShardedTensors delivered(const Case& c) { return loaded_latent(c, LatentEngine()); }

}  // namespace

LatentSizes latent_sizes(const Case& c) {
  Stream stream(c.seed, "latent");
  LatentSizes s;
  s.degree = c.target.tp_degree();
  s.heads = stream.integer(1, 3);
  s.q_lora = s.degree * stream.integer(1, 3);
  s.rope = 2 * stream.integer(1, 2);
  s.kv_lora = s.degree * stream.integer(5, 7) - s.rope;
  s.nope = stream.integer(1, 4);
  s.value = stream.integer(1, 4);
  s.d_model = stream.integer(3, 8);
  return s;
}

std::int64_t LatentEngine::key_row(const LatentSizes& s, const KvRow& at) const {
  return at.head * (s.nope + s.value) + at.row;
}

std::int64_t LatentEngine::value_row(const LatentSizes& s, const KvRow& at) const {
  return at.head * (s.nope + s.value) + s.nope + at.row;
}

ShardedTensors loaded_latent(const Case& c, const LatentEngine& engine) {
  const LatentSizes s = latent_sizes(c);
  ShardedTensors all = load_all({qkv_a(s), q_b(s), o_proj(s)}, s.degree, engine);
  Rows keys, values;
  for (std::int64_t head = 0; head < s.heads; ++head) {
    for (std::int64_t i = 0; i < s.nope; ++i) keys.push_back(engine.key_row(s, {head, i}));
    for (std::int64_t i = 0; i < s.value; ++i) values.push_back(engine.value_row(s, {head, i}));
  }
  for (const Tensor& local : engine.load(kv_b(s), s.degree)) {
    all["layers.0.kv_b.keys"].push_back(faults::with_rows(local, keys));
    all["layers.0.kv_b.values"].push_back(faults::with_rows(local, values));
  }
  return all;
}

const EffectiveModel& latent() {
  static const EffectiveModel model{.kind = EffectiveKind::latent,
                                    .claim =
                                        "Every rank of a latent attention computes with its part of each "
                                        "half of the fused down-projection, "
                                        "and with the queries, keys and values of its own heads.",
                                    .why_not = needs_few_ranks,
                                    .expected = expected,
                                    .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
