// Shards padded to one length and put together with their padding.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  if (uneven_items(entry, SplitPolicy::balanced) == 0) return std::nullopt;
  const Shard* shard = sharded(entry);
  const std::int64_t longest = length_of(owned(entry, 0, shard->dim));
  std::vector<Run> padded;
  for (int from = 0; from < entry.placed.degree(); ++from) {
    const auto own = owned(entry, from, shard->dim);
    for (const Run& run : own) append_run(padded, run);
    append_run(padded, {kPadding, longest - length_of(own)});
  }
  return Taken{shard->dim, compose_runs(padded, owned(entry, rank, shard->dim))};
}

}  // namespace

const Fault& gather_padded_shards() {
  static const Fault fault{
      .name = "gather_padded_shards",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "Uneven shards of the source are padded to one length and concatenated without dropping the "
          "padding.",
      .reports = {"A88"},
      .oracles = {Oracle::layout, Oracle::tree},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::source, taken,
                            "the source cuts nothing with one unit more on the first ranks");
      },
      .equivalent = equal_index_maps<taken, Side::source>,
      .inject = takes<taken, Side::source>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(2, 6));
            c.geometry.n_kv_heads += c.geometry.n_kv_heads < ranks ? ranks : 0;
            c.geometry.n_heads = c.geometry.n_kv_heads * stream.integer(1, 2);
            c.geometry.ffn += c.geometry.ffn % ranks == 0 ? 1 : 0;
            c.source = over_ranks("deepspeed-autotp", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
