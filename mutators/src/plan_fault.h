// Shared by the faults: finding tensors by what they hold, and subjects that damage what a right one
// delivers.
//
// A fault of the plan or value level damages the shards that reach the target, that is the result of
// `reshard`. `split` stays right: a case splits its weights to the source and reshards them to the target,
// and damage done twice may cancel (a reversed order reversed again).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/mutators/fault.h"

namespace shardcheck::faults {

inline constexpr std::string_view kOneRank = "one rank: the injection is the identity";
inline constexpr std::string_view kUnrepresentable = "the target layout cannot be represented";

/// nullopt: where the fault's own weights are, it acts.
inline std::optional<std::string> nowhere_inapplicable(const Case&, std::string_view) { return std::nullopt; }

/// kUnrepresentable, kOneRank or nullopt.
std::optional<std::string> needs_ranks(const Case& c);
/// kUnrepresentable or nullopt.
std::optional<std::string> needs_layout(const Case& c);

/// What a wrong sum of a row-parallel layer of this role needs to act: ranks, and that a layer has the role.
std::optional<std::string> needs_sum_of(const Case& c, std::string_view role);

/// What a rotary embedding needs to act: kUnrepresentable, that there is none, or nullopt.
std::optional<std::string> needs_rope(const Case& c);

/// The case's target or source layout, nullptr when it cannot be represented. The last one is remembered per
/// thread.
std::shared_ptr<const Layout> target_layout(const Case& c);
std::shared_ptr<const Layout> source_layout(const Case& c);

/// Tokens of the longest sequence.
std::int64_t longest_sequence(const Case& c);
/// The tokens the case runs on.
Tokens tokens_of(const Case& c);

/// Whether the file tensor stacks exactly these roles, in this order, and is nothing else.
bool stacks(const LayoutEntry& entry, std::initializer_list<std::string_view> roles);
/// Whether it ends in rows that no parameter has.
bool is_padded(const LayoutEntry& entry);
/// Whether it is an output head, cut into rows, of which the second rank holds rows of tokens too.
bool is_head_of_two_ranks(const LayoutEntry& entry, const Layout& layout);
/// Why rows of q and k cannot be told apart by their place in a rank's tensor, or nullopt.
std::optional<std::string> needs_plain_heads(const Case& c);
/// Whether every logical tensor in it belongs to the group: "qkv" is q, k and v, "gate_up" is gate and up,
/// any other group is the role of that name.
bool belongs_to(const LayoutEntry& entry, std::string_view group);
/// Whether it holds norm weights.
bool is_norm(const LayoutEntry& entry);
/// Whether it is the output head: lm_head, or embed when tied.
bool is_head(const LayoutEntry& entry, const Layout& layout);
/// Whether ranks hold different parts of it.
bool is_cut(const LayoutEntry& entry);

/// The entry that holds exactly one logical tensor, nullptr when it is fused or absent.
const LayoutEntry* unfused(const Layout& layout, std::string_view logical_name);

/// Rows of dimension 0 in another order: out row i = in row order[i].
Tensor with_rows(const Tensor& tensor, std::span<const std::int64_t> order);
/// torch.roll along dimension 0: out row (i + shift) mod n = in row i.
Tensor rolled(const Tensor& tensor, std::int64_t shift);
/// Dimension 0 concatenated.
Tensor stacked(std::span<const Tensor> parts);
/// Rows as columns.
Tensor transposed(const Tensor& matrix);
/// Exchanges two equally long blocks of rows in place.
void swap_rows(Tensor& tensor, std::int64_t first, std::int64_t second, std::int64_t count);
/// Zero bits from row `first` on.
void clear_rows(Tensor& tensor, std::int64_t first, std::int64_t count);
/// The last of the shards that holds anything. Throws std::logic_error when none does.
Tensor& last_held(std::vector<Tensor>& shards);
/// Bytes of one row of dimension 0.
std::size_t row_bytes(const Tensor& tensor);
/// Whether another placement of the same tensor gives every rank a part of the shape it should have, and some
/// rank another part.
bool recuts(const LayoutEntry& entry, const Placement& placement);
/// Right shards replaced by those of another placement of the same tensor.
void recut(const LayoutEntry& entry, Placement placement, std::vector<Tensor>& shards);

/// Every value replaced by change(value), rounded to the tensor's dtype.
void change_values(Tensor& tensor, const std::function<float(float)>& change);

/// Whether the first layers are dense and later ones have experts.
bool has_two_kinds_of_layers(const Geometry& g);
/// The file tensor of another layer that holds the same roles. Throws std::out_of_range when there is none.
const LayoutEntry& in_layer(const Layout& layout, const LayoutEntry& entry, std::int64_t layer);
/// All weights of the case's model as another seed draws them.
TensorMap earlier_weights(const Case& c, DType dtype);
/// That of all of them.
DType dtype_of(const ShardedTensors& shards);

// Moves of a drawn case, for Fault::steer.

/// Tables of the seed, which hold every role and run over every axis, in place of others.
void use_seed_tables(Case& c);
/// A target over its tp ranks, and over two along another axis.
void run_over(Case& c, std::string_view axis);
/// A dense Llama whose layouts are tables for it.
void use_plain_llama(Case& c);
/// Biases on o_proj and down, encoded in the target in one of the three ways; as shares only where sharing
/// rounds nothing.
void give_row_biases(Case& c, Stream& stream);
/// Experts beside a shared one in every layer, in tables that have them.
void give_shared_expert(Case& c, Stream& stream);

/// Damage to all delivered shards of a layout.
using Damage = void (*)(const Case& c, const Layout& target, std::string_view argument,
                        ShardedTensors& shards);
std::shared_ptr<Subject> damage_delivery(std::shared_ptr<Subject> inner, const Case& c,
                                         std::string_view argument, Damage damage);

/// Fault::inject of a fault that is such damage.
template <Damage damage>
std::shared_ptr<Subject> with_damage(std::shared_ptr<Subject> inner, const Case& c,
                                     std::string_view argument) {
  return damage_delivery(std::move(inner), c, argument, damage);
}

/// A fault that damages single file tensors: which ones, and how. Both are pure functions of the entry, so
/// what is injected and whether the fault applies cannot disagree.
using Hits = bool (*)(const LayoutEntry& entry, std::string_view argument);
using Hurt = void (*)(const LayoutEntry& entry, std::string_view argument, std::vector<Tensor>& shards);
std::shared_ptr<Subject> damage_entries(std::shared_ptr<Subject> inner, std::string_view argument, Hits hits,
                                        Hurt hurt);
/// Fault::inject of such a fault.
template <Hits hits, Hurt hurt>
std::shared_ptr<Subject> with_hurt(std::shared_ptr<Subject> inner, const Case& /*c*/,
                                   std::string_view argument) {
  return damage_entries(std::move(inner), argument, hits, hurt);
}

/// nullopt when `holds` is true of a tensor of the target layout, `otherwise` when of none.
using HoldsOf = std::function<bool(const LayoutEntry& entry, const Layout& layout)>;
std::optional<std::string> unless_any(const Case& c, const HoldsOf& holds, std::string_view otherwise);
/// nullopt when a tensor of the target layout is hit, `otherwise` when none is.
std::optional<std::string> unless_hit(const Case& c, std::string_view argument, Hits hits,
                                      std::string_view otherwise);

/// Forwards every step to another: the base of faults of the forward level.
class StepsDecorator : public ForwardSteps {
 public:
  explicit StepsDecorator(const ForwardSteps& inner) : inner_(inner) {}
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    return inner_.norm_statistics(site, x, rows, width, sums);
  }
  double rope_theta(const StepSite& site) const override { return inner_.rope_theta(site); }
  std::int64_t rotary_position(const StepSite& site, const RotaryPlace& place) const override {
    return inner_.rotary_position(site, place);
  }
  std::int64_t first_head(const StepSite& site, const LocalExtent& extent) const override {
    return inner_.first_head(site, extent);
  }
  bool rope_is_half_split(const StepSite& site) const override { return inner_.rope_is_half_split(site); }
  std::int64_t kv_head_of(const StepSite& site, const Consumer& consumer, const LocalExtent& extent,
                          std::int64_t head) const override {
    return inner_.kv_head_of(site, consumer, extent, head);
  }
  bool causal(const StepSite& site) const override { return inner_.causal(site); }
  std::int64_t masked_queries(const StepSite& site, std::int64_t length) const override {
    return inner_.masked_queries(site, length);
  }
  void before_bias(const StepSite& site, std::string_view role, std::span<float> bias) const override {
    inner_.before_bias(site, role, bias);
  }
  std::int64_t padding_in_softmax(const StepSite& site) const override {
    return inner_.padding_in_softmax(site);
  }
  bool masks_embedding(const StepSite& site) const override { return inner_.masks_embedding(site); }
  void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const override {
    inner_.after_partial(site, role, partial);
  }
  std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                    std::int64_t leaf) const override {
    return inner_.leaf(site, role, k, leaf);
  }
  bool ships_leaves(const StepSite& site) const override { return inner_.ships_leaves(site); }
  int reductions(const StepSite& site, std::string_view role) const override {
    return inner_.reductions(site, role);
  }
  std::pair<std::int64_t, std::int64_t> embedding_range(const StepSite& site,
                                                        const LocalExtent& extent) const override {
    return inner_.embedding_range(site, extent);
  }
  std::int64_t block_offset(const StepSite& site, std::int64_t first_query,
                            std::int64_t rows) const override {
    return inner_.block_offset(site, first_query, rows);
  }
  bool uses_local_maximum(const StepSite& site) const override { return inner_.uses_local_maximum(site); }
  void at_stage_boundary(const StepSite& site, std::span<float> x) const override {
    inner_.at_stage_boundary(site, x);
  }
  void order_experts(const StepSite& site, int expert_degree, int expert_rank,
                     std::span<std::int64_t> experts) const override {
    inner_.order_experts(site, expert_degree, expert_rank, experts);
  }

 protected:
  const ForwardSteps& inner() const { return inner_; }

 private:
  const ForwardSteps& inner_;
};

/// A number that a fault hands to its steps as their argument.
std::int64_t number_in(std::string_view argument);

/// A subject that runs with the given faulty steps. `Steps` is constructed from the inner steps and the
/// argument.
template <typename Steps>
class SubjectWithSteps final : public SubjectDecorator {
 public:
  SubjectWithSteps(std::shared_ptr<Subject> inner, std::string_view argument)
      : SubjectDecorator(std::move(inner)), steps_(SubjectDecorator::steps(), argument) {}
  const ForwardSteps& steps() const override { return steps_; }

 private:
  Steps steps_;
};

template <typename Steps>
std::shared_ptr<Subject> with_steps(std::shared_ptr<Subject> inner, const Case& /*c*/,
                                    std::string_view argument) {
  return std::make_shared<SubjectWithSteps<Steps>>(std::move(inner), argument);
}

}  // namespace shardcheck::faults
