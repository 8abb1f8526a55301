// A kernel that picks how it splits a sum by the number of requests.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

std::int64_t sequences(const StepSite& site) { return site.sequences; }

}  // namespace

// No oracle sees it: reference and sharded run have one batch. The law batch_is_invisible does.
const Fault& split_by_batch_size() {
  static const Fault fault{
      .name = "split_by_batch_size",
      .family = 'D',
      .level = FaultLevel::forward,
      .claim = "The statistics of a norm are summed in as many chains as the batch has sequences.",
      .reports = {"seed 003"},
      .oracles = {},
      .law = "batch_is_invisible",
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view) {
            const std::int64_t chains = std::ssize(lengths_of(c));
            return needs(chains > 1 && chains < c.geometry.d_model, c,
                         "the batch has one sequence, or as many as a sum has elements, which is one chain");
          },
      .equivalent = nullptr,
      .inject = with_steps<NormInParts<sequences>>};
  return fault;
}

}  // namespace shardcheck::faults
