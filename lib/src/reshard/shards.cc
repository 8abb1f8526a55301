#include "shards.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/reshard/reshard.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

/// Elements that a class of ranks holds, padding apart.
std::int64_t elements_of(const PlacedTensor& placed, const std::vector<Selection>& selections) {
  Shape shape = placed.shape();
  for (const Selection& selection : selections) {
    shape[at(selection.dim)] = selection.length() - padding_in(selection.runs);
  }
  return element_count(shape);
}

/// "TP degree 4", or "16 ranks" where there are other axes.
std::string ranks_text(const Mesh& mesh) {
  const bool only_tp =
      mesh.axes().empty() || (mesh.axes().size() == 1 && mesh.axes().front().first == Axis::tp);
  return only_tp ? fmt::format("TP degree {}", mesh.size()) : fmt::format("{} ranks", mesh.size());
}

}  // namespace

int first_holder(const PlacedTensor& placed) { return placed.holders().front(); }

void require_shards(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  if (shards.size() != at(placed.degree())) {
    throw InvalidShards(fmt::format("{}: got {} shards, expected {} (one per rank of {})", placed.name(),
                                    shards.size(), placed.degree(), ranks_text(placed.mesh())));
  }
  const int first = first_holder(placed);
  for (int rank = 0; rank < placed.degree(); ++rank) {
    const Tensor& shard = shards[at(rank)];
    if (!placed.held_by(rank)) {
      if (shard.elements() == 0) continue;
      throw InvalidShards(
          fmt::format("{}: rank {} of {} has the shape {}, expected none: it does not hold it", placed.name(),
                      rank, placed.degree(), to_string(shard.shape())));
    }
    if (const Shape expected = placed.local_shape(rank); shard.shape() != expected) {
      throw InvalidShards(fmt::format("{}: rank {} of {} has the shape {}, expected {}", placed.name(), rank,
                                      placed.degree(), to_string(shard.shape()), to_string(expected)));
    }
    if (shard.dtype() != shards[at(first)].dtype()) {
      throw InvalidShards(fmt::format("{}: rank {} of {} is {}, rank {} is {}", placed.name(), rank,
                                      placed.degree(), short_name(shard.dtype()), first,
                                      short_name(shards[at(first)].dtype())));
    }
  }
}

void require_equal_replicas(const PlacedTensor& placed, const std::vector<Tensor>& shards) {
  if (placed.is_partial()) return;
  std::vector<int> first_of(at(placed.classes()), -1);
  for (const int rank : placed.holders()) {
    int& first = first_of[at(placed.class_of(rank))];
    if (first < 0) first = rank;
    const Tensor &one = shards[at(first)], &other = shards[at(rank)];
    if (other.same_bytes(one)) continue;
    throw InvalidShards(
        fmt::format("{}: the replica on rank {} of {} differs from rank {}, first at element {}",
                    placed.name(), rank, placed.degree(), first, one.first_difference(other)));
  }
  // Gathering compares what ranks of different classes hold alike.
  if (classes_overlap(placed)) gather_tensor(placed, shards);
}

bool classes_overlap(const PlacedTensor& placed) {
  if (placed.is_partial()) return false;
  std::int64_t held = 0;
  for (int klass = 0; klass < placed.classes(); ++klass) {
    held += elements_of(placed, placed.selections_of_class(klass));
  }
  return held > element_count(placed.shape());
}

bool has_padding(const LayoutEntry& entry) {
  return padding_in(entry.arrangement().order) > 0 || has_padding(entry.placed);
}

Layout without_partial(Layout layout) {
  for (LayoutEntry& entry : layout.entries) {
    if (entry.placed.is_partial()) {
      entry.placed = PlacedTensor(entry.name, entry.placed.shape(), {}, layout.mesh, entry.placed.held());
    }
  }
  return layout;
}

bool has_padding(const PlacedTensor& placed) {
  for (int klass = 0; klass < placed.classes(); ++klass) {
    for (const Selection& selection : placed.selections_of_class(klass)) {
      if (padding_in(selection.runs) > 0) return true;
    }
  }
  return false;
}

Tensor shifted(const std::string& name, const Tensor& tensor, float shift) {
  if (shift == 0) return tensor;
  if (!is_forward_dtype(tensor.dtype())) {
    throw UnsupportedLayout(fmt::format(
        "{}: values stored {:+} need arithmetic, which {} elements do not have here (allowed: f32 "
        "bf16 f16)",
        name, shift, short_name(tensor.dtype())));
  }
  Tensor values = tensor.to(DType::f32);
  for (float& value : values.mutable_f32()) value += shift;
  return values.to(tensor.dtype());
}

}  // namespace shardcheck
