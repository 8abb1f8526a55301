// A norm whose mean square is taken over a rank's share of the width.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class LocalStatistics final : public StepsDecorator {
 public:
  LocalStatistics(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    const auto [begin, end] = part_of(SplitPolicy::balanced, width, site.degree, site.rank);
    std::vector<float> local;
    for (std::int64_t row = 0; row < rows; ++row) {
      local.insert(local.end(), x + row * width + begin, x + row * width + end);
    }
    return inner().norm_statistics(site, local.data(), rows, end - begin, sums);
  }
};

}  // namespace

// Never equivalent: two shares of a random row have different mean squares.
const Fault& local_width_norm_statistics() {
  static const Fault fault{
      .name = "local_width_norm_statistics",
      .family = 'N',
      .level = FaultLevel::forward,
      .claim =
          "Each rank divides by the root mean square of its share of the width instead of the whole row.",
      .reports = {"A52"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.d_model < c.target.tp_degree()) return "fewer channels than ranks: a share is empty";
        return needs_ranks(c);
      },
      .equivalent = nullptr,
      .inject = with_steps<LocalStatistics>};
  return fault;
}

}  // namespace shardcheck::faults
