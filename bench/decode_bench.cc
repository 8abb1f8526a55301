// Decoding over a cache of keys and values against recomputing every prefix, one thread, all ranks in this
// process:
//
//   cmake --preset release -DSHARDCHECK_BUILD_BENCH=ON
//   cmake --build --preset release --target decode_bench
//   ./decode_bench [--rounds=N] [--tokens=N]   (from the bench folder of the build tree; 3 rounds, 128
//   tokens)
//
// TOY, f32: tokens one after the other from an empty sequence, each the largest logit of the last. cached: a
// step of one token. recomputed: a forward pass of the whole prefix. Times are processor time of the thread;
// both run in turn, the median of the ratios counts. Packing the weights is not counted. The tokens must be
// the same both ways under tree: exit code 1 when they are not.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "flags.h"
#include "measure.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/model/packed_model.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck::bench {
namespace {

using Ids = std::vector<std::int32_t>;

std::int32_t largest_of_last_row(const Tensor& logits) {
  const auto row = logits.f32().last(static_cast<std::size_t>(logits.dim(1)));
  return static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
}

Ids decode_cached(const ShardedModel& model, std::int64_t count) {
  Ids ids = {1};
  KvCache cache = model.make_cache();
  while (std::ssize(ids) < count)
    ids.push_back(
        largest_of_last_row(model.forward({{0, std::ssize(ids) - 1, {ids.back()}}}, cache).front()));
  return ids;
}

Ids decode_recomputed(const ShardedModel& model, std::int64_t count) {
  Ids ids = {1};
  while (std::ssize(ids) < count)
    ids.push_back(largest_of_last_row(model.forward({1, std::ssize(ids), ids}).front()));
  return ids;
}

struct Row {
  std::vector<double> cached, recomputed, ratios;
  bool same_tokens = true;
};

Row measure(const ShardedModel& model, std::int64_t tokens, std::int64_t rounds) {
  Row row;
  const auto timed = [&](const auto& decode, std::vector<double>& times) {
    const double start = thread_seconds();
    const Ids ids = decode(model, tokens);
    times.push_back(thread_seconds() - start);
    return ids;
  };
  for (std::int64_t round = 0; round < rounds; ++round) {
    const Ids with_cache = timed(decode_cached, row.cached);
    const Ids without = timed(decode_recomputed, row.recomputed);
    row.same_tokens = row.same_tokens && with_cache == without;
    row.ratios.push_back(row.recomputed.back() / row.cached.back());
  }
  return row;
}

int run(const Flags& flags) {
  const std::int64_t rounds = flags.integer("rounds", 3, 1, 1000);
  const std::int64_t tokens = flags.integer("tokens", 128, 2, 4096);
  const Geometry geometry = toy();
  const Contract contract = contract_for(geometry);
  const TensorMap weights = make_weights(geometry, WeightStyle::recorded, 0, DType::f32);
  bool same = true;
  fmt::print("{} rounds, one thread, {}\n\n", rounds, simd_targets().front());
  fmt::print("| TOY, {} tokens | arithmetic | cached ms | recomputed ms | ratio | same tokens |\n", tokens);
  fmt::print("|---|---|---:|---:|---:|---|\n");
  for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree}) {
    const PackedModel packed(geometry, weights, arithmetic);
    for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
      MeshGroups groups(Mesh({{Axis::cp, cp}, {Axis::tp, tp}}), make_in_process_collective);
      const Row row = measure(ShardedModel(packed, groups, contract, {}), tokens, rounds);
      same = same && (row.same_tokens || arithmetic == Arithmetic::native);
      fmt::print("| TP {}, CP {} | {} | {:.0f} | {:.0f} | {:.1f} | {} |\n", tp, cp, to_string(arithmetic),
                 1e3 * median(row.cached), 1e3 * median(row.recomputed), median(row.ratios),
                 row.same_tokens ? "yes" : "no");
      std::fflush(stdout);
    }
  }
  return same ? 0 : 1;
}

}  // namespace
}  // namespace shardcheck::bench

int main(int argc, char** argv) {
  using shardcheck::bench::Flags;
  return shardcheck::bench::exit_code_of("decode_bench", [&] {
    return shardcheck::bench::run(Flags(argc, argv, {"rounds", "tokens"}));
  });
}
