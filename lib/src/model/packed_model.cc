#include "shardcheck/model/packed_model.h"

#include <stdexcept>

#include "model/blocks.h"
#include "model/packed_reader.h"

namespace shardcheck {
namespace {

bool is_linear(const LogicalTensor& tensor) { return tensor.shape.size() == 2 && tensor.role != "embed"; }

}  // namespace

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

PackedReader::Range PackedReader::rows_of(std::string_view role, std::int64_t whole) const {
  const std::int64_t head_dim = model_.geometry.head_dim;
  const auto share = [this](std::int64_t count) { return Range{count * rank_, count}; };
  if (role == "embed") return {extent_.embed_begin, extent_.embed_end - extent_.embed_begin};
  if (role == "lm_head") return {extent_.head_begin, extent_.head_end - extent_.head_begin};
  if (role == "q" || role == "q_bias") return share(extent_.heads * head_dim);
  if (role == "k" || role == "v" || role == "k_bias" || role == "v_bias")
    return share(extent_.kv_heads * head_dim);
  if (role == "gate" || role == "up") return share(extent_.ffn);
  return {0, whole};
}

Tensor PackedReader::rows(std::string_view role, std::int64_t layer) const {
  const Tensor& whole = model_.tensors.at(logical_name(role, layer));
  const Range range = rows_of(role, whole.dim(0));
  return whole.rows(range.first, range.count);
}

std::vector<float> PackedReader::values(std::string_view role, std::int64_t layer) const {
  return has_role(model_.geometry, role) ? widened(rows(role, layer)) : std::vector<float>{};
}

LinearWeights PackedReader::linear(std::string_view role, std::int64_t layer,
                                   std::span<const std::int32_t> tops) const {
  if (!tops.empty()) throw std::logic_error("a packed model has no exact weights");
  const PackedWeights& whole = model_.linears.find(logical_name(role, layer))->second;
  const auto columns = [&](std::int64_t count) {
    return LinearWeights(whole.columns(count * rank_, count * (rank_ + 1)));
  };
  if (role == "o_proj") return columns(extent_.heads * model_.geometry.head_dim);
  if (role == "down") return columns(extent_.ffn);
  const Range range = rows_of(role, whole.n());
  return LinearWeights(whole.rows(range.first, range.count));
}

}  // namespace shardcheck
