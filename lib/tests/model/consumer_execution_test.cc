// A forward pass over shards of every convention of other families than Llama gives the reference's bits.
#include <gtest/gtest.h>

#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck {
namespace {

Geometry plain() {
  Geometry g;
  g.d_model = 16, g.n_layers = 2, g.n_heads = g.n_kv_heads = 4, g.head_dim = 4, g.ffn = 24, g.vocab = 48;
  g.qkv_bias = g.o_bias = true;
  return g;
}

Geometry gpt2() {
  Geometry g = plain();
  g.norm = Norm::layer;
  g.activation = Activation::gelu_tanh;
  g.gated = false;
  g.mlp_bias = g.tied = true;
  g.positions = 16;
  return g;
}

Geometry neox() {
  Geometry g = gpt2();
  g.activation = Activation::gelu;
  g.rope = Rope::half;
  g.tied = false;
  g.positions = 0;
  return g;
}

Geometry mixtral() {
  Geometry g = plain();
  g.rope = Rope::half;
  g.n_experts = 4, g.expert_ffn = 8;
  return g;
}

Geometry deepseek() {
  Geometry g = mixtral();
  g.shared_ffn = 8, g.dense_layers = 1;
  g.router_bias = true;
  return g;
}

void expect_bits_of_reference(const Geometry& g, const std::string& name) {
  SCOPED_TRACE(name);
  const TensorMap weights = make_weights(g, WeightStyle::powered, 1, DType::f32);
  const Tokens tokens = make_tokens(g, 2, 8, 3);
  const Contract contract = contract_for(g);
  const Tensor expected = ReferenceModel(g, weights, Arithmetic::tree, contract).forward(tokens);
  const Layout layout = make_layout(parse_layout_name(name), g);
  require_executable(layout);
  MeshGroups groups(layout.mesh, [](int degree) { return make_in_process_collective(degree); });
  const ShardedModel model(g, split(weights, layout), consumer_named(layout.consumer), groups,
                           Arithmetic::tree, contract, Execution{});
  for (const Tensor& logits : model.forward(tokens)) EXPECT_TRUE(logits.same_bytes(expected));
}

TEST(ConsumerExecution, OfTheSeedOverEveryAxis) {
  expect_bits_of_reference(gpt2(), "seed:cp2,tp2");
  expect_bits_of_reference(neox(), "seed:pp2,tp2");
  expect_bits_of_reference(deepseek(), "seed:pp2,ep2,tp2");
}

TEST(ConsumerExecution, OfHeadwiseFusedRows) {
  for (const char* name : {"hf-neox", "hf-neox:tp2", "hf-neox:tp4"}) expect_bits_of_reference(neox(), name);
}

TEST(ConsumerExecution, OfTransposedTensors) {
  for (const char* name : {"hf-gpt2", "hf-gpt2:tp2", "hf-gpt2:tp4"}) expect_bits_of_reference(gpt2(), name);
}

TEST(ConsumerExecution, OfStackedExperts) {
  for (const char* name : {"vllm-moe", "vllm-moe:tp2", "vllm-moe:tp4"}) {
    expect_bits_of_reference(deepseek(), name);
  }
}

TEST(ConsumerExecution, OfExperts) {
  expect_bits_of_reference(mixtral(), "hf-mixtral:tp2");
  for (const char* name : {"hf-moe", "hf-moe:tp4", "megatron-moe:ep2,tp2", "megatron-moe:cp2,ep4"}) {
    expect_bits_of_reference(deepseek(), name);
  }
}

}  // namespace
}  // namespace shardcheck
