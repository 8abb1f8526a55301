// A sum cut into as many chains as there are threads.
#include "determinism.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck::faults {
namespace {

class SplitByThreads final : public StepsDecorator {
 public:
  SplitByThreads(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    const float divisor = inner().norm_statistics(site, x, rows, width, sums);
    if (gemm_threads() > 1) sum_in_parts(x, rows, width, gemm_threads(), sums);
    return divisor;
  }
};

}  // namespace

// No oracle sees it: they run on one thread. The law rerun_is_identical does.
const Fault& split_by_thread_count() {
  static const Fault fault{
      .name = "split_by_thread_count",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "The statistics of a norm are summed in as many chains as there are threads.",
      .reports = {"seed 003"},
      .oracles = {},
      .law = "rerun_is_identical",
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      .equivalent = nullptr,
      .inject = with_steps<SplitByThreads>};
  return fault;
}

}  // namespace shardcheck::faults
