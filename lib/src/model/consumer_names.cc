#include "model/consumer_names.h"

namespace shardcheck {
namespace {

constexpr RoleName kSeed[] = {
    {"embed", "embed"},
    {"positions", "positions"},
    {"final_norm", "final_norm"},
    {"final_norm_bias", "final_norm_bias"},
    {"lm_head", "lm_head"},
    {"q", "layers.{layer}.qkv"},
    {"k", "layers.{layer}.qkv"},
    {"v", "layers.{layer}.qkv"},
    {"q_bias", "layers.{layer}.qkv_bias"},
    {"k_bias", "layers.{layer}.qkv_bias"},
    {"v_bias", "layers.{layer}.qkv_bias"},
    {"sinks", "layers.{layer}.sinks"},
    {"o_proj", "layers.{layer}.o_proj"},
    {"o_bias", "layers.{layer}.o_bias"},
    {"gate", "layers.{layer}.gate_up"},
    {"up", "layers.{layer}.gate_up", NamedIn::gated},
    {"up", "layers.{layer}.up"},
    {"gate_bias", "layers.{layer}.gate_up_bias"},
    {"up_bias", "layers.{layer}.gate_up_bias", NamedIn::gated},
    {"up_bias", "layers.{layer}.up_bias"},
    {"down", "layers.{layer}.down"},
    {"down_bias", "layers.{layer}.down_bias"},
    {"router", "layers.{layer}.router"},
    {"router_bias", "layers.{layer}.router_bias"},
    {"expert_gate", "layers.{layer}.experts.{expert}.gate_up"},
    {"expert_up", "layers.{layer}.experts.{expert}.gate_up", NamedIn::gated},
    {"expert_up", "layers.{layer}.experts.{expert}.up"},
    {"expert_down", "layers.{layer}.experts.{expert}.down"},
    {"shared_gate", "layers.{layer}.shared_gate_up"},
    {"shared_up", "layers.{layer}.shared_gate_up", NamedIn::gated},
    {"shared_up", "layers.{layer}.shared_up"},
    {"shared_down", "layers.{layer}.shared_down"},
    {"attn_norm", "layers.{layer}.attn_norm"},
    {"attn_norm_bias", "layers.{layer}.attn_norm_bias"},
    {"ffn_norm", "layers.{layer}.ffn_norm"},
    {"ffn_norm_bias", "layers.{layer}.ffn_norm_bias"},
    {"q_norm", "layers.{layer}.q_norm"},
    {"k_norm", "layers.{layer}.k_norm"},
};

constexpr RoleName kHuggingFace[] = {
    {"embed", "model.embed_tokens.weight"},
    {"final_norm", "model.norm.weight"},
    {"lm_head", "lm_head.weight"},
    {"q", "model.layers.{layer}.self_attn.q_proj.weight"},
    {"k", "model.layers.{layer}.self_attn.k_proj.weight"},
    {"v", "model.layers.{layer}.self_attn.v_proj.weight"},
    {"q_bias", "model.layers.{layer}.self_attn.q_proj.bias"},
    {"k_bias", "model.layers.{layer}.self_attn.k_proj.bias"},
    {"v_bias", "model.layers.{layer}.self_attn.v_proj.bias"},
    {"o_proj", "model.layers.{layer}.self_attn.o_proj.weight"},
    {"o_bias", "model.layers.{layer}.self_attn.o_proj.bias"},
    {"gate", "model.layers.{layer}.mlp.gate_proj.weight"},
    {"up", "model.layers.{layer}.mlp.up_proj.weight"},
    {"down", "model.layers.{layer}.mlp.down_proj.weight"},
    {"attn_norm", "model.layers.{layer}.input_layernorm.weight"},
    {"ffn_norm", "model.layers.{layer}.post_attention_layernorm.weight"},
    {"q_norm", "model.layers.{layer}.self_attn.q_norm.weight"},
    {"k_norm", "model.layers.{layer}.self_attn.k_norm.weight"},
};

constexpr RoleName kHuggingFaceMoe[] = {
    {"router", "model.layers.{layer}.mlp.gate.weight"},
    {"router_bias", "model.layers.{layer}.mlp.gate.e_score_correction_bias"},
    {"expert_gate", "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    {"expert_up", "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    {"expert_down", "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    {"shared_gate", "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    {"shared_up", "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
    {"shared_down", "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

constexpr RoleName kMixtral[] = {
    {"router", "model.layers.{layer}.block_sparse_moe.gate.weight"},
    {"expert_gate", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"},
    {"expert_up", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
    {"expert_down", "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
};

constexpr RoleName kGpt2[] = {
    {"embed", "wte.weight"},
    {"positions", "wpe.weight"},
    {"lm_head", "lm_head.weight"},
    {"final_norm", "ln_f.weight"},
    {"final_norm_bias", "ln_f.bias"},
    {"q", "h.{layer}.attn.c_attn.weight"},
    {"k", "h.{layer}.attn.c_attn.weight"},
    {"v", "h.{layer}.attn.c_attn.weight"},
    {"q_bias", "h.{layer}.attn.c_attn.bias"},
    {"k_bias", "h.{layer}.attn.c_attn.bias"},
    {"v_bias", "h.{layer}.attn.c_attn.bias"},
    {"o_proj", "h.{layer}.attn.c_proj.weight"},
    {"o_bias", "h.{layer}.attn.c_proj.bias"},
    {"up", "h.{layer}.mlp.c_fc.weight"},
    {"up_bias", "h.{layer}.mlp.c_fc.bias"},
    {"down", "h.{layer}.mlp.c_proj.weight"},
    {"down_bias", "h.{layer}.mlp.c_proj.bias"},
    {"attn_norm", "h.{layer}.ln_1.weight"},
    {"attn_norm_bias", "h.{layer}.ln_1.bias"},
    {"ffn_norm", "h.{layer}.ln_2.weight"},
    {"ffn_norm_bias", "h.{layer}.ln_2.bias"},
};

constexpr RoleName kNeox[] = {
    {"embed", "gpt_neox.embed_in.weight"},
    {"lm_head", "embed_out.weight"},
    {"final_norm", "gpt_neox.final_layer_norm.weight"},
    {"final_norm_bias", "gpt_neox.final_layer_norm.bias"},
    {"q", "gpt_neox.layers.{layer}.attention.query_key_value.weight"},
    {"k", "gpt_neox.layers.{layer}.attention.query_key_value.weight"},
    {"v", "gpt_neox.layers.{layer}.attention.query_key_value.weight"},
    {"q_bias", "gpt_neox.layers.{layer}.attention.query_key_value.bias"},
    {"k_bias", "gpt_neox.layers.{layer}.attention.query_key_value.bias"},
    {"v_bias", "gpt_neox.layers.{layer}.attention.query_key_value.bias"},
    {"o_proj", "gpt_neox.layers.{layer}.attention.dense.weight"},
    {"o_bias", "gpt_neox.layers.{layer}.attention.dense.bias"},
    {"up", "gpt_neox.layers.{layer}.mlp.dense_h_to_4h.weight"},
    {"up_bias", "gpt_neox.layers.{layer}.mlp.dense_h_to_4h.bias"},
    {"down", "gpt_neox.layers.{layer}.mlp.dense_4h_to_h.weight"},
    {"down_bias", "gpt_neox.layers.{layer}.mlp.dense_4h_to_h.bias"},
    {"attn_norm", "gpt_neox.layers.{layer}.input_layernorm.weight"},
    {"attn_norm_bias", "gpt_neox.layers.{layer}.input_layernorm.bias"},
    {"ffn_norm", "gpt_neox.layers.{layer}.post_attention_layernorm.weight"},
    {"ffn_norm_bias", "gpt_neox.layers.{layer}.post_attention_layernorm.bias"},
};

constexpr RoleName kVllm[] = {
    {"q", "model.layers.{layer}.self_attn.qkv_proj.weight"},
    {"k", "model.layers.{layer}.self_attn.qkv_proj.weight"},
    {"v", "model.layers.{layer}.self_attn.qkv_proj.weight"},
    {"q_bias", "model.layers.{layer}.self_attn.qkv_proj.bias"},
    {"k_bias", "model.layers.{layer}.self_attn.qkv_proj.bias"},
    {"v_bias", "model.layers.{layer}.self_attn.qkv_proj.bias"},
    {"gate", "model.layers.{layer}.mlp.gate_up_proj.weight"},
    {"up", "model.layers.{layer}.mlp.gate_up_proj.weight"},
};

constexpr RoleName kVllmMoe[] = {
    {"router", "model.layers.{layer}.mlp.gate.weight"},
    {"router_bias", "model.layers.{layer}.mlp.gate.e_score_correction_bias"},
    {"expert_gate", "model.layers.{layer}.mlp.experts.w13_weight"},
    {"expert_up", "model.layers.{layer}.mlp.experts.w13_weight"},
    {"expert_down", "model.layers.{layer}.mlp.experts.w2_weight"},
    {"shared_gate", "model.layers.{layer}.mlp.shared_experts.gate_up_proj.weight"},
    {"shared_up", "model.layers.{layer}.mlp.shared_experts.gate_up_proj.weight"},
    {"shared_down", "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

constexpr RoleName kMegatron[] = {
    {"embed", "embedding.word_embeddings.weight"},
    {"final_norm", "decoder.final_layernorm.weight"},
    {"lm_head", "output_layer.weight"},
    {"q", "decoder.layers.{layer}.self_attention.linear_qkv.weight"},
    {"k", "decoder.layers.{layer}.self_attention.linear_qkv.weight"},
    {"v", "decoder.layers.{layer}.self_attention.linear_qkv.weight"},
    {"q_bias", "decoder.layers.{layer}.self_attention.linear_qkv.bias"},
    {"k_bias", "decoder.layers.{layer}.self_attention.linear_qkv.bias"},
    {"v_bias", "decoder.layers.{layer}.self_attention.linear_qkv.bias"},
    {"o_proj", "decoder.layers.{layer}.self_attention.linear_proj.weight"},
    {"o_bias", "decoder.layers.{layer}.self_attention.linear_proj.bias"},
    {"gate", "decoder.layers.{layer}.mlp.linear_fc1.weight"},
    {"up", "decoder.layers.{layer}.mlp.linear_fc1.weight"},
    {"down", "decoder.layers.{layer}.mlp.linear_fc2.weight"},
    {"attn_norm", "decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight"},
    {"ffn_norm", "decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight"},
    {"q_norm", "decoder.layers.{layer}.self_attention.q_layernorm.weight"},
    {"k_norm", "decoder.layers.{layer}.self_attention.k_layernorm.weight"},
};

constexpr RoleName kMegatronMoe[] = {
    {"ffn_norm", "decoder.layers.{layer}.pre_mlp_layernorm.weight", NamedIn::expert_layers},
    {"router", "decoder.layers.{layer}.mlp.router.weight"},
    {"router_bias", "decoder.layers.{layer}.mlp.router.expert_bias"},
    {"expert_gate", "decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}"},
    {"expert_up", "decoder.layers.{layer}.mlp.experts.linear_fc1.weight{expert}"},
    {"expert_down", "decoder.layers.{layer}.mlp.experts.linear_fc2.weight{expert}"},
    {"shared_gate", "decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight"},
    {"shared_up", "decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight"},
    {"shared_down", "decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight"},
};

constexpr RoleName kTorchtitan[] = {
    {"embed", "tok_embeddings.weight"},
    {"final_norm", "norm.weight"},
    {"lm_head", "output.weight"},
    {"q", "layers.{layer}.attention.wq.weight"},
    {"k", "layers.{layer}.attention.wk.weight"},
    {"v", "layers.{layer}.attention.wv.weight"},
    {"q_bias", "layers.{layer}.attention.wq.bias"},
    {"k_bias", "layers.{layer}.attention.wk.bias"},
    {"v_bias", "layers.{layer}.attention.wv.bias"},
    {"o_proj", "layers.{layer}.attention.wo.weight"},
    {"o_bias", "layers.{layer}.attention.wo.bias"},
    {"gate", "layers.{layer}.feed_forward.w1.weight"},
    {"up", "layers.{layer}.feed_forward.w3.weight"},
    {"down", "layers.{layer}.feed_forward.w2.weight"},
    {"attn_norm", "layers.{layer}.attention_norm.weight"},
    {"ffn_norm", "layers.{layer}.ffn_norm.weight"},
    {"q_norm", "layers.{layer}.attention.q_norm.weight"},
    {"k_norm", "layers.{layer}.attention.k_norm.weight"},
};

bool is_in(NamedIn where, const Geometry& geometry, std::int64_t layer) {
  switch (where) {
    case NamedIn::every:
      return true;
    case NamedIn::gated:
      return geometry.gated;
    case NamedIn::expert_layers:
      return geometry.has_experts(layer);
  }
  return false;
}

}  // namespace

constinit const ConsumerNames kSeedNames = {kSeed};
constinit const ConsumerNames kHuggingFaceNames = {kHuggingFace};
constinit const ConsumerNames kHuggingFaceMoeNames = {kHuggingFaceMoe, &kHuggingFaceNames};
constinit const ConsumerNames kMixtralNames = {kMixtral, &kHuggingFaceNames};
constinit const ConsumerNames kGpt2Names = {kGpt2};
constinit const ConsumerNames kNeoxNames = {kNeox};
constinit const ConsumerNames kVllmNames = {kVllm, &kHuggingFaceNames};
constinit const ConsumerNames kVllmMoeNames = {kVllmMoe, &kVllmNames};
constinit const ConsumerNames kMegatronNames = {kMegatron};
constinit const ConsumerNames kMegatronMoeNames = {kMegatronMoe, &kMegatronNames};
constinit const ConsumerNames kTorchtitanNames = {kTorchtitan};

std::string_view ConsumerNames::find(std::string_view role, const Geometry& geometry,
                                     std::int64_t layer) const {
  for (const RoleName& name : own) {
    if (name.role == role && is_in(name.where, geometry, layer)) return name.tensor;
  }
  return base == nullptr ? std::string_view{} : base->find(role, geometry, layer);
}

}  // namespace shardcheck
