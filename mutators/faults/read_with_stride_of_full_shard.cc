// A short shard read as if its rows were as long as those of the others.
#include <algorithm>

#include "steering.h"
#include "taken.h"

namespace shardcheck::faults {
namespace {

bool is_cut_unevenly(const LayoutEntry& entry) {
  const Shard* shard = sharded(entry);
  return shard != nullptr && shard->dim == 1 && entry.placed.shape()[0] > 1 &&
         uneven_items(entry, shard->policy) > 0;
}

bool is_short(const LayoutEntry& entry, int rank) {
  const std::int64_t width = entry.placed.local_shape(rank)[1];
  return width > 0 && width < entry.placed.local_shape(0)[1];
}

bool hits(const LayoutEntry& entry, std::string_view) {
  return is_cut_unevenly(entry) && is_short(entry, entry.placed.degree() - 1);
}

/// Rows `stride` elements apart in the memory of a shard whose own are shorter, zero beyond its end.
Tensor read_with_stride(const Tensor& shard, std::int64_t stride) {
  Tensor out = Tensor::zeros(shard.dtype(), shard.shape());
  const std::size_t row = row_bytes(shard), size = shard.bytes().size();
  const std::size_t step = row / static_cast<std::size_t>(shard.dim(1)) * static_cast<std::size_t>(stride);
  for (std::size_t from = 0, to = 0; from < size; from += step, to += row) {
    const auto bytes = shard.bytes().subspan(from, std::min(row, size - from));
    std::ranges::copy(bytes, out.mutable_bytes().subspan(to).begin());
  }
  return out;
}

void hurt(const LayoutEntry& entry, std::string_view, std::vector<Tensor>& shards) {
  const std::int64_t stride = entry.placed.local_shape(0)[1];
  for (int rank = 1; rank < entry.placed.degree(); ++rank) {
    Tensor& shard = shards[static_cast<std::size_t>(rank)];
    if (is_short(entry, rank)) shard = read_with_stride(shard, stride);
  }
}

}  // namespace

// Never equivalent: the second row of a short shard begins with another element.
const Fault& read_with_stride_of_full_shard() {
  static const Fault fault{.name = "read_with_stride_of_full_shard",
                           .family = 'U',
                           .level = FaultLevel::plan,
                           .claim =
                               "A matrix is cut unevenly along its columns, and a short shard is read with "
                               "the stride of a full one.",
                           .reports = {"A87"},
                           .oracles = {Oracle::layout},  // no forward pass here reads columns of two lengths
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view argument) {
                                 return unless_hit(c, argument, hits,
                                                   "no matrix is cut into columns of two lengths");
                               },
                           .equivalent = nullptr,
                           .inject = with_hurt<hits, hurt>,
                           .steer =
                               [](Case& c, Stream& stream) {
                                 const int ranks = static_cast<int>(stream.integer(2, 6));
                                 fit_ranks(c.geometry, ranks);
                                 c.geometry.ffn += 1;
                                 c.target = over_ranks("deepspeed-autotp", ranks);
                                 settle(c);
                               }};
  return fault;
}

}  // namespace shardcheck::faults
