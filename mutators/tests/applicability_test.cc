// Every fault against models and layouts of every framework: it can be asked of all of them, and where it
// says that it acts it does, in tensors of the right shapes and dtypes.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "random_cases.h"
#include "shardcheck/mutators/delivery.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {
namespace {

constexpr const char* kDense = "d_model=10 layers=2 heads=4 kv_heads=2 head_dim=4 ffn=8 vocab=24 ";
constexpr const char* kExperts =
    "d_model=10 layers=2 heads=4 kv_heads=2 head_dim=4 ffn=8 vocab=24 experts=4 expert_ffn=8 ";
constexpr const char* kGpt2 =
    "d_model=8 layers=2 heads=4 kv_heads=4 head_dim=2 ffn=8 vocab=24 norm=layer activation=gelu_tanh "
    "gated=false mlp_bias=true qkv_bias=true o_bias=true positions=16 ";
constexpr const char* kNeox =
    "d_model=16 layers=2 heads=4 kv_heads=4 head_dim=4 ffn=8 vocab=24 norm=layer activation=gelu gated=false "
    "mlp_bias=true qkv_bias=true o_bias=true parallel_residual=true rope=half ";
constexpr const char* kLatent =
    "d_model=10 layers=2 heads=4 kv_heads=4 head_dim=4 ffn=8 vocab=24 q_lora=6 kv_lora=6 nope_dim=4 "
    "rope_dim=2 "
    "v_dim=4 experts=4 expert_ffn=8 shared_ffn=8 dense_layers=1 router_bias=true ";

struct Problem {
  const char* model;
  const char* rest;
};

const std::vector<Problem> kProblems = {
    // Llamas.
    {kDense, ""},
    {kDense, "target=seed:tp2"},
    {kDense, "source=seed:tp2 target=seed"},
    {kDense, "source=seed:tp2 target=seed:tp2 rope=half qkv_bias=true qk_norm=true"},
    {kDense, "kv_heads=4 target=seed:tp4 rope=half rotary_dim=2"},
    {kDense, "kv_heads=4 target=seed:tp2 alibi=true"},
    {kDense, "target=seed:tp2 sinks=true tied=true"},
    {kDense, "target=seed:tp2 vocab=23 dtype=bf16"},
    {kDense, "target=seed:tp2 d_model=16 layers=1"},
    {kDense, "target=seed:tp2 d_model=8"},
    {kDense, "target=seed:tp2 heads=2 head_dim=1"},
    {kDense, "target=seed:tp2 length=1"},
    {kDense, "target=seed:tp2 lengths=1,1 rope=half sinks=true"},
    {kDense, "target=seed:tp2 weights=recorded"},
    {kDense, "target=seed:tp2 norm=layer activation=gelu gated=false"},
    {kDense, "target=seed:tp2 mlp_bias=true o_bias=true qkv_bias=true"},
    {kDense, "target=seed-bias-divided:tp2 mlp_bias=true o_bias=true"},
    {kDense, "source=seed-bias-divided:tp2 target=seed-bias-on-first-rank:tp2 mlp_bias=true o_bias=true"},
    {kDense, "source=seed-bias-on-first-rank:tp2 target=seed mlp_bias=true o_bias=true"},
    {kDense, "heads=1 kv_heads=1"},
    {kDense, "heads=2 kv_heads=2 target=seed:tp2 d_model=1 layers=1"},
    {kDense, "target=hf-llama:tp2 rope=half"},
    {kDense, "source=hf-llama target=vllm-llama:tp2 qkv_bias=true"},
    {kDense, "source=vllm-llama:tp2 target=hf-llama tied=true"},
    {kDense, "target=hf-phi3:tp2"},
    {kDense, "target=megatron-llama:tp2 qkv_bias=true"},
    {kDense, "source=megatron-llama:tp2 target=seed:tp2"},
    {kDense, "target=megatron-llama:tp4"},
    {kDense, "target=megatron-llama-zero-centered:tp2"},
    {kDense, "source=megatron-llama-zero-centered:tp2 target=megatron-llama"},
    {kDense, "target=torchtitan-llama:tp2 rope=half"},
    {kDense, "target=sglang-llama:tp2"},
    // More ranks than KV heads.
    {kDense, "target=vllm-llama:tp4 qkv_bias=true"},
    {kDense, "source=vllm-llama:tp4 target=vllm-llama:tp4"},
    {kDense, "source=vllm-llama:tp4 target=seed:tp2 qkv_bias=true"},
    {kDense, "source=vllm-llama:tp2 target=sglang-llama:tp4 layers=1"},
    {kDense, "kv_heads=1 target=vllm-llama:tp2 head_dim=1"},
    {kDense, "kv_heads=1 target=vllm-llama:tp2 qkv_bias=true"},
    {kDense, "heads=8 kv_heads=2 target=vllm-llama:tp4"},
    {kDense, "heads=8 kv_heads=2 target=vllm-llama:tp8 qkv_bias=true"},
    // Uneven cuts, empty shards.
    {kDense, "target=deepspeed-autotp:tp2 heads=3 kv_heads=3 ffn=7 qkv_bias=true"},
    {kDense, "target=deepspeed-autotp:tp4"},
    {kDense, "target=deepspeed-autotp:tp2 ffn=1"},
    {kDense, "target=deepspeed-autotp:tp4 heads=1 kv_heads=1 ffn=2 d_model=3 qkv_bias=true rope=half"},
    {kDense, "source=deepspeed-autotp:tp4 target=deepspeed-autotp:tp4 heads=3 kv_heads=3 ffn=3"},
    {kDense, "source=deepspeed-autotp:tp3 target=seed"},
    // Other families.
    {kGpt2, ""},
    {kGpt2, "target=seed:tp2"},
    {kGpt2, "target=hf-gpt2:tp2"},
    {kGpt2, "source=hf-gpt2:tp2 target=hf-gpt2:tp4"},
    {kGpt2, "target=hf-gpt2 tied=true"},
    {kNeox, "target=seed:tp2 rotary_dim=2"},
    {kNeox, "target=hf-neox:tp2"},
    {kNeox, "source=hf-neox:tp2 target=hf-neox rotary_dim=2"},
    // Experts.
    {kExperts, ""},
    {kExperts, "target=seed:tp2"},
    {kExperts, "target=seed:ep2"},
    {kExperts, "target=seed:ep2,tp2 experts_per_token=3 shared_ffn=8 router_bias=true"},
    {kExperts, "target=seed:tp2 dense_layers=1 shared_ffn=6"},
    {kExperts, "target=seed layers=3 dense_layers=2"},
    {kExperts, "target=seed:tp2 layers=3 dense_layers=1 experts=12"},
    {kExperts, "target=seed:tp2 dense_layers=2"},
    {kExperts, "target=seed:tp2 experts=1 experts_per_token=1"},
    {kExperts, "target=seed:tp2 experts=2"},
    {kExperts, "target=hf-mixtral:tp2"},
    {kExperts, "target=hf-moe:tp2 shared_ffn=8 dense_layers=1 router_bias=true"},
    {kExperts, "target=vllm-moe:tp2"},
    {kExperts, "target=vllm-moe:tp2 dense_layers=1 router_bias=true"},
    {kExperts, "target=vllm-moe:tp4 dense_layers=1 shared_ffn=4"},
    {kExperts, "target=vllm-moe:ep2,tp2 experts=5"},
    {kExperts, "target=vllm-moe:ep4 experts=2"},
    {kExperts, "target=megatron-moe:tp2"},
    {kExperts, "target=megatron-moe:ep2,etp2 d_model=8"},
    {kExperts, "target=megatron-moe:pp2,ep2,tp2 dense_layers=1"},
    {kExperts, "source=hf-moe target=megatron-moe:ep2"},
    // Latent attention.
    {kLatent, "source=hf-mla-moe target=hf-mla-moe"},
    {kLatent, "source=hf-mla-moe target=megatron-mla-moe:tp2"},
    {kLatent, "source=hf-mla-moe target=vllm-mla-moe:tp2"},
    {kLatent, "source=hf-mla-moe target=sglang-mla-moe:tp2"},
    {kLatent, "source=hf-mla-moe target=megatron-mla-moe:pp2,ep2,tp2"},
    // Other axes.
    {kDense, "target=seed:pp2"},
    {kDense, "target=seed:pp2,tp2 rope=half"},
    {kDense, "target=seed:tp2,pp2"},
    {kDense, "target=seed:pp2,first1 layers=3"},
    {kDense, "target=megatron-llama:pp2 tied=true"},
    {kDense, "target=megatron-llama:pp3,first1 layers=5"},
    {kDense, "target=vllm-llama:pp2,tp2 tied=true"},
    {kDense, "target=seed:cp2 rope=half"},
    {kDense, "target=seed:cp2,tp2 alibi=true"},
    {kDense, "target=seed:cp4 sinks=true"},
    {kDense, "target=seed:dp2"},
    {kDense, "target=seed:dp2,tp2"},
    {kDense, "target=fsdp2-tp:dp2"},
    {kDense, "target=fsdp2-tp:dp2,tp2 qkv_bias=true"},
    {kDense, "target=fsdp2-tp:dp3,tp2 d_model=1 qk_norm=true"},
    {kDense, "source=fsdp2-tp:dp2,tp2 target=seed"},
    {kDense, "source=fsdp2-tp:dp2,tp2 target=seed:tp2"},
    // What has no layout.
    {kDense, "target=seed:tp3"},
    {kDense, "source=seed:tp3 target=seed:tp2"},
};

Case case_of(const Problem& problem) {
  Case c = parse_case(std::string("sharded_equals_reference length=9 seed=5 ") + problem.model);
  std::string_view rest = problem.rest;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    const std::size_t equals = word.find('=');
    set_case_key(c, word.substr(0, equals), word.substr(equals + 1));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return c;
}

/// The workbench runs sequences of one length as a batch.
Case as_whole_batch(Case c) {
  if (c.lengths.empty()) return c;
  c.batch = std::ssize(c.lengths);
  c.length = c.lengths.front();
  c.lengths.clear();
  return c;
}

bool can_be_laid_out(const LayoutName& name, const Geometry& geometry) {
  try {
    (void)make_layout(name, geometry);
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

/// What a fault may not do, found on one case.
class Asked {
 public:
  explicit Asked(Case c) : case_(std::move(c)) {
    if (!can_be_laid_out(case_.source, case_.geometry) || !can_be_laid_out(case_.target, case_.geometry))
      return;
    bench_.emplace(as_whole_batch(case_));
    Subject ours;
    right_ = bench_->moved(ours, bench_->weights());
    runs_ = can_run(case_.target, case_.geometry);
  }

  void about(const FaultChoice& choice) {
    const std::string what = print_case(case_) + " fault=" + choice.text();
    try {
      const auto reason = choice.fault->why_inapplicable(case_, choice.argument);
      if (reason) {
        EXPECT_NE(*reason, "") << what;
        return;
      }
      if (!bench_) return;  // the case is refused, with a fault or without
      const auto witness = why_equivalent(choice, case_);
      const auto faulty = choice.fault->inject(std::make_shared<Subject>(), case_, choice.argument);
      acts_on_shards(*choice.fault) ? shards_differ(choice, *faulty, witness, what)
                                    : logits_differ(choice, *faulty, witness, what);
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << " raises " << error.what();
    }
  }

 private:
  void shards_differ(const FaultChoice& choice, Subject& faulty, const std::optional<std::string>& witness,
                     const std::string& what) {
    const ShardedTensors shards = bench_->moved(faulty, bench_->weights());
    require_shards_of(bench_->target(), shards);
    for (const auto& [name, ranks] : shards) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(ranks[rank].dtype(), right_.at(name)[rank].dtype()) << what << ": " << name;
        EXPECT_EQ(ranks[rank].shape(), right_.at(name)[rank].shape()) << what << ": " << name;
      }
    }
    const bool differ = !differing_places(bench_->target(), right_, shards).empty();
    if (choice.fault->equivalent != nullptr && choice.fault->equivalent(case_, choice.argument)) {
      EXPECT_FALSE(differ) << what << " has a witness: " << *witness;
    } else if (choice.fault->law.empty()) {
      EXPECT_TRUE(differ) << what << " changes nothing";
    }
  }

  void logits_differ(const FaultChoice& choice, Subject& faulty, const std::optional<std::string>& witness,
                     const std::string& what) {
    if (!runs_ || !choice.fault->law.empty()) return;
    const bool in_order = choice.fault->family == 'D';
    const Arithmetic arithmetic = in_order ? Arithmetic::tree : Arithmetic::exact;
    std::vector<Tensor> logits;
    try {
      logits = bench_->execute(faulty, right_, arithmetic);
    } catch (const CollectiveMismatch&) {
      return;  // ranks route tokens to other experts: that is seen
    }
    Subject ours;
    auto& expected = in_order ? in_tree_ : in_exact_;
    if (expected.empty()) expected = bench_->execute(ours, right_, arithmetic);
    bool differ = false;
    for (std::size_t rank = 0; rank < logits.size(); ++rank)
      differ = differ || !logits[rank].same_bytes(expected[rank]);
    EXPECT_EQ(differ, !witness) << what;
  }

  Case case_;
  std::optional<Workbench> bench_;
  ShardedTensors right_;
  bool runs_ = false;
  std::vector<Tensor> in_tree_, in_exact_;
};

TEST(Applicability, WhatSaysThatItActsDoesAndAskingNeverRaises) {
  for (const Problem& problem : kProblems) {
    Asked asked(case_of(problem));
    for (const FaultChoice& choice : every_choice()) {
      if (choice.fault->effective == nullptr) asked.about(choice);
    }
  }
}

}  // namespace
}  // namespace shardcheck
