// The digest of weights against a plain read of the same bytes, one thread:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target
//   digest_bench taskset -c 0 ./digest_bench [ROUNDS]      (from the bench folder of the build tree; 15
//   rounds by default)
//
// Prints one table: where the bytes lie, dtype, bytes of a run, GB/s of the digest, GB/s of the read, their
// ratio. The read sums 64-bit words, in vectors of the best target. `memory`: 256 MiB, read once per round;
// `cache`: 256 KiB, over and over. A run is a row of a shard that holds an eighth of every row, so that every
// run starts at a far index; `whole`: one run. The two sides are timed in turn, in processor time of the
// thread, and the ratio is the median over the rounds.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "digest_bench.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "hwy/highway.h"
#include "measure.h"
#include "shardcheck/reshard/digest.h"
#include "shardcheck/tensor/stream.h"

HWY_BEFORE_NAMESPACE();
namespace shardcheck::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sum of `count` words, a multiple of 64.
std::uint64_t SumWords(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kChains = 4;
  const hn::CappedTag<std::uint64_t, 8> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[kChains] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (std::size_t i = 0; i < count; i += kChains * lanes) {
    for (std::size_t c = 0; c < kChains; ++c) sums[c] = hn::Add(sums[c], hn::LoadU(d, words + i + c * lanes));
  }
  HWY_ALIGN std::uint64_t totals[8] = {};
  hn::Store(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), d, totals);
  return std::accumulate(totals, totals + lanes, std::uint64_t{0});
}

}  // namespace HWY_NAMESPACE
}  // namespace shardcheck::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardcheck::bench {

HWY_EXPORT(SumWords);

namespace {

constexpr std::int64_t kRanks = 8;
constexpr std::int64_t kWhole = 0;

struct Buffer {
  const char* place;
  std::vector<std::uint64_t> words;
  int passes;  // per round

  std::int64_t bytes() const { return std::ssize(words) * 8; }
};

Buffer random_buffer(const char* place, std::int64_t bytes, int passes) {
  Buffer buffer{place, std::vector<std::uint64_t>(static_cast<std::size_t>(bytes / 8)), passes};
  Stream stream(1, "words");
  for (std::uint64_t& word : buffer.words) word = stream.next_u64();
  return buffer;
}

/// One rank's rows of `run_bytes`, or the whole tensor in one run.
WeightDigest digest_of(const Buffer& buffer, DType dtype, std::int64_t run_bytes) {
  const std::int64_t width = size_bits(dtype) / 8;
  const auto* bits = reinterpret_cast<const std::byte*>(buffer.words.data());
  if (run_bytes == kWhole) {
    TensorDigest digest("w", dtype, {buffer.bytes() / width});
    digest.add_run(0, bits, buffer.bytes() / width);
    return digest.sum();
  }
  const std::int64_t rows = buffer.bytes() / run_bytes, columns = run_bytes / width;
  TensorDigest digest("w", dtype, {rows, kRanks * columns});
  for (std::int64_t row = 0; row < rows; ++row) {
    digest.add_run(row * kRanks * columns, bits + row * run_bytes, columns);
  }
  return digest.sum();
}

template <typename Run>
double timed(const Run& run, int passes) {
  const double start = thread_seconds();
  for (int pass = 0; pass < passes; ++pass) benchmark::DoNotOptimize(run());
  return thread_seconds() - start;
}

void print_row(const Buffer& buffer, DType dtype, std::int64_t run_bytes, int rounds) {
  std::vector<double> seconds, read_seconds, ratios;
  const auto reading = [&] {
    return HWY_DYNAMIC_DISPATCH(SumWords)(buffer.words.data(), buffer.words.size());
  };
  const auto digesting = [&] { return digest_of(buffer, dtype, run_bytes); };
  for (int round = 0; round < rounds; ++round) {
    // Who goes first alternates: neither side always finds the caches the other left.
    const double before = round % 2 == 0 ? timed(reading, buffer.passes) : 0.0;
    seconds.push_back(timed(digesting, buffer.passes));
    read_seconds.push_back(round % 2 == 0 ? before : timed(reading, buffer.passes));
    ratios.push_back(read_seconds.back() / seconds.back());
  }
  const double gigabytes = 1e-9 * static_cast<double>(buffer.bytes() * buffer.passes);
  fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", buffer.place, short_name(dtype),
             run_bytes == kWhole ? "whole" : fmt::format("{}", run_bytes), gigabytes / median(seconds),
             gigabytes / median(read_seconds), median(ratios));
}

void run(int rounds) {
  fmt::print("| bytes in | dtype | run | GB/s | read GB/s | ratio |\n|---|---|---:|---:|---:|---:|\n");
  const Buffer buffers[] = {random_buffer("memory", 256 << 20, 1), random_buffer("cache", 256 << 10, 256)};
  for (const Buffer& buffer : buffers) {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f8_e4m3, DType::i64}) {
      for (const std::int64_t run_bytes : {kWhole, std::int64_t{1024}, std::int64_t{256}}) {
        print_row(buffer, dtype, run_bytes, rounds);
      }
    }
  }
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  int rounds = 15;
  if (argc > 1) {
    const std::string_view text = argv[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
    if (argc > 2 || error != std::errc{} || end != text.data() + text.size() || rounds < 1 ||
        rounds > 10000) {
      fmt::print(stderr, "usage: digest_bench [ROUNDS], ROUNDS in 1..10000, got '{}'\n", text);
      return 2;
    }
  }
  shardcheck::bench::run(rounds);
}
#endif  // HWY_ONCE
