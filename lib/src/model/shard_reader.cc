#include "model/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/blocks.h"

namespace shardcheck {
namespace {

/// Columns of a rank's part of a tensor whose sum runs over ranks; 0 for any other.
std::int64_t columns_over_ranks(const Geometry& geometry, const LocalExtent& extent, std::string_view role) {
  if (role == "o_proj") return extent.heads * geometry.head_dim;
  if (role == "down") return extent.ffn;
  if (role == "expert_down") return extent.expert_ffn;
  if (role == "shared_down") return extent.shared_ffn;
  return 0;
}

/// Local shape of every file tensor a rank's consumer reads: rows up to the last one a role lies in, columns
/// cut where the sum runs over ranks.
std::map<std::string, Shape> local_shapes(const Geometry& geometry, const Consumer& consumer,
                                          const RankPlace& place) {
  std::map<std::string, Shape> shapes;
  for (const auto& logical : logical_tensors(geometry)) {
    if (!place.reads(logical)) continue;
    const LocalRows rows =
        consumer.locate(geometry, place.tp_degree, place.tp, logical.role, logical.layer, logical.expert);
    Shape shape = logical.shape;
    if (const std::int64_t columns = columns_over_ranks(geometry, place.extent, logical.role); columns > 0)
      shape[1] = columns;
    const auto [entry, fresh] = shapes.try_emplace(rows.tensor, shape);
    const std::int64_t before = fresh ? 0 : entry->second[0];
    entry->second[0] = std::max({before, rows.end(), rows.padded_to});
  }
  return shapes;
}

}  // namespace

ShardReader::ShardReader(const Geometry& geometry, const Consumer& consumer, const RankPlace& place,
                         std::size_t slot, const ShardedTensors& shards, Arithmetic arithmetic)
    : geometry_(geometry),
      consumer_(consumer),
      place_(place),
      slot_(slot),
      shards_(shards),
      arithmetic_(arithmetic) {
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    if (place.reads(tensor)) names_.insert(tensor.name);
  }
  for (const auto& [name, shape] : local_shapes(geometry, consumer, place)) {
    const Tensor& local = tensor(name);
    if (local.shape() != shape) {
      throw InvalidShards(fmt::format("{}: rank {} of {} holds shape {}, the {} convention reads {}", name,
                                      place.tp, place.tp_degree, to_string(local.shape()), consumer.name(),
                                      to_string(shape)));
    }
    if (!is_forward_dtype(local.dtype())) {
      throw InvalidShards(fmt::format("{}: rank {} of {} holds dtype {}, allowed f32, bf16, f16", name,
                                      place.tp, place.tp_degree, short_name(local.dtype())));
    }
  }
}

const Tensor& ShardReader::tensor(const std::string& name) const {
  const auto found = shards_.find(name);
  if (found == shards_.end()) {
    throw InvalidShards(
        fmt::format("{}: missing from the shards of rank {} of {}", name, place_.tp, place_.tp_degree));
  }
  if (slot_ >= found->second.size()) {
    throw InvalidShards(
        fmt::format("{}: got {} shards, expected one for each local rank (rank {} of {} has none)", name,
                    found->second.size(), place_.tp, place_.tp_degree));
  }
  return found->second[slot_];
}

Tensor ShardReader::rows(TensorRole role) const {
  const LocalRows where =
      consumer_.locate(geometry_, place_.tp_degree, place_.tp, role.role, role.layer, role.expert);
  return read_rows(tensor(where.tensor), where, geometry_.head_dim);
}

std::vector<float> ShardReader::values(TensorRole role) const {
  return names_.contains(logical_name(role.role, role.layer, role.expert)) ? widened(rows(role))
                                                                           : std::vector<float>{};
}

LinearWeights ShardReader::linear(TensorRole role, std::span<const std::int32_t> tops) const {
  return {rows(role), arithmetic_, tops};
}

}  // namespace shardcheck
