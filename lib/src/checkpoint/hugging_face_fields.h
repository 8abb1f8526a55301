// Fields of config.json that change the function: every one is refused by name unless it says what the
// supported families compute anyway. Fields that are not listed here are ignored. Private to the checkpoint
// folder.
#pragma once

namespace shardcheck {

/// A field that changes the function unless it is absent, null or one of `allowed` (a JSON array).
struct NeutralField {
  const char* name;
  const char* allowed;
};

// From transformers configurations, of these families or of relatives that reuse their model_type.
inline constexpr NeutralField kNeutralFields[] = {
    {"hidden_act", R"(["silu"])"},
    {"hidden_activation", R"(["silu"])"},
    {"mlp_hidden_act", R"(["silu"])"},
    {"activation_function", R"(["silu"])"},
    {"swiglu_limit", "[]"},
    // Biases. In llama and qwen3 attention_bias adds one to o_proj as well.
    {"attention_bias", "[false]"},
    {"attention_out_bias", "[false]"},
    {"mlp_bias", "[false]"},
    {"lm_head_bias", "[false]"},
    {"add_bias_linear", "[false]"},
    {"bias", "[false]"},
    {"use_bias", "[false]"},
    {"no_bias", "[true]"},
    // Norms.
    {"norm_type", R"(["rmsnorm","rms_norm","RMSNorm"])"},
    {"rmsnorm", "[true]"},
    {"apply_layernorm_1p", "[false]"},
    {"layernorm_zero_centered_gamma", "[false]"},
    {"apply_residual_connection_post_layernorm", "[false]"},
    {"use_post_norm", "[false]"},
    // Positions.
    {"position_embedding_type", R"(["rope","rotary"])"},
    {"use_rope", "[true]"},
    {"rope_scaling", "[]"},
    {"rope_ratio", "[1]"},
    {"rope_pct", "[1]"},
    {"rope_percent", "[1]"},
    {"partial_rotary_factor", "[1]"},
    {"rotary_pct", "[1]"},
    {"rotary_dim", "[]"},
    {"rope_interleave", "[false]"},
    {"rope_interleaved", "[false]"},
    {"rope_local_base_freq", "[]"},
    {"no_rope_layers", "[[]]"},
    {"no_rope_layer_interval", "[0]"},
    {"use_dynamic_ntk", "[false]"},
    {"use_logn_attn", "[false]"},
    {"alibi", "[false]"},
    {"use_alibi", "[false]"},
    // Attention.
    {"use_sliding_window", "[false]"},
    {"sliding_window_pattern", "[]"},
    {"attention_chunk_size", "[]"},
    {"dual_chunk_attention_config", "[]"},
    {"attention_sinks", "[false]"},
    {"use_attention_sinks", "[false]"},
    {"add_full_attention_sink_bias", "[false]"},
    {"add_swa_attention_sink_bias", "[false]"},
    {"attn_logit_softcapping", "[]"},
    {"final_logit_softcapping", "[]"},
    {"logit_softcapping", "[]"},
    {"query_pre_attn_scalar", "[]"},
    {"softmax_scale", "[]"},
    {"scale_attn_weights", "[true]"},
    {"scale_attn_by_inverse_layer_idx", "[false]"},
    {"attn_temperature_tuning", "[false]"},
    {"attn_output_gate", "[false]"},
    {"headwise_attn_output_gate", "[false]"},
    {"elementwise_attn_output_gate", "[false]"},
    {"clip_qkv", "[]"},
    {"is_causal", "[true]"},
    {"use_bidirectional_attention", "[false]"},
    {"add_cross_attention", "[false]"},
    {"is_encoder_decoder", "[false]"},
    {"pruned_heads", "[{}]"},
    {"kv_lora_rank", "[]"},
    {"q_lora_rank", "[]"},
    {"num_kv_shared_layers", "[0]"},
    {"full_attention_interval", "[1]"},
    // Scales.
    {"attention_multiplier", "[]"},
    {"embedding_multiplier", "[1]"},
    {"residual_multiplier", "[1]"},
    {"key_multiplier", "[1]"},
    {"lm_head_multiplier", "[1]"},
    {"mlp_multipliers", "[[1,1]]"},
    {"logits_scaling", "[1]"},
    {"logit_scale", "[1]"},
    {"scale_embedding", "[false]"},
    {"scale_emb", "[1]"},
    {"scale_depth", "[]"},
    {"dim_model_base", "[]"},
    // Structure.
    {"num_experts", "[0]"},
    {"num_local_experts", "[0]"},
    {"n_routed_experts", "[0]"},
    {"num_nextn_predict_layers", "[0]"},
    {"parallel_attn", "[false]"},
    {"use_parallel_residual", "[false]"},
    {"block_configs", "[]"},
    {"pretraining_tp", "[1]"},
    {"quantization_config", "[]"},
    {"compression_config", "[]"},
    {"text_config", "[]"},
    {"vision_config", "[]"},
    {"auto_map", "[]"},
};

/// Allowed is what the family has: true for qwen2, false for the others.
inline constexpr const char* kQkvBiasFields[] = {"qkv_bias", "use_qkv_bias", "add_qkv_bias"};

/// Allowed is what the family has: true for qwen3, false for the others.
inline constexpr const char* kQkNormFields[] = {"qk_norm", "use_qk_norm", "qk_layernorm"};

}  // namespace shardcheck
