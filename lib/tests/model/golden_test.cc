// What only an outside golden can catch: a mistake that the reference and the sharded model share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "shardcheck/arithmetic/exact.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(SHARDCHECK_SOURCE_DIR) / ".." / "shared" / "checkpoints" / "stories260K";

/// The trained checkpoint with logits and greedy tokens of an independent implementation.
class Golden : public ::testing::Test {
 protected:
  Golden() : checkpoint_(load_checkpoint(kFolder)), golden_(kFolder / "golden.safetensors") {
    for (const std::int64_t id : golden_.tensor("tokens").as<std::int64_t>()) {
      ids_.push_back(static_cast<std::int32_t>(id));
    }
    logits_ = golden_.tensor("logits");
  }

  const Geometry& geometry() const { return checkpoint_.config.geometry; }
  Tokens tokens() const {
    const std::int64_t count = logits_.dim(0);
    return {1, count, {ids_.begin(), ids_.begin() + count}};
  }
  ReferenceModel reference(Arithmetic arithmetic, ReferenceModel::Mistake mistake = {}) const {
    return ReferenceModel(geometry(), checkpoint_.logical, arithmetic, contract_for(geometry()), mistake);
  }
  double worst(const Tensor& actual) const {
    double largest = 0.0;
    for (std::size_t i = 0; i < logits_.f32().size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(actual.f32()[i]) - logits_.f32()[i]));
    }
    return largest;
  }

  /// Reference and sharded model make the same mistake: the invariant holds bit for bit, the golden does not.
  void expect_only_the_golden_sees(ReferenceModel::Mistake mistake, const ForwardSteps& steps) const {
    const Layout layout = LayoutTable::built_in("vllm-llama").instantiate(geometry(), 2);
    const auto collective = make_in_process_collective(2);
    const Tensor wrong = reference(Arithmetic::tree, mistake).forward(tokens());
    const Tensor sharded =
        ShardedModel(geometry(), split(checkpoint_.logical, layout), consumer_named("vllm"), *collective,
                     Arithmetic::tree, contract_for(geometry()), steps)
            .forward(tokens())[0];
    EXPECT_TRUE(sharded.same_bytes(wrong));
    EXPECT_GT(worst(wrong), 1e-4);
  }

  /// All 256 tokens at once: every logit that greedy decoding reads.
  Tokens story() const { return {1, std::ssize(ids_), ids_}; }

  Contract contract(DType storage) const { return contract_for(geometry(), {.storage = storage}); }

  TensorMap weights(DType dtype) const {
    TensorMap converted;
    for (const auto& [name, tensor] : checkpoint_.logical) converted.emplace(name, tensor.to(dtype));
    return converted;
  }

  Tensor sharded(const TensorMap& weights, int degree, Arithmetic arithmetic, DType dtype) const {
    const Layout layout = LayoutTable::built_in("seed").instantiate(geometry(), degree);
    const auto collective = make_in_process_collective(degree);
    return ShardedModel(geometry(), split(weights, layout), consumer_named("seed"), *collective, arithmetic,
                        contract(dtype))
        .forward(story())[0];
  }

  Checkpoint checkpoint_;
  SafetensorsFile golden_;
  std::vector<std::int32_t> ids_;
  Tensor logits_;
};

TEST_F(Golden, TheReferenceAgreesUnderEveryArithmetic) {
  EXPECT_LT(worst(reference(Arithmetic::native).forward(tokens())), 1e-4);
  EXPECT_LT(worst(reference(Arithmetic::tree).forward(tokens())), 1e-4);
}

TEST_F(Golden, TheGreedyTokensAreReproduced) {
  EXPECT_EQ(decode_greedily(reference(Arithmetic::native), {ids_.front()}, std::ssize(ids_)), ids_);
}

class NonCausalSteps final : public ForwardSteps {
 public:
  bool causal(const StepSite& /*site*/) const override { return false; }
};

TEST_F(Golden, CatchesANonCausalMaskThatBothModelsShare) {
  expect_only_the_golden_sees({.non_causal = true}, NonCausalSteps());
}

class CentredSteps final : public ForwardSteps {
 public:
  void before_norm(const StepSite& /*site*/, float* x, std::int64_t rows, std::int64_t width) const override {
    for (std::int64_t i = 0; i < rows; ++i) {
      float sum = 0.0F;
      for (std::int64_t j = 0; j < width; ++j) sum += x[i * width + j];
      const float mean = sum / static_cast<float>(width);
      for (std::int64_t j = 0; j < width; ++j) x[i * width + j] -= mean;
    }
  }
};

TEST_F(Golden, CatchesLayerNormInThePlaceOfRmsNormThatBothModelsShare) {
  expect_only_the_golden_sees({.layer_norm = true}, CentredSteps());
}

TEST_F(Golden, EveryLogitHasTheSameBitsAtEveryDegreeAndOnEveryInstructionSet) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorMap model = weights(dtype);
    const Tensor reference =
        ReferenceModel(geometry(), model, Arithmetic::tree, contract(dtype)).forward(story());
    for (const std::string& target : simd_targets()) {
      force_simd_target(target);
      for (const int degree : {1, 2, 4}) {
        EXPECT_TRUE(sharded(model, degree, Arithmetic::tree, dtype).same_bytes(reference))
            << short_name(dtype) << " TP " << degree << " on " << target;
      }
    }
    force_simd_target("");
  }
}

TEST_F(Golden, EveryLogitHasTheSameBitsAtEveryDegreeUnderExactArithmetic) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorMap model = weights(dtype);
    const Tensor reference =
        ReferenceModel(geometry(), model, Arithmetic::exact, contract(dtype)).forward(story());
    for (const std::string& kernel : exact_kernels()) {
      force_exact_kernel(kernel);
      for (const int degree : {1, 2, 4}) {
        EXPECT_TRUE(sharded(model, degree, Arithmetic::exact, dtype).same_bytes(reference))
            << short_name(dtype) << " TP " << degree << " with " << kernel;
      }
    }
    force_exact_kernel("");
  }
}

TEST_F(Golden, TheGreedyTokensAreReproducedUnderExactArithmeticToo) {
  const Tensor logits = reference(Arithmetic::exact).forward(story());
  const std::int64_t prompt = 1, vocab = geometry().vocab;
  for (std::int64_t i = prompt; i < std::ssize(ids_); ++i) {
    const auto row =
        logits.f32().subspan(static_cast<std::size_t>((i - 1) * vocab), static_cast<std::size_t>(vocab));
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), ids_[static_cast<std::size_t>(i)])
        << "token " << i;
  }
}

}  // namespace
}  // namespace shardcheck
