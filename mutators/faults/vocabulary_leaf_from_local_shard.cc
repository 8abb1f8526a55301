// A sum over the vocabulary whose leaf is the part a rank happens to hold.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

class VocabularyLeafFromLocalShard final : public StepsDecorator {
 public:
  VocabularyLeafFromLocalShard(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t leaf(const StepSite& site, std::string_view role, std::int64_t k,
                    std::int64_t leaf) const override {
    if (role != "lm_head" || site.degree == 1) return inner().leaf(site, role, k, leaf);
    return (k + site.degree - 1) / site.degree;
  }
};

}  // namespace

// Logits are not touched: the law logprobs_agree_across_layouts alone sees it.
const Fault& vocabulary_leaf_from_local_shard() {
  static const Fault fault{.name = "vocabulary_leaf_from_local_shard",
                           .family = 'D',
                           .level = FaultLevel::forward,
                           .claim = "The sum of exponentials over the vocabulary has one leaf a rank.",
                           .reports = {"seed 003"},
                           .oracles = {},
                           .law = "logprobs_agree_across_layouts",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 if (auto reason = one_logit_outweighs(c)) return reason;
                                 return needs(
                                     c.arithmetic == Arithmetic::tree && shares_vocabulary_by_chunk(c), c,
                                     "the vocabulary is not cut into equal runs, or no tree adds it up");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<VocabularyLeafFromLocalShard>};
  return fault;
}

}  // namespace shardcheck::faults
