#include "shardcheck/model/forward_steps.h"

#include "model/numerics.h"

namespace shardcheck {

void ForwardSteps::before_norm(const StepSite& /*site*/, float* /*x*/, std::int64_t /*rows*/,
                               std::int64_t /*width*/) const {}

float ForwardSteps::norm_statistics(const StepSite& site, const float* x, std::int64_t rows,
                                    std::int64_t width, float* sums) const {
  sums_of_squares(site.arithmetic, site.contract.shape, site.contract.leaf_d_model, x, rows, width, sums);
  return static_cast<float>(width);
}

double ForwardSteps::rope_theta(const StepSite& site) const { return site.geometry.rope_theta; }

std::int64_t ForwardSteps::rotary_position(const StepSite& /*site*/, const RotaryPlace& place) const {
  return place.position;
}

std::int64_t ForwardSteps::first_head(const StepSite& site, const LocalExtent& extent) const {
  return site.rank * extent.heads;
}

bool ForwardSteps::rope_is_half_split(const StepSite& site) const { return site.geometry.rope == Rope::half; }

std::int64_t ForwardSteps::kv_head_of(const StepSite& /*site*/, const Consumer& consumer,
                                      const LocalExtent& extent, std::int64_t head) const {
  return consumer.kv_head_of(extent, head);
}

bool ForwardSteps::causal(const StepSite& /*site*/) const { return true; }

std::int64_t ForwardSteps::masked_queries(const StepSite& /*site*/, std::int64_t length) const {
  return length;
}

std::int64_t ForwardSteps::block_offset(const StepSite& /*site*/, std::int64_t /*first_query*/,
                                        std::int64_t /*rows*/) const {
  return 0;
}

bool ForwardSteps::uses_local_maximum(const StepSite& site) const {
  return site.arithmetic == Arithmetic::native;
}

void ForwardSteps::at_stage_boundary(const StepSite& /*site*/, std::span<float> /*x*/) const {}

void ForwardSteps::order_experts(const StepSite& /*site*/, int /*expert_degree*/, int /*expert_rank*/,
                                 std::span<std::int64_t> /*experts*/) const {}

void ForwardSteps::after_partial(const StepSite& /*site*/, std::string_view /*role*/,
                                 std::span<float> /*partial*/) const {}

void ForwardSteps::before_bias(const StepSite& /*site*/, std::string_view /*role*/,
                               std::span<float> /*bias*/) const {}

std::int64_t ForwardSteps::leaf(const StepSite& /*site*/, std::string_view /*role*/, std::int64_t /*k*/,
                                std::int64_t leaf) const {
  return leaf;
}

bool ForwardSteps::ships_leaves(const StepSite& /*site*/) const { return false; }

int ForwardSteps::reductions(const StepSite& /*site*/, std::string_view /*role*/) const { return 1; }

std::int64_t ForwardSteps::padding_in_softmax(const StepSite& /*site*/) const { return 0; }

bool ForwardSteps::masks_embedding(const StepSite& /*site*/) const { return true; }

std::pair<std::int64_t, std::int64_t> ForwardSteps::embedding_range(const StepSite& /*site*/,
                                                                    const LocalExtent& extent) const {
  return {extent.embed_begin, extent.embed_end};
}

const ForwardSteps& right_steps() {
  static const ForwardSteps steps;
  return steps;
}

}  // namespace shardcheck
