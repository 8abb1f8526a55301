#include "shardcheck/model/geometry.h"

#include <fmt/format.h>

#include <cmath>

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

void require_range(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    throw InvalidInput(fmt::format("{}={} is out of range: allowed {}..{}", field, value, low, high));
  }
}

/// The forward pass holds these in f32: a value below its smallest normal one would be lost.
void require_positive(std::string_view field, double value, double high) {
  constexpr double kLow = 0x1p-126;
  if (!std::isfinite(value) || value < kLow || value > high) {
    throw InvalidInput(fmt::format("{}={} is out of range: allowed {} to {}", field, value, kLow, high));
  }
}

/// Matrices of one layer and of the ends; every factor is at most 2^24, so the terms fit int64.
double parameter_count(const Geometry& g) {
  const auto d = static_cast<double>(g.d_model);
  const double attention = d * static_cast<double>(2 * g.attention_width() + 2 * g.kv_width());
  const double mlp = 3.0 * d * static_cast<double>(g.ffn);
  return static_cast<double>(g.n_layers) * (attention + mlp) + 2.0 * d * static_cast<double>(g.vocab);
}

class LogicalList {
 public:
  explicit LogicalList(const Geometry& geometry) : g_(geometry) {}

  void add(std::string_view role, std::int64_t layer, Shape shape) {
    LogicalTensor tensor;
    tensor.role = std::string(role);
    tensor.layer = layer;
    tensor.name = logical_name(role, layer);
    tensor.shape = std::move(shape);
    all_.push_back(std::move(tensor));
  }

  void add_layer(std::int64_t layer) {
    const std::int64_t d = g_.d_model;
    add("q", layer, {g_.attention_width(), d});
    add("k", layer, {g_.kv_width(), d});
    add("v", layer, {g_.kv_width(), d});
    if (g_.qkv_bias) {
      add("q_bias", layer, {g_.attention_width()});
      add("k_bias", layer, {g_.kv_width()});
      add("v_bias", layer, {g_.kv_width()});
    }
    add("o_proj", layer, {d, g_.attention_width()});
    if (g_.o_bias) add("o_bias", layer, {d});
    add("gate", layer, {g_.ffn, d});
    add("up", layer, {g_.ffn, d});
    add("down", layer, {d, g_.ffn});
    add("attn_norm", layer, {d});
    add("ffn_norm", layer, {d});
    if (g_.qk_norm) {
      add("q_norm", layer, {g_.head_dim});
      add("k_norm", layer, {g_.head_dim});
    }
  }

  std::vector<LogicalTensor> take() { return std::move(all_); }

 private:
  const Geometry& g_;
  std::vector<LogicalTensor> all_;
};

}  // namespace

std::string_view to_string(Rope rope) noexcept { return rope == Rope::none ? "none" : "half"; }

void validate(const Geometry& g) {
  require_range("d_model", g.d_model, 1, kMaxExtent);
  require_range("layers", g.n_layers, 1, kMaxLayers);
  require_range("heads", g.n_heads, 1, kMaxExtent);
  require_range("kv_heads", g.n_kv_heads, 1, g.n_heads);
  require_range("head_dim", g.head_dim, 1, kMaxExtent);
  require_range("ffn", g.ffn, 1, kMaxExtent);
  require_range("vocab", g.vocab, 1, kMaxExtent);
  require_positive("norm_eps", g.norm_eps, 1.0);
  require_positive("rope_theta", g.rope_theta, 1e12);
  if (g.n_heads % g.n_kv_heads != 0) {
    throw InvalidInput(
        fmt::format("heads={} is not a multiple of kv_heads={}: each KV head serves an equal "
                    "group of query heads",
                    g.n_heads, g.n_kv_heads));
  }
  if (g.attention_width() > kMaxExtent) {
    throw InvalidInput(
        fmt::format("heads*head_dim={} is out of range: allowed 1..{}", g.attention_width(), kMaxExtent));
  }
  if (g.rope != Rope::none && g.head_dim % 2 != 0) {
    throw InvalidInput(fmt::format("head_dim={} is odd: RoPE rotates pairs, so it must be even", g.head_dim));
  }
  if (parameter_count(g) > static_cast<double>(kMaxElements)) {
    throw InvalidInput(fmt::format("the model has more than {} parameters: {}", kMaxElements, to_string(g)));
  }
}

Geometry toy() { return Geometry{}; }

Geometry toy_kv4() {
  Geometry g;
  g.n_kv_heads = 4;
  return g;
}

std::string to_string(const Geometry& g) {
  return fmt::format(
      "d_model={} layers={} heads={} kv_heads={} head_dim={} ffn={} vocab={} norm_eps={} rope={} "
      "rope_theta={} tied={} qkv_bias={} o_bias={} qk_norm={}",
      g.d_model, g.n_layers, g.n_heads, g.n_kv_heads, g.head_dim, g.ffn, g.vocab, g.norm_eps,
      to_string(g.rope), g.rope_theta, g.tied, g.qkv_bias, g.o_bias, g.qk_norm);
}

std::string logical_name(std::string_view role, std::int64_t layer) {
  return layer < 0 ? std::string(role) : fmt::format("layers.{}.{}", layer, role);
}

std::vector<LogicalTensor> logical_tensors(const Geometry& geometry) {
  LogicalList list(geometry);
  list.add("embed", -1, {geometry.vocab, geometry.d_model});
  for (std::int64_t layer = 0; layer < geometry.n_layers; ++layer) list.add_layer(layer);
  list.add("final_norm", -1, {geometry.d_model});
  if (!geometry.tied) list.add("lm_head", -1, {geometry.vocab, geometry.d_model});
  return list.take();
}

}  // namespace shardcheck
