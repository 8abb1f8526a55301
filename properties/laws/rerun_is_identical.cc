#include <fmt/format.h>

#include <array>
#include <memory>

#include "law_support.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck::laws {
namespace {

class ForcedThreads {
 public:
  ForcedThreads() : before_(gemm_threads()) { share_every_gemm(true); }
  ~ForcedThreads() {
    set_gemm_threads(before_);
    share_every_gemm(false);
  }
  ForcedThreads(const ForcedThreads&) = delete;
  ForcedThreads& operator=(const ForcedThreads&) = delete;

 private:
  int before_;
};

/// The same shards at other addresses.
ShardedTensors moved_in_memory(const ShardedTensors& shards) {
  ShardedTensors copies = shards;
  for (auto& [name, ranks] : copies) {
    for (Tensor& tensor : ranks) tensor.mutable_bytes();
  }
  return copies;
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  const ForcedThreads restore;
  std::vector<std::unique_ptr<std::byte[]>> gaps;  // so that no run finds the heap as the one before
  std::optional<Tensor> first;
  for (const int threads : std::array{1, 2, 4}) {
    gaps.push_back(std::make_unique<std::byte[]>(1000U * static_cast<std::size_t>(threads) + 24U));
    set_gemm_threads(threads);
    for (const Tensor& logits : bench.execute(subject, moved_in_memory(shards), c.arithmetic)) {
      if (!first) first = logits;
      const Outcome outcome = same_logits(
          fmt::format("a run with {} threads differs from the first", threads), c, *first, logits);
      if (outcome.verdict != Verdict::passed) return outcome;
    }
  }
  return with_digest(Outcome::pass(), Digest().add(shards).add(*first));
}

Case draw(Stream& stream) {
  Case c = draw_for("rerun_is_identical", stream,
                    {.any_dtype = true, .any_arithmetic = true, .any_contract = true});
  c.geometry.n_layers =
      1;  // every product wakes the other threads, which is slow where they must share a core
  return c;
}

}  // namespace

const Law& rerun_is_identical() {
  static const Law law{.name = "rerun_is_identical",
                       .claim =
                           "A forward pass run again, at other addresses and with 1, 2 or 4 threads, gives "
                           "the same logits bit "
                           "for bit.",
                       .check = check,
                       .draw = draw,
                       .shares = {{"16_bit", 0.2}, {"tree", 0.2}, {"target_degree>1", 0.4}},
                       .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
