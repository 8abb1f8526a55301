#include "model/numerics.h"

#include <gtest/gtest.h>

#include "model/blocks.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

Numerics numerics(Arithmetic arithmetic) {
  Numerics all{arithmetic, {}};
  all.contract.leaf_d_model = 3;
  return all;
}

TEST(SubtractRowMeans, LeavesRowsWithoutAMean) {
  Matrix x(5, 14);
  fill_normal(x.values, stream_key(1, "rows"), 4.0F, 1.0F);
  for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree, Arithmetic::exact}) {
    Matrix centred = x;
    subtract_row_means(numerics(arithmetic), centred);
    for (std::int64_t i = 0; i < x.rows; ++i) {
      double mean = 0.0;
      for (std::int64_t j = 0; j < x.width; ++j) mean += x.row(i)[j] / static_cast<double>(x.width);
      for (std::int64_t j = 0; j < x.width; ++j)
        EXPECT_NEAR(centred.row(i)[j], x.row(i)[j] - mean, 2e-6) << to_string(arithmetic);
    }
  }
}

// 2^24 + 1 - 2^24 + 1 in leaves of 3: the chain loses a one that the exact sum keeps.
TEST(SubtractRowMeans, SumsAsTheArithmeticSays) {
  const auto first_after = [](Arithmetic arithmetic) {
    Matrix x(1, 4);
    x.values = {0x1p24F, 1.0F, -0x1p24F, 1.0F};
    subtract_row_means(numerics(arithmetic), x);
    return x.values[1];
  };
  EXPECT_EQ(first_after(Arithmetic::native), 0.75F);
  EXPECT_EQ(first_after(Arithmetic::exact), 0.5F);
  Matrix x(1, 6);
  x.values = {1.0F, 0x1p24F, -0x1p24F, 1.0F, 0.0F, 0.0F};
  subtract_row_means(numerics(Arithmetic::tree), x);
  EXPECT_EQ(x.values[4], -(1.0F / 6.0F));
}

TEST(FinishNorm, ScalesAddsTheBiasAndStores) {
  Matrix x(2, 2);
  x.values = {3.0F, -3.0F, 0.5F, 0.5F};
  const std::vector<float> sums = {18.0F, 0.5F}, gain = {2.0F, 1.0F}, bias = {0.0F, 1.0F};
  finish_norm(numerics(Arithmetic::tree), x, sums, 2.0F, 0.0F, gain, bias);
  EXPECT_NEAR(x.values[0], 2.0F, 1e-6);
  EXPECT_NEAR(x.values[1], 0.0F, 1e-6);
  EXPECT_NEAR(x.values[2], 2.0F, 1e-6);
  EXPECT_NEAR(x.values[3], 2.0F, 1e-6);
  Numerics narrow = numerics(Arithmetic::tree);
  narrow.contract.storage = DType::bf16;
  finish_norm(narrow, x, sums, 2.0F, 0.0F, gain, {});
  for (const float value : x.values) EXPECT_EQ(value, bf16_to_f32(f32_to_bf16(value)));
}

}  // namespace
}  // namespace shardcheck
