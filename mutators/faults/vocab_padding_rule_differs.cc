// Vocabulary rows cut as if they were not padded, read where padded ones would be.
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

std::int64_t rows_without_padding(const LayoutEntry& entry) {
  const std::int64_t vocab = entry.parts.front().shape[0];
  return (vocab + entry.placed.degree() - 1) / entry.placed.degree();
}

bool hits(const LayoutEntry& entry, std::string_view) {
  const bool holds_tokens = belongs_to(entry, "embed") || belongs_to(entry, "lm_head");
  return holds_tokens && is_padded(entry) && is_cut(entry) &&
         rows_without_padding(entry) < entry.placed.local_shape(0)[0];
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const Tensor full = gather_tensor(entry.placed, shards);
  const std::int64_t vocab = entry.parts.front().shape[0], share = rows_without_padding(entry);
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const std::int64_t first = share * static_cast<std::int64_t>(rank);
    // The last row of the padded file stands for all padding.
    std::vector<std::int64_t> rows(static_cast<std::size_t>(shards[rank].dim(0)), full.dim(0) - 1);
    for (std::int64_t i = 0; i < share && first + i < vocab; ++i)
      rows[static_cast<std::size_t>(i)] = first + i;
    shards[rank] = with_rows(full, rows);
  }
}

}  // namespace

// Never equivalent: the first rank lacks at least one row of a token.
const Fault& vocab_padding_rule_differs() {
  static const Fault fault{
      .name = "vocab_padding_rule_differs",
      .family = 'V',
      .level = FaultLevel::plan,
      .claim =
          "The source cuts the vocabulary over the ranks before it pads, the target reads it as padded and "
          "then cut.",
      .reports = {"A57", "A58", "A59"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable =
          [](const Case& c, std::string_view argument) {
            return unless_hit(c, argument, hits, "padding moves no boundary between the ranks");
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
