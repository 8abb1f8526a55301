// Logits of padding rows counted among those of tokens.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

class CountsPadding final : public StepsDecorator {
 public:
  CountsPadding(const ForwardSteps& inner, std::string_view rows)
      : StepsDecorator(inner), rows_(number_in(rows)) {}
  std::int64_t padding_in_softmax(const StepSite&) const override { return rows_; }

 private:
  std::int64_t rows_;
};

/// Rows of the output head that no token has.
std::int64_t padding_rows(const Case& c) {
  const auto layout = target_layout(c);
  if (layout == nullptr) return 0;
  for (const LayoutEntry& entry : layout->entries) {
    if (is_head(entry, *layout)) return padding_in(entry.arrangement().order);
  }
  return 0;
}

}  // namespace

// Logits are not touched: the law logprobs_agree_across_layouts alone sees it.
const Fault& padding_leaks_into_softmax() {
  static const Fault fault{
      .name = "padding_leaks_into_softmax",
      .family = 'V',
      .level = FaultLevel::forward,
      .claim = "The softmax over the vocabulary counts its padding rows as tokens of logit zero.",
      .reports = {"A58", "A59"},
      .oracles = {},
      .law = "logprobs_agree_across_layouts",
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (auto reason = one_logit_outweighs(c)) return reason;
        return needs(padding_rows(c) > 0, c, "the output head is not padded");
      },
      .equivalent = nullptr,
      .inject =
          [](std::shared_ptr<Subject> inner, const Case& c, std::string_view) {
            return with_steps<CountsPadding>(std::move(inner), c, std::to_string(padding_rows(c)));
          },
      .steer =
          [](Case& c, Stream&) {
            use_plain_llama(c);
            c.geometry.tied = false;
            run_over(c, "tp");
            c.target.table = "vllm-llama";
          }};
  return fault;
}

}  // namespace shardcheck::faults
