#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// Row of the reordered tensor -> row of the plain one. Written out here, apart from the library's orders.
using RowMap = std::vector<std::int64_t>;

RowMap rotary_pairs(std::int64_t heads, std::int64_t head_dim) {
  RowMap rows(static_cast<std::size_t>(heads * head_dim));
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      for (std::int64_t half = 0; half < 2; ++half) {
        rows[static_cast<std::size_t>(head * head_dim + 2 * i + half)] =
            head * head_dim + half * head_dim / 2 + i;
      }
    }
  }
  return rows;
}

/// Stacked [q; k; v] dealt out by KV head: its queries, its key, its value.
RowMap dealt_out(std::int64_t kv_heads, std::int64_t group, std::int64_t head_dim) {
  RowMap rows;
  const std::int64_t k = kv_heads * group * head_dim, v = k + kv_heads * head_dim;
  for (std::int64_t head = 0; head < kv_heads; ++head) {
    for (std::int64_t i = 0; i < group * head_dim; ++i) rows.push_back(head * group * head_dim + i);
    for (std::int64_t i = 0; i < head_dim; ++i) rows.push_back(k + head * head_dim + i);
    for (std::int64_t i = 0; i < head_dim; ++i) rows.push_back(v + head * head_dim + i);
  }
  return rows;
}

Tensor reordered(const Tensor& tensor, const RowMap& rows) {
  Tensor out = Tensor::uninitialized(tensor.dtype(), tensor.shape());
  std::byte* to = out.mutable_bytes().data();
  for (const std::int64_t row : rows) {
    const Tensor one = tensor.rows(row, 1);
    to = std::copy(one.bytes().begin(), one.bytes().end(), to);
  }
  return out;
}

Tensor stacked(const Tensor& q, const Tensor& k, const Tensor& v) {
  Shape shape = q.shape();
  shape[0] += k.dim(0) + v.dim(0);
  Tensor out = Tensor::uninitialized(q.dtype(), shape);
  std::byte* to = out.mutable_bytes().data();
  for (const Tensor* part : {&q, &k, &v}) to = std::copy(part->bytes().begin(), part->bytes().end(), to);
  return out;
}

Outcome check(const Case& c, Subject& subject) {
  const Geometry& g = c.geometry;
  const int degree = c.target.tp_degree();
  if (g.n_kv_heads % degree != 0 || g.head_dim % 2 != 0)
    return Outcome::of(Verdict::vacuous, "a rank holds no whole KV groups, or no rotary pairs");
  const auto at = [degree](const char* table) { return layout_at(table, degree); };
  const TensorMap logical = fingerprints_of(c);
  const Layout plain = make_layout(at("hf-llama"), g);
  const Layout rotary = make_layout(at("torchtitan-llama"), g),
               grouped = make_layout(at("megatron-llama"), g);
  const ShardedTensors split_plain = subject.split(logical, plain);
  const ShardedTensors split_rotary = subject.split(logical, rotary),
                       split_grouped = subject.split(logical, grouped);
  const std::int64_t kv = g.n_kv_heads / degree, heads = g.n_heads / degree, group = g.n_heads / g.n_kv_heads;
  const RowMap dealt = dealt_out(kv, group, g.head_dim);
  for (std::int64_t layer = 0; layer < g.n_layers; ++layer) {
    const auto shard = [&](const Layout& layout, const ShardedTensors& shards, const char* role, int rank) {
      return shards.find(layout.entry_of(logical_name(role, layer)).name)
          ->second.at(static_cast<std::size_t>(rank));
    };
    for (int rank = 0; rank < degree; ++rank) {
      const Tensor q = shard(plain, split_plain, "q", rank), k = shard(plain, split_plain, "k", rank),
                   v = shard(plain, split_plain, "v", rank);
      const bool same_q =
          reordered(q, rotary_pairs(heads, g.head_dim)).same_bytes(shard(rotary, split_rotary, "q", rank));
      const bool same_k =
          reordered(k, rotary_pairs(kv, g.head_dim)).same_bytes(shard(rotary, split_rotary, "k", rank));
      const bool same_group =
          reordered(stacked(q, k, v), dealt).same_bytes(shard(grouped, split_grouped, "q", rank));
      if (same_q && same_k && same_group) continue;
      Difference d;
      d.parameter = logical_name(!same_q ? "q" : !same_k ? "k" : "qkv", layer);
      d.rank = rank;
      d.target_degree = degree;
      return Outcome::fail(
          fmt::format("{}: rank {} of {} differs when the rows are reordered after the split", d.parameter,
                      rank, degree),
          d);
    }
  }
  return with_digest(Outcome::pass(), Digest().add(split_grouped));
}

Case draw(Stream& stream) {
  Case c = draw_for("permutation_commutes_with_split", stream, {.forward = false, .any_dtype = true});
  c.geometry.head_dim += c.geometry.head_dim % 2;
  c.source = layout_at("hf-llama", 1);
  std::vector<int> degrees;
  for (int degree = 1; degree <= 8; ++degree) {
    const bool fits = c.geometry.n_kv_heads % degree == 0 && c.geometry.ffn % degree == 0;
    if (fits) degrees.push_back(degree);
  }
  c.target = layout_at("megatron-llama", stream.pick(degrees));
  const std::int64_t degree = c.target.tp_degree();
  c.geometry.vocab = (c.geometry.vocab + degree - 1) / degree * degree;
  return c;
}

}  // namespace

const Law& permutation_commutes_with_split() {
  static const Law law{
      .name = "permutation_commutes_with_split",
      .claim =
          "Reordering rows inside heads, or dealing heads out to KV groups, commutes with cutting by heads: "
          "rotary order and Megatron's grouping are the same before and after the split.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.3}, {"groups>=2x2", 0.2}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
