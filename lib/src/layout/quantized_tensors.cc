#include "layout/quantized_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "text/messages.h"

namespace shardcheck {
namespace {

/// Calls use(global begin, local begin, length) for what a rank holds of a sharded companion.
template <typename Use>
void for_each_range(const PlacedCompanion& companion, int degree, int rank, Use use) {
  std::int64_t local = 0;
  for (const auto& [begin, end] : companion.ranges(degree, rank)) {
    use(begin, local, end - begin);
    local += end - begin;
  }
}

Tensor part_of_rank(const Tensor& whole, const PlacedCompanion& companion, int degree, int rank) {
  if (!companion.shard) return whole;
  Tensor local = Tensor::uninitialized(whole.dtype(), companion.local_shape(degree));
  for_each_range(companion, degree, rank, [&](std::int64_t global, std::int64_t at, std::int64_t length) {
    copy_slices({whole, global}, local, at, length, companion.shard->dim);
  });
  return local;
}

std::string rank_of(const PlacedQuantized& placed, std::size_t rank) {
  return fmt::format("{} on rank {} of {}", placed.matrix().name, rank, placed.degree());
}

Tensor gathered(const PlacedQuantized& placed, const PlacedCompanion& companion,
                const std::vector<TensorMap>& shards) {
  if (!companion.shard) {
    const Tensor& first = shards.front().find(companion.name)->second;
    for (std::size_t rank = 1; rank < shards.size(); ++rank) {
      if (!first.same_bytes(shards[rank].find(companion.name)->second))
        throw InvalidInput(fmt::format("{}: {} differs from rank 0, allowed are equal replicas",
                                       rank_of(placed, rank), companion.name));
    }
    return first;
  }
  Tensor whole = Tensor::uninitialized(companion.dtype, companion.shape);
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    const Tensor& local = shards[rank].find(companion.name)->second;
    for_each_range(companion, placed.degree(), static_cast<int>(rank),
                   [&](std::int64_t global, std::int64_t at, std::int64_t length) {
                     copy_slices({local, at}, whole, global, length, companion.shard->dim);
                   });
  }
  return whole;
}

}  // namespace

void copy_slices(SlicesFrom source, Tensor& target, std::int64_t begin, std::int64_t count, int dim) {
  const auto at = static_cast<std::size_t>(dim);
  const Shape& shape = target.shape();
  std::size_t outer = 1;
  for (std::size_t i = 0; i < at; ++i) outer *= static_cast<std::size_t>(shape[i]);
  const auto extent = static_cast<std::size_t>(shape[at]);
  const auto source_extent = static_cast<std::size_t>(source.tensor.shape()[at]);
  if (target.elements() == 0 || count == 0) return;
  const std::size_t slice = target.bytes().size() / (outer * extent);
  std::byte* to = target.mutable_bytes().data() + static_cast<std::size_t>(begin) * slice;
  const std::byte* from = source.tensor.bytes().data() + static_cast<std::size_t>(source.begin) * slice;
  for (std::size_t i = 0; i < outer; ++i)
    std::memcpy(to + i * extent * slice, from + i * source_extent * slice,
                static_cast<std::size_t>(count) * slice);
}

const Tensor& stored_tensor(const std::string& where, const PlacedCompanion& companion, const Shape& shape,
                            const TensorMap& tensors) {
  const auto found = tensors.find(companion.name);
  if (found == tensors.end()) throw InvalidInput(fmt::format("{}: {} is missing", where, companion.name));
  const Tensor& tensor = found->second;
  if (tensor.dtype() != companion.dtype || tensor.shape() != shape)
    throw InvalidInput(fmt::format("{}: {} is {} {}, allowed is {} {}", where, companion.name,
                                   short_name(tensor.dtype()), to_string(tensor.shape()),
                                   short_name(companion.dtype), to_string(shape)));
  return tensor;
}

void require_stored(const std::string& where, const PlacedQuantized& placed, const TensorMap& tensors,
                    int degree) {
  for (const PlacedCompanion& companion : placed.companions())
    stored_tensor(where, companion, companion.local_shape(degree), tensors);
  for (const auto& stored : tensors) {
    if (std::ranges::find(placed.companions(), stored.first, &PlacedCompanion::name) ==
        placed.companions().end())
      throw InvalidInput(fmt::format("{}: {} is no tensor of {}", where, quote(stored.first),
                                     to_string(placed.matrix().format)));
  }
}

std::vector<TensorMap> split_quantized(const PlacedQuantized& placed, const TensorMap& full) {
  require_stored(placed.matrix().name, placed, full, 1);
  std::vector<TensorMap> shards(static_cast<std::size_t>(placed.degree()));
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    for (const PlacedCompanion& companion : placed.companions())
      shards[rank].emplace(companion.name, part_of_rank(full.find(companion.name)->second, companion,
                                                        placed.degree(), static_cast<int>(rank)));
  }
  return shards;
}

TensorMap gather_quantized(const PlacedQuantized& placed, const std::vector<TensorMap>& shards) {
  if (std::ssize(shards) != placed.degree())
    throw InvalidInput(fmt::format("{}: {} ranks, allowed is the TP degree {}", placed.matrix().name,
                                   shards.size(), placed.degree()));
  for (std::size_t rank = 0; rank < shards.size(); ++rank)
    require_stored(rank_of(placed, rank), placed, shards[rank], placed.degree());
  TensorMap full;
  for (const PlacedCompanion& companion : placed.companions())
    full.emplace(companion.name, gathered(placed, companion, shards));
  return full;
}

}  // namespace shardcheck
