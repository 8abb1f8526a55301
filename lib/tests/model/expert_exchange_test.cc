#include "model/expert_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "shardcheck/reshard/reshard.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

/// Seven tokens routed to two of four experts each, with the experts' outputs and a shared expert's.
class Layer {
 public:
  Layer() {
    geometry.d_model = 3, geometry.n_experts = 4, geometry.expert_ffn = 8;
    Stream stream(1, "expert exchange");
    for (std::int64_t i = 0; i < kTokens; ++i) {
      const std::int64_t first = stream.integer(0, 2);
      routed.push_back({{first, stream.integer(first + 1, 3)}, {0.7F, 0.3F}});
    }
    for (std::int64_t expert = 0; expert < geometry.n_experts; ++expert)
      outputs.push_back(random(stream, rows_of(expert)));
    shared = random(stream, kTokens);
  }

  /// The layer over `degree` ranks.
  RankMatrices combined(Arithmetic arithmetic, int degree, DType storage = DType::f32) {
    const Numerics numerics{arithmetic, contract_for(geometry, {.storage = storage})};
    const auto collective = make_in_process_collective(degree);
    std::vector<ExpertSlot> slots(static_cast<std::size_t>(degree));
    std::vector<ExpertSlot*> members;
    std::vector<StepSite> sites;
    for (int rank = 0; rank < degree; ++rank) {
      ExpertSlot& slot = slots[static_cast<std::size_t>(rank)];
      slot.rows = kTokens, slot.routed = routed, slot.shared = shared;
      const std::int64_t held = geometry.n_experts / degree;
      slot.outputs.assign(outputs.begin() + held * rank, outputs.begin() + held * (rank + 1));
      members.push_back(&slot);
      sites.push_back({geometry, numerics.contract, arithmetic, 1, 0, 0});
    }
    return combine_over_ranks(numerics, right_steps(), sites, members, *collective);
  }

  /// Of a token, in f32: its experts ascending, then the shared one.
  float expected(std::int64_t token, std::int64_t column) const {
    float sum = 0.0F;
    const RoutedToken& own = routed[static_cast<std::size_t>(token)];
    for (std::size_t i = 0; i < own.experts.size(); ++i) {
      std::int64_t row = 0;
      for (std::int64_t before = 0; before < token; ++before)
        row += std::ranges::count(routed[static_cast<std::size_t>(before)].experts, own.experts[i]);
      sum = std::fma(own.weights[i], outputs[static_cast<std::size_t>(own.experts[i])].row(row)[column], sum);
    }
    return shared.rows > 0 ? sum + shared.row(token)[column] : sum;
  }

  static constexpr std::int64_t kTokens = 7;
  Geometry geometry;
  std::vector<RoutedToken> routed;
  RankMatrices outputs;
  Matrix shared;

 private:
  std::int64_t rows_of(std::int64_t expert) const {
    std::int64_t rows = 0;
    for (const RoutedToken& token : routed) rows += std::ranges::count(token.experts, expert);
    return rows;
  }
  Matrix random(Stream& stream, std::int64_t rows) const {
    Matrix x(rows, geometry.d_model);
    for (float& value : x.values) value = static_cast<float>(stream.integer(-999, 999)) / 7.0F;
    return x;
  }
};

TEST(CombineOverRanks, UnderTreeATokensExpertsAreAddedAscendingWhereverTheyRan) {
  Layer layer;
  for (const bool has_shared : {true, false}) {
    if (!has_shared) layer.shared = Matrix();
    for (const int degree : {1, 2, 4}) {
      for (const Matrix& y : layer.combined(Arithmetic::tree, degree)) {
        ASSERT_EQ(y.rows, Layer::kTokens);
        for (std::int64_t i = 0; i < y.rows; ++i) {
          for (std::int64_t j = 0; j < y.width; ++j)
            EXPECT_EQ(y.row(i)[j], layer.expected(i, j)) << "degree " << degree << " token " << i;
        }
      }
    }
  }
}

TEST(CombineOverRanks, IsStoredInTheDtypeOfTheContract) {
  Layer layer;
  const RankMatrices wide = layer.combined(Arithmetic::tree, 2),
                     narrow = layer.combined(Arithmetic::tree, 2, DType::bf16);
  EXPECT_NE(wide.front().values, narrow.front().values);
  for (const float value : narrow.front().values)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value) & 0xffffU, 0U);
}

TEST(CombineOverRanks, ExactIsTheSameAtEveryDegree) {
  Layer layer;
  const Matrix one = layer.combined(Arithmetic::exact, 1).front();
  for (const int degree : {2, 4}) {
    for (const Matrix& y : layer.combined(Arithmetic::exact, degree)) EXPECT_EQ(y.values, one.values);
  }
}

TEST(CombineOverRanks, NativeAddsTheSharedExpertOnceAndAllRanksAgree) {
  Layer layer;
  for (const int degree : {1, 2, 4}) {
    const RankMatrices all = layer.combined(Arithmetic::native, degree);
    for (const Matrix& y : all) {
      EXPECT_EQ(y.values, all.front().values);
      for (std::int64_t i = 0; i < y.rows; ++i) {
        for (std::int64_t j = 0; j < y.width; ++j) EXPECT_NEAR(y.row(i)[j], layer.expected(i, j), 1e-3);
      }
    }
  }
}

TEST(CombineOverRanks, RefusesRowsThatAreNotThoseOfTheRoutedTokens) {
  Layer layer;
  layer.outputs[2] = Matrix(layer.outputs[2].rows + 1, layer.geometry.d_model);
  try {
    layer.combined(Arithmetic::tree, 2);
    FAIL() << "accepted";
  } catch (const InvalidShards& error) {
    EXPECT_THAT(error.what(), HasSubstr("the ranks sent 45 values for 14 rows of 3"));
  }
}

}  // namespace
}  // namespace shardcheck
