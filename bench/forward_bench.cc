// What a reproducible forward pass costs against `native`, one thread, all ranks in this process:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON
//   cmake --build --preset release --target forward_bench
//   ./forward_bench [--rounds=N] [--table=NAME]   (from the bench folder of the build tree; 31 rounds)
//
// tree: forward of TOY and of a model 1024 wide under tree and native. exact: forward of a model 64 wide
// under native and under exact with every fast integer kernel of this processor. traffic: bytes that
// row-parallel sums under tree really send, against the 2 (t - 1) / t bytes per byte and rank of a ring
// all-reduce of rounded partial sums. Times are processor time of the thread. All contenders of a row run in
// turn, in every round in another order; a ratio is the median over rounds, with the quartiles in brackets.
// Packing the weights is not counted.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flags.h"
#include "measure.h"
#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/comm/collective.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/packed_model.h"
#include "shardcheck/model/row_parallel_linear.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::bench {
namespace {

using Run = std::function<void()>;

double seconds(const Run& run) {
  const double start = thread_seconds();
  run();
  return thread_seconds() - start;
}

/// Seconds of every contender in every round; the first one is what the others are divided by.
class Race {
 public:
  Race(const std::vector<Run>& contenders, std::int64_t rounds) : times_(contenders.size()) {
    for (const Run& run : contenders) run();
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < contenders.size(); ++i) {
        const std::size_t contender = (i + static_cast<std::size_t>(round)) % contenders.size();
        times_[contender].push_back(seconds(contenders[contender]));
      }
    }
  }

  std::string milliseconds(std::size_t contender) const {
    return fmt::format("{:.2f}", 1e3 * quantile(times_[contender], 0.5));
  }
  std::string ratio(std::size_t contender) const {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < times_.front().size(); ++round)
      ratios.push_back(times_[contender][round] / times_.front()[round]);
    return fmt::format("{:.3f} ({:.3f} to {:.3f})", quantile(ratios, 0.5), quantile(ratios, 0.25),
                       quantile(ratios, 0.75));
  }

 private:
  std::vector<std::vector<double>> times_;
};

Geometry wide_1024() {
  Geometry g;
  g.d_model = 1024;
  g.n_layers = 8;
  g.n_heads = 16;
  g.n_kv_heads = 4;
  g.head_dim = 64;
  g.ffn = 2816;
  g.vocab = 8192;
  g.rope = Rope::half;
  return g;
}

Geometry narrow_64() {
  Geometry g;
  g.d_model = 64;
  g.n_layers = 2;
  g.n_heads = 8;
  g.n_kv_heads = 4;
  g.head_dim = 8;
  g.ffn = 176;
  g.vocab = 256;
  g.rope = Rope::half;
  return g;
}

void race_tree(const std::string& name, const Geometry& geometry, const std::vector<int>& degrees,
               const Tokens& tokens, std::int64_t rounds) {
  const TensorMap weights = make_weights(geometry, WeightStyle::recorded, 0, DType::f32);
  const PackedModel native(geometry, weights, Arithmetic::native), tree(geometry, weights, Arithmetic::tree);
  const Contract contract = contract_for(geometry);
  for (const int degree : degrees) {
    const auto collective = make_in_process_collective(degree);
    const ShardedModel with_native(native, *collective, contract), with_tree(tree, *collective, contract);
    const Race race({[&] { with_native.forward(tokens); }, [&] { with_tree.forward(tokens); }}, rounds);
    fmt::print("| {} | {} | {} | {} | {} | {} |\n", name, degree, contract.leaf_ffn, race.milliseconds(0),
               race.milliseconds(1), race.ratio(1));
    std::fflush(stdout);
  }
}

void print_tree(std::int64_t rounds) {
  fmt::print(
      "| model | TP | leaf of ffn | native ms | tree ms | tree / native |\n|---|---:|---:|---:|---:|---:|\n");
  race_tree("TOY, 2 x 16 tokens", toy(), {1, 2}, make_tokens(toy(), 2, 16, 10000), rounds);
  race_tree("TOY_KV4, 2 x 16 tokens", toy_kv4(), {4}, make_tokens(toy_kv4(), 2, 16, 10000), rounds);
  race_tree("1024 wide, 8 layers, 2 x 16 tokens", wide_1024(), {1, 2, 4}, make_tokens(wide_1024(), 2, 16, 1),
            rounds);
}

std::vector<std::string> fast_kernels() {
  std::vector<std::string> kernels = exact_kernels();
  std::erase(kernels, "scalar");
  return kernels;
}

/// One degree of the narrow model under native and under exact with each kernel.
void race_exact(int degree, std::int64_t length, std::int64_t rounds) {
  const Geometry geometry = narrow_64();
  const Contract contract = contract_for(geometry);
  const Tokens tokens = make_tokens(geometry, 1, length, 1);
  const auto shards = split(make_weights(geometry, WeightStyle::powered, 1, DType::f32),
                            LayoutTable::built_in("seed").instantiate(geometry, degree));
  const auto collective = make_in_process_collective(degree);
  const auto model_under = [&](Arithmetic arithmetic) {
    return std::make_shared<ShardedModel>(geometry, shards, consumer_named("seed"), *collective, arithmetic,
                                          contract);
  };
  std::vector<Run> contenders = {
      [native = model_under(Arithmetic::native), &tokens] { native->forward(tokens); }};
  for (const std::string& kernel : fast_kernels()) {
    force_exact_kernel(kernel);
    // Attention makes its integers anew in every forward pass, by the kernel in force then.
    contenders.emplace_back([exact = model_under(Arithmetic::exact), kernel, &tokens] {
      force_exact_kernel(kernel);
      exact->forward(tokens);
    });
  }
  const Race race(contenders, rounds);
  force_exact_kernel("");
  fmt::print("| {} | {} | {} |", length, degree, race.milliseconds(0));
  for (std::size_t i = 1; i < contenders.size(); ++i) fmt::print(" {} |", race.ratio(i));
  fmt::print("\n");
  std::fflush(stdout);
}

void print_exact(std::int64_t rounds) {
  fmt::print("exact / native, d_model 64, 2 layers, 8 heads of 8, 4 KV heads, ffn 176, vocab 256\n\n");
  fmt::print("| tokens | TP | native ms |");
  for (const std::string& kernel : fast_kernels()) fmt::print(" {} |", kernel);
  fmt::print("\n|---:|---:|---:|");
  for (std::size_t i = 0; i < fast_kernels().size(); ++i) fmt::print("---:|");
  fmt::print("\n");
  for (const std::int64_t length : {32, 64}) {
    for (const int degree : {1, 2, 4}) race_exact(degree, length, rounds);
  }
}

/// Bytes that all ranks send for one row-parallel sum, divided by those of a ring all-reduce.
double traffic_ratio(const RowParallelLinear& layer, int degree, CoverExchange exchange) {
  const auto collective = make_in_process_collective(degree);
  run(layer, leaf_cuts(layer.x.dim(1), layer.leaf, degree), *collective, right_steps(), exchange);
  const std::int64_t outputs = layer.x.dim(0) * layer.weights.dim(0);
  const std::int64_t ring = 2 * (degree - 1) * outputs * size_bits(layer.storage) / 8;
  return static_cast<double>(collective->traffic().bytes) / static_cast<double>(ring);
}

RowParallelLinear random_layer(std::int64_t k, std::int64_t leaf) {
  RowParallelLinear layer;
  layer.leaf = leaf;
  layer.x = Tensor::uninitialized(DType::f32, {8, k});
  layer.weights = Tensor::uninitialized(DType::f32, {48, k});
  fill_uniform(layer.x.mutable_f32(), stream_key(1, "x"), -1.0F, 1.0F);
  fill_uniform(layer.weights.mutable_f32(), stream_key(1, "w"), -1.0F, 1.0F);
  return layer;
}

void print_traffic() {
  fmt::print("bytes sent / bytes of a ring all-reduce in the storage dtype, f32 nodes\n\n");
  fmt::print(
      "| K | leaf | TP | leaves by rank | f32, one shot | f32, two shots | bf16, one shot | bf16, two shots "
      "|\n");
  fmt::print("|---:|---:|---:|---|---:|---:|---:|---:|\n");
  for (const auto& [k, leaf] : {std::pair{4096, 128}, {14336, 128}, {18944, 128}, {18944, 64}}) {
    RowParallelLinear layer = random_layer(k, leaf);
    for (const int degree : {2, 3, 4, 8}) {
      const auto cuts = leaf_cuts(k, leaf, degree);
      const std::int64_t most = cuts[1] / leaf, least = (k - cuts.end()[-2]) / leaf;
      fmt::print("| {} | {} | {} | {} |", k, leaf, degree,
                 most == least ? fmt::format("{}", most) : fmt::format("{} or {}", most, least));
      for (const DType storage : {DType::f32, DType::bf16}) {
        layer.storage = storage;
        for (const CoverExchange exchange : {CoverExchange::one_shot, CoverExchange::two_shot})
          fmt::print(" {:.2f} |", traffic_ratio(layer, degree, exchange));
      }
      fmt::print("\n");
    }
  }
}

int run_tables(const Flags& flags) {
  const std::string table = flags.text("table", "all");
  const std::int64_t rounds = flags.integer("rounds", 31, 1, 10000);
  if (table != "all" && table != "tree" && table != "exact" && table != "traffic")
    throw InvalidInput(fmt::format("--table={} is not allowed: all, tree, exact, traffic", table));
  fmt::print("{} rounds, one thread, {}\n", rounds, simd_targets().front());
  const auto print_if = [&](std::string_view name, const std::function<void()>& print) {
    if (table != "all" && table != name) return;
    fmt::print("\n");
    print();
  };
  print_if("tree", [&] { print_tree(rounds); });
  print_if("exact", [&] { print_exact(rounds); });
  print_if("traffic", print_traffic);
  return 0;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  using shardcheck::bench::Flags;
  return shardcheck::bench::exit_code_of("forward_bench", [&] {
    return shardcheck::bench::run_tables(Flags(argc, argv, {"rounds", "table"}));
  });
}
