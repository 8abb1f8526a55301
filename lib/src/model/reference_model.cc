#include "shardcheck/model/reference_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/blocks.h"
#include "model/experts.h"
#include "model/log_softmax.h"
#include "model/reference_weights.h"
#include "shardcheck/arithmetic/attention.h"
#include "shardcheck/arithmetic/kernels.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

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
  if (x.rows == 0) return total;  // no token was routed to the expert
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

}  // namespace

struct ReferenceModel::State {
  State(Geometry g, const TensorMap& weights, Arithmetic a, Contract c, Mistake m)
      : geometry(g),
        numerics{a, std::move(c)},
        mistake(m),
        embed(weights.at("embed").to(DType::f32)),
        final_norm(LogicalLayer(weights, -1, a), "final_norm"),
        lm_head(weights.at(g.tied ? "embed" : "lm_head"), a) {
    if (g.positions > 0) positions = widened(weights.at("positions"));
    if (g.alibi) slopes = alibi_slopes(g.n_heads);
    for (std::int64_t layer = 0; layer < g.n_layers; ++layer)
      layers.emplace_back(g, LogicalLayer(weights, layer, a), numerics.contract);
    for (std::int64_t head = 0; head < g.n_heads; ++head)
      kv_of_head.push_back(head / (g.n_heads / g.n_kv_heads));
  }

  std::int64_t hidden_leaf() const { return numerics.contract.leaf_d_model; }

  Matrix embed_tokens(const Tokens& tokens) const;
  Matrix normalized(Matrix x, const ReferenceNorm& weights) const;
  Matrix row_parallel(const Matrix& x, const ReferenceRowParallel& weights,
                      const SummationOrder& order) const;
  Matrix attended(const ReferenceLayer& layer, const Matrix& normed, const Tokens& tokens,
                  const RotaryTables& rotary) const;
  Matrix mlp(const ReferenceMlp& weights, const Matrix& normed, const SummationOrder& order) const;
  Matrix mixture(const ReferenceExperts& weights, const Matrix& normed, const SummationOrder& order) const;
  Matrix logits(const Tokens& tokens, const SummationOrder& order) const;

  Geometry geometry;
  Numerics numerics;
  Mistake mistake;
  Tensor embed;
  std::vector<float> positions;  // [positions, d_model]; empty: none are learned
  ReferenceNorm final_norm;
  LinearWeights lm_head;
  std::vector<ReferenceLayer> layers;
  std::vector<std::int64_t> kv_of_head;
  std::vector<float> slopes;  // of ALiBi, by head; empty: none
};

Matrix ReferenceModel::State::embed_tokens(const Tokens& tokens) const {
  Matrix x(tokens.count(), geometry.d_model);
  const auto width = static_cast<std::size_t>(x.width);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const auto id = static_cast<std::size_t>(tokens.ids[static_cast<std::size_t>(i)]);
    std::ranges::copy(embed.f32().subspan(id * width, width), x.row(i));
    const auto position = static_cast<std::size_t>(i % tokens.length);
    if (!positions.empty())
      add_in_place({x.row(i), width}, std::span(positions).subspan(position * width, width));
  }
  if (!positions.empty()) numerics.store(x);
  return x;
}

Matrix ReferenceModel::State::normalized(Matrix x, const ReferenceNorm& weights) const {
  if (geometry.norm == Norm::layer || mistake.layer_norm) subtract_row_means(numerics, x);
  std::vector<float> sums(static_cast<std::size_t>(x.rows));
  sums_of_squares(numerics.arithmetic, numerics.contract.shape, hidden_leaf(), x.values.data(), x.rows,
                  x.width, sums.data());
  finish_norm(numerics, x, sums, static_cast<float>(x.width), static_cast<float>(geometry.norm_eps),
              weights.gain, weights.bias);
  return x;
}

Matrix ReferenceModel::State::row_parallel(const Matrix& x, const ReferenceRowParallel& weights,
                                           const SummationOrder& order) const {
  if (order.seed == 0) return numerics.linear(x, weights.packed, weights.leaf, weights.bias);
  Matrix y = reordered_linear(x, weights.full, Stream(order.seed, weights.name), order.parts);
  if (!weights.bias.empty()) add_bias(y.values.data(), y.rows, y.width, y.width, weights.bias.data());
  numerics.store(y);
  return y;
}

Matrix ReferenceModel::State::attended(const ReferenceLayer& layer, const Matrix& normed,
                                       const Tokens& tokens, const RotaryTables& rotary) const {
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
  return attend(geometry, numerics, tokens, q, k, v, kv_of_head, !mistake.non_causal, slopes, layer.sinks);
}

Matrix ReferenceModel::State::mlp(const ReferenceMlp& weights, const Matrix& normed,
                                  const SummationOrder& order) const {
  const Matrix up = numerics.linear(normed, weights.up, hidden_leaf(), weights.up_bias);
  if (!weights.gate) return row_parallel(activated(numerics, geometry.activation, up), weights.down, order);
  const Matrix gate = numerics.linear(normed, *weights.gate, hidden_leaf(), weights.gate_bias);
  return row_parallel(gated(numerics, geometry.activation, gate, up), weights.down, order);
}

Matrix ReferenceModel::State::mixture(const ReferenceExperts& weights, const Matrix& normed,
                                      const SummationOrder& order) const {
  // Never rounded to 16 bits: engines route in f32.
  Matrix router_logits(normed.rows, geometry.n_experts);
  numerics.product(normed, weights.router, hidden_leaf(), {}, router_logits.values.data());
  const std::vector<RoutedToken> routed =
      route(geometry, numerics.arithmetic, router_logits, weights.router_bias);
  std::vector<Matrix> outputs;
  for (std::int64_t expert = 0; expert < geometry.n_experts; ++expert)
    outputs.push_back(mlp(weights.experts[static_cast<std::size_t>(expert)],
                          rows_routed_to(normed, routed, expert), order));
  Matrix shared;
  if (weights.shared) shared = mlp(*weights.shared, normed, order);
  Matrix y(normed.rows, geometry.d_model);
  std::vector<std::int64_t> next(outputs.size());  // row of every expert that was not taken yet
  for (std::int64_t i = 0; i < y.rows; ++i) {
    const RoutedToken& token = routed[static_cast<std::size_t>(i)];
    std::vector<ExpertTerm> terms;
    for (std::size_t e = 0; e < token.experts.size(); ++e) {
      const auto expert = static_cast<std::size_t>(token.experts[e]);
      terms.push_back({token.weights[e], outputs[expert].row(next[expert]++)});
    }
    combine_experts(numerics, terms, weights.shared ? shared.row(i) : nullptr, y.width, y.row(i));
  }
  numerics.store(y);
  return y;
}

Matrix ReferenceModel::State::logits(const Tokens& tokens, const SummationOrder& order) const {
  require_tokens_of(geometry, tokens);
  const RotaryTables rotary(geometry, positions_of(tokens));
  Matrix x = embed_tokens(tokens);
  for (const ReferenceLayer& layer : layers) {
    const Matrix heads = attended(layer, normalized(x, layer.attn_norm), tokens, rotary);
    Matrix normed;
    if (geometry.parallel_residual) normed = normalized(x, layer.ffn_norm);
    add_residual(numerics, x, row_parallel(heads, layer.o_proj, order));
    if (!geometry.parallel_residual) normed = normalized(x, layer.ffn_norm);
    add_residual(numerics, x,
                 layer.experts ? mixture(*layer.experts, normed, order) : mlp(*layer.dense, normed, order));
  }
  const Matrix normed = normalized(std::move(x), final_norm);
  Matrix out(normed.rows, geometry.vocab);
  numerics.product(normed, lm_head, hidden_leaf(), {}, out.values.data());
  return out;
}

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
  const Matrix logits = state_->logits(tokens, order);
  return Tensor::from({logits.rows, logits.width}, logits.values);
}

Tensor ReferenceModel::log_softmax(const Tokens& tokens) const {
  Matrix logits = state_->logits(tokens, {});
  log_softmax_rows(state_->numerics, logits);
  return Tensor::from({logits.rows, logits.width}, logits.values);
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
