// A kernel of one instruction set that reduces across its vector lanes.
#include "determinism.h"
#include "shardcheck/arithmetic/gemm.h"

namespace shardcheck::faults {
namespace {

/// Any target but the machine's best: the mistake lies in a kernel that is seldom run.
bool runs_another_target() { return simd_target_in_force() != simd_targets().front(); }

class LanesAcrossK final : public StepsDecorator {
 public:
  LanesAcrossK(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    const float divisor = inner().norm_statistics(site, x, rows, width, sums);
    if (!runs_another_target()) return divisor;
    constexpr std::int64_t kLanes = 4;
    for (std::int64_t i = 0; i < rows; ++i) {
      float lanes[kLanes] = {};
      for (std::int64_t j = 0; j < width; ++j) lanes[j % kLanes] += x[i * width + j] * x[i * width + j];
      sums[i] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    }
    return divisor;
  }
};

}  // namespace

// No oracle sees it: they run on the machine's best target. The law instruction_set_is_invisible does.
const Fault& lanes_across_k() {
  static const Fault fault{
      .name = "lanes_across_k",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "The norm kernel of every instruction set but the best one sums across its vector lanes.",
      .reports = {"seed 003"},
      .oracles = {},
      .law = "instruction_set_is_invisible",
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (simd_targets().size() < 2) return "this machine runs one SIMD target";
        if (c.arithmetic == Arithmetic::exact) return "arithmetic=exact chooses among other kernels";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<LanesAcrossK>};
  return fault;
}

}  // namespace shardcheck::faults
