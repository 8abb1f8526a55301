#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "law_support.h"
#include "shardcheck/layout/quantized.h"

namespace shardcheck::laws {
namespace {

using Lengths = std::vector<std::int64_t>;

/// A quantised weight of the case's model, with random bytes.
struct Problem {
  QuantizedMatrix matrix;
  ParallelStyle style = ParallelStyle::column;
  int degree = 1;
  TensorMap full;

  /// What the style cuts, each length on its own.
  Lengths cut_lengths() const {
    return style == ParallelStyle::column ? matrix.stacked() : Lengths{matrix.in};
  }
};

/// The sharding rules, written down apart from placements: what the extents of any matrix, and those of a
/// rank of a cut one, must be multiples of.
struct Units {
  std::int64_t own_out = 1, own_in = 1, cut_out = 1, cut_in = 1;
};

Units units_of(const Gptq& format) {
  const std::int64_t values = format.bits == 3 ? 32 : 32 / format.bits;
  const bool whole_scales = format.act_order || format.group == -1;
  return {values, values, values, whole_scales ? values : std::lcm(values, format.group)};
}
Units units_of(const Awq& format) { return {8, format.group, 8, format.group}; }
Units units_of(const Fp8PerTensor&) { return {}; }
Units units_of(const Fp8PerChannel&) { return {}; }
Units units_of(const Fp8Block& format) { return {1, 1, format.block_out, format.block_in}; }
Units units_of(const Mxfp8&) { return {1, 32, 1, 32}; }
Units units_of(const QuantFormat& format) {
  return std::visit([](const auto& f) { return units_of(f); }, format);
}

/// Whether every rank holds whole words, groups and blocks, and no block lies in two stacked parts.
bool is_representable(const Problem& problem) {
  const Units units = units_of(problem.matrix.format);
  const Lengths parts = problem.matrix.stacked();
  if (!std::all_of(parts.begin(), parts.end() - 1, [&](auto part) { return part % units.cut_out == 0; }))
    return false;
  const std::int64_t unit = problem.style == ParallelStyle::column ? units.cut_out : units.cut_in;
  return problem.degree == 1 || std::ranges::all_of(problem.cut_lengths(), [&](std::int64_t length) {
           return length % (problem.degree * unit) == 0;
         });
}

QuantFormat draw_format(Stream& stream) {
  const DType dtype = stream.pick<DType>({DType::f8_e4m3, DType::f8_e4m3, DType::f8_e5m2});
  const bool flag = stream.chance(1, 2);
  switch (stream.integer(0, 7)) {
    case 0:
    case 1:
    case 2:
      return Gptq{stream.pick<int>({2, 3, 4, 4, 8}), stream.pick<std::int64_t>({-1, 4, 16, 24}), flag};
    case 3:
      return Awq{stream.pick<std::int64_t>({1, 4, 16})};
    case 4:
      return Fp8PerTensor{dtype, flag};
    case 5:
      return Fp8PerChannel{dtype, flag};
    case 6:
      return Fp8Block{dtype, stream.pick<std::int64_t>({4, 8, 16}), stream.pick<std::int64_t>({4, 16})};
    default:
      return Mxfp8{dtype};
  }
}

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// `items` heads or channels, mostly as wide as makes the degrees that divide them representable.
std::int64_t draw_length(Stream& stream, std::int64_t items, std::int64_t own, std::int64_t cut) {
  if (stream.chance(3, 4)) return items * cut;
  return round_up(items * stream.integer(1, cut) + stream.integer(0, 1), own);
}

QuantizedMatrix draw_matrix(Stream& stream, const Geometry& g, ParallelStyle style) {
  QuantizedMatrix matrix{"", draw_format(stream)};
  const Units units = units_of(matrix.format);
  const bool attention = stream.chance(1, 2);
  const std::int64_t other = stream.integer(1, 2);
  if (style == ParallelStyle::row) {
    matrix.name = attention ? "layers.0.o_proj" : "layers.0.down";
    matrix.in = draw_length(stream, attention ? g.n_heads : g.ffn, units.own_in, units.cut_in);
    matrix.out = other * units.own_out + (units.own_out == 1 ? 4 : 0);
  } else {
    matrix.name = attention ? "layers.0.qkv" : "layers.0.gate_up";
    for (const std::int64_t items : attention ? Lengths{g.n_heads, g.n_kv_heads} : Lengths{g.ffn})
      matrix.parts.push_back(draw_length(stream, items, units.own_out, units.cut_out));
    matrix.parts.push_back(matrix.parts.back());  // v is as long as k, up as gate
    matrix.out = std::reduce(matrix.parts.begin(), matrix.parts.end());
    matrix.in = other * units.own_in + (units.own_in == 1 ? 4 : 0);
  }
  if (const auto* gptq = std::get_if<Gptq>(&matrix.format))
    matrix.in = std::max(matrix.in, round_up(gptq->group, units.own_in));
  return matrix;
}

/// Any bits, except that scales of 16 and 32 bits are finite and positive.
Tensor draw_tensor(Stream& stream, DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::uninitialized(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    std::uint64_t bits = stream.next_u32();
    if (dtype == DType::f16) bits = 0x2000U + bits % 0x2000U;
    if (dtype == DType::f32) bits = 0x3c000000U + bits % 0x04000000U;
    tensor.set_bits(i, bits);
  }
  return tensor;
}

std::int64_t blocks_of(std::int64_t length, std::int64_t block) { return (length + block - 1) / block; }

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Gptq& format) {
  const std::int64_t group = format.group == -1 ? m.in : format.group;
  const std::int64_t groups = blocks_of(m.in, group);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < m.in; ++i) ids.push_back(static_cast<std::int32_t>(i / group));
  if (format.act_order) stream.shuffle(std::span(ids));
  Tensor g_idx = Tensor::uninitialized(DType::i32, {m.in});
  std::ranges::copy(ids, g_idx.mutable_as<std::int32_t>().begin());
  return {{"qweight", draw_tensor(stream, DType::i32, {m.in * format.bits / 32, m.out})},
          {"qzeros", draw_tensor(stream, DType::i32, {groups, m.out * format.bits / 32})},
          {"scales", draw_tensor(stream, DType::f16, {groups, m.out})},
          {"g_idx", g_idx}};
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Awq& format) {
  const std::int64_t groups = m.in / format.group;
  return {{"qweight", draw_tensor(stream, DType::i32, {m.in, m.out / 8})},
          {"qzeros", draw_tensor(stream, DType::i32, {groups, m.out / 8})},
          {"scales", draw_tensor(stream, DType::f16, {groups, m.out})}};
}

TensorMap draw_float8(Stream& stream, const QuantizedMatrix& m, DType dtype, const std::string& scale,
                      DType scale_dtype, const Shape& scale_shape) {
  return {{"weight", draw_tensor(stream, dtype, {m.out, m.in})},
          {scale, draw_tensor(stream, scale_dtype, scale_shape)}};
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Fp8PerTensor& format) {
  const std::int64_t scales = format.fused_scale ? 1 : std::ssize(m.stacked());
  return draw_float8(stream, m, format.dtype, "weight_scale", DType::f32, {scales});
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Fp8PerChannel& format) {
  const Shape shape = format.keep_dim ? Shape{m.out, 1} : Shape{m.out};
  return draw_float8(stream, m, format.dtype, "weight_scale", DType::f32, shape);
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Fp8Block& format) {
  return draw_float8(stream, m, format.dtype, "weight_scale_inv", DType::f32,
                     {blocks_of(m.out, format.block_out), blocks_of(m.in, format.block_in)});
}

TensorMap draw_tensors(Stream& stream, const QuantizedMatrix& m, const Mxfp8& format) {
  return draw_float8(stream, m, format.dtype, "weight_scale", DType::f8_e8m0, {m.out, m.in / 32});
}

Problem problem_of(const Case& c) {
  Stream stream(c.seed, "quantized weight");
  Problem problem;
  problem.style = stream.chance(1, 2) ? ParallelStyle::row : ParallelStyle::column;
  problem.degree = c.target.tp_degree();
  problem.matrix = draw_matrix(stream, c.geometry, problem.style);
  problem.full = std::visit([&](const auto& format) { return draw_tensors(stream, problem.matrix, format); },
                            problem.matrix.format);
  return problem;
}

/// The rows or columns of a dense weight that a rank holds: its share of every length, in order.
Tensor share_of(const Tensor& weight, const Problem& problem, int rank) {
  Lengths held;
  std::int64_t offset = 0;
  for (const std::int64_t length : problem.cut_lengths()) {
    const std::int64_t share = length / problem.degree;
    for (std::int64_t i = 0; i < share; ++i) held.push_back(offset + rank * share + i);
    offset += length;
  }
  const bool rows = problem.style == ParallelStyle::column;
  const std::int64_t count = std::ssize(held);
  const Shape shape{rows ? count : weight.dim(0), rows ? weight.dim(1) : count};
  Tensor share = Tensor::uninitialized(DType::f32, shape);
  auto out = share.mutable_f32().begin();
  for (std::int64_t o = 0; o < shape[0]; ++o) {
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      const std::int64_t row = rows ? held[static_cast<std::size_t>(o)] : o;
      const std::int64_t column = rows ? i : held[static_cast<std::size_t>(i)];
      *out++ = weight.f32()[static_cast<std::size_t>(row * weight.dim(1) + column)];
    }
  }
  return share;
}

std::string describe(const Problem& problem) {
  return fmt::format("{} {} {} parallel", problem.matrix.name, to_string(problem.matrix.format),
                     to_string(problem.style));
}

Difference difference_of(const Problem& problem, std::string expected, std::string actual) {
  Difference d;
  d.parameter = problem.matrix.name;
  d.target_degree = problem.degree;
  d.expected = std::move(expected);
  d.actual = std::move(actual);
  return d;
}

Outcome check_rank(const Problem& problem, int rank, const Tensor& weight, const TensorMap& shard) {
  const PlacedQuantized placed(problem.matrix, problem.style, problem.degree);
  const Tensor expected = share_of(weight, problem, rank);
  const std::string where = fmt::format("{}, rank {} of {}", describe(problem), rank, problem.degree);
  Difference d = difference_of(problem, "", "");
  d.rank = rank;
  try {
    const Tensor actual = dequantize(placed, shard);
    if (actual.same_bytes(expected)) return Outcome::pass();
    d.worst_index = expected.first_difference(actual);
    d.worst_place = d.parameter + coordinates(expected.shape(), d.worst_index);
    const auto at = static_cast<std::size_t>(d.worst_index);
    d.expected = fmt::format("{}", expected.f32()[at]);
    d.actual = fmt::format("{}", actual.f32()[at]);
    return Outcome::fail(
        fmt::format("{}: dequantises to {} at {}, expected {}", where, d.actual, d.worst_place, d.expected),
        d);
  } catch (const InvalidInput& refusal) {
    d.expected = "tensors that dequantise";
    d.actual = refusal.what();
    return Outcome::fail(fmt::format("{}: {}", where, refusal.what()), d);
  }
}

Outcome check_shards(const Problem& problem, const std::vector<TensorMap>& shards, Digest& digest) {
  if (std::ssize(shards) != problem.degree)
    return Outcome::fail(
        fmt::format("{}: {} ranks, expected {}", describe(problem), shards.size(), problem.degree));
  const Tensor weight = dequantize(problem.matrix, problem.full);
  digest.add(weight);
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    digest.add(shards[rank]);
    const Outcome outcome = check_rank(problem, static_cast<int>(rank), weight, shards[rank]);
    if (outcome.verdict != Verdict::passed) return outcome;
  }
  return Outcome::pass();
}

/// Splits, and compares accepting or refusing with the rules.
Outcome check_split(const Problem& problem, Subject& subject, Digest& digest) {
  const bool expected = is_representable(problem);
  const auto wrong = [&](const std::string& actual) {
    return Outcome::fail(
        fmt::format("{} at degree {}: {}", describe(problem), problem.degree, actual),
        difference_of(problem, expected ? "accepted" : "a refusal naming weight and degree", actual));
  };
  std::vector<TensorMap> shards;
  try {
    shards = subject.split_quantized(problem.matrix, problem.full, problem.style, problem.degree);
  } catch (const UnsupportedLayout& refusal) {
    const std::string_view text = refusal.what();
    digest.add(text);
    const bool names = text.find(problem.matrix.name) != std::string_view::npos &&
                       text.find(std::to_string(problem.degree)) != std::string_view::npos;
    return !expected && names ? Outcome::pass() : wrong(fmt::format("refused: {}", text));
  }
  return expected ? check_shards(problem, shards, digest) : wrong("accepted");
}

std::vector<std::string> labels_of(const Problem& problem) {
  const std::string format = to_string(problem.matrix.format);
  std::vector<std::string> labels = {format.substr(0, format.find('('))};
  const auto* gptq = std::get_if<Gptq>(&problem.matrix.format);
  if (gptq != nullptr && gptq->act_order) labels.emplace_back("act_order");
  labels.emplace_back(problem.style == ParallelStyle::row ? "row_parallel" : "column_parallel");
  labels.emplace_back(is_representable(problem) ? "representable" : "unrepresentable");
  return labels;
}

Outcome check(const Case& c, Subject& subject) {
  const Problem problem = problem_of(c);
  Digest digest;
  Outcome outcome = check_split(problem, subject, digest);
  outcome.labels = labels_of(problem);
  return with_digest(std::move(outcome), digest);
}

Case draw(Stream& stream) {
  return draw_where("dequantize_commutes_with_split", stream, {.forward = false}, target_is_sharded);
}

}  // namespace

const Law& dequantize_commutes_with_split() {
  static const Law law{
      .name = "dequantize_commutes_with_split",
      .claim =
          "What a rank holds of a quantised weight dequantises to its share of the dequantised weight, and a "
          "split is refused exactly where a rank would hold a part of a word, group or block.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.9},
                 {"representable", 0.4},
                 {"unrepresentable", 0.05},
                 {"row_parallel", 0.3},
                 {"column_parallel", 0.3},
                 {"gptq", 0.2},
                 {"act_order", 0.1},
                 {"awq", 0.05},
                 {"fp8_block", 0.05},
                 {"mxfp8", 0.05}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
