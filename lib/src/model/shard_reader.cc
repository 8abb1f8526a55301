#include "model/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/blocks.h"

namespace shardcheck {
namespace {

/// Local shape of every file tensor a rank's consumer reads: up to the last row that a role lies in.
std::map<std::string, Shape> local_shapes(const Geometry& geometry, const Consumer& consumer,
                                          const RankPlace& place) {
  std::map<std::string, Shape> shapes;
  for (const auto& logical : logical_tensors(geometry)) {
    if (!place.reads(logical)) continue;
    const LocalRows rows =
        consumer.locate(geometry, place.tp_degree, place.tp, logical.role, logical.layer, logical.expert);
    const Shape own = rows.shape();
    Shape& shape = shapes.try_emplace(rows.tensor, own).first->second;
    for (std::size_t d = 0; d < own.size(); ++d) shape.at(d) = std::max(shape.at(d), own[d]);
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
