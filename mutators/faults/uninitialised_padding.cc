// Padding of the vocabulary that holds whatever was in memory.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

bool hits(const LayoutEntry& entry, std::string_view) {
  return (belongs_to(entry, "embed") || belongs_to(entry, "lm_head")) && is_padded(entry);
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const Selection owned = entry.placed.selection(static_cast<int>(rank));
    const std::int64_t first = owned.dim < 0 || owned.runs.empty() ? 0 : owned.runs.front().global;
    const std::int64_t tokens =
        std::clamp<std::int64_t>(entry.parts.front().shape[0] - first, 0, shards[rank].dim(0));
    // All bits set: a NaN in every floating format.
    std::ranges::fill(
        shards[rank].mutable_bytes().subspan(static_cast<std::size_t>(tokens) * row_bytes(shards[rank])),
        std::byte{0xFF});
  }
}

}  // namespace

const Fault& uninitialised_padding() {
  static const Fault fault{.name = "uninitialised_padding",
                           .family = 'V',
                           .level = FaultLevel::value,
                           .claim = "Padding rows of the vocabulary are NaN instead of zero.",
                           .reports = {"A58", "A66"},
                           .oracles = {Oracle::layout},  // a right forward pass reads no padding
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits, "the vocabulary is not padded");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>,
                           .steer =
                               [](Case& c, Stream& stream) {
                                 use_plain_llama(c);
                                 c.target.table = stream.chance(1, 2) ? "vllm-llama" : "megatron-llama";
                               }};
  return fault;
}

}  // namespace shardcheck::faults
