// A sum cut into as many chains as there are threads.
#include "determinism.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck::faults {
namespace {

std::int64_t threads(const StepSite& /*site*/) { return gemm_threads(); }

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
      .inject = with_steps<NormInParts<threads>>};
  return fault;
}

}  // namespace shardcheck::faults
