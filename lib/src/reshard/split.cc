#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "box_copy.h"
#include "partial.h"
#include "shardcheck/reshard/reshard.h"
#include "shards.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

/// A box that a rank holds: where it lies in the full tensor and in the rank's.
struct HeldBox {
  Shape size, full_origin, local_origin;
};

/// Calls `visit` for every box of what a class of ranks holds; padding is in none.
template <typename Visit>
void for_each_box(const PlacedTensor& placed, const std::vector<Selection>& selections, Visit visit) {
  std::vector<HeldBox> boxes = {
      {placed.shape(), Shape(placed.shape().size(), 0), Shape(placed.shape().size(), 0)}};
  for (const Selection& selection : selections) {
    const std::size_t dim = at(selection.dim);
    std::vector<HeldBox> finer;
    for (const HeldBox& box : boxes) {
      std::int64_t local = 0;
      for (const Run& run : selection.runs) {
        if (run.global != kPadding) {
          finer.push_back(box);
          finer.back().size[dim] = run.length;
          finer.back().full_origin[dim] = run.global;
          finer.back().local_origin[dim] = local;
        }
        local += run.length;
      }
    }
    boxes = std::move(finer);
  }
  for (const HeldBox& box : boxes) visit(box);
}

/// Throws InvalidShards where a box of the shard differs from what other ranks have put into the full tensor.
class OverlapCheck {
 public:
  OverlapCheck(const PlacedTensor& placed, const Tensor& full)
      : placed_(placed), full_(full), written_(at(full.elements()), false) {}

  void add(const HeldBox& box, const Tensor& shard, int rank) {
    for (Shape offset(box.size.size(), 0); !written_.empty();) {
      const std::int64_t in_full = flat(placed_.shape(), box.full_origin, offset);
      const std::int64_t in_shard = flat(shard.shape(), box.local_origin, offset);
      if (written_[at(in_full)] && full_.bits(in_full) != shard.bits(in_shard)) {
        throw InvalidShards(
            fmt::format("{}: the replica on rank {} of {} differs from another rank's, first at element {}",
                        placed_.name(), rank, placed_.degree(), in_shard));
      }
      written_[at(in_full)] = true;
      if (!next(offset, box.size)) return;
    }
  }

 private:
  static std::int64_t flat(const Shape& shape, const Shape& origin, const Shape& offset) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + origin[d] + offset[d];
    return index;
  }
  static bool next(Shape& offset, const Shape& size) {
    for (std::size_t d = size.size(); d-- > 0;) {
      if (++offset[d] < size[d]) return true;
      offset[d] = 0;
    }
    return false;
  }

  const PlacedTensor& placed_;
  const Tensor& full_;
  std::vector<bool> written_;
};

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

/// A box of one part in the file tensor of its entry.
struct PartBox {
  const LogicalTensor* part = nullptr;
  Shape file_size, file_origin, part_size, part_origin;
  std::vector<std::int8_t> part_dim, file_dim;  // of each dimension of the file, and of the part
};

template <typename Visit>
void for_each_part_box(const LayoutEntry& entry, Visit visit) {
  const Arrangement& arrangement = entry.arrangement();
  if (const Shape shape = file_shape(arrangement, entry.parts); shape != entry.placed.shape()) {
    throw InvalidLayout(fmt::format("{}: its logical tensors make the shape {}, the tensor has {}",
                                    entry.name, to_string(shape), to_string(entry.placed.shape())));
  }
  const Shape& shape = entry.placed.shape();
  const int dims = static_cast<int>(shape.size());
  const std::vector<std::int64_t> extents = part_extents(arrangement, entry.parts);
  const std::size_t along = at(arrangement.dim);
  const std::vector<PartRun> runs = part_runs(arrangement, extents, {{0, shape.empty() ? 1 : shape[along]}});
  for (std::int64_t item = 0; item < std::max<std::int64_t>(arrangement.stacked, 1); ++item) {
    for (const PartRun& run : runs) {
      if (run.part == kPadding) continue;
      PartBox box;
      box.part = &entry.parts[at(item * std::ssize(extents) + run.part)];
      box.file_size = shape;
      box.file_origin.assign(shape.size(), 0);
      box.part_size = box.part->shape;
      box.part_origin.assign(box.part->shape.size(), 0);
      box.file_dim.assign(box.part->shape.size(), 0);
      if (arrangement.stacked > 0) {
        box.file_size[0] = 1;
        box.file_origin[0] = item;
      }
      for (int d = 0; d < dims; ++d) {
        const int logical = arrangement.logical_dim(d, dims);
        box.part_dim.push_back(static_cast<std::int8_t>(logical));
        if (logical >= 0) box.file_dim[at(logical)] = static_cast<std::int8_t>(d);
      }
      if (dims > 0) {
        const std::size_t logical = at(box.part_dim[along]);
        box.file_size[along] = box.part_size[logical] = run.length;
        box.file_origin[along] = run.position;
        box.part_origin[logical] = run.begin;
      }
      visit(box);
    }
  }
}

/// The logical tensors of one entry from its full file tensor.
void unfuse(const LayoutEntry& entry, const Tensor& stored, TensorMap& logical) {
  if (!entry.arranged && entry.parts.size() == 1) {
    logical.insert_or_assign(entry.parts.front().name, stored);
    return;
  }
  const Tensor full = shifted(entry.name, stored, -entry.arrangement().shift);
  if (!entry.arranged) {
    // Rows of one part are contiguous: a view, which its first write unshares.
    std::int64_t row = 0;
    for (const LogicalTensor& part : entry.parts) {
      logical.insert_or_assign(part.name, full.rows(row, part.shape.front()));
      row += part.shape.front();
    }
    return;
  }
  for (const LogicalTensor& part : entry.parts) {
    logical.insert_or_assign(part.name, allocate_tensor(part.name, full.dtype(), part.shape));
  }
  for_each_part_box(entry, [&](const PartBox& box) {
    Tensor& part = logical.find(box.part->name)->second;
    copy_box(entry.name, full.dtype(), box.part_size, full.bytes().data(), {full.shape(), box.file_origin},
             box.file_dim, part.mutable_bytes().data(), {part.shape(), box.part_origin});
  });
}

}  // namespace

Tensor fuse(const LayoutEntry& entry, const TensorMap& logical) {
  const Tensor& first = logical_part(entry.parts.front(), logical);
  if (!entry.arranged && entry.parts.size() == 1) return first;
  Tensor full = allocate_tensor(entry.name, first.dtype(), entry.placed.shape());
  if (padding_in(entry.arrangement().order) > 0) full = Tensor::zeros(first.dtype(), entry.placed.shape());
  for (const LogicalTensor& part : entry.parts) {
    if (logical_part(part, logical).dtype() == first.dtype()) continue;
    throw InvalidInput(fmt::format("{}: '{}' is {}, '{}' is {}: they cannot share a tensor", entry.name,
                                   entry.parts.front().name, short_name(first.dtype()), part.name,
                                   short_name(logical_part(part, logical).dtype())));
  }
  const float shift = entry.arrangement().shift;
  for_each_part_box(entry, [&](const PartBox& box) {
    const Tensor part = shifted(entry.name, logical_part(*box.part, logical), shift);
    copy_box(entry.name, full.dtype(), box.file_size, part.bytes().data(), {part.shape(), box.part_origin},
             box.part_dim, full.mutable_bytes().data(), {full.shape(), box.file_origin});
  });
  return full;
}

std::vector<Tensor> split_tensor(const PlacedTensor& placed, const Tensor& full) {
  if (full.shape() != placed.shape()) {
    throw InvalidInput(fmt::format("{}: the full tensor has the shape {}, expected {}", placed.name(),
                                   to_string(full.shape()), to_string(placed.shape())));
  }
  if (const auto* partial = std::get_if<Partial>(&placed.placement()))
    return split_partial(placed, *partial, full);
  const bool padded = has_padding(placed);
  std::vector<Tensor> shards(at(placed.degree()));
  for (const int rank : placed.holders()) {
    const Shape shape = placed.local_shape(rank);
    Tensor shard = allocate_tensor(placed.name(), full.dtype(), shape);
    if (padded) shard = Tensor::zeros(full.dtype(), shape);
    for_each_box(placed, placed.selections(rank), [&](const HeldBox& box) {
      copy_box(placed.name(), full.dtype(), box.size, full.bytes().data(), {full.shape(), box.full_origin},
               shard.mutable_bytes().data(), {shape, box.local_origin});
    });
    shards[at(rank)] = std::move(shard);
  }
  return shards;
}

Tensor gather_tensor(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  require_shards(placed, shards);
  if (placed.is_partial()) return sum_partial(placed, shards);
  const bool overlaps = classes_overlap(placed);
  if (!overlaps) require_equal_replicas(placed, shards);
  const Tensor& first = shards[at(first_holder(placed))];
  if (placed.is_replicated()) return first;
  Tensor full = allocate_tensor(placed.name(), first.dtype(), placed.shape());
  std::optional<OverlapCheck> check;
  if (overlaps) check.emplace(placed, full);
  std::vector<char> done(at(placed.classes()), 0);
  for (const int rank : placed.holders()) {
    const Tensor& shard = shards[at(rank)];
    if (std::exchange(done[at(placed.class_of(rank))], 1) != 0 && !overlaps) continue;
    for_each_box(placed, placed.selections(rank), [&](const HeldBox& box) {
      if (check) check->add(box, shard, rank);
      copy_box(placed.name(), first.dtype(), box.size, shard.bytes().data(),
               {shard.shape(), box.local_origin}, full.mutable_bytes().data(),
               {full.shape(), box.full_origin});
    });
  }
  return full;
}

bool holds_computed_values(const Layout& layout) {
  return std::ranges::any_of(layout.entries, [](const LayoutEntry& entry) {
    const auto* partial = std::get_if<Partial>(&entry.placed.placement());
    const bool is_share = partial != nullptr && partial->encoding == Partial::Encoding::equal_share &&
                          entry.placed.degree() > 1;
    return is_share || entry.arrangement().shift != 0;
  });
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
    const auto& ranks = shards.find(entry.name)->second;
    if (entry.tied) {
      require_tied(entry, ranks, logical);
    } else {
      unfuse(entry, gather_tensor(entry.placed, ranks), logical);
    }
  }
  return logical;
}

void require_tied(const LayoutEntry& entry, const std::vector<Tensor>& shards, const TensorMap& logical) {
  TensorMap copy;
  unfuse(entry, gather_tensor(entry.placed, shards), copy);
  for (const auto& [name, tensor] : copy) {
    const auto held = logical.find(name);
    if (held == logical.end() || held->second.same_bytes(tensor)) continue;
    throw InvalidShards(fmt::format("{}: a copy of '{}' that differs from it, first at element {}",
                                    entry.name, name, held->second.first_difference(tensor)));
  }
}

}  // namespace shardcheck
