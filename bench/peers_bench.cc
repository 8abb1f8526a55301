// GEMM under arithmetic `tree` against the libraries that need not give the same bits: oneDNN, OpenBLAS and
// libxsmm, each where the build found it.
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target peers_bench
//   OPENBLAS_CORETYPE=SkylakeX taskset -c 0 ./peers_bench       (from the bench folder of the build tree)
//   OPENBLAS_CORETYPE=SkylakeX ./peers_bench --threads=2
//
// Prints two tables of GFLOP/s. f32: tree, every peer, tree / best peer. bf16 weights, f32 sums: tree with
// f32 inputs that hold bf16 values, oneDNN with bf16 inputs kept to AVX-512, their ratio, and oneDNN with all
// the processor has (AMX), which the program measures by running itself once more. Repetitions of all of them
// take turns and each figure is the fastest one, in processor time of the thread; with more threads in wall
// time, so the machine must be quiet. Packing the weights is not counted, except where a peer does it in
// every call (OpenBLAS). All results are compared before anything is timed: a difference beyond rounding ends
// the program with exit code 1. --repetitions=N (9) and a part of a shape, e.g. 256x4096, choose what is run.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "peers.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck::bench {
namespace {

constexpr std::array kShapes = {Shape{16, 128, 128, 0.85},    Shape{16, 64, 64, 0.85},
                                Shape{32, 256, 704, 0.85},    Shape{64, 64, 64, 0.85},
                                Shape{64, 256, 256, 0.85},    Shape{64, 512, 1408, 0.85},
                                Shape{256, 4096, 4096, 0.95}, Shape{256, 4096, 14336, 0.85}};
constexpr double kBf16Target = 0.85;
constexpr std::int64_t kLeaf = 128;

struct Options {
  int threads = 1;
  int repetitions = 9;
  std::string filter;
  bool unlimited = false;  // of the second run: oneDNN bf16 alone, with every instruction set
};

// A way to compute y = x w^T. `make` is asked once per shape and gives nothing where the library has no
// kernel.
struct Way {
  std::string name;
  std::function<Product(const Operands&, Floats& y, int threads)> make;
};

Product tree_product(const Operands& operands, Floats& y, int threads) {
  const auto [m, n, k, target] = operands.shape;
  const PackedWeights w(operands.narrow(operands.w, n, k));
  const Reduction reduction = Reduction::whole(TreeShape::halving, k, std::min(kLeaf, k));
  return [&operands, &y, w, reduction, threads] {
    set_gemm_threads(threads);
    gemm(operands.x.data(), operands.shape.k, operands.shape.m, w, reduction, y.data(), operands.shape.n);
  };
}

const std::vector<Way>& f32_ways() {
  static const std::vector<Way> ways = {{"tree", tree_product},
                                        {"oneDNN", onednn_product},
                                        {"OpenBLAS", openblas_product},
                                        {"libxsmm", libxsmm_product}};
  return ways;
}

const std::vector<Way>& bf16_ways() {
  static const std::vector<Way> ways = {{"tree", tree_product}, {"oneDNN", onednn_product}};
  return ways;
}

// Sums of k products in any order differ by roundings of values about as large as the sum itself.
double largest_difference(const Floats& left, const Floats& right) {
  double difference = 0.0, scale = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double one = left[i], other = right[i];
    if (!(std::abs(one - other) <= difference)) difference = std::abs(one - other);  // NaN counts
    scale = std::max(scale, std::abs(one));
  }
  return difference / scale;
}

double seconds(int threads) {
  timespec now{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// GFLOP/s of each way that has a kernel, and the largest difference to the first.
struct Rates {
  std::vector<std::optional<double>> gflops;
  double difference = 0.0;

  std::optional<double> best_peer() const {
    std::optional<double> best;
    for (std::size_t i = 1; i < gflops.size(); ++i) best = std::max(best, gflops[i]);
    return best;
  }
  std::optional<double> ratio() const {
    const auto best = best_peer();
    return best && gflops.front() ? std::optional(*gflops.front() / *best) : std::nullopt;
  }
};

// Fastest of the repetitions; who goes first alternates by rotation, so that none always finds the caches
// that the same other left.
std::vector<std::optional<double>> timed(const std::vector<Product>& products, double flops,
                                         const Options& options) {
  constexpr double kFlopsPerRepetition = 4e9;  // some 20 ms
  const int calls = static_cast<int>(std::max(1.0, kFlopsPerRepetition / flops));
  std::vector<std::optional<double>> rates(products.size());
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (std::size_t turn = 0; turn < products.size(); ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(repetition)) % products.size();
      if (products[i] == nullptr) continue;
      products[i]();  // brings its own weights into the caches
      const double start = seconds(options.threads);
      for (int call = 0; call < calls; ++call) products[i]();
      const double rate = 1e-9 * flops * calls / (seconds(options.threads) - start);
      rates[i] = std::max(rates[i], std::optional(rate));
    }
  }
  return rates;
}

Rates measure(const std::vector<Way>& ways, const Shape& shape, DType dtype, const Options& options) {
  constexpr double kLargestDifference = 1e-4;
  const Operands operands(shape, dtype);
  std::vector<Floats> outputs(ways.size(), operands.outputs());
  std::vector<Product> products;
  Rates rates;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    products.push_back(ways[i].make(operands, outputs[i], options.threads));
    if (products[i] == nullptr) continue;
    products[i]();
    const double difference = largest_difference(outputs.front(), outputs[i]);
    if (!(difference <= kLargestDifference)) {
      throw std::runtime_error(fmt::format("{} {} {}: differs from tree by {:.1e} of the largest output",
                                           shape.text(), short_name(dtype), ways[i].name, difference));
    }
    rates.difference = std::max(rates.difference, difference);
  }
  rates.gflops = timed(products, shape.flops(), options);
  return rates;
}

std::string cell(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string verdict(const std::optional<double>& ratio, double target) {
  if (!ratio) return "no peer";
  return *ratio >= target ? "yes" : "no";
}

bool is_chosen(const Shape& shape, const Options& options) {
  return shape.text().find(options.filter) != std::string::npos;
}

void print_f32_table(const Options& options) {
  fmt::print("f32\n\n| M x N x K | leaf |");
  for (const Way& way : f32_ways()) fmt::print(" {} |", way.name);
  fmt::print(" tree / best | target | met |\n|---|---:|");
  for (std::size_t i = 0; i < f32_ways().size(); ++i) fmt::print("---:|");
  fmt::print("---:|---:|---|\n");
  double difference = 0.0;
  for (const Shape& shape : kShapes) {
    if (!is_chosen(shape, options)) continue;
    const Rates rates = measure(f32_ways(), shape, DType::f32, options);
    fmt::print("| {} | {} |", shape.text(), std::min(kLeaf, shape.k));
    for (const auto& rate : rates.gflops) fmt::print(" {} |", cell(rate, 1));
    fmt::print(" {} | {:.2f} | {} |\n", cell(rates.ratio(), 2), shape.target,
               verdict(rates.ratio(), shape.target));
    std::fflush(stdout);
    difference = std::max(difference, rates.difference);
  }
  fmt::print("\nLargest difference between two results: {:.1e} of the largest output.\n\n", difference);
}

// Rates of oneDNN bf16 without a limit, by shape: the limit holds for a whole process, hence a second one.
std::map<std::string, double> unlimited_rates(const Options& options) {
  std::map<std::string, double> rates;
  if (!has_onednn()) return rates;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format("'{}' --unlimited --threads={} --repetitions={} '{}'", self,
                                          options.threads, options.repetitions, options.filter);
  std::FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return rates;
  char shape[64];
  double rate = 0.0;
  while (std::fscanf(output, "%63s %lf", shape, &rate) == 2) rates[shape] = rate;
  pclose(output);
  return rates;
}

void print_unlimited_rates(const Options& options) {
  for (const Shape& shape : kShapes) {
    if (!is_chosen(shape, options)) continue;
    const Rates rates = measure(bf16_ways(), shape, DType::bf16, options);
    if (rates.gflops[1]) fmt::print("{} {}\n", shape.text(), *rates.gflops[1]);
  }
}

void print_bf16_table(const Options& options) {
  std::map<std::string, double> unlimited = unlimited_rates(options);
  fmt::print(
      "bf16 weights, f32 sums\n\n| M x N x K | leaf | tree | oneDNN, AVX-512 | ratio | target | met | "
      "oneDNN, no limit |\n|---|---:|---:|---:|---:|---:|---|---:|\n");
  double difference = 0.0;
  for (const Shape& shape : kShapes) {
    if (!is_chosen(shape, options)) continue;
    const Rates rates = measure(bf16_ways(), shape, DType::bf16, options);
    const auto found = unlimited.find(shape.text());
    fmt::print("| {} | {} | {} | {} | {} | {:.2f} | {} | {} |\n", shape.text(), std::min(kLeaf, shape.k),
               cell(rates.gflops[0], 1), cell(rates.gflops[1], 1), cell(rates.ratio(), 2), kBf16Target,
               verdict(rates.ratio(), kBf16Target),
               cell(found == unlimited.end() ? std::nullopt : std::optional(found->second), 1));
    std::fflush(stdout);
    difference = std::max(difference, rates.difference);
  }
  fmt::print("\nLargest difference between two results: {:.1e} of the largest output.\n", difference);
}

void print_all(const Options& options) {
  fmt::print("GFLOP/s, threads: {} ({}), leaf {} or K\n", options.threads, simd_targets().front(), kLeaf);
  std::string missing;
  if (!has_onednn()) missing += " oneDNN";
  if (!has_openblas()) missing += " OpenBLAS";
  if (!has_libxsmm()) missing += " libxsmm";
  if (!missing.empty()) fmt::print("not in this build:{}\n", missing);
  fmt::print("\n");
  if (openblas_is_slow_here()) {
    fmt::print(
        "warning: OpenBLAS chose a kernel from before AVX-512; set OPENBLAS_CORETYPE=SkylakeX for a fair "
        "figure\n\n");
  }
  print_f32_table(options);
  print_bf16_table(options);
}

// The number behind `--name=`, if that is what `word` is.
bool read_number(std::string_view word, std::string_view name, int most, int& number) {
  const std::string prefix = fmt::format("--{}=", name);
  if (!word.starts_with(prefix)) return false;
  const std::string_view text = word.substr(prefix.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1 || most < number) {
    throw std::invalid_argument(fmt::format("--{}={}; allowed are 1 to {}", name, text, most));
  }
  return true;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (read_number(word, "threads", kMaxGemmThreads, options.threads)) continue;
    if (read_number(word, "repetitions", 1000, options.repetitions)) continue;
    if (word == "--unlimited") {
      options.unlimited = true;
    } else if (word.find_first_not_of("0123456789x") == std::string_view::npos) {
      options.filter = word;
    } else {
      throw std::invalid_argument(
          fmt::format("'{}'; allowed are --threads=N, --repetitions=N and a part of a shape", word));
    }
  }
  return options;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  using namespace shardcheck::bench;
  Options options;
  try {
    options = parse(argc, argv);
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "peers_bench: {}\n", error.what());
    return 2;
  }
  try {
    if (options.unlimited) {
      print_unlimited_rates(options);
    } else {
      limit_onednn_to_avx512();
      print_all(options);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "peers_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
