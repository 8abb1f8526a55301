// Tokens of other ranks looked up in the nearest row a rank has, and added.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class Unmasked final : public StepsDecorator {
 public:
  Unmasked(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  bool masks_embedding(const StepSite&) const override { return false; }
};

std::optional<std::string> not_applicable(const Case& c, std::string_view) {
  if (auto reason = needs_ranks(c)) return reason;
  const auto layout = target_layout(c);
  if (layout->consumer == "none") return "no forward pass here reads the layout";
  const Consumer& consumer = consumer_named(layout->consumer);
  const LocalExtent second = consumer.extent(c.geometry, c.target.tp_degree(), 1);
  if (consumer.embedding_is_whole(c.geometry) || second.embed_begin == second.embed_end)
    return "no two ranks hold parts of the embedding";
  return std::nullopt;
}

}  // namespace

// Never equivalent: every token belongs to one of two ranks, and the other one adds a row of its own.
const Fault& embedding_mask_missing() {
  static const Fault fault{.name = "embedding_mask_missing",
                           .family = 'V',
                           .level = FaultLevel::forward,
                           .claim =
                               "A rank looks tokens of other ranks up in its first or last embedding row and "
                               "adds that to the sum.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = not_applicable,
                           .equivalent = nullptr,
                           .inject = with_steps<Unmasked>};
  return fault;
}

}  // namespace shardcheck::faults
