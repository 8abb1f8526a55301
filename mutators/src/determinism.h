// Shared by the faults of family D: where a different reduction order can show.
#pragma once

#include <optional>
#include <string>

#include "plan_fault.h"

namespace shardcheck::faults {

/// Why a wrong leaf width cannot act: no tree, or the width of both row-parallel sums is the contract's own.
using LeafRule = std::int64_t (*)(std::int64_t k, int degree);
std::optional<std::string> needs_other_leaf(const Case& c, LeafRule rule);

/// kUnrepresentable, `otherwise` where the fault has nothing to act on, or nullopt.
std::optional<std::string> needs(bool something_to_act_on, const Case& c, std::string_view otherwise);

/// Why a change of the softmax over the vocabulary may round away: one logit outweighs all others.
std::optional<std::string> one_logit_outweighs(const Case& c);

/// Whether the case's law decodes over a cache.
bool decodes(const Case& c);
/// Whether a chunk of prefill begins inside a key block.
bool begins_inside_a_block(const Case& c);
/// Whether each rank's part of the output head has ceil(vocab / t) rows, the last one what is left.
bool shares_vocabulary_by_chunk(const Case& c);

/// sums[i] = the sum of squares of row i in `parts` chains one after the other, added in order: at most one
/// an element.
void sum_in_parts(const float* x, std::int64_t rows, std::int64_t width, std::int64_t parts, float* sums);

/// Steps that sum the statistics of a norm in as many chains as the rule says, from two on.
using PartsRule = std::int64_t (*)(const StepSite& site);
template <PartsRule kParts>
class NormInParts final : public StepsDecorator {
 public:
  NormInParts(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                        float* sums) const override {
    const float divisor = inner().norm_statistics(site, x, rows, width, sums);
    if (kParts(site) > 1) sum_in_parts(x, rows, width, kParts(site), sums);
    return divisor;
  }
};

/// Steps whose trees have leaves of the rule's width from two ranks on.
template <LeafRule kRule>
class WrongLeaf final : public StepsDecorator {
 public:
  WrongLeaf(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                    std::int64_t leaf) const override {
    if (site.degree == 1 || k % site.degree != 0) return inner().leaf(site, role, k, leaf);
    return kRule(k, site.degree);
  }
};

}  // namespace shardcheck::faults
