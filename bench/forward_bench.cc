// Where a forward pass of the TOY model spends its time, and how many random cases a core judges:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target
//   forward_bench
//   ./forward_bench [ROUNDS]      (from the bench folder of the build tree; 15 rounds by default)
//
// Table 1: forward of 2 x 16 tokens, unsharded and sharded in one process, native and tree in turn: median
// wall milliseconds, share of them inside the GEMM, and the ratio tree / native of the same round. Table 2:
// random cases per second of one core, law by law, generation and judgement included.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/properties/runner.h"

namespace shardcheck::bench {
namespace {

constexpr std::array<Arithmetic, 2> kArithmetics = {Arithmetic::native, Arithmetic::tree};

double seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One model under both arithmetics.
class ToyForward {
 public:
  ToyForward(const Geometry& geometry, int degree)
      : geometry_(geometry),
        weights_(make_weights(geometry, WeightStyle::recorded, 0, DType::f32)),
        tokens_(make_tokens(geometry, 2, 16, 10000)),
        collective_(make_in_process_collective(degree)) {
    const Contract contract = contract_for(geometry);
    const Layout layout = LayoutTable::built_in("seed").instantiate(geometry, degree);
    const auto shards = split(weights_, layout);
    for (const Arithmetic arithmetic : kArithmetics) {
      references_.emplace_back(geometry, weights_, arithmetic, contract);
      sharded_.emplace_back(geometry, shards, consumer_named("seed"), *collective_, arithmetic, contract);
    }
  }

  void run(std::size_t arithmetic, bool sharded) const {
    if (sharded) {
      sharded_[arithmetic].forward(tokens_);
    } else {
      references_[arithmetic].forward(tokens_);
    }
  }

 private:
  Geometry geometry_;
  TensorMap weights_;
  Tokens tokens_;
  std::unique_ptr<Collective> collective_;
  std::vector<ReferenceModel> references_;
  std::vector<ShardedModel> sharded_;
};

void print_forward(const std::string& name, const ToyForward& toy, bool sharded, int rounds) {
  std::array<std::vector<double>, 2> wall, share;
  std::vector<double> ratio;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t a = 0; a < kArithmetics.size(); ++a) {
      take_gemm_seconds();
      wall[a].push_back(seconds([&] { toy.run(a, sharded); }));
      share[a].push_back(take_gemm_seconds() / wall[a].back());
    }
    ratio.push_back(wall[1].back() / wall[0].back());
  }
  for (std::size_t a = 0; a < kArithmetics.size(); ++a) {
    fmt::print("{:<22} {:<8} {:>8.2f} {:>12.1f} {:>14}\n", name, to_string(kArithmetics[a]),
               1e3 * median(wall[a]), 100.0 * median(share[a]),
               a == 0 ? "" : fmt::format("{:.3f}", median(ratio)));
  }
}

void print_case_rates() {
  fmt::print("\n{:<34} {:>8} {:>14}\n", "law", "cases", "cases/s/core");
  std::int64_t cases = 0;
  double total = 0.0;
  for (const Law* law : all_laws()) {
    RunOptions options;
    options.cases = 200;
    const LawReport report = run_law(*law, options);
    fmt::print("{:<34} {:>8} {:>14.0f}\n", report.name, report.cases,
               static_cast<double>(report.cases) / report.seconds);
    cases += report.cases;
    total += report.seconds;
  }
  fmt::print("{:<34} {:>8} {:>14.0f}\n", "all", cases, static_cast<double>(cases) / total);
}

int run(int rounds) {
  fmt::print("TOY forward, 2 x 16 tokens, one thread, {}\n", simd_targets().front());
  fmt::print("{:<22} {:<8} {:>8} {:>12} {:>14}\n", "model", "sums", "ms", "in GEMM, %", "tree / native");
  const ToyForward one(toy(), 1);
  print_forward("TOY unsharded", one, false, rounds);
  print_forward("TOY tp1", one, true, rounds);
  print_forward("TOY tp2, both ranks", ToyForward(toy(), 2), true, rounds);
  print_forward("TOY_KV4 tp4, all ranks", ToyForward(toy_kv4(), 4), true, rounds);
  print_case_rates();
  return 0;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  int rounds = 15;
  if (argc > 1) {
    const std::string text = argv[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
    if (error != std::errc() || end != text.data() + text.size() || rounds < 1 || rounds > 10000) {
      fmt::print(stderr, "forward_bench: ROUNDS={} is not allowed: 1..10000\n", text);
      return 2;
    }
  }
  return shardcheck::bench::run(rounds);
}
