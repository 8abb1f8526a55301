// A decoding kernel that sums in another order than the one for prefill.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

class ReorderSingleTokenSums final : public StepsDecorator {
 public:
  ReorderSingleTokenSums(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    const float divisor = inner().norm_statistics(site, x, rows, width, sums);
    if (site.decodes) sum_in_parts(x, rows, width, 2, sums);
    return divisor;
  }
};

}  // namespace

// No oracle sees it: they do not decode. The law decoding_equals_prefill does.
const Fault& reorder_single_token_sums() {
  static const Fault fault{
      .name = "reorder_single_token_sums",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "The statistics of a norm are summed in two chains where every sequence adds a single token.",
      .reports = {"seed 003"},
      .oracles = {},
      .law = "decoding_equals_prefill",
      .arguments = {},
      .not_applicable = [](const Case& c,
                           std::string_view) { return needs(decodes(c), c, "nothing is decoded"); },
      .equivalent = nullptr,
      .inject = with_steps<ReorderSingleTokenSums>};
  return fault;
}

}  // namespace shardcheck::faults
