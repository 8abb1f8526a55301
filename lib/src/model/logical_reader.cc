#include "model/logical_reader.h"

#include <cstring>
#include <stdexcept>

#include "model/blocks.h"

namespace shardcheck {
namespace {

Tensor columns_of(const Tensor& whole, std::int64_t first, std::int64_t count) {
  Tensor part = Tensor::uninitialized(whole.dtype(), {whole.dim(0), count});
  const auto element = static_cast<std::size_t>(size_bits(whole.dtype()) / 8);
  const auto bytes = static_cast<std::size_t>(count) * element;
  std::byte* out = part.mutable_bytes().data();
  const std::byte* in = whole.bytes().data() + static_cast<std::size_t>(first) * element;
  for (std::int64_t row = 0; row < whole.dim(0) && bytes > 0; ++row) {
    std::memcpy(out, in, bytes);
    out += bytes;
    in += static_cast<std::size_t>(whole.dim(1)) * element;
  }
  return part;
}

/// The stored name of a role: a tied head is the embedding.
std::string stored_name(const Geometry& geometry, TensorRole role) {
  if (role.role == "lm_head" && geometry.tied) return "embed";
  return logical_name(role.role, role.layer, role.expert);
}

}  // namespace

bool is_linear(const LogicalTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.role != "embed" && tensor.role != "positions";
}

LogicalReader::Cut LogicalReader::cut_of(std::string_view role, std::int64_t whole_rows) const {
  const auto share = [this](int dim, std::int64_t count) { return Cut{dim, count * rank_, count}; };
  const std::int64_t head_dim = geometry_.head_dim;
  if (role == "embed") return {0, extent_.embed_begin, extent_.embed_end - extent_.embed_begin};
  if (role == "lm_head") return {0, extent_.head_begin, extent_.head_end - extent_.head_begin};
  if (role == "q" || role == "q_bias") return share(0, extent_.heads * head_dim);
  if (role == "k" || role == "v" || role == "k_bias" || role == "v_bias")
    return share(0, extent_.kv_heads * head_dim);
  if (role == "sinks") return share(0, extent_.heads);
  if (role == "gate" || role == "up" || role == "gate_bias" || role == "up_bias")
    return share(0, extent_.ffn);
  if (role == "expert_gate" || role == "expert_up") return share(0, extent_.expert_ffn);
  if (role == "shared_gate" || role == "shared_up") return share(0, extent_.shared_ffn);
  if (role == "o_proj") return share(1, extent_.heads * head_dim);
  if (role == "down") return share(1, extent_.ffn);
  if (role == "expert_down") return share(1, extent_.expert_ffn);
  if (role == "shared_down") return share(1, extent_.shared_ffn);
  return {0, 0, whole_rows};
}

const Tensor* LogicalReader::find(TensorRole role) const {
  const auto found = tensors_.find(stored_name(geometry_, role));
  return found == tensors_.end() ? nullptr : &found->second;
}

Tensor LogicalReader::rows(TensorRole role) const {
  const Tensor& whole = *find(role);
  const Cut cut = cut_of(role.role, whole.dim(0));
  return cut.dim == 0 ? whole.rows(cut.first, cut.count) : columns_of(whole, cut.first, cut.count);
}

std::vector<float> LogicalReader::values(TensorRole role) const {
  return find(role) == nullptr ? std::vector<float>{} : widened(rows(role));
}

LinearWeights LogicalReader::linear(TensorRole role, std::span<const std::int32_t> tops) const {
  if (packed_ == nullptr) return {rows(role), arithmetic_, tops};
  if (!tops.empty()) throw std::logic_error("a packed model has no exact weights");
  const PackedWeights& whole =
      packed_->linears.find(role.role == "lm_head" ? "lm_head" : stored_name(geometry_, role))->second;
  const Cut cut = cut_of(role.role, whole.n());
  return LinearWeights(cut.dim == 0 ? whole.rows(cut.first, cut.count)
                                    : whole.columns(cut.first, cut.first + cut.count));
}

}  // namespace shardcheck
