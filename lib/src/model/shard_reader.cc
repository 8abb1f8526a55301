#include "model/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/blocks.h"

namespace shardcheck {
namespace {

/// Local shape of every file tensor a rank's consumer reads: rows up to the last one a role lies in, columns
/// cut where the sum runs over ranks.
std::map<std::string, Shape> local_shapes(const Geometry& geometry, const Consumer& consumer, int degree,
                                          int rank) {
  const LocalExtent extent = consumer.extent(geometry, degree, rank);
  std::map<std::string, Shape> shapes;
  for (const auto& logical : logical_tensors(geometry)) {
    const LocalRows rows = consumer.locate(geometry, degree, rank, logical.role, logical.layer);
    Shape shape = logical.shape;
    if (logical.role == "o_proj") shape[1] = extent.heads * geometry.head_dim;
    if (logical.role == "down") shape[1] = extent.ffn;
    const auto [place, fresh] = shapes.try_emplace(rows.tensor, shape);
    const std::int64_t before = fresh ? 0 : place->second[0];
    place->second[0] = std::max({before, rows.end(), rows.padded_to});
  }
  return shapes;
}

}  // namespace

bool has_role(const Geometry& geometry, std::string_view role) {
  if (role == "o_bias") return geometry.o_bias;
  if (role.ends_with("_bias")) return geometry.qkv_bias;
  if (role == "q_norm" || role == "k_norm") return geometry.qk_norm;
  return true;
}

ShardReader::ShardReader(const Geometry& geometry, const Consumer& consumer, int degree, int rank,
                         std::size_t slot, const ShardedTensors& shards, Arithmetic arithmetic)
    : geometry_(geometry),
      consumer_(consumer),
      degree_(degree),
      rank_(rank),
      slot_(slot),
      shards_(shards),
      arithmetic_(arithmetic) {
  for (const auto& [name, shape] : local_shapes(geometry, consumer, degree, rank)) {
    const Tensor& local = tensor(name);
    if (local.shape() != shape) {
      throw InvalidShards(fmt::format("{}: rank {} of {} holds shape {}, the {} convention reads {}", name,
                                      rank, degree, to_string(local.shape()), consumer.name(),
                                      to_string(shape)));
    }
    if (!is_forward_dtype(local.dtype())) {
      throw InvalidShards(fmt::format("{}: rank {} of {} holds dtype {}, allowed f32, bf16, f16", name, rank,
                                      degree, short_name(local.dtype())));
    }
  }
}

const Tensor& ShardReader::tensor(const std::string& name) const {
  const auto found = shards_.find(name);
  if (found == shards_.end()) {
    throw InvalidShards(fmt::format("{}: missing from the shards of rank {} of {}", name, rank_, degree_));
  }
  if (slot_ >= found->second.size()) {
    throw InvalidShards(
        fmt::format("{}: got {} shards, expected one for each local rank (rank {} of {} has none)", name,
                    found->second.size(), rank_, degree_));
  }
  return found->second[slot_];
}

Tensor ShardReader::rows(std::string_view role, std::int64_t layer) const {
  const LocalRows where = consumer_.locate(geometry_, degree_, rank_, role, layer);
  return read_rows(tensor(where.tensor), where, geometry_.head_dim);
}

std::vector<float> ShardReader::values(std::string_view role, std::int64_t layer) const {
  return has_role(geometry_, role) ? widened(rows(role, layer)) : std::vector<float>{};
}

LinearWeights ShardReader::linear(std::string_view role, std::int64_t layer,
                                  std::span<const std::int32_t> tops) const {
  return {rows(role, layer), arithmetic_, tops};
}

}  // namespace shardcheck
