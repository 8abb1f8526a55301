// Geometries of every family and layouts of every table over meshes, for the tests of this folder.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck::meshes {

inline Geometry llama() {
  Geometry g;
  g.d_model = 10, g.n_layers = 4, g.n_heads = 4, g.n_kv_heads = 2, g.head_dim = 4, g.ffn = 12, g.vocab = 20;
  g.qkv_bias = g.o_bias = g.qk_norm = true;
  return g;
}

inline Geometry tied_llama() {
  Geometry g = llama();
  g.tied = true;
  g.n_kv_heads = 4;
  return g;
}

inline Geometry experts() {
  Geometry g = llama();
  g.n_experts = 4, g.expert_ffn = 8, g.shared_ffn = 4, g.dense_layers = 1;
  g.router_bias = true;
  return g;
}

inline Geometry latent() {
  Geometry g = experts();
  g.qkv_bias = g.qk_norm = false;
  g.q_lora = 6, g.kv_lora = 5, g.nope_dim = 4, g.rope_dim = 2, g.v_dim = 3;
  return g;
}

inline Geometry gpt2() {
  Geometry g = llama();
  g.n_kv_heads = 4;
  g.norm = Norm::layer;
  g.gated = g.qk_norm = false;
  g.mlp_bias = g.tied = true;
  g.positions = 7;
  return g;
}

/// Experts without gates among dense layers with biases, and attention sinks.
inline Geometry sinks() {
  Geometry g = experts();
  g.gated = false;
  g.mlp_bias = g.sinks = true;
  return g;
}

struct Family {
  Geometry geometry;
  std::vector<std::string> layouts;
};

/// Layouts that can hold the geometry beside them, on up to 16 ranks, axes in several orders.
inline std::vector<Family> families() {
  const std::vector<std::string> dense = {"seed:tp2",
                                          "hf-llama",
                                          "hf-llama:tp2",
                                          "hf-phi3",
                                          "vllm-llama:tp2",
                                          "vllm-llama:tp4",
                                          "vllm-llama:pp2,tp4",
                                          "sglang-llama:tp2",
                                          "megatron-llama:tp2",
                                          "megatron-llama:tp4",
                                          "megatron-llama:pp2,tp2",
                                          "megatron-llama:tp2,pp4",
                                          "megatron-llama:pp3,tp2,first1,last2",
                                          "megatron-llama:dp2,pp2,cp2,tp2",
                                          "torchtitan-llama:tp2",
                                          "fsdp2-tp:dp3",
                                          "fsdp2-tp:dp2,tp2",
                                          "fsdp2-tp:tp2,dp4",
                                          "deepspeed-autotp:tp2",
                                          "megatron-llama-zero-centered:tp2"};
  const std::vector<std::string> moe = {"hf-moe",
                                        "hf-moe:tp2",
                                        "vllm-moe:tp2",
                                        "vllm-moe:ep3,tp2",
                                        "vllm-moe:tp4,ep2,etp1",
                                        "vllm-moe:pp2,ep2,etp2",
                                        "megatron-moe:ep4,tp2",
                                        "megatron-moe:pp2,ep2,tp2",
                                        "megatron-moe:tp2,pp2,ep2",
                                        "megatron-moe:ep2,etp2,tp2",
                                        "megatron-moe:tp2,ep2,etp1"};
  const std::vector<std::string> mla = {"hf-mla-moe",
                                        "hf-mla-moe:tp2",
                                        "vllm-mla-moe:ep2,tp2",
                                        "sglang-mla-moe:tp2",
                                        "megatron-mla-moe:pp2,ep2,tp2",
                                        "megatron-mla-moe:tp4,ep2"};
  return {{llama(), dense},
          {tied_llama(), {"hf-llama", "megatron-llama:pp2,tp2", "vllm-llama:tp4", "fsdp2-tp:dp2"}},
          {experts(), moe},
          {latent(), mla},
          {gpt2(), {"hf-gpt2", "hf-gpt2:tp2", "hf-gpt2:tp4"}}};
}

inline Layout layout(const std::string& name, const Geometry& geometry) {
  return make_layout(parse_layout_name(name), geometry);
}

}  // namespace shardcheck::meshes
