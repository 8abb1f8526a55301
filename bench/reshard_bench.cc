// split, gather and reshard of the TOY model against memcpy of the same bytes, one thread:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON && cmake --build --preset release --target
//   reshard_bench taskset -c 0 ./reshard_bench [ROUNDS]      (from the bench folder of the build tree; 30
//   rounds by default)
//
// Prints two tables: operation, MB written, GB/s of bytes written, GB/s of the memcpy, their ratio. The
// baseline is one memcpy per tensor the operation writes, into a tensor of that size, allocated inside the
// clock like the operation's own. `fresh`: every large block comes from the kernel, so both sides pay for the
// page faults; `reused`: blocks freed in the round before are handed out again, so neither does. Freeing is
// not counted. The two sides are timed in turn, in processor time of the thread, and the ratio is the median
// over the rounds.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "measure.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck::bench {
namespace {

/// The tensors an operation writes, so that they outlive the clock and the baseline knows their sizes.
using Tensors = std::vector<Tensor>;

Tensors tensors_of(const ShardedTensors& shards) {
  Tensors all;
  for (const auto& [name, tensors] : shards) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

Tensors tensors_of(const TensorMap& logical) {
  Tensors all;
  for (const auto& [name, tensor] : logical) all.push_back(tensor);
  return all;
}

struct Operation {
  std::string name;
  std::function<Tensors()> run;
};

Tensors copy_each(const Tensors& sources) {
  Tensors copies;
  for (const Tensor& source : sources) {
    Tensor copy = Tensor::uninitialized(source.dtype(), source.shape());
    std::memcpy(copy.mutable_bytes().data(), source.bytes().data(), source.bytes().size());
    copies.push_back(std::move(copy));
  }
  return copies;
}

template <typename Run>
double timed(const Run& run) {
  const double start = thread_seconds();
  const auto kept = run();
  return thread_seconds() - start;
}

void print_row(const Operation& operation, int rounds) {
  const Tensors sources = operation.run();
  double bytes = 0.0;
  for (const Tensor& tensor : sources) bytes += static_cast<double>(tensor.bytes().size());
  std::vector<double> seconds, copy_seconds, ratios;
  for (int round = 0; round < rounds; ++round) {
    const auto copying = [&] { return copy_each(sources); };
    // Who goes first alternates: neither side always finds the caches the other left.
    const double before = round % 2 == 0 ? timed(copying) : 0.0;
    seconds.push_back(timed(operation.run));
    copy_seconds.push_back(round % 2 == 0 ? before : timed(copying));
    ratios.push_back(copy_seconds.back() / seconds.back());
  }
  fmt::print("{:<38} {:>8.1f} {:>10.2f} {:>12.2f} {:>8.2f}\n", operation.name, bytes / 1e6,
             bytes / 1e9 / median(seconds), bytes / 1e9 / median(copy_seconds), median(ratios));
}

/// A model's shards under one layout name.
struct Sharded {
  Sharded(const Geometry& geometry, std::string_view name)
      : layout(make_layout(parse_layout_name(name), geometry)),
        full(make_weights(geometry, WeightStyle::recorded, 1, DType::f32)),
        shards(split(full, layout)) {}
  Layout layout;
  TensorMap full;
  ShardedTensors shards;
};

/// Without this the allocator drifts from one regime to the other while the program runs.
void use_fresh_memory(bool fresh) {
  constexpr int kLargeBytes = 128 << 10;
  mallopt(M_MMAP_MAX, fresh ? 1 << 16 : 0);
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  mallopt(M_TRIM_THRESHOLD, fresh ? kLargeBytes : 1 << 30);
}

void run(int rounds, bool fresh) {
  use_fresh_memory(fresh);
  const Sharded one(toy(), "seed"), two(toy(), "seed:tp2"), four(toy_kv4(), "seed:tp4");
  const Layout vllm = make_layout(parse_layout_name("vllm-llama:tp2"), toy());
  const Layout kv4_two = make_layout(parse_layout_name("seed:tp2"), toy_kv4());
  const std::vector<Operation> operations = {
      {"split TOY to seed:tp2", [&] { return tensors_of(split(two.full, two.layout)); }},
      {"gather TOY from seed:tp2", [&] { return tensors_of(gather(two.shards, two.layout)); }},
      {"reshard TOY seed -> seed:tp2",
       [&] { return tensors_of(reshard(one.shards, one.layout, two.layout)); }},
      {"reshard TOY seed:tp2 -> seed",
       [&] { return tensors_of(reshard(two.shards, two.layout, one.layout)); }},
      {"reshard TOY seed:tp2 -> vllm-llama:tp2",
       [&] { return tensors_of(reshard(two.shards, two.layout, vllm)); }},
      {"reshard TOY_KV4 seed:tp4 -> seed:tp2",
       [&] { return tensors_of(reshard(four.shards, four.layout, kv4_two)); }},
  };
  fmt::print("{:<38} {:>8} {:>10} {:>12} {:>8}   ({} memory on both sides, {} rounds)\n", "operation", "MB",
             "GB/s", "memcpy GB/s", "ratio", fresh ? "fresh" : "reused", rounds);
  for (const Operation& operation : operations) print_row(operation, rounds);
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  int rounds = 30;
  if (argc > 1) {
    const std::string_view text = argv[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
    if (argc > 2 || error != std::errc{} || end != text.data() + text.size() || rounds < 1 ||
        rounds > 10000) {
      fmt::print(stderr, "usage: reshard_bench [ROUNDS], ROUNDS in 1..10000, got '{}'\n", text);
      return 2;
    }
  }
  for (const bool fresh : {true, false}) shardcheck::bench::run(rounds, fresh);
}
