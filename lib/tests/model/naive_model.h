// An independent forward pass in f64, written from the papers' formulas with plain loops and the C library:
// shares no code with the models under test.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "shardcheck/model/weights.h"

namespace shardcheck::naive {

using Row = std::vector<double>;

class Model {
 public:
  Model(const Geometry& geometry, const TensorMap& weights) : g_(geometry), weights_(weights) {}

  /// Logits [tokens][vocab] of one sequence.
  std::vector<Row> forward(const std::vector<std::int32_t>& ids) const {
    std::vector<Row> xs;
    for (const auto id : ids) {
      xs.push_back(row("embed", id));
      if (g_.positions > 0) add(xs.back(), row("positions", std::ssize(xs) - 1));
    }
    for (std::int64_t layer = 0; layer < g_.n_layers; ++layer) {
      const std::string prefix = "layers." + std::to_string(layer) + ".";
      const std::vector<Row> inputs = xs;
      attend(xs, prefix);
      for (std::size_t p = 0; p < xs.size(); ++p) {
        const Row normed = norm(g_.parallel_residual ? inputs[p] : xs[p], prefix + "ffn_norm", g_.norm);
        add(xs[p], g_.has_experts(layer) ? mixture(normed, prefix) : mlp(normed, prefix, ""));
      }
    }
    std::vector<Row> logits;
    for (auto& x : xs)
      logits.push_back(multiply(g_.tied ? "embed" : "lm_head", norm(x, "final_norm", g_.norm)));
    return logits;
  }

 private:
  double at(const std::string& name, std::int64_t index) const {
    return weights_.at(name).f32()[static_cast<std::size_t>(index)];
  }
  Row row(const std::string& name, std::int64_t i) const {
    const std::int64_t width = weights_.at(name).shape().back();
    Row out;
    for (std::int64_t j = 0; j < width; ++j) out.push_back(at(name, i * width + j));
    return out;
  }
  static void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  /// Nothing where the model has no such bias.
  void add_bias(Row& x, const std::string& name) const {
    if (weights_.contains(name)) add(x, row(name, 0));
  }
  Row multiply(const std::string& name, const Row& x) const {
    Row y;
    for (std::int64_t i = 0; i < weights_.at(name).dim(0); ++i) {
      const Row w = row(name, i);
      double sum = 0.0;
      for (std::size_t j = 0; j < x.size(); ++j) sum += w[j] * x[j];
      y.push_back(sum);
    }
    return y;
  }
  Row norm(Row x, const std::string& name, Norm kind) const {
    double mean = 0.0, squares = 0.0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (double& v : x) v -= kind == Norm::layer ? mean : 0.0;
    for (const double v : x) squares += v * v;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + g_.norm_eps);
    const Row gain = row(name, 0);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * gain[i];
    add_bias(x, name + "_bias");
    return x;
  }

  /// Projection of one position cut into heads: bias, norm per head, rotation.
  std::vector<Row> heads(const Row& x, const std::string& prefix, const std::string& role,
                         std::size_t position) const {
    Row flat = multiply(prefix + role, x);
    add_bias(flat, prefix + role + "_bias");
    const auto dim = static_cast<std::size_t>(g_.head_dim);
    std::vector<Row> out;
    for (std::size_t h = 0; h < flat.size() / dim; ++h) {
      Row head(flat.begin() + static_cast<std::ptrdiff_t>(h * dim),
               flat.begin() + static_cast<std::ptrdiff_t>((h + 1) * dim));
      if (g_.qk_norm && role != "v") head = norm(head, prefix + role + "_norm", Norm::rms);
      if (g_.rope == Rope::half && role != "v") head = rotated(head, position);
      out.push_back(head);
    }
    return out;
  }
  Row rotated(const Row& head, std::size_t position) const {
    Row out = head;
    const std::size_t width = g_.rotary_dim == 0 ? head.size() : static_cast<std::size_t>(g_.rotary_dim);
    const std::size_t half = width / 2;
    for (std::size_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(position) *
          std::pow(g_.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(width));
      out[j] = head[j] * std::cos(angle) - head[j + half] * std::sin(angle);
      out[j + half] = head[j + half] * std::cos(angle) + head[j] * std::sin(angle);
    }
    return out;
  }

  void attend(std::vector<Row>& xs, const std::string& prefix) const {
    std::vector<std::vector<Row>> q, k, v;
    for (std::size_t p = 0; p < xs.size(); ++p) {
      const Row normed = norm(xs[p], prefix + "attn_norm", g_.norm);
      q.push_back(heads(normed, prefix, "q", p));
      k.push_back(heads(normed, prefix, "k", p));
      v.push_back(heads(normed, prefix, "v", p));
    }
    for (std::size_t p = 0; p < xs.size(); ++p) {
      Row joined;
      for (std::size_t h = 0; h < q[p].size(); ++h) {
        const Row out = one_head(q[p][h], k, v, h, p, prefix);
        joined.insert(joined.end(), out.begin(), out.end());
      }
      Row projected = multiply(prefix + "o_proj", joined);
      add_bias(projected, prefix + "o_bias");
      add(xs[p], projected);
    }
  }
  /// 2^(-8 (h + 1) / n), the number of heads being a power of two.
  double slope(std::size_t head) const {
    return g_.alibi ? std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(g_.n_heads)) : 0.0;
  }
  Row one_head(const Row& q, const std::vector<std::vector<Row>>& k, const std::vector<std::vector<Row>>& v,
               std::size_t head, std::size_t position, const std::string& prefix) const {
    const std::size_t kv =
        head * static_cast<std::size_t>(g_.n_kv_heads) / static_cast<std::size_t>(g_.n_heads);
    Row out(q.size(), 0.0);
    double denominator = g_.sinks ? std::exp(at(prefix + "sinks", static_cast<std::int64_t>(head))) : 0.0;
    for (std::size_t p = 0; p <= position; ++p) {
      double score = 0.0;
      for (std::size_t j = 0; j < q.size(); ++j) score += q[j] * k[p][kv][j];
      score =
          score / std::sqrt(static_cast<double>(q.size())) - slope(head) * static_cast<double>(position - p);
      const double weight = std::exp(score);
      denominator += weight;
      for (std::size_t j = 0; j < q.size(); ++j) out[j] += weight * v[p][kv][j];
    }
    for (double& value : out) value /= denominator;
    return out;
  }

  double activation(double x) const {
    if (g_.activation == Activation::gelu) return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    if (g_.activation == Activation::gelu_tanh)
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    return x / (1.0 + std::exp(-x));
  }
  /// `kind`: "", "shared_" or "experts.E.".
  Row mlp(const Row& x, const std::string& prefix, const std::string& kind) const {
    Row up = multiply(prefix + kind + "up", x);
    add_bias(up, prefix + kind + "up_bias");
    Row hidden = up;
    if (g_.gated) {
      hidden = multiply(prefix + kind + "gate", x);
      add_bias(hidden, prefix + kind + "gate_bias");
    }
    for (std::size_t i = 0; i < hidden.size(); ++i)
      hidden[i] = activation(hidden[i]) * (g_.gated ? up[i] : 1.0);
    Row down = multiply(prefix + kind + "down", hidden);
    add_bias(down, prefix + kind + "down_bias");
    return down;
  }
  Row mixture(const Row& x, const std::string& prefix) const {
    Row scores = multiply(prefix + "router", x);
    for (double& score : scores) score = g_.router_bias ? 1.0 / (1.0 + std::exp(-score)) : std::exp(score);
    std::vector<std::pair<double, std::size_t>> best;
    for (std::size_t e = 0; e < scores.size(); ++e) {
      const double bias = g_.router_bias ? at(prefix + "router_bias", static_cast<std::int64_t>(e)) : 0.0;
      best.emplace_back(-(scores[e] + bias), e);
    }
    std::sort(best.begin(), best.end());
    best.resize(static_cast<std::size_t>(std::min(g_.experts_per_token, g_.n_experts)));
    double sum = 0.0;
    for (const auto& [rank, e] : best) sum += scores[e];
    Row y(x.size(), 0.0);
    for (const auto& [rank, e] : best) {
      Row out = mlp(x, prefix, "experts." + std::to_string(e) + ".");
      for (double& value : out) value *= scores[e] / sum;
      add(y, out);
    }
    if (g_.shared_ffn > 0) add(y, mlp(x, prefix, "shared_"));
    return y;
  }

  const Geometry& g_;
  const TensorMap& weights_;
};

}  // namespace shardcheck::naive
