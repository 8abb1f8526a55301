#include "model/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace shardcheck {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Experts = std::vector<std::int64_t>;

Geometry experts(std::int64_t count, std::int64_t per_token) {
  Geometry g;
  g.n_experts = count, g.experts_per_token = per_token, g.expert_ffn = 8;
  return g;
}

RoutedToken route_one(std::int64_t per_token, const std::vector<float>& logits,
                      const std::vector<float>& bias = {}) {
  Matrix row(1, std::ssize(logits));
  row.values = logits;
  return route(experts(row.width, per_token), Arithmetic::tree, row, bias).front();
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Route, TakesTheLargestLogitsAndWeighsThemByTheirSoftmax) {
  const RoutedToken token = route_one(2, {0.5F, -1.0F, 2.0F, 1.0F});
  EXPECT_EQ(token.experts, (Experts{2, 3}));
  const double sum = std::exp(2.0) + std::exp(1.0);
  EXPECT_NEAR(token.weights[0], std::exp(2.0) / sum, 1e-7);
  EXPECT_NEAR(token.weights[1], std::exp(1.0) / sum, 1e-7);
}

TEST(Route, ListsExpertsAscendingWhateverTheirRank) {
  const RoutedToken token = route_one(3, {1.0F, 9.0F, 0.0F, 5.0F});
  EXPECT_EQ(token.experts, (Experts{0, 1, 3}));
  EXPECT_LT(token.weights[0], token.weights[2]);
  EXPECT_LT(token.weights[2], token.weights[1]);
}

TEST(Route, ARouterBiasChoosesAndDoesNotWeigh) {
  const std::vector<float> logits = {1.0F, 0.5F, -3.0F, 0.0F}, bias = {0.0F, 0.0F, 5.0F, 0.1F};
  const RoutedToken token = route_one(2, logits, bias);
  EXPECT_EQ(token.experts, (Experts{0, 2}));
  const double sum = sigmoid(1.0) + sigmoid(-3.0);
  EXPECT_NEAR(token.weights[0], sigmoid(1.0) / sum, 1e-7);
  EXPECT_NEAR(token.weights[1], sigmoid(-3.0) / sum, 1e-7);
}

TEST(Route, TakesEveryExpertWhereThereAreNoMore) {
  EXPECT_EQ(route_one(7, {0.0F, 1.0F, 2.0F}).experts, (Experts{0, 1, 2}));
}

TEST(Route, TiesGoToTheLowerExpertAndNanComesLast) {
  EXPECT_EQ(route_one(2, {1.0F, 1.0F, 1.0F, 1.0F}).experts, (Experts{0, 1}));
  EXPECT_EQ(route_one(1, {0.0F, -0.0F}).experts, (Experts{0}));
  EXPECT_EQ(route_one(1, {-0.0F, 0.0F}).experts, (Experts{0}));
  EXPECT_EQ(route_one(2, {kNan, 1.0F, kNan, -1.0F}).experts, (Experts{1, 3}));
  EXPECT_EQ(route_one(2, {kNan, kNan, kNan}).experts, (Experts{0, 1}));
}

TEST(Route, LargeLogitsDoNotOverflow) {
  const RoutedToken token = route_one(2, {300.0F, 299.0F, -300.0F});
  EXPECT_NEAR(token.weights[0], sigmoid(1.0), 1e-6);
  EXPECT_NEAR(token.weights[1], 1.0 - sigmoid(1.0), 1e-6);
}

class Combine : public testing::TestWithParam<Arithmetic> {
 protected:
  std::vector<float> combine(const std::vector<float>& weights,
                             const std::vector<std::vector<float>>& outputs, const float* shared) const {
    std::vector<ExpertTerm> terms;
    for (std::size_t i = 0; i < weights.size(); ++i) terms.push_back({weights[i], outputs[i].data()});
    std::vector<float> y(outputs.front().size(), 99.0F);
    combine_experts(Numerics{GetParam(), {}}, terms, shared, std::ssize(y), y.data());
    return y;
  }
};

TEST_P(Combine, AddsWeightedOutputsAndTheSharedExpert) {
  const std::vector<float> shared = {10.0F, 20.0F};
  EXPECT_EQ(combine({0.25F, 0.75F}, {{4.0F, 8.0F}, {-4.0F, 0.0F}}, nullptr),
            (std::vector<float>{-2.0F, 2.0F}));
  EXPECT_EQ(combine({0.25F, 0.75F}, {{4.0F, 8.0F}, {-4.0F, 0.0F}}, shared.data()),
            (std::vector<float>{8.0F, 22.0F}));
}

TEST_P(Combine, UnderExactAloneTheOrderDoesNotMatter) {
  const std::vector<float> weights = {0.1F, 0.7F, 0.2F};
  const std::vector<std::vector<float>> outputs = {{1e8F, 0.3F}, {3.7F, 1e-3F}, {-5e8F, 0.9F}};
  const auto forward = combine(weights, outputs, nullptr);
  const auto backward =
      combine({weights.rbegin(), weights.rend()}, {outputs.rbegin(), outputs.rend()}, nullptr);
  EXPECT_EQ(forward == backward, GetParam() == Arithmetic::exact);
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, Combine,
                         testing::Values(Arithmetic::native, Arithmetic::tree, Arithmetic::exact),
                         [](const auto& arithmetic) { return std::string(to_string(arithmetic.param)); });

TEST(RowsRoutedTo, AreTheTokensOfTheExpertAscending) {
  Matrix x(3, 2);
  x.values = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  const std::vector<RoutedToken> routed = {{{0, 2}, {}}, {{1}, {}}, {{2}, {}}};
  EXPECT_EQ(rows_routed_to(x, routed, 2).values, (std::vector<float>{1.0F, 2.0F, 5.0F, 6.0F}));
  EXPECT_EQ(rows_routed_to(x, routed, 3).rows, 0);
}

}  // namespace
}  // namespace shardcheck
