// Faults that are an index map: along one dimension of the whole file tensor, what each rank takes of it.
// Such a fault is equivalent exactly where its map is the right one.
#pragma once

#include "plan_fault.h"

namespace shardcheck::faults {

/// Rows of a whole file tensor along a dimension, in the order in which one rank holds them; padding is zero.
struct Taken {
  int dim = 0;
  std::vector<Run> runs;
};

/// What a rank takes under a fault; nullopt, of every rank alike, where the tensor is left as it is.
using TakenBy = std::optional<Taken> (*)(const Case& c, const LayoutEntry& entry, int rank,
                                         std::string_view argument);

/// Which tensors a fault takes wrongly: those that are delivered, or those of the source that are read.
enum class Side : std::uint8_t { source, target };

/// The runs of `full` along dim, padding zero.
Tensor selected(const Tensor& full, int dim, std::span<const Run> runs);
/// What a rank rightly holds along dim: all of it where dim is not cut.
std::vector<Run> owned(const LayoutEntry& entry, int rank, int dim);
/// The only range it holds along dim, nullopt for several or for padding.
std::optional<Run> owned_range(const LayoutEntry& entry, int rank, int dim);

/// Its placement where that is one range per rank without padding, else nullptr.
const Shard* sharded(const LayoutEntry& entry);
/// Items that a cut of `policy` deals out over ranks that do not divide them, 0 for any other tensor.
std::int64_t uneven_items(const LayoutEntry& entry, SplitPolicy policy);
/// Whether it stacks q, k and v, or their biases, one after the other.
bool stacks_qkv(const LayoutEntry& entry);
/// Whether it holds these roles in another order than one after the other.
bool rearranges(const LayoutEntry& entry, std::initializer_list<std::string_view> roles);
/// Whether every rank holds a part of one shape, of which none is a copy of another's.
bool is_evenly_cut(const LayoutEntry& entry);
/// Ranks that hold each KV head: 1, or more where there are more ranks than KV heads.
std::int64_t kv_replicas(const Geometry& geometry, const LayoutEntry& entry);
/// Whether it stacks q, k and v, and several ranks hold each KV head.
bool shares_kv_heads(const Geometry& geometry, const LayoutEntry& entry);
/// Rows of q, or columns of o_proj, by the place of a head in its KV group first, then by group.
std::vector<Run> heads_by_member(const Geometry& geometry);

/// As many as the rank rightly holds along the dimension of its cut, from `begin` on, or the last of all.
Taken begun_at(const LayoutEntry& entry, int rank, std::int64_t begin);
/// What a rank holds of a file whose rows lie in `order`, and are cut as if they were in the right one.
Taken cut_in_order(const LayoutEntry& entry, int rank, const std::vector<Run>& order);
/// q as it should be, then what lies at `k` and `v`, both as long as the rank's part of k.
Taken with_kv_from(const Geometry& geometry, const LayoutEntry& entry, int rank, std::int64_t k,
                   std::int64_t v);
/// Of a tensor that stacks q, k and v: rows of all of q and of all of k, and of a rank's part of them.
struct QkvRows {
  std::int64_t q = 0, kv = 0, local_q = 0, local_kv = 0;
  std::int64_t all() const { return q + 2 * kv; }
};
QkvRows qkv_rows(const Geometry& geometry, const LayoutEntry& entry);

/// Why no tensor of that side is taken wrongly: `otherwise`, kUnrepresentable, or axes of the source that
/// faults of tensor parallelism do not touch. nullopt where one is.
std::optional<std::string> unless_taken(const Case& c, std::string_view argument, Side side, TakenBy taken,
                                        std::string_view otherwise);
/// Whether every rank takes what it should of every tensor: the index maps are equal.
bool takes_rightly(const Case& c, std::string_view argument, Side side, TakenBy taken);
std::shared_ptr<Subject> take_wrongly(std::shared_ptr<Subject> inner, const Case& c,
                                      std::string_view argument, Side side, TakenBy taken);

/// Fault::equivalent and Fault::inject of a fault that is such a map.
template <TakenBy taken, Side side = Side::target>
std::optional<std::string> equal_index_maps(const Case& c, std::string_view argument) {
  if (!takes_rightly(c, argument, side, taken)) return std::nullopt;
  return "every rank takes the rows it should: the index maps are equal";
}
template <TakenBy taken, Side side = Side::target>
std::shared_ptr<Subject> takes(std::shared_ptr<Subject> inner, const Case& c, std::string_view argument) {
  return take_wrongly(std::move(inner), c, argument, side, taken);
}

/// Why a fault of the scores alone cannot be seen, or nullopt.
std::optional<std::string> needs_two_positions(const Case& c);

}  // namespace shardcheck::faults
