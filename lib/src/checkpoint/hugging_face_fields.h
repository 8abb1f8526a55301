// Fields of config.json, in three lists: those that are read, those that cannot change the logits of given
// tokens, and those that can but have a value that says what the supported families compute anyway. Every
// other field, listed or not, is refused by name unless it is null. Private to the checkpoint folder.
#pragma once

namespace shardcheck {

/// Read and checked one by one.
inline constexpr const char* kUnderstoodFields[] = {"model_type",
                                                    "architectures",
                                                    "hidden_size",
                                                    "num_hidden_layers",
                                                    "num_attention_heads",
                                                    "num_key_value_heads",
                                                    "head_dim",
                                                    "intermediate_size",
                                                    "vocab_size",
                                                    "rms_norm_eps",
                                                    "rope_theta",
                                                    "rope_parameters",
                                                    "tie_word_embeddings",
                                                    "layer_types",
                                                    "max_position_embeddings",
                                                    "sliding_window",
                                                    "torch_dtype",
                                                    "dtype",
                                                    "bos_token_id",
                                                    "eos_token_id"};

// transformers, configuration_utils.py (PreTrainedConfig) and configuration_{llama,mistral,qwen2,qwen3}.py.
inline constexpr const char* kHarmlessFields[] = {
    // Who wrote the file, with what.
    "transformers_version", "_name_or_path", "name_or_path", "_commit_hash", "_from_model_config",
    "unsloth_version", "unsloth_fixed", "tokenizer_class", "model_max_length",
    // How the modules run: caching, kernels and the form of what they return.
    "use_cache", "_attn_implementation", "attn_implementation", "_attn_implementation_autoset",
    "output_attentions", "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
    "keys_to_ignore_at_inference", "chunk_size_feed_forward",
    // Training alone: drawing the weights, dropout, losses.
    "initializer_range", "attention_dropout", "hidden_dropout", "classifier_dropout",
    "gradient_checkpointing", "neftune_noise_alpha",
    // The layers from which a window applies, which is refused where it is in use.
    "max_window_layers",
    // Heads of other tasks; the architecture is checked.
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "prefix",
    // The choice of the next token, after the logits.
    "do_sample", "temperature", "top_k", "top_p", "typical_p", "max_length", "min_length", "max_new_tokens",
    "num_beams", "num_beam_groups", "diversity_penalty", "early_stopping", "length_penalty",
    "repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "output_scores", "return_dict_in_generate", "forced_bos_token_id",
    "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens",
    // Padding marks positions; it does not zero their embedding in a forward pass.
    "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"};

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
    {"use_mrope", "[false]"},
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
    {"is_decoder", "[false]"},
    {"cross_attention_hidden_size", "[]"},
    {"tie_encoder_decoder", "[false]"},
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
