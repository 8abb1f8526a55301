#include "shardcheck/model/consumer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "arithmetic/ceil_div.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

/// File-tensor names of a Llama-family convention. {} is the layer.
struct Names {
  std::string_view embed, final_norm, lm_head;
  std::string_view q, k, v, q_bias, k_bias, v_bias;  // equal names: fused, stacked in this order
  std::string_view o_proj, o_bias, gate, up, down, attn_norm, ffn_norm, q_norm, k_norm;
};

constexpr Names kSeedNames = {
    .embed = "embed",
    .final_norm = "final_norm",
    .lm_head = "lm_head",
    .q = "layers.{}.qkv",
    .k = "layers.{}.qkv",
    .v = "layers.{}.qkv",
    .q_bias = "layers.{}.qkv_bias",
    .k_bias = "layers.{}.qkv_bias",
    .v_bias = "layers.{}.qkv_bias",
    .o_proj = "layers.{}.o_proj",
    .o_bias = "layers.{}.o_bias",
    .gate = "layers.{}.gate_up",
    .up = "layers.{}.gate_up",
    .down = "layers.{}.down",
    .attn_norm = "layers.{}.attn_norm",
    .ffn_norm = "layers.{}.ffn_norm",
    .q_norm = "layers.{}.q_norm",
    .k_norm = "layers.{}.k_norm",
};

constexpr Names kHuggingFaceNames = {
    .embed = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .lm_head = "lm_head.weight",
    .q = "model.layers.{}.self_attn.q_proj.weight",
    .k = "model.layers.{}.self_attn.k_proj.weight",
    .v = "model.layers.{}.self_attn.v_proj.weight",
    .q_bias = "model.layers.{}.self_attn.q_proj.bias",
    .k_bias = "model.layers.{}.self_attn.k_proj.bias",
    .v_bias = "model.layers.{}.self_attn.v_proj.bias",
    .o_proj = "model.layers.{}.self_attn.o_proj.weight",
    .o_bias = "model.layers.{}.self_attn.o_proj.bias",
    .gate = "model.layers.{}.mlp.gate_proj.weight",
    .up = "model.layers.{}.mlp.up_proj.weight",
    .down = "model.layers.{}.mlp.down_proj.weight",
    .attn_norm = "model.layers.{}.input_layernorm.weight",
    .ffn_norm = "model.layers.{}.post_attention_layernorm.weight",
    .q_norm = "model.layers.{}.self_attn.q_norm.weight",
    .k_norm = "model.layers.{}.self_attn.k_norm.weight",
};

constexpr Names vllm_names() {
  Names names = kHuggingFaceNames;
  names.q = names.k = names.v = "model.layers.{}.self_attn.qkv_proj.weight";
  names.q_bias = names.k_bias = names.v_bias = "model.layers.{}.self_attn.qkv_proj.bias";
  names.gate = names.up = "model.layers.{}.mlp.gate_up_proj.weight";
  return names;
}
constexpr Names kVllmNames = vllm_names();

constexpr Names kMegatronNames = {
    .embed = "embedding.word_embeddings.weight",
    .final_norm = "decoder.final_layernorm.weight",
    .lm_head = "output_layer.weight",
    .q = "decoder.layers.{}.self_attention.linear_qkv.weight",
    .k = "decoder.layers.{}.self_attention.linear_qkv.weight",
    .v = "decoder.layers.{}.self_attention.linear_qkv.weight",
    .q_bias = "decoder.layers.{}.self_attention.linear_qkv.bias",
    .k_bias = "decoder.layers.{}.self_attention.linear_qkv.bias",
    .v_bias = "decoder.layers.{}.self_attention.linear_qkv.bias",
    .o_proj = "decoder.layers.{}.self_attention.linear_proj.weight",
    .o_bias = "decoder.layers.{}.self_attention.linear_proj.bias",
    .gate = "decoder.layers.{}.mlp.linear_fc1.weight",
    .up = "decoder.layers.{}.mlp.linear_fc1.weight",
    .down = "decoder.layers.{}.mlp.linear_fc2.weight",
    .attn_norm = "decoder.layers.{}.self_attention.linear_qkv.layer_norm_weight",
    .ffn_norm = "decoder.layers.{}.mlp.linear_fc1.layer_norm_weight",
    .q_norm = "decoder.layers.{}.self_attention.q_layernorm.weight",
    .k_norm = "decoder.layers.{}.self_attention.k_layernorm.weight",
};

constexpr Names kTorchtitanNames = {
    .embed = "tok_embeddings.weight",
    .final_norm = "norm.weight",
    .lm_head = "output.weight",
    .q = "layers.{}.attention.wq.weight",
    .k = "layers.{}.attention.wk.weight",
    .v = "layers.{}.attention.wv.weight",
    .q_bias = "layers.{}.attention.wq.bias",
    .k_bias = "layers.{}.attention.wk.bias",
    .v_bias = "layers.{}.attention.wv.bias",
    .o_proj = "layers.{}.attention.wo.weight",
    .o_bias = "layers.{}.attention.wo.bias",
    .gate = "layers.{}.feed_forward.w1.weight",
    .up = "layers.{}.feed_forward.w3.weight",
    .down = "layers.{}.feed_forward.w2.weight",
    .attn_norm = "layers.{}.attention_norm.weight",
    .ffn_norm = "layers.{}.ffn_norm.weight",
    .q_norm = "layers.{}.attention.q_norm.weight",
    .k_norm = "layers.{}.attention.k_norm.weight",
};

std::string_view pattern_of(const Names& names, std::string_view role) {
  const std::array<std::pair<std::string_view, std::string_view>, 18> table = {{
      {"embed", names.embed},
      {"final_norm", names.final_norm},
      {"lm_head", names.lm_head},
      {"q", names.q},
      {"k", names.k},
      {"v", names.v},
      {"q_bias", names.q_bias},
      {"k_bias", names.k_bias},
      {"v_bias", names.v_bias},
      {"o_proj", names.o_proj},
      {"o_bias", names.o_bias},
      {"gate", names.gate},
      {"up", names.up},
      {"down", names.down},
      {"attn_norm", names.attn_norm},
      {"ffn_norm", names.ffn_norm},
      {"q_norm", names.q_norm},
      {"k_norm", names.k_norm},
  }};
  for (const auto& [known, pattern] : table) {
    if (known == role) return pattern;
  }
  throw std::invalid_argument(fmt::format("no consumer reads a tensor of role {}", role));
}

void require_divisible(std::string_view label, std::int64_t value, int degree) {
  if (value % degree != 0) {
    throw UnsupportedLayout(
        fmt::format("{}={} is not divisible by TP degree {}: the forward pass cannot run at "
                    "this degree",
                    label, value, degree));
  }
}

/// How a convention holds the two vocabulary tensors.
enum class VocabularyRule : std::uint8_t {
  chunk,             // both cut by ceil(vocab / t), the last rank may hold less (seed, torch.chunk)
  even,              // both cut evenly (torchtitan)
  padded,            // both padded with zero rows to a multiple of 64, then cut evenly (vLLM)
  padded_by_degree,  // both padded to a multiple of 128 t, then cut (Megatron)
  whole_embedding    // embedding whole on every rank, untied head cut evenly (Hugging Face's plan)
};

/// What tells the conventions of one model family apart.
struct Convention {
  std::string_view name;
  const Names* names = nullptr;
  VocabularyRule vocabulary = VocabularyRule::even;
  RowBias row_bias = RowBias::after_sum;
  bool per_group = false;           // fused qkv: each KV head's queries, key and value together
  bool interleaved_rotary = false;  // rows of a head's q and k: rotary pairs side by side
};

class LlamaConsumer final : public Consumer {
 public:
  explicit LlamaConsumer(const Convention& convention)
      : name_(convention.name),
        names_(*convention.names),
        vocabulary_(convention.vocabulary),
        convention_(convention) {}

  std::string_view name() const override { return name_; }

  void require_supported(const Geometry& g, int degree) const override {
    require_divisible("n_kv_heads", g.n_kv_heads, degree);
    require_divisible("n_heads", g.n_heads, degree);
    require_divisible("ffn", g.ffn, degree);
    const bool cuts_evenly =
        vocabulary_ == VocabularyRule::even || (vocabulary_ == VocabularyRule::whole_embedding && !g.tied);
    if (cuts_evenly) require_divisible("vocab", g.vocab, degree);
    if (vocabulary_ == VocabularyRule::padded) require_divisible("padded vocab", padded(g, degree), degree);
  }

  RowBias row_bias() const override { return convention_.row_bias; }

  bool embedding_is_whole(const Geometry& /*g*/) const override {
    return vocabulary_ == VocabularyRule::whole_embedding;
  }
  bool head_is_whole(const Geometry& g) const override {
    return vocabulary_ == VocabularyRule::whole_embedding && g.tied;
  }

  LocalExtent extent(const Geometry& g, int degree, int rank) const override {
    const std::int64_t share = ceil_div<std::int64_t>(padded(g, degree), degree);
    const std::int64_t begin = std::min(share * rank, g.vocab);
    const std::int64_t end = std::min(begin + share, g.vocab);
    const bool whole_embed = embedding_is_whole(g);
    const bool whole_head = head_is_whole(g);
    LocalExtent local;
    local.heads = g.n_heads / degree;
    local.kv_heads = g.n_kv_heads / degree;
    local.ffn = g.ffn / degree;
    local.embed_begin = whole_embed ? 0 : begin;
    local.embed_end = whole_embed ? g.vocab : end;
    local.head_begin = whole_head ? 0 : begin;
    local.head_end = whole_head ? g.vocab : end;
    return local;
  }

  LocalRows locate(const Geometry& g, int degree, int rank, std::string_view role,
                   std::int64_t layer) const override {
    const LocalExtent local = extent(g, degree, rank);
    const std::string_view stored = role == "lm_head" && g.tied ? "embed" : role;
    const std::string_view pattern = pattern_of(names_, stored);
    const std::string tensor = layer < 0 ? std::string(pattern) : fmt::format(fmt::runtime(pattern), layer);
    LocalRows rows{tensor, first_row(g, local, role), row_count(g, local, role)};
    const bool in_qkv =
        role == "q" || role == "k" || role == "v" || role == "q_bias" || role == "k_bias" || role == "v_bias";
    if (in_qkv && convention_.per_group) {
      const std::int64_t queries = local.heads / local.kv_heads * g.head_dim;
      rows.block = role.front() == 'q' ? queries : g.head_dim;
      rows.stride = queries + 2 * g.head_dim;
      rows.first = role.front() == 'q' ? 0 : role.front() == 'k' ? queries : queries + g.head_dim;
    }
    const bool rotated = (in_qkv && role.front() != 'v') || role == "q_norm" || role == "k_norm";
    rows.interleaved_rotary = rotated && convention_.interleaved_rotary;
    if (role == "embed" || role == "lm_head") {
      const std::int64_t all = padded(g, degree);
      if (all != g.vocab) rows.padded_to = all / degree;
    }
    return rows;
  }

 private:
  bool fused(std::string_view one, std::string_view other) const {
    return pattern_of(names_, one) == pattern_of(names_, other);
  }

  /// Rows of the vocabulary with their padding.
  std::int64_t padded(const Geometry& g, int degree) const {
    const bool by_degree = vocabulary_ == VocabularyRule::padded_by_degree;
    if (!by_degree && vocabulary_ != VocabularyRule::padded) return g.vocab;
    const std::int64_t multiple = by_degree ? std::int64_t{128} * degree : 64;
    return ceil_div(g.vocab, multiple) * multiple;
  }

  /// Rows before the role in its local tensor: fused tensors are stacked q, k, v and gate, up.
  std::int64_t first_row(const Geometry& g, const LocalExtent& local, std::string_view role) const {
    const std::int64_t q_rows = local.heads * g.head_dim;
    const std::int64_t kv_rows = local.kv_heads * g.head_dim;
    if (role == "k" || role == "k_bias") return fused("q", "k") ? q_rows : 0;
    if (role == "v" || role == "v_bias") return fused("q", "v") ? q_rows + kv_rows : 0;
    if (role == "up") return fused("gate", "up") ? local.ffn : 0;
    return 0;
  }

  static std::int64_t row_count(const Geometry& g, const LocalExtent& local, std::string_view role) {
    if (role == "embed") return local.embed_end - local.embed_begin;
    if (role == "lm_head") return local.head_end - local.head_begin;
    if (role == "q" || role == "q_bias") return local.heads * g.head_dim;
    if (role == "k" || role == "v" || role == "k_bias" || role == "v_bias")
      return local.kv_heads * g.head_dim;
    if (role == "gate" || role == "up") return local.ffn;
    if (role == "q_norm" || role == "k_norm") return g.head_dim;
    return g.d_model;  // o_proj, its bias, down and the norms: every output row, or every channel
  }

  std::string_view name_;
  const Names& names_;
  VocabularyRule vocabulary_;
  Convention convention_;
};

const std::array<LlamaConsumer, 6>& all_consumers() {
  static const std::array<LlamaConsumer, 6> consumers = {
      LlamaConsumer(
          {.name = "hf", .names = &kHuggingFaceNames, .vocabulary = VocabularyRule::whole_embedding}),
      LlamaConsumer({.name = "megatron",
                     .names = &kMegatronNames,
                     .vocabulary = VocabularyRule::padded_by_degree,
                     .per_group = true}),
      LlamaConsumer({.name = "seed", .names = &kSeedNames, .vocabulary = VocabularyRule::chunk}),
      LlamaConsumer({.name = "seed-summed-bias",
                     .names = &kSeedNames,
                     .vocabulary = VocabularyRule::chunk,
                     .row_bias = RowBias::summed}),
      LlamaConsumer({.name = "torchtitan", .names = &kTorchtitanNames, .interleaved_rotary = true}),
      LlamaConsumer({.name = "vllm", .names = &kVllmNames, .vocabulary = VocabularyRule::padded}),
  };
  return consumers;
}

}  // namespace

Tensor read_rows(const Tensor& local, const LocalRows& where, std::int64_t head_dim) {
  if (where.block == 0 && !where.interleaved_rotary) return local.rows(where.first, where.count);
  const std::int64_t block = where.block == 0 ? where.count : where.block;
  Shape shape = local.shape();
  shape.at(0) = where.count;
  Tensor rows = Tensor::uninitialized(local.dtype(), shape);
  std::byte* out = rows.mutable_bytes().data();
  for (std::int64_t begin = 0; begin < where.count; begin += block) {
    const Tensor piece = local.rows(where.first + begin / block * where.stride, block);
    const std::size_t row_bytes = piece.bytes().size() / static_cast<std::size_t>(block);
    for (std::int64_t row = 0; row < block; ++row) {
      std::int64_t to = begin + row;
      if (where.interleaved_rotary) {
        const std::int64_t inside = to % head_dim;
        to = to - inside + inside % 2 * (head_dim / 2) + inside / 2;
      }
      std::memcpy(out + static_cast<std::size_t>(to) * row_bytes,
                  piece.bytes().data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    }
  }
  return rows;
}

std::int64_t Consumer::kv_head_of(const LocalExtent& extent, std::int64_t head) const {
  return head / (extent.heads / extent.kv_heads);
}

std::vector<std::string> Consumer::required_tensors(const Geometry& geometry, int degree, int rank) const {
  std::vector<std::string> names;
  for (const auto& tensor : logical_tensors(geometry)) {
    names.push_back(locate(geometry, degree, rank, tensor.role, tensor.layer).tensor);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void require_executable(const Layout& layout) {
  const std::string name = to_string(layout.name);
  if (layout.consumer == "none") {
    throw UnsupportedLayout(
        fmt::format("layout {}: no forward pass here reads it; allowed: a table that is "
                    "executed as one of {}",
                    name, fmt::join(consumer_names(), ", ")));
  }
  for (const auto& [axis, degree] : layout.mesh.axes()) {
    if (axis == Axis::tp) continue;
    throw UnsupportedLayout(fmt::format("layout {}: no forward pass here runs over the axis {}; allowed: tp",
                                        name, to_string(axis)));
  }
  consumer_named(layout.consumer).require_supported(layout.geometry, layout.degree);
}

const Consumer& consumer_named(std::string_view name) {
  for (const auto& consumer : all_consumers()) {
    if (consumer.name() == name) return consumer;
  }
  throw InvalidInput(
      fmt::format("consumer '{}' is not known: allowed {}", name, fmt::join(consumer_names(), ", ")));
}

std::vector<std::string> consumer_names() {
  std::vector<std::string> names;
  for (const auto& consumer : all_consumers()) names.emplace_back(consumer.name());
  return names;
}

}  // namespace shardcheck
