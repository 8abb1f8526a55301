// An independent forward pass in f64, written from the papers' formulas with plain loops and the C library:
// shares no code with the models under test.
#pragma once

#include <cmath>
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
    for (const auto id : ids) xs.push_back(row("embed", id));
    for (std::int64_t layer = 0; layer < g_.n_layers; ++layer) {
      attend(xs, "layers." + std::to_string(layer) + ".");
      for (auto& x : xs) mlp(x, "layers." + std::to_string(layer) + ".");
    }
    std::vector<Row> logits;
    for (auto& x : xs) logits.push_back(multiply(g_.tied ? "embed" : "lm_head", norm(x, "final_norm")));
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
  Row norm(const Row& x, const std::string& name) const {
    double squares = 0.0;
    for (const double v : x) squares += v * v;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + g_.norm_eps);
    Row y;
    for (std::size_t i = 0; i < x.size(); ++i)
      y.push_back(x[i] * scale * at(name, static_cast<std::int64_t>(i)));
    return y;
  }

  /// Projection of one position cut into heads: bias, norm per head, rotation.
  std::vector<Row> heads(const Row& x, const std::string& prefix, const std::string& role,
                         std::size_t position) const {
    Row flat = multiply(prefix + role, x);
    if (g_.qkv_bias) {
      for (std::size_t i = 0; i < flat.size(); ++i)
        flat[i] += at(prefix + role + "_bias", static_cast<std::int64_t>(i));
    }
    const auto dim = static_cast<std::size_t>(g_.head_dim);
    std::vector<Row> out;
    for (std::size_t h = 0; h < flat.size() / dim; ++h) {
      Row head(flat.begin() + static_cast<std::ptrdiff_t>(h * dim),
               flat.begin() + static_cast<std::ptrdiff_t>((h + 1) * dim));
      if (g_.qk_norm && role != "v") head = norm(head, prefix + role + "_norm");
      if (g_.rope == Rope::half && role != "v") head = rotated(head, position);
      out.push_back(head);
    }
    return out;
  }
  Row rotated(const Row& head, std::size_t position) const {
    Row out = head;
    const std::size_t half = head.size() / 2;
    for (std::size_t j = 0; j < half; ++j) {
      const double angle =
          static_cast<double>(position) *
          std::pow(g_.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(head.size()));
      out[j] = head[j] * std::cos(angle) - head[j + half] * std::sin(angle);
      out[j + half] = head[j + half] * std::cos(angle) + head[j] * std::sin(angle);
    }
    return out;
  }

  void attend(std::vector<Row>& xs, const std::string& prefix) const {
    std::vector<std::vector<Row>> q, k, v;
    for (std::size_t p = 0; p < xs.size(); ++p) {
      const Row normed = norm(xs[p], prefix + "attn_norm");
      q.push_back(heads(normed, prefix, "q", p));
      k.push_back(heads(normed, prefix, "k", p));
      v.push_back(heads(normed, prefix, "v", p));
    }
    for (std::size_t p = 0; p < xs.size(); ++p) {
      Row joined;
      for (std::size_t h = 0; h < q[p].size(); ++h) {
        const std::size_t kv =
            h * static_cast<std::size_t>(g_.n_kv_heads) / static_cast<std::size_t>(g_.n_heads);
        const Row out = one_head(q[p][h], k, v, kv, p);
        joined.insert(joined.end(), out.begin(), out.end());
      }
      const Row projected = multiply(prefix + "o_proj", joined);
      for (std::size_t i = 0; i < projected.size(); ++i) xs[p][i] += projected[i];
    }
  }
  Row one_head(const Row& q, const std::vector<std::vector<Row>>& k, const std::vector<std::vector<Row>>& v,
               std::size_t kv, std::size_t position) const {
    Row out(q.size(), 0.0);
    double denominator = 0.0;
    for (std::size_t p = 0; p <= position; ++p) {
      double score = 0.0;
      for (std::size_t j = 0; j < q.size(); ++j) score += q[j] * k[p][kv][j];
      const double weight = std::exp(score / std::sqrt(static_cast<double>(q.size())));
      denominator += weight;
      for (std::size_t j = 0; j < q.size(); ++j) out[j] += weight * v[p][kv][j];
    }
    for (double& value : out) value /= denominator;
    return out;
  }

  void mlp(Row& x, const std::string& prefix) const {
    const Row normed = norm(x, prefix + "ffn_norm");
    Row gate = multiply(prefix + "gate", normed);
    const Row up = multiply(prefix + "up", normed);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    const Row down = multiply(prefix + "down", gate);
    for (std::size_t i = 0; i < down.size(); ++i) x[i] += down[i];
  }

  const Geometry& g_;
  const TensorMap& weights_;
};

}  // namespace shardcheck::naive
