#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/arithmetic/exact_attention.h"
#include "shardcheck/arithmetic/functions.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::laws {
namespace {

constexpr std::int64_t kRows = 6;

/// The numbers 0..count-1 dealt at random to `ranks` ranks, in random order; a rank may get none.
std::vector<std::vector<std::int64_t>> scattered(Stream& stream, std::int64_t count, int ranks) {
  std::vector<std::vector<std::int64_t>> parts(static_cast<std::size_t>(ranks));
  for (const std::int64_t index : shuffled(stream, count))
    parts[static_cast<std::size_t>(stream.integer(0, ranks - 1))].push_back(index);
  return parts;
}

Tensor normal(const Case& c, std::string_view name, Shape shape) {
  Tensor values = Tensor::uninitialized(DType::f32, std::move(shape));
  fill_normal(values.mutable_f32(), stream_key(c.seed, name), 0.0F, 1.0F);
  return values.to(c.dtype).to(DType::f32);
}

Tensor columns(const Tensor& x, const std::vector<std::int64_t>& which) {
  Tensor part = Tensor::uninitialized(DType::f32, {x.dim(0), std::ssize(which)});
  auto out = part.mutable_f32().begin();
  for (std::int64_t row = 0; row < x.dim(0); ++row) {
    for (const std::int64_t column : which)
      *out++ = x.f32()[static_cast<std::size_t>(row * x.dim(1) + column)];
  }
  return part;
}

/// Merges in random order, in pairs as likely as one after the other.
template <typename Partial>
Partial merged(Stream& stream, std::vector<Partial> partials) {
  while (partials.size() > 1) {
    const auto at = static_cast<std::size_t>(stream.integer(0, std::ssize(partials) - 2));
    partials[at].merge(partials.back());
    partials.pop_back();
    std::swap(partials[at], partials.front());
  }
  return std::move(partials.front());
}

/// The ranks' partials after their bytes travelled through the subject's collective.
template <typename Partial>
std::vector<Partial> exchanged(Subject& subject, const std::vector<Partial>& partials) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Partial& partial : partials) bytes.push_back(partial.bytes());
  const std::vector<std::span<const std::byte>> sends(bytes.begin(), bytes.end());
  std::vector<std::size_t> sizes;
  const auto gathered = subject.collective(static_cast<int>(partials.size()))->all_gather_bytes(sends, sizes);
  std::vector<Partial> received;
  std::span<const std::byte> rest = gathered;
  for (const std::size_t size : sizes) {
    received.push_back(Partial::from_bytes(rest.first(size)));
    rest = rest.subspan(size);
  }
  return received;
}

struct Problem {
  const Case& c;
  Subject& subject;
  Stream& stream;
  int ranks;
};

/// A linear layer whose input channels are scattered over the ranks.
Outcome check_channels(Problem p, Digest& digest) {
  const std::int64_t k = p.c.geometry.ffn, n = p.c.geometry.d_model;
  const Tensor x = normal(p.c, "x", {kRows, k}), w = normal(p.c, "w", {n, k});
  Tensor whole = Tensor::uninitialized(DType::f32, {kRows, n}), sum = whole;
  exact_gemm(x.f32().data(), k, kRows, ExactWeights(w), whole.mutable_f32().data(), n);
  std::vector<ExactPartial> partials;
  for (const auto& part : scattered(p.stream, k, p.ranks)) {
    const Tensor own = columns(x, part);
    partials.push_back(exact_partial(own.f32().data(), own.dim(1), kRows, ExactWeights(columns(w, part))));
  }
  merged(p.stream, exchanged(p.subject, partials)).round(sum.mutable_f32().data(), n);
  digest.add(whole);
  return same_logits("a product merged over scattered channels differs", p.c, whole, sum);
}

/// A sum over the vocabulary (of exponentials, as log-softmax takes it), its entries scattered.
Outcome check_vocabulary(Problem p, Digest& digest) {
  Tensor values = normal(p.c, "vocabulary", {kRows, p.c.geometry.vocab});
  exp_f32(values.f32(), values.mutable_f32());
  Tensor whole = Tensor::uninitialized(DType::f32, {kRows, 1}), sum = whole;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const Tensor entries = values.rows(row, 1);
    whole.mutable_f32()[static_cast<std::size_t>(row)] = exact_sum(entries.f32());
    std::vector<LongAccumulator> partials;
    for (const auto& part : scattered(p.stream, p.c.geometry.vocab, p.ranks))
      partials.push_back(exact_sum_partial(columns(entries, part).f32()));
    sum.mutable_f32()[static_cast<std::size_t>(row)] = merged(p.stream, std::move(partials)).round();
  }
  digest.add(whole);
  return same_logits("a sum merged over a scattered vocabulary differs", p.c, whole, sum);
}

/// Attention whose key positions are scattered over the ranks.
Outcome check_positions(Problem p, Digest& digest) {
  const Geometry& g = p.c.geometry;
  const std::int64_t length = p.c.length, width = g.attention_width(), kv_width = g.kv_width();
  const Tensor q = normal(p.c, "q", {length, width});
  const Tensor k = normal(p.c, "k", {length, kv_width}), v = normal(p.c, "v", {length, kv_width});
  const AttentionShape shape{.rows = length,
                             .keys = length,
                             .heads = g.n_heads,
                             .kv_heads = g.n_kv_heads,
                             .head_dim = g.head_dim,
                             .q_stride = width,
                             .k_stride = kv_width,
                             .v_stride = kv_width,
                             .out_stride = width};
  std::vector<std::int64_t> kv_of_head;
  for (std::int64_t head = 0; head < g.n_heads; ++head)
    kv_of_head.push_back(head / (g.n_heads / g.n_kv_heads));
  Tensor whole = Tensor::uninitialized(DType::f32, {length, width}), sum = whole;
  exact_attention(shape, q.f32().data(), k.f32().data(), v.f32().data(), kv_of_head,
                  whole.mutable_f32().data());

  struct Rank {
    Tensor k, v;
    std::vector<std::int64_t> positions;
    ExactKeys keys() const { return {k.f32().data(), v.f32().data(), positions}; }
  };
  const auto rows_of = [](const Tensor& t, const std::vector<std::int64_t>& which) {
    Tensor part = Tensor::uninitialized(DType::f32, {std::ssize(which), t.dim(1)});
    auto out = part.mutable_f32().begin();
    for (const std::int64_t row : which) out = std::ranges::copy(t.rows(row, 1).f32(), out).out;
    return part;
  };
  std::vector<Rank> ranks;
  for (auto& part : scattered(p.stream, length, p.ranks))
    ranks.push_back({rows_of(k, part), rows_of(v, part), part});
  std::vector<float> maxima;
  for (const Rank& rank : ranks) {
    const auto own = exact_attention_maxima(shape, q.f32().data(), rank.keys(), kv_of_head);
    if (maxima.empty()) maxima = own;
    for (std::size_t i = 0; i < own.size(); ++i) maxima[i] = std::max(maxima[i], own[i]);
  }
  std::vector<ExactAttentionPartial> partials;
  for (const Rank& rank : ranks)
    partials.push_back(exact_attention_partial(shape, q.f32().data(), rank.keys(), kv_of_head, maxima));
  merged(p.stream, exchanged(p.subject, partials)).round(shape, sum.mutable_f32().data());
  digest.add(whole);
  return same_logits("attention merged over scattered key positions differs", p.c, whole, sum);
}

Outcome check(const Case& c, Subject& subject) {
  Stream stream(c.seed, "merge order");
  const Problem problem{c, subject, stream, static_cast<int>(stream.integer(2, 8))};
  Digest digest;
  for (const auto part : {check_channels, check_vocabulary, check_positions}) {
    const Outcome outcome = part(problem, digest);
    if (outcome.verdict != Verdict::passed) return outcome;
  }
  return with_digest(Outcome::pass(), digest);
}

Case draw(Stream& stream) {
  return draw_for("exact_merge_order_is_invisible", stream,
                  {.any_dtype = true, .arithmetic = Arithmetic::exact});
}

}  // namespace

const Law& exact_merge_order_is_invisible() {
  static const Law law{.name = "exact_merge_order_is_invisible",
                       .claim =
                           "Exact sums over channels, vocabulary and key positions, scattered over 2 to 8 "
                           "ranks and merged in any "
                           "order, have the bits of the unsharded sum.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"16_bit", 0.3}, {"groups>=2x2", 0.3}},
                       .arithmetics = {Arithmetic::exact},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
