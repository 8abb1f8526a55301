// Layers that are left over where stages share them out by an integer division.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

std::int64_t built_layers(const Case& c) {
  const std::int64_t stages = c.target.degree("pp");
  return c.geometry.n_layers / stages * stages;
}

class FirstLayers final : public StepsDecorator {
 public:
  FirstLayers(const ForwardSteps& inner, std::string_view count)
      : StepsDecorator(inner), built_(number_in(count)) {}
  void after_partial(const StepSite& site, std::string_view role, std::span<float> partial) const override {
    inner().after_partial(site, role, partial);
    if (site.layer >= built_) std::ranges::fill(partial, 0.0F);
  }

 private:
  std::int64_t built_;
};

}  // namespace

// Never equivalent: every layer adds to the residual.
const Fault& drop_remainder_layers() {
  static const Fault fault{
      .name = "drop_remainder_layers",
      .family = 'P',
      .level = FaultLevel::forward,
      .claim = "Every stage builds the quotient of layers and stages, and the remaining layers add nothing.",
      .reports = {"A68", "A93"},
      .oracles = {Oracle::tree, Oracle::native},
      .arguments = {},
      .not_applicable = [](const Case& c, std::string_view) -> std::optional<std::string> {
        if (built_layers(c) == c.geometry.n_layers) return "the stages share the layers out evenly";
        return needs_layout(c);
      },
      .equivalent = nullptr,
      .inject =
          [](std::shared_ptr<Subject> inner, const Case& c, std::string_view) {
            return with_steps<FirstLayers>(std::move(inner), c, std::to_string(built_layers(c)));
          },
      .steer =
          [](Case& c, Stream& stream) {
            use_seed_tables(c);
            c.geometry.n_layers = 3;
            run_over(c, "pp");
            (stream.chance(1, 2) ? c.target.first_stage_layers : c.target.last_stage_layers) = 2;
          }};
  return fault;
}

}  // namespace shardcheck::faults
