#include "shardcheck/reshard/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "run_copy.h"
#include "shards.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

bool has_partial(const Layout& layout) {
  return std::any_of(layout.entries.begin(), layout.entries.end(),
                     [](const LayoutEntry& entry) { return entry.placed.is_partial(); });
}

/// dtype of every logical tensor a layout's shards hold.
std::map<std::string_view, DType> logical_dtypes(const Layout& layout, const ShardedTensors& shards) {
  std::map<std::string_view, DType> dtypes;
  for (const LayoutEntry& entry : layout.entries) {
    const DType dtype = shards.at(entry.name)[at(first_holder(entry.placed))].dtype();
    for (const LogicalTensor& part : entry.parts) dtypes[part.name] = dtype;
  }
  return dtypes;
}

/// The target's tensors, every element still to be written, padding zero.
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
    const bool padded = has_padding(entry);
    std::vector<Tensor>& tensors = shards[entry.name];
    tensors.resize(at(target.degree));
    for (const int rank : entry.placed.holders()) {
      const Shape shape = entry.placed.local_shape(rank);
      tensors[at(rank)] = allocate_tensor(entry.name, dtype, shape);
      if (padded) tensors[at(rank)] = Tensor::zeros(dtype, shape);
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
    const Tensor& from = (*sources[at(copy.source_entry)])[at(copy.source_rank)];
    Tensor& to = (*targets[at(copy.target_entry)])[at(copy.target_rank)];
    run_copy(target.entries[at(copy.target_entry)].name, from.dtype(), copy, from.bytes().data(),
             from.shape(), to.mutable_bytes().data(),
             {to.shape(), std::span(copy.target_origin).first(at(copy.dims))});
  }
}

/// Throws InvalidShards when a tied copy differs from what it is tied to.
void require_tied_copies(const Layout& source, const ShardedTensors& shards) {
  TensorMap logical;
  for (const LayoutEntry& entry : source.entries) {
    if (!entry.tied) continue;
    for (const LogicalTensor& part : entry.parts) {
      const LayoutEntry& held = source.entry_of(part.name);
      Layout one = source;
      one.entries = {held};
      for (auto& [name, tensor] : gather({{held.name, shards.at(held.name)}}, one)) {
        logical.insert_or_assign(name, std::move(tensor));
      }
    }
    require_tied(entry, shards.at(entry.name), logical);
  }
}

/// reshard for layouts that need no arithmetic.
ShardedTensors reshard_by_copies(const ShardedTensors& shards, const Layout& source, const Layout& target) {
  const Plan plan = make_plan(source, target);
  for (const LayoutEntry& entry : source.entries) {
    require_equal_replicas(entry.placed, shards.find(entry.name)->second);
  }
  require_tied_copies(source, shards);
  ShardedTensors result = allocate_shards(target, logical_dtypes(source, shards));
  execute(plan, source, shards, target, result);
  return result;
}

/// reshard with Partial tensors summed before and split after; the replicas in between share their bytes.
ShardedTensors reshard_with_partial(ShardedTensors shards, const Layout& source, const Layout& target) {
  for (const LayoutEntry& entry : source.entries) {
    std::vector<Tensor>& tensors = shards.find(entry.name)->second;
    if (entry.placed.is_partial()) tensors.assign(tensors.size(), gather_tensor(entry.placed, tensors));
  }
  ShardedTensors result = reshard_by_copies(shards, without_partial(source), without_partial(target));
  for (const LayoutEntry& entry : target.entries) {
    std::vector<Tensor>& tensors = result.find(entry.name)->second;
    if (entry.placed.is_partial()) tensors = split_tensor(entry.placed, tensors.front());
  }
  return result;
}

}  // namespace

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
