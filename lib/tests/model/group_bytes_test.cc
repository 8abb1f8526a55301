#include "model/group_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "shardcheck/reshard/reshard.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename Action>
std::string refusal_of(const Action& action) {
  try {
    action();
  } catch (const InvalidShards& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MatrixOf, ReadsWholeRowsAndRefusesParts) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const Matrix x = matrix_of(std::as_bytes(std::span(values)), 3);
  EXPECT_EQ(x.rows, 2);
  EXPECT_EQ(x.values, values);
  EXPECT_EQ(matrix_of({}, 3).rows, 0);
  EXPECT_THAT(refusal_of([&] { matrix_of(std::as_bytes(std::span(values)), 4); }),
              HasSubstr("24 bytes where rows of 4"));
  EXPECT_THAT(refusal_of([&] { matrix_of(std::as_bytes(std::span(values)).first(11), 1); }),
              HasSubstr("11 bytes"));
  EXPECT_THAT(refusal_of([&] { matrix_of(std::as_bytes(std::span(values)), 0); }), HasSubstr("24 bytes"));
}

TEST(GatherRows, GivesEverySlotTheRowsOfAllInRankOrder) {
  const auto collective = make_in_process_collective(3);
  const MeshGroups::Group group{collective.get(), {0, 2, 3}};
  RankMatrices xs(4);
  xs[0] = Matrix(1, 2), xs[2] = Matrix(0, 2), xs[3] = Matrix(2, 2);
  xs[0].values = {1, 2};
  xs[3].values = {3, 4, 5, 6};
  gather_rows(group, xs);
  for (const std::size_t slot : group.slots) {
    EXPECT_EQ(xs[slot].rows, 3);
    EXPECT_EQ(xs[slot].values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
  EXPECT_EQ(xs[1].rows, 0) << "not of the group";
}

TEST(AllReduceMax, OrdersNumbersInfinitiesAndZeros) {
  const auto collective = make_in_process_collective(3);
  std::vector<std::vector<float>> buffers = {{-1.0F, -kInfinity, -0.0F, -kInfinity, 1e-45F, 3.0F, -2.0F},
                                             {-2.0F, -kInfinity, 0.0F, kInfinity, 0.0F, 2.0F, -3.0F},
                                             {-0.5F, -kInfinity, -0.0F, 7.0F, -1e-45F, -9.0F, -1.5F}};
  all_reduce_max(*collective, buffers);
  const std::vector<float> largest = {-0.5F, -kInfinity, 0.0F, kInfinity, 1e-45F, 3.0F, -1.5F};
  for (const auto& own : buffers) {
    for (std::size_t i = 0; i < largest.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(own[i]), std::bit_cast<std::uint32_t>(largest[i])) << i;
  }
}

TEST(AllReduceMax, NanOfEitherSignIsAboveAll) {
  const auto collective = make_in_process_collective(2);
  std::vector<std::vector<float>> buffers = {{kNan, -kNan, kInfinity, -1.0F},
                                             {kInfinity, -kInfinity, -kNan, kNan}};
  all_reduce_max(*collective, buffers);
  for (const auto& own : buffers) {
    for (const float value : own) EXPECT_TRUE(std::isnan(value)) << value;
  }
}

TEST(FloatWriter, WritesWhatFloatReaderReads) {
  FloatWriter writer;
  const std::vector<float> values = {1.5F, -0.0F, kInfinity};
  writer.put_count(3);
  writer.put(values);
  writer.put_count(0);
  writer.put({});
  const std::vector<std::byte> bytes = writer.take();
  FloatReader reader(bytes);
  ASSERT_EQ(reader.count(), 3U);
  EXPECT_EQ(reader.floats(3), values);
  EXPECT_EQ(reader.count(), 0U);
  EXPECT_TRUE(reader.floats(0).empty());
  EXPECT_THAT(refusal_of([&] { reader.count(); }), HasSubstr("0 bytes where 8"));
}

TEST(FloatReader, RefusesBytesThatEndEarlyBeforeItAllocates) {
  const std::vector<std::byte> bytes(7);
  EXPECT_THAT(refusal_of([&] { FloatReader(bytes).count(); }), HasSubstr("7 bytes where 8"));
  EXPECT_NE(refusal_of([&] { FloatReader(bytes).floats(2); }), "accepted");
  EXPECT_NE(refusal_of([&] { FloatReader(bytes).floats(std::numeric_limits<std::size_t>::max() / 2); }),
            "accepted");
  EXPECT_NE(refusal_of([&] { FloatReader(bytes).take(8); }), "accepted");
}

}  // namespace
}  // namespace shardcheck
