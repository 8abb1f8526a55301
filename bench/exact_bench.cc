// What arithmetic `exact` costs against `native`, one thread:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target exact_bench
//   taskset -c 0 ./exact_bench           (from the bench folder of the build tree)
//
// Prints one table: the work, the time under native, and for every integer kernel of this processor the time
// under exact divided by it. Repetitions of all of them are interleaved at random, times are processor time
// of the thread, and each figure is the fastest repetition, so that other load on the machine matters little.
// Packing the weights is not counted; integers are made from the inputs inside the measured time. Google
// Benchmark's flags work, e.g. --benchmark_filter='32x' or --benchmark_repetitions=30.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "measure.h"
#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/arithmetic/exact_attention.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/arithmetic/kernels.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::bench {
namespace {

using Floats = std::vector<float>;
using Run = std::function<void()>;

constexpr const char* kNative = "native";

// Something both arithmetics do. `exact` is asked for once per kernel, while that kernel is forced.
struct Work {
  std::string name;
  Run native;
  std::function<Run()> exact;
};

Floats uniform(std::int64_t count, const char* name) {
  Floats values(static_cast<std::size_t>(count));
  fill_uniform(values, stream_key(1, name), -1.0F, 1.0F);
  return values;
}

Work gemm_work(std::int64_t m, std::int64_t n, std::int64_t k) {
  struct Operands {
    Floats x, w, y;
    PackedWeights packed;
  };
  auto operands = std::make_shared<Operands>();
  operands->x = uniform(m * k, "x");
  operands->w = uniform(n * k, "w");
  operands->y = uniform(m * n, "y");
  operands->packed = PackedWeights(operands->w.data(), n, k, k);
  const auto native = [=] {
    gemm(operands->x.data(), k, m, operands->packed, Reduction::chain(), operands->y.data(), n);
  };
  const auto exact = [=]() -> Run {
    auto weights = std::make_shared<ExactWeights>(operands->w.data(), n, k, k);
    return [=] { exact_gemm(operands->x.data(), k, m, *weights, operands->y.data(), n); };
  };
  return {fmt::format("gemm {}x{}x{}", m, n, k), native, exact};
}

// A row-parallel linear: the partial sums that a rank ships, and their rounding.
Work partial_work(std::int64_t m, std::int64_t n, std::int64_t k) {
  Work work = gemm_work(m, n, k);
  const auto x = std::make_shared<Floats>(uniform(m * k, "x")),
             w = std::make_shared<Floats>(uniform(n * k, "w"));
  const auto y = std::make_shared<Floats>(static_cast<std::size_t>(m * n));
  work.name = fmt::format("partial and round {}x{}x{}", m, n, k);
  work.exact = [=]() -> Run {
    auto weights = std::make_shared<ExactWeights>(w->data(), n, k, k);
    return [=] { exact_partial(x->data(), k, m, *weights).round(y->data(), n); };
  };
  return work;
}

Work attention_work(std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t width = heads * head_dim;
  AttentionShape shape;
  shape.rows = shape.keys = rows;
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = head_dim;
  shape.q_stride = shape.k_stride = shape.v_stride = shape.out_stride = width;
  struct Operands {
    Floats q, k, v, out;
    std::vector<std::int64_t> kv_of_head;
  };
  auto operands = std::make_shared<Operands>();
  operands->q = uniform(rows * width, "q");
  operands->k = uniform(rows * width, "k");
  operands->v = uniform(rows * width, "v");
  operands->out = uniform(rows * width, "out");
  for (std::int64_t h = 0; h < heads; ++h) operands->kv_of_head.push_back(h);
  const auto with = [=](auto function) -> Run {
    return [=] {
      function(shape, operands->q.data(), operands->k.data(), operands->v.data(), operands->kv_of_head,
               operands->out.data());
    };
  };
  return {fmt::format("attention rows={} heads={} head_dim={}", rows, heads, head_dim), with(attention),
          [=] { return with(exact_attention); }};
}

Work squares_work(std::int64_t rows, std::int64_t width) {
  const auto x = std::make_shared<Floats>(uniform(rows * width, "x"));
  const auto sums = std::make_shared<Floats>(static_cast<std::size_t>(rows));
  const auto native = [=] { sum_of_squares(x->data(), rows, width, TreeShape::halving, 0, sums->data()); };
  const Run exact = [=] { exact_sum_of_squares(x->data(), rows, width, sums->data()); };
  return {fmt::format("sum of squares {}x{}", rows, width), native, [=] { return exact; }};
}

std::vector<Work> all_work() {
  std::vector<Work> work;
  for (const std::int64_t m : {32, 64}) {
    for (const auto& [n, k] :
         {std::pair{64, 64}, {192, 64}, {176, 64}, {64, 176}, {128, 128}, {256, 176}, {256, 256}})
      work.push_back(gemm_work(m, n, k));
  }
  work.push_back(partial_work(32, 64, 64));
  work.push_back(partial_work(64, 256, 256));
  work.push_back(attention_work(32, 8, 8));
  work.push_back(attention_work(64, 8, 32));
  work.push_back(squares_work(64, 64));
  work.push_back(squares_work(64, 256));
  return work;
}

void measure(benchmark::State& state, const Run& run) {
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
}

// Collects seconds per iteration and prints the table at the end.
class TableReporter : public benchmark::BenchmarkReporter {
 public:
  explicit TableReporter(std::vector<std::string> names) : names_(std::move(names)) {}

  bool ReportContext(const Context& /*context*/) override { return true; }

  void ReportRuns(const std::vector<BenchmarkReporter::Run>& runs) override {
    for (const auto& run : runs) {
      if (run.run_type != BenchmarkReporter::Run::RT_Iteration || run.error_occurred) continue;
      const double seconds = run.cpu_accumulated_time / static_cast<double>(run.iterations);
      const auto [found, is_new] = fastest_.try_emplace(run.run_name.function_name, seconds);
      found->second = std::min(found->second, seconds);
    }
  }

  void Finalize() override {
    fmt::print("exact / native, SIMD target {}\n\n| work | native us |", simd_targets().front());
    for (const std::string& kernel : exact_kernels()) fmt::print(" {} |", kernel);
    fmt::print("\n|---|---:|");
    for (std::size_t i = 0; i < exact_kernels().size(); ++i) fmt::print("---:|");
    fmt::print("\n");
    for (const std::string& name : names_) print_row(name);
  }

 private:
  void print_row(const std::string& name) const {
    const auto native = fastest_.find(name + "/" + kNative);
    if (native == fastest_.end()) return;
    fmt::print("| {} | {:.1f} |", name, native->second * 1e6);
    for (const std::string& kernel : exact_kernels()) {
      const auto exact = fastest_.find(name + "/" + kernel);
      fmt::print(" {} |",
                 exact == fastest_.end() ? "-" : fmt::format("{:.2f}", exact->second / native->second));
    }
    fmt::print("\n");
  }

  std::vector<std::string> names_;
  std::map<std::string, double> fastest_;
};

std::vector<std::string> register_all() {
  std::vector<std::string> names;
  for (const Work& work : all_work()) {
    names.push_back(work.name);
    // The library owns what is registered until the program ends.
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
    benchmark::RegisterBenchmark((work.name + "/" + kNative).c_str(),
                                 [run = work.native](benchmark::State& state) { measure(state, run); });
    for (const std::string& kernel : exact_kernels()) {
      force_exact_kernel(kernel);
      // Attention packs its operands on every call, so that the kernel is forced again.
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
      benchmark::RegisterBenchmark((work.name + "/" + kernel).c_str(),
                                   [run = work.exact(), kernel](benchmark::State& state) {
                                     force_exact_kernel(kernel);
                                     measure(state, run);
                                   });
    }
  }
  return names;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  if (!shardcheck::bench::initialize_benchmarks(argc, argv,
                                                {"--benchmark_repetitions=15", "--benchmark_min_time=0.01",
                                                 "--benchmark_enable_random_interleaving=true"}))
    return 2;
  shardcheck::bench::TableReporter reporter(shardcheck::bench::register_all());
  benchmark::RunSpecifiedBenchmarks(&reporter);
  return 0;
}
