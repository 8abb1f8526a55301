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

/// Matrices of one layer and of the ends; every factor is at most 2^24, so the products fit a double.
double parameter_count(const Geometry& g) {
  const auto d = static_cast<double>(g.d_model);
  const double attention = d * static_cast<double>(2 * g.attention_width() + 2 * g.kv_width());
  const double mlp = 3.0 * d * static_cast<double>(g.ffn);
  const double experts = 3.0 * d *
                         (static_cast<double>(g.n_experts) * static_cast<double>(g.expert_ffn) +
                          static_cast<double>(g.shared_ffn));
  const double heads = static_cast<double>(g.n_heads);
  const double query = heads * static_cast<double>(g.nope_dim + g.rope_dim);
  const double latent = static_cast<double>(g.q_lora) * (d + query) + query * d +
                        static_cast<double>(g.kv_lora + g.rope_dim) * d +
                        heads * static_cast<double>(g.nope_dim + g.v_dim) * static_cast<double>(g.kv_lora) +
                        heads * static_cast<double>(g.v_dim) * d;
  return static_cast<double>(g.n_layers) * (attention + mlp + experts + (g.kv_lora > 0 ? latent : 0.0)) +
         d * (2.0 * static_cast<double>(g.vocab) + static_cast<double>(g.positions));
}

constexpr std::int64_t kMaxExperts = std::int64_t{1} << 16;
constexpr std::int64_t kMaxExpertsInAll = std::int64_t{1} << 20;

/// A field that must be set with another and only with it.
void require_set(std::string_view field, std::int64_t value, std::string_view owner, bool owned) {
  if (owned && value == 0)
    throw InvalidInput(fmt::format("{}=0: {} need it; allowed 1..{}", field, owner, kMaxExtent));
  if (owned) return require_range(field, value, 1, kMaxExtent);
  if (value != 0) {
    throw InvalidInput(fmt::format("{}={} has no meaning: allowed 0 without {}", field, value, owner));
  }
}

void validate_experts(const Geometry& g) {
  require_range("experts", g.n_experts, 0, kMaxExperts);
  require_range("experts_per_token", g.experts_per_token, 1, kMaxExperts);
  if (g.n_experts * g.n_layers > kMaxExpertsInAll) {
    throw InvalidInput(fmt::format("experts={} in layers={} are out of range: allowed {} in all", g.n_experts,
                                   g.n_layers, kMaxExpertsInAll));
  }
  require_set("expert_ffn", g.expert_ffn, "experts", g.n_experts > 0);
  require_range("shared_ffn", g.shared_ffn, 0, g.n_experts > 0 ? kMaxExtent : 0);
  require_range("dense_layers", g.dense_layers, 0, g.n_experts > 0 ? g.n_layers : 0);
  if (g.router_bias && g.n_experts == 0) {
    throw InvalidInput("router_bias=true has no meaning: allowed false without experts");
  }
}

void validate_latent_attention(const Geometry& g) {
  const bool latent = g.kv_lora != 0;
  require_range("kv_lora", g.kv_lora, 0, kMaxExtent);
  require_range("q_lora", g.q_lora, 0, latent ? kMaxExtent : 0);
  require_set("nope_dim", g.nope_dim, "kv_lora", latent);
  require_set("rope_dim", g.rope_dim, "kv_lora", latent);
  require_set("v_dim", g.v_dim, "kv_lora", latent);
  if (latent && (g.qkv_bias || g.qk_norm || g.sinks)) {
    throw InvalidInput("kv_lora: allowed only without qkv_bias, qk_norm and sinks");
  }
}

class LogicalList {
 public:
  explicit LogicalList(const Geometry& geometry) : g_(geometry) {}

  void add(std::string_view role, std::int64_t layer, Shape shape, std::int64_t expert = -1) {
    all_.push_back({logical_name(role, layer, expert), std::string(role), layer, std::move(shape), expert});
  }

  void add_layer(std::int64_t layer) {
    if (g_.kv_lora > 0) {
      add_latent_attention(layer);
    } else {
      add_attention(layer);
    }
    if (g_.o_bias) add("o_bias", layer, {g_.d_model});
    if (g_.has_experts(layer)) {
      add_experts(layer);
    } else {
      add_mlp(layer);
    }
    add_norm("attn_norm", layer);
    add_norm("ffn_norm", layer);
    if (g_.qk_norm) {
      add("q_norm", layer, {g_.head_dim});
      add("k_norm", layer, {g_.head_dim});
    }
  }

  void add_norm(const std::string& role, std::int64_t layer) {
    add(role, layer, {g_.d_model});
    if (g_.norm == Norm::layer) add(role + "_bias", layer, {g_.d_model});
  }

  std::vector<LogicalTensor> take() { return std::move(all_); }

 private:
  void add_attention(std::int64_t layer) {
    const std::int64_t d = g_.d_model;
    add("q", layer, {g_.attention_width(), d});
    add("k", layer, {g_.kv_width(), d});
    add("v", layer, {g_.kv_width(), d});
    if (g_.qkv_bias) {
      add("q_bias", layer, {g_.attention_width()});
      add("k_bias", layer, {g_.kv_width()});
      add("v_bias", layer, {g_.kv_width()});
    }
    if (g_.sinks) add("sinks", layer, {g_.n_heads});
    add("o_proj", layer, {d, g_.attention_width()});
  }

  void add_latent_attention(std::int64_t layer) {
    const std::int64_t d = g_.d_model;
    const std::int64_t query = g_.n_heads * (g_.nope_dim + g_.rope_dim);
    if (g_.q_lora > 0) {
      add("q_down", layer, {g_.q_lora, d});
      add("q_lora_norm", layer, {g_.q_lora});
      add("q_up", layer, {query, g_.q_lora});
    } else {
      add("q", layer, {query, d});
    }
    add("kv_down", layer, {g_.kv_lora + g_.rope_dim, d});
    add("kv_lora_norm", layer, {g_.kv_lora});
    add("kv_up", layer, {g_.n_heads * (g_.nope_dim + g_.v_dim), g_.kv_lora});
    add("o_proj", layer, {d, g_.n_heads * g_.v_dim});
  }

  void add_mlp(std::int64_t layer) {
    const std::int64_t d = g_.d_model;
    if (g_.gated) add("gate", layer, {g_.ffn, d});
    if (g_.gated && g_.mlp_bias) add("gate_bias", layer, {g_.ffn});
    add("up", layer, {g_.ffn, d});
    if (g_.mlp_bias) add("up_bias", layer, {g_.ffn});
    add("down", layer, {d, g_.ffn});
    if (g_.mlp_bias) add("down_bias", layer, {d});
  }

  void add_experts(std::int64_t layer) {
    const std::int64_t d = g_.d_model;
    add("router", layer, {g_.n_experts, d});
    if (g_.router_bias) add("router_bias", layer, {g_.n_experts});
    for (std::int64_t expert = 0; expert < g_.n_experts; ++expert) {
      if (g_.gated) add("expert_gate", layer, {g_.expert_ffn, d}, expert);
      add("expert_up", layer, {g_.expert_ffn, d}, expert);
      add("expert_down", layer, {d, g_.expert_ffn}, expert);
    }
    if (g_.shared_ffn == 0) return;
    if (g_.gated) add("shared_gate", layer, {g_.shared_ffn, d});
    add("shared_up", layer, {g_.shared_ffn, d});
    add("shared_down", layer, {d, g_.shared_ffn});
  }

  const Geometry& g_;
  std::vector<LogicalTensor> all_;
};

}  // namespace

std::string_view to_string(Rope rope) noexcept { return rope == Rope::none ? "none" : "half"; }
std::string_view to_string(Norm norm) noexcept { return norm == Norm::rms ? "rms" : "layer"; }

std::string_view to_string(Activation activation) noexcept {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::gelu:
      return "gelu";
  }
  return "unknown";
}

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
  require_range("rotary_dim", g.rotary_dim, 0, g.rope == Rope::none ? 0 : g.head_dim);
  if (g.rotary_dim % 2 != 0)
    throw InvalidInput(
        fmt::format("rotary_dim={} is odd: RoPE rotates pairs, so it must be even", g.rotary_dim));
  require_range("positions", g.positions, 0, kMaxExtent);
  validate_experts(g);
  validate_latent_attention(g);
  if (parameter_count(g) > static_cast<double>(kMaxElements)) {
    throw InvalidInput(fmt::format("the model has more than {} parameters: {}", kMaxElements, to_string(g)));
  }
}

void require_forward(const Geometry& g) {
  if (g.kv_lora != 0) {
    throw InvalidInput(
        fmt::format("kv_lora={}: no forward pass runs such a model yet; allowed: 0", g.kv_lora));
  }
}

Geometry toy() { return Geometry{}; }

Geometry toy_kv4() {
  Geometry g;
  g.n_kv_heads = 4;
  return g;
}

std::string to_string(const Geometry& g) {
  std::string text = fmt::format(
      "d_model={} layers={} heads={} kv_heads={} head_dim={} ffn={} vocab={} norm_eps={} rope={} "
      "rope_theta={} tied={} qkv_bias={} o_bias={} qk_norm={}",
      g.d_model, g.n_layers, g.n_heads, g.n_kv_heads, g.head_dim, g.ffn, g.vocab, g.norm_eps,
      to_string(g.rope), g.rope_theta, g.tied, g.qkv_bias, g.o_bias, g.qk_norm);
  const Geometry plain;
  const auto add = [&text](std::string_view field, auto value, auto usual) {
    if (value != usual) text += fmt::format(" {}={}", field, value);
  };
  add("norm", to_string(g.norm), to_string(plain.norm));
  add("rotary_dim", g.rotary_dim, plain.rotary_dim);
  add("activation", to_string(g.activation), to_string(plain.activation));
  add("gated", g.gated, plain.gated);
  add("mlp_bias", g.mlp_bias, plain.mlp_bias);
  add("sinks", g.sinks, plain.sinks);
  add("parallel_residual", g.parallel_residual, plain.parallel_residual);
  add("alibi", g.alibi, plain.alibi);
  add("positions", g.positions, plain.positions);
  add("experts", g.n_experts, plain.n_experts);
  add("experts_per_token", g.experts_per_token, plain.experts_per_token);
  add("expert_ffn", g.expert_ffn, plain.expert_ffn);
  add("shared_ffn", g.shared_ffn, plain.shared_ffn);
  add("dense_layers", g.dense_layers, plain.dense_layers);
  add("router_bias", g.router_bias, plain.router_bias);
  add("q_lora", g.q_lora, plain.q_lora);
  add("kv_lora", g.kv_lora, plain.kv_lora);
  add("nope_dim", g.nope_dim, plain.nope_dim);
  add("rope_dim", g.rope_dim, plain.rope_dim);
  add("v_dim", g.v_dim, plain.v_dim);
  return text;
}

std::string logical_name(std::string_view role, std::int64_t layer, std::int64_t expert) {
  if (layer < 0) return std::string(role);
  if (expert < 0) return fmt::format("layers.{}.{}", layer, role);
  constexpr std::string_view kPrefix = "expert_";
  if (role.starts_with(kPrefix)) role.remove_prefix(kPrefix.size());
  return fmt::format("layers.{}.experts.{}.{}", layer, expert, role);
}

std::vector<LogicalTensor> logical_tensors(const Geometry& geometry) {
  LogicalList list(geometry);
  list.add("embed", -1, {geometry.vocab, geometry.d_model});
  if (geometry.positions > 0) list.add("positions", -1, {geometry.positions, geometry.d_model});
  for (std::int64_t layer = 0; layer < geometry.n_layers; ++layer) list.add_layer(layer);
  list.add_norm("final_norm", -1);
  if (!geometry.tied) list.add("lm_head", -1, {geometry.vocab, geometry.d_model});
  return list.take();
}

}  // namespace shardcheck
