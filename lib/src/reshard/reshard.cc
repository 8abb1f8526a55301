#include "shardcheck/reshard/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>

#include "box_copy.h"
#include "partial.h"

namespace shardcheck {
namespace {

bool is_replicated(const PlacedTensor& placed) {
  return std::holds_alternative<Replicate>(placed.placement());
}
bool is_partial(const PlacedTensor& placed) { return std::holds_alternative<Partial>(placed.placement()); }

/// A tensor cut along dimension `dim`, as [outer, dim, inner]; a tensor held whole is one run.
std::array<std::int64_t, 3> cut_view(const Shape& shape, int dim) {
  const auto product = [](auto first, auto last) {
    return std::accumulate(first, last, std::int64_t{1}, std::multiplies<>());
  };
  if (dim < 0) return {1, product(shape.begin(), shape.end()), 1};
  const auto at = shape.begin() + dim;
  return {product(shape.begin(), at), *at, product(at + 1, shape.end())};
}

enum class Direction : std::uint8_t { to_shard, to_full };

/// Copies what one rank holds between a full tensor and its shard, run by run.
void copy_selection(const PlacedTensor& placed, int rank, DType dtype, const std::byte* source,
                    std::byte* target, Direction direction) {
  const Selection selection = placed.selection(rank);
  const auto full = cut_view(placed.shape(), selection.dim);
  const auto shard = cut_view(placed.local_shape(rank), selection.dim);
  const std::vector<Run> runs = selection.dim < 0 ? std::vector<Run>{{0, full[1]}} : selection.runs;
  std::int64_t local = 0;
  for (const Run& run : runs) {
    const std::array<std::int64_t, 3> size = {full[0], run.length, full[2]};
    const std::array<std::int64_t, 3> full_origin = {0, run.global, 0}, shard_origin = {0, local, 0};
    const BoxPlace in_full{full, full_origin}, in_shard{shard, shard_origin};
    const bool cuts = direction == Direction::to_shard;
    copy_box(placed.name(), dtype, size, source, cuts ? in_full : in_shard, target,
             cuts ? in_shard : in_full);
    local += run.length;
  }
}

/// Throws InvalidShards unless `shards` is one tensor per rank, of the local shapes and one dtype.
void require_shards(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  if (shards.size() != static_cast<std::size_t>(placed.degree())) {
    throw InvalidShards(fmt::format("{}: got {} shards, expected {} (one per rank of TP degree {})",
                                    placed.name(), shards.size(), placed.degree(), placed.degree()));
  }
  for (int rank = 0; rank < placed.degree(); ++rank) {
    const Tensor& shard = shards[static_cast<std::size_t>(rank)];
    if (const Shape expected = placed.local_shape(rank); shard.shape() != expected) {
      throw InvalidShards(fmt::format("{}: rank {} of {} has the shape {}, expected {}", placed.name(), rank,
                                      placed.degree(), to_string(shard.shape()), to_string(expected)));
    }
    if (shard.dtype() != shards.front().dtype()) {
      throw InvalidShards(fmt::format("{}: rank {} of {} is {}, rank 0 is {}", placed.name(), rank,
                                      placed.degree(), short_name(shard.dtype()),
                                      short_name(shards.front().dtype())));
    }
  }
}

/// Throws InvalidShards naming the first rank that differs from rank 0, and the element.
void require_equal_replicas(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  for (std::size_t rank = 1; rank < shards.size(); ++rank) {
    if (shards[rank].same_bytes(shards.front())) continue;
    throw InvalidShards(
        fmt::format("{}: the replica on rank {} of {} differs from rank 0, first at element {}",
                    placed.name(), rank, placed.degree(), shards.front().first_difference(shards[rank])));
  }
}

const Tensor& logical_part(const LogicalTensor& part, const TensorMap& logical) {
  const auto found = logical.find(part.name);
  if (found == logical.end())
    throw InvalidInput(fmt::format("the logical tensor '{}' is missing", part.name));
  if (found->second.shape() != part.shape) {
    throw InvalidInput(fmt::format("the logical tensor '{}' has the shape {}, expected {}", part.name,
                                   to_string(found->second.shape()), to_string(part.shape)));
  }
  return found->second;
}

/// Throws InvalidLayout unless the parts of an entry fill its tensor exactly.
void require_stack(const LayoutEntry& entry) {
  std::int64_t elements = 0;
  for (const LogicalTensor& part : entry.parts) elements += element_count(part.shape);
  if (elements != element_count(entry.placed.shape())) {
    throw InvalidLayout(fmt::format("{}: its logical tensors have {} elements, its shape is {}", entry.name,
                                    elements, to_string(entry.placed.shape())));
  }
}

/// The same layout with every Partial tensor held whole instead.
Layout without_partial(Layout layout) {
  for (LayoutEntry& entry : layout.entries) {
    if (is_partial(entry.placed)) {
      entry.placed = PlacedTensor(entry.name, entry.placed.shape(), Replicate{}, entry.placed.degree());
    }
  }
  return layout;
}

bool has_partial(const Layout& layout) {
  return std::any_of(layout.entries.begin(), layout.entries.end(),
                     [](const LayoutEntry& entry) { return is_partial(entry.placed); });
}

/// dtype of every logical tensor a layout's shards hold.
std::map<std::string_view, DType> logical_dtypes(const Layout& layout, const ShardedTensors& shards) {
  std::map<std::string_view, DType> dtypes;
  for (const LayoutEntry& entry : layout.entries) {
    for (const LogicalTensor& part : entry.parts) dtypes[part.name] = shards.at(entry.name).front().dtype();
  }
  return dtypes;
}

/// The target's tensors, every element still to be written.
ShardedTensors allocate_shards(const Layout& target, const std::map<std::string_view, DType>& dtypes) {
  ShardedTensors shards;
  for (const LayoutEntry& entry : target.entries) {
    const DType dtype = dtypes.at(entry.parts.front().name);
    for (const LogicalTensor& part : entry.parts) {
      if (dtypes.at(part.name) != dtype) {
        throw InvalidShards(fmt::format("{}: '{}' is {}, '{}' is {}: they cannot share a tensor", entry.name,
                                        entry.parts.front().name, short_name(dtype), part.name,
                                        short_name(dtypes.at(part.name))));
      }
    }
    std::vector<Tensor>& tensors = shards[entry.name];
    for (int rank = 0; rank < entry.placed.degree(); ++rank) {
      tensors.push_back(allocate_tensor(entry.name, dtype, entry.placed.local_shape(rank)));
    }
  }
  return shards;
}

/// Pointers to the tensors of each entry, so that a copy finds them by index.
template <typename Tensors>
auto tensors_by_entry(const Layout& layout, Tensors& shards) {
  std::vector<decltype(&shards.begin()->second)> pointers;
  for (const LayoutEntry& entry : layout.entries) pointers.push_back(&shards.find(entry.name)->second);
  return pointers;
}

void execute(const Plan& plan, const Layout& source, const ShardedTensors& shards, const Layout& target,
             ShardedTensors& result) {
  const auto sources = tensors_by_entry(source, shards);
  const auto targets = tensors_by_entry(target, result);
  for (const Copy& copy : plan.copies) {
    const auto prefix = [&copy](const auto& extents) {
      return std::span<const std::int64_t>(extents).first(static_cast<std::size_t>(copy.dims));
    };
    const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
    const Tensor& from = (*sources[at(copy.source_entry)])[at(copy.source_rank)];
    Tensor& to = (*targets[at(copy.target_entry)])[at(copy.target_rank)];
    copy_box(target.entries[at(copy.target_entry)].name, from.dtype(), prefix(copy.size), from.bytes().data(),
             {from.shape(), prefix(copy.source_origin)}, to.mutable_bytes().data(),
             {to.shape(), prefix(copy.target_origin)});
  }
}

/// reshard for layouts that need no arithmetic.
ShardedTensors reshard_by_copies(const ShardedTensors& shards, const Layout& source, const Layout& target) {
  const Plan plan = make_plan(source, target);
  for (const LayoutEntry& entry : source.entries) {
    if (is_replicated(entry.placed)) require_equal_replicas(entry.placed, shards.find(entry.name)->second);
  }
  ShardedTensors result = allocate_shards(target, logical_dtypes(source, shards));
  execute(plan, source, shards, target, result);
  return result;
}

/// reshard with Partial tensors summed before and split after; the replicas in between share their bytes.
ShardedTensors reshard_with_partial(ShardedTensors shards, const Layout& source, const Layout& target) {
  for (const LayoutEntry& entry : source.entries) {
    std::vector<Tensor>& tensors = shards.find(entry.name)->second;
    if (is_partial(entry.placed)) tensors.assign(tensors.size(), gather_tensor(entry.placed, tensors));
  }
  ShardedTensors result = reshard_by_copies(shards, without_partial(source), without_partial(target));
  for (const LayoutEntry& entry : target.entries) {
    std::vector<Tensor>& tensors = result.find(entry.name)->second;
    if (is_partial(entry.placed)) tensors = split_tensor(entry.placed, tensors.front());
  }
  return result;
}

}  // namespace

Tensor fuse(const LayoutEntry& entry, const TensorMap& logical) {
  const Tensor& first = logical_part(entry.parts.front(), logical);
  if (entry.parts.size() == 1) return first;
  require_stack(entry);
  Tensor full = allocate_tensor(entry.name, first.dtype(), entry.placed.shape());
  const std::span<std::byte> bytes = full.mutable_bytes();
  std::size_t written = 0;
  for (const LogicalTensor& part : entry.parts) {
    const Tensor& tensor = logical_part(part, logical);
    if (tensor.dtype() != first.dtype()) {
      throw InvalidInput(fmt::format("{}: '{}' is {}, '{}' is {}: they cannot share a tensor", entry.name,
                                     entry.parts.front().name, short_name(first.dtype()), part.name,
                                     short_name(tensor.dtype())));
    }
    if (tensor.elements() > 0)
      std::memcpy(bytes.data() + written, tensor.bytes().data(), tensor.bytes().size());
    written += tensor.bytes().size();
  }
  return full;
}

std::vector<Tensor> split_tensor(const PlacedTensor& placed, const Tensor& full) {
  if (full.shape() != placed.shape()) {
    throw InvalidInput(fmt::format("{}: the full tensor has the shape {}, expected {}", placed.name(),
                                   to_string(full.shape()), to_string(placed.shape())));
  }
  if (const auto* partial = std::get_if<Partial>(&placed.placement()))
    return split_partial(placed, *partial, full);
  std::vector<Tensor> shards;
  for (int rank = 0; rank < placed.degree(); ++rank) {
    Tensor shard = allocate_tensor(placed.name(), full.dtype(), placed.local_shape(rank));
    copy_selection(placed, rank, full.dtype(), full.bytes().data(), shard.mutable_bytes().data(),
                   Direction::to_shard);
    shards.push_back(std::move(shard));
  }
  return shards;
}

Tensor gather_tensor(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  require_shards(placed, shards);
  if (is_partial(placed)) return sum_partial(placed, shards);
  if (is_replicated(placed)) {
    require_equal_replicas(placed, shards);
    return shards.front();
  }
  const DType dtype = shards.front().dtype();
  Tensor full = allocate_tensor(placed.name(), dtype, placed.shape());
  std::byte* const target = full.mutable_bytes().data();
  for (int rank = 0; rank < placed.degree(); ++rank) {
    copy_selection(placed, rank, dtype, shards[static_cast<std::size_t>(rank)].bytes().data(), target,
                   Direction::to_full);
  }
  return full;
}

ShardedTensors split(const TensorMap& full, const Layout& target) {
  ShardedTensors shards;
  std::set<std::string_view> used;
  for (const LayoutEntry& entry : target.entries) {
    shards.emplace(entry.name, split_tensor(entry.placed, fuse(entry, full)));
    for (const LogicalTensor& part : entry.parts) used.insert(part.name);
  }
  for (const auto& [name, tensor] : full) {
    if (!used.contains(name))
      throw InvalidInput(
          fmt::format("'{}' is no logical tensor of the layout {}", name, to_string(target.name)));
  }
  return shards;
}

TensorMap gather(const ShardedTensors& shards, const Layout& source) {
  require_shards_of(source, shards);
  TensorMap logical;
  for (const LayoutEntry& entry : source.entries) {
    const Tensor full = gather_tensor(entry.placed, shards.find(entry.name)->second);
    std::int64_t row = 0;
    for (const LogicalTensor& part : entry.parts) {
      if (entry.parts.size() == 1) {
        logical.emplace(part.name, full);
      } else {
        // Rows of one part are contiguous: a view, which its first write unshares.
        logical.emplace(part.name, full.rows(row, part.shape.front()));
        row += part.shape.front();
      }
    }
  }
  return logical;
}

ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) {
  require_shards_of(source, shards);
  if (has_partial(source) || has_partial(target)) return reshard_with_partial(shards, source, target);
  return reshard_by_copies(shards, source, target);
}

ShardedTensors reshard_by_gathering(const ShardedTensors& shards, const Layout& source,
                                    const Layout& target) {
  return split(gather(shards, source), target);
}

void require_shards_of(const Layout& layout, const ShardedTensors& shards) {
  std::set<std::string_view> known;
  for (const LayoutEntry& entry : layout.entries) {
    known.insert(entry.name);
    const auto found = shards.find(entry.name);
    if (found == shards.end()) {
      throw InvalidShards(
          fmt::format("the tensor '{}' of the layout {} is missing", entry.name, to_string(layout.name)));
    }
    require_shards(entry.placed, found->second);
  }
  for (const auto& [name, tensors] : shards) {
    if (!known.contains(name))
      throw InvalidShards(fmt::format("'{}' is no tensor of the layout {}", name, to_string(layout.name)));
  }
}

}  // namespace shardcheck
