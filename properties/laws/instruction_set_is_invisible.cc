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

/// A way this build can compute the case here: a SIMD target, and under exact an integer kernel too.
struct Way {
  std::string target, kernel;
  std::string text() const { return kernel.empty() ? target : target + " with kernel " + kernel; }
};

/// The machine's own choice first.
std::vector<Way> ways_of(Arithmetic arithmetic) {
  std::vector<Way> ways;
  for (const std::string& target : simd_targets()) {
    if (arithmetic != Arithmetic::exact) ways.push_back({target, ""});
  }
  if (arithmetic != Arithmetic::exact) return ways;
  const std::vector<std::string> targets = simd_targets();
  for (const std::string& kernel : exact_kernels()) ways.push_back({targets.front(), kernel});
  for (std::size_t i = 1; i < targets.size(); ++i) ways.push_back({targets[i], "pair"});
  return ways;
}

Outcome check(const Case& c, Subject& subject) {
  const std::vector<Way> ways = ways_of(c.arithmetic);
  if (ways.size() < 2) return Outcome::of(Verdict::vacuous, "this machine has one way to compute the case");
  const ForcedKernels forced;
  Workbench bench(c);
  const ShardedTensors shards = bench.moved(subject, bench.weights());
  std::optional<Tensor> first;
  for (const Way& way : ways) {
    force_simd_target(way.target);
    if (!way.kernel.empty()) force_exact_kernel(way.kernel);
    for (const Tensor& logits : bench.execute(subject, shards, c.arithmetic)) {
      if (!first) first = logits;
      const Outcome outcome =
          same_logits(fmt::format("{} differs from {}", way.text(), ways.front().text()), c, *first, logits);
      if (outcome.verdict != Verdict::passed) return outcome;
    }
  }
  return with_digest(Outcome::pass(), Digest().add(shards).add(*first));
}

Case draw(Stream& stream) {
  Case c = draw_for("instruction_set_is_invisible", stream,
                    {.any_dtype = true, .axis = true, .any_contract = true});
  c.length = stream.integer(5, 9);  // targets without FMA take one call per lane
  return c;
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
