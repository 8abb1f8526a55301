#include "shardcheck/model/packed_model.h"

#include <stdexcept>

#include "model/blocks.h"
#include "model/logical_reader.h"

namespace shardcheck {
PackedModel::PackedModel(Geometry geometry, const TensorMap& logical, Arithmetic arithmetic) {
  validate(geometry);
  require_forward(geometry);
  require_weights_of(geometry, logical);
  if (arithmetic == Arithmetic::exact)
    throw InvalidInput(
        "a packed model serves native and tree: exact weights are packed by agreement of ranks");
  auto state = std::make_shared<State>(State{geometry, arithmetic, {}, {}});
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    const Tensor& values = logical.at(tensor.name);
    if (is_linear(tensor)) {
      state->linears.emplace(tensor.name, PackedWeights(values));
    } else {
      state->tensors.emplace(tensor.name, values);
    }
  }
  if (geometry.tied) state->linears.emplace("lm_head", PackedWeights(logical.at("embed")));
  state_ = std::move(state);
}

PackedModel::~PackedModel() = default;
PackedModel::PackedModel(PackedModel&&) noexcept = default;
PackedModel& PackedModel::operator=(PackedModel&&) noexcept = default;

const Geometry& PackedModel::geometry() const noexcept { return state_->geometry; }
Arithmetic PackedModel::arithmetic() const noexcept { return state_->arithmetic; }

std::int64_t PackedModel::bytes() const noexcept {
  std::int64_t total = 0;
  for (const auto& [name, weights] : state_->linears) total += weights.bytes();
  return total;
}

}  // namespace shardcheck
