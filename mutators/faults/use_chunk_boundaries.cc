// The reverse of use_balanced_boundaries: torch.chunk's boundaries for shapes of array_split.
#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view) {
  const std::int64_t items = uneven_items(entry, SplitPolicy::balanced);
  if (items == 0) return std::nullopt;
  const int degree = entry.placed.degree();
  return begun_at(entry, rank, (items + degree - 1) / degree * rank * sharded(entry)->unit);
}

}  // namespace

const Fault& use_chunk_boundaries() {
  static const Fault fault{
      .name = "use_chunk_boundaries",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim = "The first ranks hold one unit more, and a rank's units begin where torch.chunk puts them.",
      .reports = {"A90"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "nothing is cut with one unit more on the first ranks");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>,
      .steer =
          [](Case& c, Stream& stream) {
            const int ranks = static_cast<int>(stream.integer(2, 6));
            c.geometry.n_kv_heads += c.geometry.n_kv_heads < ranks ? ranks : 0;
            c.geometry.n_heads = c.geometry.n_kv_heads * stream.integer(1, 2);
            c.geometry.ffn += c.geometry.ffn % ranks == 0 ? 1 : 0;
            c.target = over_ranks("deepspeed-autotp", ranks);
            settle(c);
          }};
  return fault;
}

}  // namespace shardcheck::faults
