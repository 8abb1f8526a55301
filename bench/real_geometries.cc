// Published geometries at their tensor-parallel degrees, on random bf16 weights, under arithmetic `tree`: the
// logits of every degree against those of the unsharded model, bit for bit.
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON
//   cmake --build --preset release --target real_geometries
//   ./real_geometries                    (from the bench folder of the build tree)
//
// --model=NAME runs one of them, --layers=N (2) and --length=N (8) change its depth and the tokens. Then the
// two row-parallel sums of Qwen2.5-7B alone at degrees that no kernel built on powers of two accepts: the
// sums are cut on leaf boundaries, as evenly as those allow. Under `tree` no output may differ from degree 1;
// what `native` does beside it shows that the comparison can fail. Exit code 1 when a bit differs or a logit
// is not finite. One model is held at a time: its weights, and their packed form once for all degrees.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flags.h"
#include "shardcheck/arithmetic/cost.h"
#include "shardcheck/comm/collective.h"
#include "shardcheck/model/packed_model.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/row_parallel_linear.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::bench {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMostBytes = 20.0 * kGiB;

struct Model {
  std::string name;
  Geometry geometry;
  std::vector<int> degrees;
};

Geometry qwen2_5_7b() {
  Geometry g;
  g.d_model = 3584;
  g.n_layers = 28;
  g.n_heads = 28;
  g.n_kv_heads = 4;
  g.head_dim = 128;
  g.ffn = 18944;
  g.vocab = 152064;
  g.rope = Rope::half;
  g.rope_theta = 1e6;
  g.qkv_bias = true;
  return g;
}

Geometry qwen3_32b() {
  Geometry g;
  g.d_model = 5120;
  g.n_layers = 64;
  g.n_heads = 64;
  g.n_kv_heads = 8;
  g.head_dim = 128;
  g.ffn = 25600;
  g.vocab = 151936;
  g.rope = Rope::half;
  g.rope_theta = 1e6;
  g.qk_norm = true;
  return g;
}

std::vector<Model> all_models() {
  return {{"Llama-3-8B", llama3_8b(), {1, 2, 4, 8}},
          {"Qwen2.5-7B", qwen2_5_7b(), {1, 2, 4}},
          {"Qwen3-32B", qwen3_32b(), {1, 8}}};
}

double seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0 / kGiB;
}

/// bf16 values uniform around `mean` with the given variance.
Tensor uniform_bf16(const Shape& shape, std::string_view name, float mean, double variance) {
  constexpr std::size_t kChunk = 1 << 15;  // stays in a cache between the fill and the rounding
  const auto half_width = static_cast<float>(std::sqrt(3.0 * variance));
  Tensor tensor = Tensor::uninitialized(DType::bf16, shape);
  const auto values = tensor.mutable_as<std::uint16_t>();
  std::vector<float> chunk(kChunk);
  for (std::size_t first = 0; first < values.size(); first += kChunk) {
    const auto part = std::span(chunk).first(std::min(kChunk, values.size() - first));
    fill_uniform(part, stream_key(kSeed, name), mean - half_width, mean + half_width, first);
    f32_to_bf16(part, values.subspan(first, part.size()));
  }
  return tensor;
}

/// Matrices of variance 1 / fan-in, an embedding of variance 1, norms around 1.
TensorMap weights_of(const Geometry& geometry) {
  TensorMap weights;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    const bool is_matrix = tensor.shape.size() == 2;
    const bool is_norm = tensor.role.ends_with("norm");
    const double fan_in = static_cast<double>(tensor.shape.back());
    const double variance = tensor.role == "embed" ? 1.0 : is_matrix ? 1.0 / fan_in : 0.25;
    weights[tensor.name] = uniform_bf16(tensor.shape, tensor.name, is_norm ? 1.0F : 0.0F, variance);
  }
  return weights;
}

std::int64_t elements_of(const Geometry& geometry) {
  std::int64_t elements = 0;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) elements += element_count(tensor.shape);
  return elements;
}

/// The weights as drawn and packed, two bytes each, and the embedding in f32 of the unsharded model.
void require_memory(std::string_view name, const Geometry& geometry, std::int64_t elements) {
  const double bytes = 4.0 * static_cast<double>(elements + geometry.vocab * geometry.d_model);
  if (bytes > kMostBytes)
    throw InvalidInput(fmt::format("--layers={} is not allowed: {} would take {:.1f} GiB, allowed are {:.0f}",
                                   geometry.n_layers, name, bytes / kGiB, kMostBytes / kGiB));
}

struct Comparison {
  std::int64_t values = 0;
  std::int64_t differing_values = 0;
  std::int64_t differing_bits = 0;
  bool finite = true;
  bool holds() const { return finite && values > 0 && differing_bits == 0; }
};

Comparison compare(const Tensor& expected, const Tensor& actual) {
  Comparison result;
  const auto a = expected.f32(), b = actual.f32();
  if (a.size() != b.size()) throw std::logic_error("outputs of two sizes");
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int bits = std::popcount(std::bit_cast<std::uint32_t>(a[i]) ^ std::bit_cast<std::uint32_t>(b[i]));
    result.differing_values += bits != 0 ? 1 : 0;
    result.differing_bits += bits;
    result.finite &= std::isfinite(b[i]);
  }
  result.values = std::ssize(a);
  return result;
}

/// The worst of the local ranks, all of which must hold the whole output.
Comparison compare(const Tensor& expected, const std::vector<Tensor>& ranks) {
  Comparison worst = compare(expected, ranks.front());
  for (const Tensor& rank : ranks) {
    if (!rank.same_bytes(ranks.front())) {
      if (const Comparison other = compare(expected, rank); other.differing_bits > worst.differing_bits)
        worst = other;
    }
  }
  return worst;
}

void print_row(const std::string& what, const Comparison& result, double time) {
  fmt::print("| {} | {} | {} | {:.2f} |{}\n", what, result.values, result.differing_bits, time,
             result.finite ? "" : " not finite");
  std::fflush(stdout);
}

bool check_model(const Model& model, std::int64_t layers, std::int64_t length) {
  Geometry geometry = model.geometry;
  geometry.n_layers = layers;
  const std::int64_t elements = elements_of(geometry);
  require_memory(model.name, geometry, elements);
  const Contract contract = contract_for(geometry, {.degrees = model.degrees, .storage = DType::bf16});
  const Tokens tokens = make_tokens(geometry, 1, length, kSeed);
  fmt::print("\n{}: {}\ncontract {:016x}: {}\n{:.2f}e9 random bf16 weights, {} tokens\n\n", model.name,
             to_string(geometry), contract.hash(), contract.text(), 1e-9 * static_cast<double>(elements),
             length);
  fmt::print("| run | logits compared | differing bits | seconds |\n|---|---:|---:|---:|\n");
  TensorMap weights = weights_of(geometry);
  Tensor expected;
  const double unsharded = seconds(
      [&] { expected = ReferenceModel(geometry, weights, Arithmetic::tree, contract).forward(tokens); });
  fmt::print("| unsharded, with packing | - | - | {:.2f} |\n", unsharded);
  const PackedModel packed(geometry, weights, Arithmetic::tree);
  weights.clear();
  bool holds = true;
  for (const int degree : model.degrees) {
    const auto collective = make_in_process_collective(degree);
    const ShardedModel sharded(packed, *collective, contract);
    std::vector<Tensor> logits;
    const double time = seconds([&] { logits = sharded.forward(tokens); });
    const Comparison result = compare(expected, logits);
    print_row(fmt::format("TP {}", degree), result, time);
    holds &= result.holds();
  }
  fmt::print("\npacked once: {:.2f} GiB; most memory so far: {:.2f} GiB\n",
             static_cast<double>(packed.bytes()) / kGiB, peak_gib());
  return holds;
}

/// A row-parallel sum at one degree, and at degree 1.
class RowParallel {
 public:
  RowParallel(std::string_view name, std::int64_t k, std::int64_t n, std::int64_t rows) : name_(name) {
    layer_.x = uniform_bf16({rows, k}, fmt::format("{}.x", name), 0.0F, 1.0).to(DType::f32);
    layer_.weights = uniform_bf16({n, k}, name, 0.0F, 1.0 / static_cast<double>(k));
    layer_.storage = DType::bf16;
    expected_[0] = outputs(Arithmetic::tree, 1, CoverExchange::automatic).front();
    expected_[1] = outputs(Arithmetic::native, 1, CoverExchange::automatic).front();
  }

  bool check(int degree) {
    Comparison worst;
    const double time = seconds([&] {
      worst = compare(expected_[0], outputs(Arithmetic::tree, degree, CoverExchange::one_shot));
      const Comparison two_shot =
          compare(expected_[0], outputs(Arithmetic::tree, degree, CoverExchange::two_shot));
      if (two_shot.differing_bits > worst.differing_bits) worst = two_shot;
      worst.finite &= two_shot.finite;
    });
    const Comparison native =
        compare(expected_[1], outputs(Arithmetic::native, degree, CoverExchange::automatic));
    fmt::print("| {} | {} | {} | {} | {} | {} | {:.2f} |\n", name_, degree, leaves_by_rank(degree),
               worst.values, worst.differing_bits, native.differing_values, time);
    std::fflush(stdout);
    return worst.holds();
  }

 private:
  std::vector<std::int64_t> cuts(int degree) const { return leaf_cuts(layer_.x.dim(1), layer_.leaf, degree); }

  std::vector<Tensor> outputs(Arithmetic arithmetic, int degree, CoverExchange exchange) {
    layer_.arithmetic = arithmetic;
    const auto collective = make_in_process_collective(degree);
    return run(layer_, cuts(degree), *collective, right_steps(), exchange);
  }

  std::string leaves_by_rank(int degree) const {
    const auto at = cuts(degree);
    std::vector<std::int64_t> leaves;
    for (std::size_t rank = 0; rank + 1 < at.size(); ++rank)
      leaves.push_back((at[rank + 1] - at[rank]) / layer_.leaf);
    return fmt::format("{}", fmt::join(leaves, ", "));
  }

  std::string name_;
  RowParallelLinear layer_;
  std::array<Tensor, 2> expected_;  // tree, native
};

bool check_row_parallel(std::int64_t rows) {
  const Geometry g = qwen2_5_7b();
  fmt::print(
      "\nThe two row-parallel sums of Qwen2.5-7B alone, leaves of 128, {} rows, covers exchanged in one shot "
      "and "
      "in two, against degree 1.\nTBIK's released code refuses these degrees: none is a power of two.\n\n"
      "| sum | TP | leaves by rank | outputs compared | differing bits, tree | differing outputs, native | "
      "seconds, tree, with packing |\n|---|---:|---|---:|---:|---:|---:|\n",
      rows);
  bool holds = true;
  for (auto& [name, k] : {std::pair{"down", g.ffn}, std::pair{"o_proj", g.attention_width()}}) {
    RowParallel sum(fmt::format("{}, K = {}", name, k), k, g.d_model, rows);
    for (const int degree : {3, 5, 6, 7, 12}) holds &= sum.check(degree);
  }
  return holds;
}

int run_all(const Flags& flags) {
  const std::string chosen = flags.text("model", "all");
  const std::int64_t layers = flags.integer("layers", 2, 1, 1024);
  const std::int64_t length = flags.integer("length", 8, 1, 4096);
  std::vector<std::string> names = {"all"};
  for (const Model& model : all_models()) names.push_back(model.name);
  if (std::find(names.begin(), names.end(), chosen) == names.end())
    throw InvalidInput(
        fmt::format("--model={} is not allowed: allowed are {}", chosen, fmt::join(names, ", ")));
  bool holds = true;
  for (const Model& model : all_models()) {
    if (chosen == "all" || chosen == model.name) holds &= check_model(model, layers, length);
  }
  if (chosen == "all" || chosen == "Qwen2.5-7B") holds &= check_row_parallel(length);
  fmt::print("\n{}\n", holds ? "every output is bit-identical" : "DIFFERENT");
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  using shardcheck::bench::Flags;
  return shardcheck::bench::exit_code_of("real_geometries", [&] {
    return shardcheck::bench::run_all(Flags(argc, argv, {"model", "layers", "length"}));
  });
}
