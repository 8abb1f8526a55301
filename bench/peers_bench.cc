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
#include <unordered_map>
#include <vector>

#ifdef SHARDCHECK_HAS_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#endif
#ifdef SHARDCHECK_HAS_OPENBLAS
#include <cblas.h>
#endif
#ifdef SHARDCHECK_HAS_LIBXSMM
#include <libxsmm.h>
#endif

#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/tensor/stream.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck::bench {
namespace {

struct Shape {
  std::int64_t m, n, k;
  double target;  // for tree / best peer
  std::string text() const { return fmt::format("{}x{}x{}", m, n, k); }
  double flops() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k); }
};

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

using Product = std::function<void()>;  // writes y
using Floats = std::vector<float>;

// x [m, k] and w [n, k] of one shape; `transposed` is w as [k, n]. The values are of `dtype`.
struct Operands {
  Operands(const Shape& of, DType of_dtype) : shape(of), dtype(of_dtype) {
    x = uniform(shape.m * shape.k, "x");
    w = uniform(shape.n * shape.k, "w");
    transposed.resize(w.size());
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t c = 0; c < shape.k; ++c) transposed[at(c, shape.n, j)] = w[at(j, shape.k, c)];
    }
  }

  static std::size_t at(std::int64_t row, std::int64_t width, std::int64_t column) {
    return static_cast<std::size_t>(row * width + column);
  }
  Floats outputs() const { return Floats(static_cast<std::size_t>(shape.m * shape.n), -1.0F); }
  Tensor narrow(const Floats& values, std::int64_t rows, std::int64_t columns) const {
    return Tensor::from({rows, columns}, values).to(dtype);
  }

  Shape shape;
  DType dtype;
  Floats x, w, transposed;

 private:
  Floats uniform(std::int64_t count, const char* name) const {
    Floats values(static_cast<std::size_t>(count));
    fill_uniform(values, stream_key(1, name), -1.0F, 1.0F);
    const Tensor rounded = narrow(values, count, 1).to(DType::f32);
    return {rounded.f32().begin(), rounded.f32().end()};
  }
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

#ifdef SHARDCHECK_HAS_ONEDNN
constexpr bool kHasOneDnn = true;

// Weights in the format oneDNN likes best.
Product onednn_product(const Operands& operands, Floats& y, int threads) {
  using dnnl::memory;
  const auto [m, n, k, target] = operands.shape;
  const auto type = operands.dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  omp_set_num_threads(threads);
  const memory::desc x({m, k}, type, memory::format_tag::ab), w({k, n}, type, memory::format_tag::any),
      rows({k, n}, type, memory::format_tag::ab),
      outputs({m, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc primitive(dnnl::matmul::desc(x, w, outputs), engine);
  Tensor inputs = operands.narrow(operands.x, m, k);
  Tensor plain = operands.narrow(operands.transposed, k, n);
  memory source(rows, engine, plain.mutable_bytes().data());
  memory packed(primitive.weights_desc(), engine);
  dnnl::reorder(source, packed).execute(stream, source, packed);
  stream.wait();
  const std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, memory(x, engine, inputs.mutable_bytes().data())},
      {DNNL_ARG_WEIGHTS, packed},
      {DNNL_ARG_DST, memory(outputs, engine, y.data())}};
  return [inputs, arguments, stream, threads, run = dnnl::matmul(primitive)]() mutable {
    omp_set_num_threads(threads);
    run.execute(stream, arguments);
    stream.wait();
  };
}

void limit_onednn_to_avx512() { dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16); }
#else
constexpr bool kHasOneDnn = false;
Product onednn_product(const Operands&, Floats&, int) { return nullptr; }
void limit_onednn_to_avx512() {}
#endif

#ifdef SHARDCHECK_HAS_OPENBLAS
constexpr bool kHasOpenBlas = true;

Product openblas_product(const Operands& operands, Floats& y, int threads) {
  const int m = static_cast<int>(operands.shape.m), n = static_cast<int>(operands.shape.n),
            k = static_cast<int>(operands.shape.k);
  return [&operands, &y, m, n, k, threads] {
    openblas_set_num_threads(threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0F, operands.x.data(), k,
                operands.transposed.data(), n, 0.0F, y.data(), n);
  };
}

// It knows a list of processor models, and on a newer one falls back to a kernel from before AVX.
void warn_of_slow_openblas() {
  const std::string core = openblas_get_corename();
  const bool wide = core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids";
  if (wide || !simd_targets().front().starts_with("AVX3")) return;
  fmt::print(
      "warning: OpenBLAS chose its kernel for \"{}\" on a processor with AVX-512; set "
      "OPENBLAS_CORETYPE=SkylakeX for a fair figure\n\n",
      core);
}
#else
constexpr bool kHasOpenBlas = false;
Product openblas_product(const Operands&, Floats&, int) { return nullptr; }
void warn_of_slow_openblas() {}
#endif

#ifdef SHARDCHECK_HAS_LIBXSMM
constexpr bool kHasLibxsmm = true;

// A generator of small kernels that run on one thread.
Product libxsmm_product(const Operands& operands, Floats& y, int threads) {
  constexpr double kLargest = 2.0 * 64 * 512 * 1408;
  if (threads != 1 || operands.shape.flops() > kLargest) return nullptr;
  const auto m = static_cast<libxsmm_blasint>(operands.shape.m),
             n = static_cast<libxsmm_blasint>(operands.shape.n),
             k = static_cast<libxsmm_blasint>(operands.shape.k);
  const float one = 1.0F, zero = 0.0F;
  const auto kernel = libxsmm_smmdispatch(n, m, k, &n, &k, &n, &one, &zero, nullptr, nullptr);
  if (kernel == nullptr) return nullptr;
  // Column-major, so everything is transposed.
  return [&operands, &y, kernel] { kernel(operands.transposed.data(), operands.x.data(), y.data()); };
}
#else
constexpr bool kHasLibxsmm = false;
Product libxsmm_product(const Operands&, Floats&, int) { return nullptr; }
#endif

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
  if (!kHasOneDnn) return rates;
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
  if (!kHasOneDnn) missing += " oneDNN";
  if (!kHasOpenBlas) missing += " OpenBLAS";
  if (!kHasLibxsmm) missing += " libxsmm";
  if (!missing.empty()) fmt::print("not in this build:{}\n", missing);
  fmt::print("\n");
  warn_of_slow_openblas();
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
