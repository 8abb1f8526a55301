// KV heads tiled over the query heads where each is to be repeated.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class TiledHeads final : public StepsDecorator {
 public:
  TiledHeads(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t kv_head_of(const StepSite&, const Consumer&, const LocalExtent& extent,
                          std::int64_t head) const override {
    return head % extent.kv_heads;
  }
};

}  // namespace

const Fault& gqa_tile_for_repeat() {
  static const Fault fault{
      .name = "gqa_tile_for_repeat",
      .family = 'G',
      .level = FaultLevel::forward,
      .claim = "Local query head h reads local KV head h mod n_kv instead of h / group.",
      .reports = {"A29", "A30"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) { return needs_layout(c); },
      // Head 1 decides: 1 mod n_kv is 1 and 1 / group is 0 unless there is one KV head or the group is one.
      .equivalent = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (c.geometry.n_kv_heads == c.target.tp_degree()) {
          return "one KV head on each rank: tile and repeat are one index map";
        }
        if (c.geometry.n_kv_heads == c.geometry.n_heads) {
          return "as many KV heads as query heads: tile and repeat are the identity";
        }
        return std::nullopt;
      },
      .inject = with_steps<TiledHeads>};
  return fault;
}

}  // namespace shardcheck::faults
