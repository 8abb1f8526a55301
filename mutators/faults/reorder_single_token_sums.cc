// A decoding kernel that sums in another order than the one for prefill.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t two_where_decoding(const StepSite& site) { return site.decodes ? 2 : 1; }

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
      .inject = with_steps<NormInParts<two_where_decoding>>};
  return fault;
}

}  // namespace shardcheck::faults
