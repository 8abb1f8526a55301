// The embedding mask of a rank begins one token too late.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool has_boundary(const LocalExtent& extent) {
  return extent.embed_begin > 0 && extent.embed_begin < extent.embed_end;
}

class LateBoundary final : public StepsDecorator {
 public:
  LateBoundary(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::pair<std::int64_t, std::int64_t> embedding_range(const StepSite& site,
                                                        const LocalExtent& extent) const override {
    auto range = inner().embedding_range(site, extent);
    if (has_boundary(extent)) ++range.first;
    return range;
  }
};

std::optional<std::string> not_applicable(const Case& c, std::string_view) {
  if (auto reason = needs_ranks(c)) return reason;
  const Tokens tokens = tokens_of(c);
  const auto layout = target_layout(c);
  if (layout->consumer == "none") return "no forward pass reads the layout";
  const Consumer& consumer = consumer_named(layout->consumer);
  const int degree = layout->mesh.degree(Axis::tp);
  for (int rank = 1; rank < degree; ++rank) {
    const LocalExtent extent = consumer.extent(c.geometry, degree, rank);
    if (has_boundary(extent) && std::ranges::find(tokens.ids, extent.embed_begin) != tokens.ids.end()) {
      return std::nullopt;
    }
  }
  return "no token of the case is the first of a rank's part of the vocabulary";
}

}  // namespace

// Never equivalent: a sampled boundary token has no rank that answers for it, and its embedding becomes zero.
const Fault& shift_vocab_boundary() {
  static const Fault fault{
      .name = "shift_vocab_boundary",
      .family = 'V',
      .level = FaultLevel::forward,
      .claim =
          "A rank's embedding mask begins one token late, so nobody answers for the first token of its part.",
      .reports = {"A57", "A59"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = not_applicable,
      .equivalent = nullptr,
      .inject = with_steps<LateBoundary>};
  return fault;
}

}  // namespace shardcheck::faults
