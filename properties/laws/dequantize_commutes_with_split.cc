#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "law_support.h"
#include "shardcheck/mutators/quantized_problem.h"

namespace shardcheck::laws {
namespace {

using Lengths = std::vector<std::int64_t>;

/// Whether every rank holds whole words, groups and blocks, and no block lies in two stacked parts.
bool is_representable(const QuantizedProblem& problem) {
  const QuantUnits units = units_of(problem.matrix.format);
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
  const QuantUnits units = units_of(matrix.format);
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

QuantizedProblem problem_of(const Case& c) {
  Stream stream(c.seed, "quantized weight");
  QuantizedProblem problem;
  problem.style = stream.chance(1, 2) ? ParallelStyle::row : ParallelStyle::column;
  problem.degree = c.target.tp_degree();
  problem.matrix = draw_matrix(stream, c.geometry, problem.style);
  problem.full = random_tensors(stream, problem.matrix);
  return problem;
}

std::string describe(const QuantizedProblem& problem) {
  return fmt::format("{} {} {} parallel", problem.matrix.name, to_string(problem.matrix.format),
                     to_string(problem.style));
}

Difference difference_of(const QuantizedProblem& problem, std::string expected, std::string actual) {
  Difference d;
  d.parameter = problem.matrix.name;
  d.target_degree = problem.degree;
  d.expected = std::move(expected);
  d.actual = std::move(actual);
  return d;
}

Outcome check_rank(const QuantizedProblem& problem, int rank, const Tensor& weight, const TensorMap& shard) {
  const PlacedQuantized placed(problem.matrix, problem.style, problem.degree);
  const Tensor expected = problem.share_of(weight, rank);
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

Outcome check_shards(const QuantizedProblem& problem, const std::vector<TensorMap>& shards, Digest& digest) {
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
Outcome check_split(const QuantizedProblem& problem, Subject& subject, Digest& digest) {
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

std::vector<std::string> labels_of(const QuantizedProblem& problem) {
  const std::string format = to_string(problem.matrix.format);
  std::vector<std::string> labels = {format.substr(0, format.find('('))};
  const auto* gptq = std::get_if<Gptq>(&problem.matrix.format);
  if (gptq != nullptr && gptq->act_order) labels.emplace_back("act_order");
  labels.emplace_back(problem.style == ParallelStyle::row ? "row_parallel" : "column_parallel");
  labels.emplace_back(is_representable(problem) ? "representable" : "unrepresentable");
  return labels;
}

Outcome check(const Case& c, Subject& subject) {
  const QuantizedProblem problem = problem_of(c);
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
