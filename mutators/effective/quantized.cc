// Quantised weights.
#include <numeric>

#include "plan_fault.h"
#include "quantized_engine.h"
#include "shardcheck/tensor/float8.h"

namespace shardcheck::effective {
namespace {

std::int64_t other_extent(Stream& stream, std::int64_t unit) {
  return unit * stream.integer(1, 2) + (unit == 1 ? 4 : 0);
}

/// Column-parallel: parts of as many units for every rank as `shares` says.
QuantizedProblem column(Stream& stream, int degree, std::string name, QuantFormat format,
                        const std::vector<std::int64_t>& shares) {
  const QuantUnits units = units_of(format);
  QuantizedProblem problem{{std::move(name), format}, ParallelStyle::column, degree};
  for (const std::int64_t share : shares) problem.matrix.parts.push_back(degree * share * units.cut_out);
  problem.matrix.out = std::reduce(problem.matrix.parts.begin(), problem.matrix.parts.end());
  problem.matrix.in = other_extent(stream, units.own_in);
  if (const auto* gptq = std::get_if<Gptq>(&format))
    problem.matrix.in *= (gptq->group + units.own_in - 1) / units.own_in;  // no group is wider
  problem.full = random_tensors(stream, problem.matrix);
  return problem;
}

/// Row-parallel. Every rank has the share of the outputs, too, that a cut along them would give it.
QuantizedProblem row(Stream& stream, int degree, std::string name, QuantFormat format, std::int64_t unit) {
  const QuantUnits units = units_of(format);
  QuantizedProblem problem{{std::move(name), format}, ParallelStyle::row, degree};
  problem.matrix.in = degree * std::lcm(units.cut_in, unit) * stream.integer(1, 2);
  problem.matrix.out = degree * other_extent(stream, units.own_out);
  problem.full = random_tensors(stream, problem.matrix);
  return problem;
}

struct BlockedGate {
  std::int64_t block, rows;  // of a scale, of a rank
  Tensor weight;             // f8 [ranks * rows, 2 * block]
  Tensor scales;             // f32 [blocks, 2]
};

BlockedGate blocked_gate(const Case& c) {
  Stream stream(c.seed, "blocks across ranks");
  BlockedGate gate;
  gate.block = 2 * stream.integer(1, 4);
  gate.rows = gate.block / 2 * stream.pick<std::int64_t>({3, 5});
  const std::int64_t rows = c.target.tp_degree() * gate.rows;
  gate.weight = Tensor::uninitialized(DType::f8_e4m3, {rows, 2 * gate.block});
  for (std::uint8_t& code : gate.weight.mutable_as<std::uint8_t>())
    code = static_cast<std::uint8_t>(stream.integer(1, 0x7e));  // no zero, no NaN
  gate.scales = numbered({(rows + gate.block - 1) / gate.block, 2});
  return gate;
}

/// A row of the weight with the scales of a row of blocks.
void dequantize_row(const BlockedGate& gate, std::int64_t row, std::int64_t block, std::span<float> out) {
  const auto codes = gate.weight.as<std::uint8_t>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::size_t>(block) * 2 + i / static_cast<std::size_t>(gate.block);
    const std::uint8_t code = codes[static_cast<std::size_t>(row) * out.size() + i];
    out[i] = f8_to_f32(DType::f8_e4m3, code) * gate.scales.f32()[at];
  }
}

Tensor whole_gate(const BlockedGate& gate) {
  Tensor whole = Tensor::uninitialized(DType::f32, gate.weight.shape());
  const auto width = static_cast<std::size_t>(gate.weight.dim(1));
  for (std::int64_t row = 0; row < gate.weight.dim(0); ++row) {
    const auto out = whole.mutable_f32().subspan(static_cast<std::size_t>(row) * width, width);
    dequantize_row(gate, row, row / gate.block, out);
  }
  return whole;
}

Tensor gate_of_rank(const BlockedGate& gate, int rank, int degree, const QuantizedEngine& engine) {
  const std::int64_t width = gate.weight.dim(1), begin = rank * gate.rows;
  Tensor local = Tensor::uninitialized(DType::f32, {gate.rows, width});
  for (std::int64_t row = 0; row < gate.rows; ++row) {
    const auto out =
        local.mutable_f32().subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
    const std::int64_t blocks = gate.scales.dim(0);
    const std::int64_t block = engine.block_of({rank, degree, begin, row, gate.block, blocks});
    dequantize_row(gate, begin + row, std::min(block, blocks - 1), out);
  }
  return local;
}

constexpr std::string_view kGate = "layers.3.gate";

ShardedTensors expected(const Case& c) {
  ShardedTensors all;
  const int degree = c.target.tp_degree();
  for (const QuantizedProblem& problem : quantized_weights(c)) {
    const Tensor weight = dequantize(problem.matrix, problem.full);
    for (int rank = 0; rank < degree; ++rank)
      all[problem.matrix.name].push_back(problem.share_of(weight, rank));
  }
  const Tensor gate = whole_gate(blocked_gate(c));
  const std::int64_t rows = gate.dim(0) / degree;
  for (int rank = 0; rank < degree; ++rank) all[std::string(kGate)].push_back(gate.rows(rank * rows, rows));
  return all;
}

ShardedTensors delivered(const Case& c) { return dequantized_weights(c, QuantizedEngine()); }

}  // namespace

std::vector<QuantizedProblem> quantized_weights(const Case& c) {
  Stream stream(c.seed, "quantized");
  const int degree = c.target.tp_degree();
  const DType f8 = stream.pick<DType>({DType::f8_e4m3, DType::f8_e5m2});
  const int bits = stream.pick<int>({2, 3, 4, 4, 8});
  const std::int64_t group = stream.pick<std::int64_t>({4, 16, 24});
  const std::int64_t q = stream.integer(1, 3);
  const Awq awq{degree * stream.pick<std::int64_t>({1, 2, 4})};
  const Fp8Block blocks{f8, stream.pick<std::int64_t>({4, 8}), 4};
  const auto at = [&](std::string_view name) { return stream.child(name); };
  Stream s0 = at("0"), s1 = at("1"), s2 = at("2"), s3 = at("3");
  return {column(s0, degree, "layers.0.qkv", Gptq{bits, group, false}, {q, 1, 1}),
          row(s0, degree, "layers.0.o_proj", Gptq{bits, group, true}, group),
          column(s1, degree, "layers.1.qkv", awq, {q, 1, 1}),
          row(s1, degree, "layers.1.down", awq, 1),
          column(s2, degree, "layers.2.qkv", Fp8PerChannel{f8, stream.chance(1, 2)}, {4 * q, 4, 4}),
          column(s2, degree, "layers.2.gate_up", Fp8PerTensor{f8}, {4, 4}),
          column(s3, degree, "layers.3.gate_up", blocks, {2, 2}),
          row(s3, degree, "layers.3.down", Mxfp8{f8}, 1)};
}

Tensor QuantizedEngine::weight(const QuantizedProblem&, const PlacedQuantized& placed, int,
                               // NOLINTNEXTLINE(performance-unnecessary-value-param): overrides change it
                               TensorMap shard) const {
  return dequantize(placed, shard);
}

std::int64_t QuantizedEngine::block_of(const BlockRow& at) const {
  return at.begin / at.block + (at.begin % at.block + at.row) / at.block;
}

ShardedTensors dequantized_weights(const Case& c, const QuantizedEngine& engine) {
  ShardedTensors all;
  const int degree = c.target.tp_degree();
  for (const QuantizedProblem& problem : quantized_weights(c)) {
    const PlacedQuantized placed(problem.matrix, problem.style, degree);
    std::vector<TensorMap> shards = split_quantized(placed, problem.full);
    for (int rank = 0; rank < degree; ++rank)
      all[problem.matrix.name].push_back(
          engine.weight(problem, placed, rank, std::move(shards[static_cast<std::size_t>(rank)])));
  }
  const BlockedGate gate = blocked_gate(c);
  for (int rank = 0; rank < degree; ++rank)
    all[std::string(kGate)].push_back(gate_of_rank(gate, rank, degree, engine));
  return all;
}

const EffectiveModel& quantized() {
  static const EffectiveModel model{
      .kind = EffectiveKind::quantized,
      .claim =
          "What a rank dequantises, of packed words and 8-bit values with scales per group, channel, tensor "
          "and block, is its part of the dequantised weight.",
      .why_not = needs_few_ranks,
      .expected = expected,
      .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
