// The copy of a tied embedding on the last pipeline stage, left behind.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

void damage(const Case& c, const Layout& target, std::string_view state, ShardedTensors& shards) {
  for (const LayoutEntry& entry : target.entries) {
    if (!entry.tied) continue;
    auto& held = shards.at(entry.name);
    const DType dtype = held[static_cast<std::size_t>(entry.placed.holders().front())].dtype();
    Tensor copy = fuse(entry, earlier_weights(c, dtype));
    if (state == "zero") copy = Tensor::zeros(dtype, copy.shape());
    held = split_tensor(entry.placed, copy);
  }
}

}  // namespace

// Never equivalent: the embedding is not zero, and two seeds draw different ones.
const Fault& tied_head_not_updated() {
  static const Fault fault{
      .name = "tied_head_not_updated",
      .family = 'V',
      .level = FaultLevel::sync,
      .claim =
          "The last stage's copy of a tied embedding stays zero, or keeps an earlier version, while the "
          "first "
          "stage's is new.",
      .reports = {"A60", "A61", "A62"},
      .oracles = {Oracle::layout},  // no forward pass here reads a table that has the copy
      .arguments = {"zero", "stale"},
      .not_applicable =
          [](const Case& c, std::string_view) {
            return unless_any(
                c, [](const LayoutEntry& entry, const Layout&) { return entry.tied; },
                "the target has no copy of a tied embedding");
          },
      .equivalent = nullptr,
      .inject = with_damage<damage>,
      .meshes = true,
      .steer =
          [](Case& c, Stream& stream) {
            use_plain_llama(c);
            c.geometry.tied = true;
            c.geometry.n_layers = 2;
            c.target.table = stream.chance(1, 2) ? "vllm-llama" : "megatron-llama";
            run_over(c, "pp");
          }};
  return fault;
}

}  // namespace shardcheck::faults
