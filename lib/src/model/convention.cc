#include "model/convention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "arithmetic/ceil_div.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

using Roles = std::array<std::string_view, 3>;

/// Roles that lie in one tensor where their names are equal, in this order.
constexpr std::array<Roles, 6> kFusable = {{{"q", "k", "v"},
                                            {"q_bias", "k_bias", "v_bias"},
                                            {"gate", "up"},
                                            {"gate_bias", "up_bias"},
                                            {"expert_gate", "expert_up"},
                                            {"shared_gate", "shared_up"}}};

bool is_one_of(std::string_view role, const Roles& roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

bool is_in_qkv(std::string_view role) { return is_one_of(role, kFusable[0]) || is_one_of(role, kFusable[1]); }

bool is_vector(std::string_view role) {
  return role.ends_with("_bias") || role.ends_with("_norm") || role == "sinks";
}

std::int64_t row_count(const Geometry& g, const LocalExtent& local, std::string_view role) {
  if (role == "embed") return local.embed_end - local.embed_begin;
  if (role == "lm_head") return local.head_end - local.head_begin;
  if (role == "positions") return g.positions;
  if (role == "q" || role == "q_bias") return local.heads * g.head_dim;
  if (is_in_qkv(role)) return local.kv_heads * g.head_dim;
  if (role == "q_norm" || role == "k_norm") return g.head_dim;
  if (role == "sinks") return local.heads;
  if (is_one_of(role, kFusable[2]) || is_one_of(role, kFusable[3])) return local.ffn;
  if (is_one_of(role, kFusable[4])) return local.expert_ffn;
  if (is_one_of(role, kFusable[5])) return local.shared_ffn;
  if (role == "router" || role == "router_bias") return g.n_experts;
  return g.d_model;  // of row-parallel layers and their biases every output row, of the norms every channel
}

std::int64_t column_count(const Geometry& g, const LocalExtent& local, std::string_view role) {
  if (is_vector(role)) return 0;
  if (role == "o_proj") return local.heads * g.head_dim;
  if (role == "down") return local.ffn;
  if (role == "expert_down") return local.expert_ffn;
  if (role == "shared_down") return local.shared_ffn;
  return g.d_model;
}

void require_divisible(std::string_view label, std::int64_t value, int degree) {
  if (value % degree != 0) {
    throw UnsupportedLayout(
        fmt::format("{}={} is not divisible by TP degree {}: the forward pass cannot run at "
                    "this degree",
                    label, value, degree));
  }
}

bool has_dense_layers(const Geometry& g) { return g.n_experts == 0 || g.dense_layers > 0; }
bool has_expert_layers(const Geometry& g) { return g.n_experts > 0 && g.dense_layers < g.n_layers; }

/// A layer of each kind that the model has, and one expert.
Geometry smallest_with_roles_of(Geometry g) {
  const bool dense = has_dense_layers(g), experts = has_expert_layers(g);
  g.n_layers = (dense ? 1 : 0) + (experts ? 1 : 0);
  g.dense_layers = dense && g.n_experts > 0 ? 1 : 0;
  g.n_experts = std::min<std::int64_t>(g.n_experts, 1);
  return g;
}

}  // namespace

void ConventionConsumer::require_supported(const Geometry& g, int degree) const {
  require_divisible("n_kv_heads", g.n_kv_heads, degree);
  require_divisible("n_heads", g.n_heads, degree);
  if (has_dense_layers(g)) require_divisible("ffn", g.ffn, degree);
  if (has_expert_layers(g)) {
    require_divisible("expert_ffn", g.expert_ffn, degree);
    require_divisible("shared_ffn", g.shared_ffn, degree);
  }
  require_vocabulary(g, degree);
  if (rules_.head_each && g.n_kv_heads != g.n_heads) {
    throw UnsupportedLayout(
        fmt::format("n_kv_heads={}: the {} convention has a KV head for each query head; allowed: {}",
                    g.n_kv_heads, name(), g.n_heads));
  }
  if (rules_.interleaved_rotary && g.rotary_width() != g.head_dim) {
    throw UnsupportedLayout(
        fmt::format("rotary_dim={}: the {} convention interleaves whole heads; allowed: 0 or {}",
                    g.rotary_dim, name(), g.head_dim));
  }
  require_roles(g);
}

void ConventionConsumer::require_vocabulary(const Geometry& g, int degree) const {
  const bool cuts_evenly = rules_.vocabulary == VocabularyRule::even ||
                           (rules_.vocabulary == VocabularyRule::whole_embedding && !g.tied);
  if (cuts_evenly) require_divisible("vocab", g.vocab, degree);
  if (rules_.vocabulary == VocabularyRule::padded)
    require_divisible("padded vocab", padded(g, degree), degree);
}

void ConventionConsumer::require_roles(const Geometry& g) const {
  for (const LogicalTensor& tensor : logical_tensors(smallest_with_roles_of(g))) {
    if (rules_.names->find(tensor.role, g, tensor.layer).empty()) {
      throw UnsupportedLayout(fmt::format(
          "the {} convention holds no tensor of the role {}: no forward pass reads this model by it", name(),
          tensor.role));
    }
  }
}

bool ConventionConsumer::runs_over(Axis axis) const {
  switch (axis) {
    case Axis::tp:
    case Axis::cp:
      return true;
    case Axis::pp:
      return rules_.pipelined;
    case Axis::ep:
      return rules_.experts_apart;
    case Axis::etp:
    case Axis::dp:
      return false;
  }
  return false;
}

bool ConventionConsumer::embedding_is_whole(const Geometry& /*g*/) const {
  return rules_.vocabulary == VocabularyRule::whole_embedding || rules_.vocabulary == VocabularyRule::whole;
}

bool ConventionConsumer::head_is_whole(const Geometry& g) const {
  return rules_.vocabulary == VocabularyRule::whole ||
         (rules_.vocabulary == VocabularyRule::whole_embedding && g.tied);
}

LocalExtent ConventionConsumer::extent(const Geometry& g, int degree, int rank) const {
  const std::int64_t share = ceil_div<std::int64_t>(padded(g, degree), degree);
  const std::int64_t begin = std::min(share * rank, g.vocab);
  const std::int64_t end = std::min(begin + share, g.vocab);
  const bool whole_embed = embedding_is_whole(g);
  const bool whole_head = head_is_whole(g);
  LocalExtent local;
  local.heads = g.n_heads / degree;
  local.kv_heads = g.n_kv_heads / degree;
  local.ffn = g.ffn / degree;
  local.expert_ffn = g.expert_ffn / degree;
  local.shared_ffn = g.shared_ffn / degree;
  local.embed_begin = whole_embed ? 0 : begin;
  local.embed_end = whole_embed ? g.vocab : end;
  local.head_begin = whole_head ? 0 : begin;
  local.head_end = whole_head ? g.vocab : end;
  return local;
}

LocalRows ConventionConsumer::locate(const Geometry& g, int degree, int rank, std::string_view role,
                                     std::int64_t layer, std::int64_t expert) const {
  const LocalExtent local = extent(g, degree, rank);
  const std::string_view stored = role == "lm_head" && g.tied ? "embed" : role;
  const std::string_view pattern = rules_.names->find(stored, g, layer);
  if (pattern.empty()) {
    throw std::invalid_argument(fmt::format("the {} convention reads no tensor of role {}", name(), role));
  }
  LocalRows rows;
  rows.tensor = fmt::format(fmt::runtime(pattern), fmt::arg("layer", layer), fmt::arg("expert", expert));
  rows.first = first_row(g, local, role, layer);
  rows.count = row_count(g, local, role);
  rows.columns = column_count(g, local, role);
  rows.transposed = rules_.transposed && layer >= 0 && rows.columns > 0;
  if (is_in_qkv(role)) place_in_groups(rows, g, local, role);
  const bool rotated = (is_in_qkv(role) && role.front() != 'v') || role == "q_norm" || role == "k_norm";
  rows.interleaved_rotary = rotated && rules_.interleaved_rotary;
  if (expert >= 0 && !rules_.experts_apart) {
    rows.stack = g.n_experts;
    rows.in_stack = expert;
  }
  const std::int64_t all = padded(g, degree);
  if ((role == "embed" || role == "lm_head") && all != g.vocab) rows.padded_to = all / degree;
  return rows;
}

std::int64_t ConventionConsumer::padded(const Geometry& g, int degree) const {
  const bool by_degree = rules_.vocabulary == VocabularyRule::padded_by_degree;
  if (!by_degree && rules_.vocabulary != VocabularyRule::padded) return g.vocab;
  const std::int64_t multiple = by_degree ? std::int64_t{128} * degree : 64;
  return ceil_div(g.vocab, multiple) * multiple;
}

std::int64_t ConventionConsumer::first_row(const Geometry& g, const LocalExtent& local, std::string_view role,
                                           std::int64_t layer) const {
  const auto fused = std::find_if(kFusable.begin(), kFusable.end(),
                                  [role](const Roles& roles) { return is_one_of(role, roles); });
  if (fused == kFusable.end()) return 0;
  const std::string_view tensor = rules_.names->find(role, g, layer);
  std::int64_t before = 0;
  for (const std::string_view other : *fused) {
    if (other == role) break;
    const bool is_gate = other.find("gate") != std::string_view::npos;
    if ((g.gated || !is_gate) && rules_.names->find(other, g, layer) == tensor)
      before += row_count(g, local, other);
  }
  return before;
}

void ConventionConsumer::place_in_groups(LocalRows& rows, const Geometry& g, const LocalExtent& local,
                                         std::string_view role) const {
  if (!rules_.per_group) return;
  const std::int64_t queries = local.heads / local.kv_heads * g.head_dim;
  rows.block = role.front() == 'q' ? queries : g.head_dim;
  rows.stride = queries + 2 * g.head_dim;
  rows.first = role.front() == 'q' ? 0 : role.front() == 'k' ? queries : queries + g.head_dim;
}

const std::vector<ConventionConsumer>& convention_consumers() {
  using enum VocabularyRule;
  static const std::vector<ConventionConsumer> consumers = {
      ConventionConsumer({.name = "hf", .names = &kHuggingFaceNames, .vocabulary = whole_embedding}),
      ConventionConsumer({.name = "hf-gpt2",
                          .names = &kGpt2Names,
                          .vocabulary = whole,
                          .head_each = true,
                          .transposed = true}),
      ConventionConsumer({.name = "hf-mixtral",
                          .names = &kMixtralNames,
                          .vocabulary = whole_embedding,
                          .experts_apart = true}),
      ConventionConsumer({.name = "hf-moe",
                          .names = &kHuggingFaceMoeNames,
                          .vocabulary = whole_embedding,
                          .experts_apart = true}),
      ConventionConsumer({.name = "hf-neox",
                          .names = &kNeoxNames,
                          .vocabulary = whole_embedding,
                          .per_group = true,
                          .head_each = true}),
      ConventionConsumer(
          {.name = "megatron", .names = &kMegatronNames, .vocabulary = padded_by_degree, .per_group = true}),
      ConventionConsumer({.name = "megatron-moe",
                          .names = &kMegatronMoeNames,
                          .vocabulary = padded_by_degree,
                          .per_group = true,
                          .experts_apart = true}),
      ConventionConsumer({.name = "seed",
                          .names = &kSeedNames,
                          .vocabulary = chunk,
                          .pipelined = true,
                          .experts_apart = true}),
      ConventionConsumer({.name = "seed-summed-bias",
                          .names = &kSeedNames,
                          .vocabulary = chunk,
                          .row_bias = RowBias::summed,
                          .pipelined = true,
                          .experts_apart = true}),
      ConventionConsumer({.name = "torchtitan", .names = &kTorchtitanNames, .interleaved_rotary = true}),
      ConventionConsumer({.name = "vllm", .names = &kVllmNames, .vocabulary = padded}),
      ConventionConsumer({.name = "vllm-moe", .names = &kVllmMoeNames, .vocabulary = padded})};
  return consumers;
}

}  // namespace shardcheck
