#include "shardcheck/model/reference_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/blocks.h"
#include "shardcheck/arithmetic/kernels.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

/// A row-parallel weight is kept unpacked too: a SummationOrder repacks it at random cuts.
struct RowParallelWeight {
  RowParallelWeight(const Tensor& tensor, Arithmetic arithmetic) : full(tensor), packed(tensor, arithmetic) {}
  Tensor full;
  LinearWeights packed;
};

struct ReferenceLayer {
  ReferenceLayer(const TensorMap& weights, std::int64_t layer, Arithmetic arithmetic)
      : q(named(weights, layer, "q"), arithmetic),
        k(named(weights, layer, "k"), arithmetic),
        v(named(weights, layer, "v"), arithmetic),
        gate(named(weights, layer, "gate"), arithmetic),
        up(named(weights, layer, "up"), arithmetic),
        o_proj(named(weights, layer, "o_proj"), arithmetic),
        down(named(weights, layer, "down"), arithmetic),
        attn_norm(vector(weights, layer, "attn_norm")),
        ffn_norm(vector(weights, layer, "ffn_norm")),
        q_bias(vector(weights, layer, "q_bias")),
        k_bias(vector(weights, layer, "k_bias")),
        v_bias(vector(weights, layer, "v_bias")),
        o_bias(vector(weights, layer, "o_bias")),
        q_norm(vector(weights, layer, "q_norm")),
        k_norm(vector(weights, layer, "k_norm")) {}

  static const Tensor& named(const TensorMap& weights, std::int64_t layer, std::string_view role) {
    return weights.at(logical_name(role, layer));
  }
  /// Empty when the geometry has no such tensor.
  static std::vector<float> vector(const TensorMap& weights, std::int64_t layer, std::string_view role) {
    const auto found = weights.find(logical_name(role, layer));
    return found == weights.end() ? std::vector<float>{} : widened(found->second);
  }

  LinearWeights q, k, v, gate, up;
  RowParallelWeight o_proj, down;
  std::vector<float> attn_norm, ffn_norm, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
};

/// y[m][n] for a random legal order: K cut into `parts` chains at random places, folded in random order.
Matrix reordered_linear(const Matrix& x, const Tensor& weights, Stream stream, int parts) {
  const std::int64_t k = weights.dim(1);
  std::vector<std::int64_t> cuts = {0, k};
  for (int i = 1; i < parts; ++i) cuts.push_back(stream.integer(0, k));
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<std::size_t> order(cuts.size() - 1);
  std::iota(order.begin(), order.end(), std::size_t{0});
  stream.shuffle(std::span(order));
  const Tensor f32 = weights.to(DType::f32);
  Matrix total(x.rows, weights.dim(0));
  Matrix partial = total;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t begin = cuts[order[i]];
    const PackedWeights part(f32.f32().data() + begin, weights.dim(0), cuts[order[i] + 1] - begin, k);
    Matrix& out = i == 0 ? total : partial;
    gemm(x.values.data() + begin, x.width, x.rows, part, Reduction::chain(), out.values.data(), out.width);
    if (i > 0) add_in_place(total.values, partial.values);
  }
  return total;
}

void subtract_means(Matrix& x) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    float sum = 0.0F;
    for (std::int64_t j = 0; j < x.width; ++j) sum += x.row(i)[j];
    const float mean = sum / static_cast<float>(x.width);
    for (std::int64_t j = 0; j < x.width; ++j) x.row(i)[j] -= mean;
  }
}

}  // namespace

struct ReferenceModel::State {
  State(Geometry g, const TensorMap& weights, Arithmetic a, Contract c, Mistake m)
      : geometry(g),
        numerics{a, std::move(c)},
        mistake(m),
        embed(weights.at("embed").to(DType::f32)),
        final_norm(widened(weights.at("final_norm"))),
        lm_head(weights.at(g.tied ? "embed" : "lm_head"), a) {
    for (std::int64_t layer = 0; layer < g.n_layers; ++layer) layers.emplace_back(weights, layer, a);
    for (std::int64_t head = 0; head < g.n_heads; ++head)
      kv_of_head.push_back(head / (g.n_heads / g.n_kv_heads));
  }

  std::int64_t hidden_leaf() const { return numerics.contract.leaf_d_model; }

  Matrix embed_tokens(const Tokens& tokens) const {
    Matrix x(tokens.count(), geometry.d_model);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      const std::int64_t id = tokens.ids[static_cast<std::size_t>(i)];
      std::ranges::copy(
          embed.f32().subspan(static_cast<std::size_t>(id * x.width), static_cast<std::size_t>(x.width)),
          x.row(i));
    }
    return x;
  }

  Matrix normalized(Matrix x, const std::vector<float>& weight) const {
    if (mistake.layer_norm) subtract_means(x);
    std::vector<float> sums(static_cast<std::size_t>(x.rows));
    sums_of_squares(numerics.arithmetic, numerics.contract.shape, hidden_leaf(), x.values.data(), x.rows,
                    x.width, sums.data());
    rms_scale(x.values.data(), x.rows, x.width, sums.data(), static_cast<float>(x.width),
              static_cast<float>(geometry.norm_eps), weight.data(), x.values.data());
    numerics.store(x);
    return x;
  }

  Matrix row_parallel(const Matrix& x, const RowParallelWeight& weight, std::int64_t leaf,
                      const std::vector<float>& bias, const SummationOrder& order,
                      const std::string& name) const {
    if (order.seed == 0) return numerics.linear(x, weight.packed, leaf, bias);
    Matrix y = reordered_linear(x, weight.full, Stream(order.seed, name), order.parts);
    if (!bias.empty()) add_bias(y.values.data(), y.rows, y.width, y.width, bias.data());
    numerics.store(y);
    return y;
  }

  Matrix attention_output(const ReferenceLayer& layer, const Matrix& x, const Tokens& tokens,
                          const RotaryTables& rotary) const {
    const Matrix normed = normalized(x, layer.attn_norm);
    Matrix q = numerics.linear(normed, layer.q, hidden_leaf(), layer.q_bias);
    Matrix k = numerics.linear(normed, layer.k, hidden_leaf(), layer.k_bias);
    const Matrix v = numerics.linear(normed, layer.v, hidden_leaf(), layer.v_bias);
    if (geometry.qk_norm) {
      const auto eps = static_cast<float>(geometry.norm_eps);
      normalize_heads(numerics, q, geometry.head_dim, eps, layer.q_norm);
      normalize_heads(numerics, k, geometry.head_dim, eps, layer.k_norm);
    }
    rotary.apply(numerics, q, geometry.head_dim, true);
    rotary.apply(numerics, k, geometry.head_dim, true);
    return attend(geometry, numerics, tokens, q, k, v, kv_of_head, !mistake.non_causal);
  }

  Matrix mlp_hidden(const ReferenceLayer& layer, const Matrix& x) const {
    const Matrix normed = normalized(x, layer.ffn_norm);
    return gated(numerics, geometry.activation, numerics.linear(normed, layer.gate, hidden_leaf()),
                 numerics.linear(normed, layer.up, hidden_leaf()));
  }

  Geometry geometry;
  Numerics numerics;
  Mistake mistake;
  Tensor embed;
  std::vector<float> final_norm;
  LinearWeights lm_head;
  std::vector<ReferenceLayer> layers;
  std::vector<std::int64_t> kv_of_head;
};

namespace {

const TensorMap& checked(const Geometry& geometry, const TensorMap& logical) {
  validate(geometry);
  require_forward(geometry);
  require_weights_of(geometry, logical);
  return logical;
}

}  // namespace

ReferenceModel::ReferenceModel(Geometry geometry, const TensorMap& logical, Arithmetic arithmetic,
                               Contract contract)
    : ReferenceModel(geometry, logical, arithmetic, std::move(contract), Mistake{}) {}

ReferenceModel::ReferenceModel(Geometry geometry, const TensorMap& logical, Arithmetic arithmetic,
                               Contract contract, Mistake mistake)
    : state_(std::make_unique<State>(geometry, checked(geometry, logical), arithmetic, std::move(contract),
                                     mistake)) {}

ReferenceModel::~ReferenceModel() = default;
ReferenceModel::ReferenceModel(ReferenceModel&&) noexcept = default;
ReferenceModel& ReferenceModel::operator=(ReferenceModel&&) noexcept = default;

const Geometry& ReferenceModel::geometry() const noexcept { return state_->geometry; }

Tensor ReferenceModel::forward(const Tokens& tokens, SummationOrder order) const {
  const State& s = *state_;
  require_tokens_of(s.geometry, tokens);
  const RotaryTables rotary(s.geometry, positions_of(tokens));
  Matrix x = s.embed_tokens(tokens);
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    const ReferenceLayer& layer = s.layers[i];
    const Matrix attended = s.attention_output(layer, x, tokens, rotary);
    add_residual(s.numerics, x,
                 s.row_parallel(attended, layer.o_proj, s.numerics.contract.leaf_attention, layer.o_bias,
                                order, logical_name("o_proj", static_cast<std::int64_t>(i))));
    const Matrix hidden = s.mlp_hidden(layer, x);
    add_residual(s.numerics, x,
                 s.row_parallel(hidden, layer.down, s.numerics.contract.leaf_ffn, {}, order,
                                logical_name("down", static_cast<std::int64_t>(i))));
  }
  const Matrix normed = s.normalized(std::move(x), s.final_norm);
  Tensor logits = Tensor::poisoned(DType::f32, {normed.rows, s.geometry.vocab});
  s.numerics.product(normed, s.lm_head, s.hidden_leaf(), {}, logits.mutable_f32().data());
  return logits;
}

std::vector<std::int32_t> decode_greedily(const ReferenceModel& model, std::vector<std::int32_t> prompt,
                                          std::int64_t count) {
  while (std::ssize(prompt) < count) {
    const Tokens tokens{1, std::ssize(prompt), prompt};
    const Tensor logits = model.forward(tokens);
    const auto last = logits.f32().last(static_cast<std::size_t>(model.geometry().vocab));
    prompt.push_back(static_cast<std::int32_t>(std::ranges::max_element(last) - last.begin()));
  }
  return prompt;
}

}  // namespace shardcheck
