// Shared by the faults of meshes, pipelines and experts: weights delivered to another layer or expert, shards
// to another coordinate of the mesh, and cases steered to meshes that have them.
#pragma once

#include <span>

#include "plan_fault.h"

namespace shardcheck::faults {

/// What a logical tensor is to hold, nullopt: what it rightly does. `right` are all of the model's.
using Rewrite = std::function<std::optional<Tensor>(const LogicalTensor& part, const TensorMap& right)>;
/// Delivers every file tensor again of which a part is rewritten.
void rewrite(const Layout& target, const Rewrite& with, ShardedTensors& shards);

struct Place {
  std::int64_t layer = -1, expert = -1;
  bool operator==(const Place&) const = default;
};
inline Place place_of(const LogicalTensor& tensor) { return {tensor.layer, tensor.expert}; }

/// Place whose weights of the same role a logical tensor gets; nullopt: none arrive, and it stays zero.
using PlaceOf = std::optional<Place> (*)(const Layout& target, const LogicalTensor& part);
void misplace(const Layout& target, PlaceOf origin, ShardedTensors& shards);

/// A subject that delivers every tensor from the place that kOrigin says.
template <PlaceOf kOrigin>
std::shared_ptr<Subject> with_places(std::shared_ptr<Subject> inner, const Case& c,
                                     std::string_view argument) {
  return damage_delivery(std::move(inner), c, argument,
                         [](const Case&, const Layout& target, std::string_view, ShardedTensors& shards) {
                           misplace(target, kOrigin, shards);
                         });
}

/// nullopt when a tensor gets another place's weights, `otherwise` when all are where they belong.
std::optional<std::string> unless_misplaced(const Case& c, PlaceOf origin, std::string_view otherwise);
/// The same of layers, all of which have to be of one kind.
std::optional<std::string> unless_layers_misplaced(const Case& c, PlaceOf origin, std::string_view otherwise);
/// The same of experts: in one layer fewer of them are in place than a token is routed to, so that every
/// token meets a wrong one.
std::optional<std::string> unless_experts_misplaced(const Case& c, PlaceOf origin,
                                                    std::string_view otherwise);

/// Whether a logical tensor never arrives.
using IsLost = bool (*)(const Layout& target, const LogicalTensor& part, std::string_view argument);
/// What is lost keeps an earlier version of the model.
void keep_earlier(const Case& c, const Layout& target, const std::function<bool(const LogicalTensor&)>& lost,
                  ShardedTensors& shards);
/// A subject that loses what kIsLost says.
template <IsLost kIsLost>
std::shared_ptr<Subject> loses(std::shared_ptr<Subject> inner, const Case& c, std::string_view argument) {
  return damage_delivery(
      std::move(inner), c, argument,
      [](const Case& damaged, const Layout& target, std::string_view word, ShardedTensors& shards) {
        keep_earlier(
            damaged, target, [&](const LogicalTensor& part) { return kIsLost(target, part, word); }, shards);
      });
}
/// nullopt when a tensor is lost, `otherwise` when all arrive.
std::optional<std::string> unless_lost(const Case& c, std::string_view argument, IsLost lost,
                                       std::string_view otherwise);

/// A stage of a pipeline: layers [first, last).
struct StageOf {
  std::int64_t stage = 0, first = 0, last = 0;
};
StageOf stage_of(const Layout& layout, std::int64_t layer);
/// Experts of an expert parallel rank.
std::int64_t experts_per_rank(const Layout& layout);
/// Whether it is of the last expert of a rank that has several.
bool is_last_slot(const Layout& layout, const LogicalTensor& part);

/// Coordinate along an axis of which a rank gets the shard.
using CoordinateOf = int (*)(const Mesh& mesh, Axis axis, int rank);
/// Whether a rank gets a shard that is not its own, though of its shape.
bool moves_along(const LayoutEntry& entry, Axis axis, CoordinateOf coordinate);
/// Gives every rank the shard of the rank at that coordinate, where it has the same shape.
void move_along(const LayoutEntry& entry, Axis axis, CoordinateOf coordinate, std::vector<Tensor>& shards);
/// Whether some group along the axis gets a shard twice and another one not at all: a group that gets each of
/// its shards once, in another order, computes the same.
bool loses_shards(const Mesh& mesh, Axis axis, CoordinateOf coordinate);
/// Why shards cut along tp that go to wrong coordinates change nothing, or nullopt.
std::optional<std::string> unless_shards_lost(const Case& c, CoordinateOf coordinate);

/// A subject that takes some tensors of the source for others: `misread` replaces the shards that it reads by
/// shards of what it takes them for.
using Misread = void (*)(const LayoutEntry& entry, std::vector<Tensor>& shards);
std::shared_ptr<Subject> misread_source(std::shared_ptr<Subject> inner, Hits hits, Misread misread);
/// nullopt when a tensor of the source is hit and both layouts can be represented.
std::optional<std::string> unless_source_hit(const Case& c, Hits hits, std::string_view otherwise);

/// Shards in the order of the ranks, one after the other along dimension 0, taken for the whole tensor.
Tensor in_rank_order(const LayoutEntry& entry, std::span<const Tensor> shards);
/// Whether dimension 0 is cut over both tp and dp, and rank order is not the order of the rows.
bool is_cut_twice_out_of_order(const LayoutEntry& entry, std::string_view);

/// Makes heads, MLP and vocabulary even, the source whole, and the target one of the seed's table over two
/// ranks of each axis, in any order.
void steer_to_axes(Case& c, Stream& stream, std::vector<Axis> axes);
/// Tensor parallelism beside pipeline, expert or data parallelism.
void steer_to_tp_beside_another(Case& c, Stream& stream);
/// A pipeline of two stages of equal length.
void steer_to_stages(Case& c, Stream& stream);
/// A pipeline of two or three stages, the first of them longer or shorter than the others.
void steer_to_uneven_stages(Case& c, Stream& stream);
/// A mixture of experts, in a table of any framework.
void steer_to_experts(Case& c, Stream& stream);
/// Experts over two or three ranks, and more for each token than a rank has.
void steer_to_expert_ranks(Case& c, Stream& stream);
/// Experts that are cut over ranks.
void steer_to_cut_experts(Case& c, Stream& stream);

}  // namespace shardcheck::faults
