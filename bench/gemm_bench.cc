// GEMM speed against what the processor can do, one thread:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target gemm_bench
//   taskset -c 0 ./gemm_bench            (from the bench folder of the build tree)
//
// Prints one table: shape, arithmetic, GFLOP/s and the share of the f32 FMA peak, which the same run measures
// in between (repetitions are interleaved at random, times are processor time of the thread, figures are
// medians over the repetitions). Packing the weights is not counted. Google Benchmark's flags work, e.g.
// --benchmark_filter='peak|256x4096' or --benchmark_repetitions=30.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gemm_bench.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "measure.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/tensor/stream.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains of register-only multiply-adds: more than latency times throughput of any processor. The
// chains are a matrix because compilers unroll a loop of 24 only in two levels.
double FmaFlops(std::int64_t rounds) {
  constexpr int kRows = 4, kColumns = 6;
  const hn::CappedTag<float, 16> d;
  const volatile float factor_value = 0.999F, addend_value = 0.5F;
  const auto factor = hn::Set(d, factor_value), addend = hn::Set(d, addend_value);
  hn::Vec<decltype(d)> sums[kRows][kColumns];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::Set(d, static_cast<float>(i * kColumns + j));
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::MulAdd(sums[i][j], factor, addend);
    }
  }
  auto total = hn::Zero(d);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) total = hn::Add(total, sums[i][j]);
  }
  [[maybe_unused]] const volatile float sum = hn::GetLane(hn::SumOfLanes(d, total));
  return 2.0 * kRows * kColumns * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardcheck::bench {

HWY_EXPORT(FmaFlops);

namespace {

constexpr const char* kPeak = "peak";
constexpr const char* kFlops = "flops";

struct Shape {
  std::int64_t m, n, k;
  std::string text() const { return fmt::format("{}x{}x{}", m, n, k); }
};

// Decode and prefill of the recorded configuration and of an 8-billion-parameter model, then narrow shards.
constexpr std::array kShapes = {Shape{1, 256, 256},     Shape{1, 4096, 4096},   Shape{16, 128, 128},
                                Shape{64, 256, 256},    Shape{64, 512, 1408},   Shape{32, 1408, 256},
                                Shape{32, 256, 704},    Shape{32, 32000, 256},  Shape{64, 88, 256},
                                Shape{256, 4096, 4096}, Shape{256, 4096, 14336}};

struct Way {
  const char* name;
  std::int64_t leaf;  // 0: one chain
};
constexpr std::array kWays = {Way{"native", 0}, Way{"tree", 128}};

void measure_peak(benchmark::State& state) {
  double flops = 0.0;
  for (auto _ : state) flops += HWY_DYNAMIC_DISPATCH(FmaFlops)(100000);
  state.counters[kFlops] = flops;
}

// Weights and inputs are made once per shape, so that repetitions only compute.
struct Operands {
  explicit Operands(Shape shape)
      : x(static_cast<std::size_t>(shape.m * shape.k)), y(static_cast<std::size_t>(shape.m * shape.n)) {
    std::vector<float> weights(static_cast<std::size_t>(shape.n * shape.k));
    fill_uniform(x, stream_key(1, "x"), -1.0F, 1.0F);
    fill_uniform(weights, stream_key(1, "w"), -1.0F, 1.0F);
    w = PackedWeights(weights.data(), shape.n, shape.k, shape.k);
  }
  std::vector<float> x, y;
  PackedWeights w;
};

void measure_gemm(benchmark::State& state, Shape shape, Way way) {
  static std::map<std::string, Operands> made;
  Operands& operands = made.try_emplace(shape.text(), shape).first->second;
  const Reduction reduction =
      way.leaf == 0 ? Reduction::chain()
                    : Reduction::whole(TreeShape::halving, shape.k, std::min(way.leaf, shape.k));
  for (auto _ : state) {
    gemm(operands.x.data(), shape.k, shape.m, operands.w, reduction, operands.y.data(), shape.n);
    benchmark::ClobberMemory();
  }
  state.counters[kFlops] =
      2.0 * static_cast<double>(shape.m * shape.n * shape.k) * static_cast<double>(state.iterations());
}

// Collects GFLOP/s per repetition and prints the table at the end.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      rates_[run.run_name.function_name].push_back(run.counters.at(kFlops) / run.cpu_accumulated_time * 1e-9);
    }
  }

  void Finalize() override {
    if (!rates_.contains(kPeak)) return;
    const double peak = median(rates_.at(kPeak));
    fmt::print("f32 FMA peak, one thread: {:.1f} GFLOP/s ({})\n\n", peak, simd_targets().front());
    fmt::print("| M x N x K | arithmetic | leaf | GFLOP/s | share of peak |\n|---|---|---:|---:|---:|\n");
    for (const Shape shape : kShapes) {
      for (const Way way : kWays) print_row(shape, way, peak);
    }
  }

 private:
  void print_row(Shape shape, Way way, double peak) const {
    const auto found = rates_.find(fmt::format("{}/{}", shape.text(), way.name));
    if (found == rates_.end()) return;
    const double rate = median(found->second);
    const std::string leaf = way.leaf == 0 ? "-" : fmt::format("{}", std::min(way.leaf, shape.k));
    fmt::print("| {} | {} | {} | {:.1f} | {:.2f} |\n", shape.text(), way.name, leaf, rate, rate / peak);
  }

  std::map<std::string, std::vector<double>> rates_;
};

void register_all() {
  // The library owns what is registered until the program ends.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  benchmark::RegisterBenchmark(kPeak, measure_peak);
  for (const Shape shape : kShapes) {
    for (const Way way : kWays) {
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
      benchmark::RegisterBenchmark(fmt::format("{}/{}", shape.text(), way.name).c_str(),
                                   [=](benchmark::State& state) { measure_gemm(state, shape, way); });
    }
  }
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  if (!shardcheck::bench::initialize_benchmarks(argc, argv,
                                                {"--benchmark_repetitions=9", "--benchmark_min_time=0.05",
                                                 "--benchmark_enable_random_interleaving=true"}))
    return 2;
  shardcheck::bench::register_all();
  shardcheck::bench::TableReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
#endif  // HWY_ONCE
