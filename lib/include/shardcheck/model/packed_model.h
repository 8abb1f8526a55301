// A model's weights packed once, for many executions at different degrees. The ranks of a ShardedModel built
// on it read views of these bytes, cut as the consumer `seed` cuts: for laws that compare execution shapes.
// Where a layout is under test, weights reach the ranks as bytes that split or reshard produced.
#pragma once

#include <cstdint>
#include <memory>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

class PackedModel {
 public:
  /// Packs the weights for native or tree. Throws InvalidInput when they do not match the geometry, and for
  /// arithmetic exact, whose weights depend on what ranks agree on.
  PackedModel(Geometry geometry, const TensorMap& logical, Arithmetic arithmetic);
  ~PackedModel();
  PackedModel(PackedModel&&) noexcept;
  PackedModel& operator=(PackedModel&&) noexcept;

  const Geometry& geometry() const noexcept;
  Arithmetic arithmetic() const noexcept;
  /// Bytes of all packed matrices.
  std::int64_t bytes() const noexcept;

  struct State;
  const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace shardcheck
