#include <fmt/format.h>

#include <mutex>

#include "law_support.h"
#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck::laws {
namespace {

/// Which kernels run is a setting of the process: one case at a time may change it.
std::mutex& kernel_choice() {
  static std::mutex mutex;
  return mutex;
}

class ForcedKernels {
 public:
  ForcedKernels() : lock_(kernel_choice()) {}
  ~ForcedKernels() {
    force_simd_target("");
    force_exact_kernel("");
  }
  ForcedKernels(const ForcedKernels&) = delete;
  ForcedKernels& operator=(const ForcedKernels&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

/// Every way this build can compute the case here, the machine's own choice first.
std::vector<std::string> ways_of(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::exact ? exact_kernels() : simd_targets();
}

Outcome check(const Case& c, Subject& subject) {
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  const ForcedKernels forced;
  std::optional<Tensor> first;
  std::string first_way;
  for (const std::string& way : ways_of(c.arithmetic)) {
    if (c.arithmetic == Arithmetic::exact) {
      force_exact_kernel(way);
    } else {
      force_simd_target(way);
    }
    const Tensor logits = bench.execute(subject, shards, c.arithmetic).front();
    if (!first) {
      first = logits;
      first_way = way;
      continue;
    }
    const Outcome outcome = same_logits(fmt::format("{} differs from {}", way, first_way), c, *first, logits);
    if (outcome.verdict != Verdict::passed) return outcome;
  }
  return with_digest(Outcome::pass(), Digest().add(shards).add(*first));
}

Case draw(Stream& stream) {
  return draw_for("instruction_set_is_invisible", stream,
                  {.any_dtype = true, .axis = true, .any_contract = true});
}

}  // namespace

const Law& instruction_set_is_invisible() {
  static const Law law{
      .name = "instruction_set_is_invisible",
      .claim =
          "Every SIMD target and every exact kernel this machine can run gives the same logits bit for bit.",
      .check = check,
      .draw = draw,
      .shares = {{"16_bit", 0.3}, {"exact", 0.08}, {"rope", 0.2}, {"qk_norm", 0.1}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
