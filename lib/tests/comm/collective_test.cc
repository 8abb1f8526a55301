#include "shardcheck/comm/collective.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <stdexcept>

namespace shardcheck {
namespace {

TEST(InProcessCollective, HoldsEveryRank) {
  const auto collective = make_in_process_collective(3);
  EXPECT_EQ(collective->degree(), 3);
  ASSERT_EQ(collective->local_ranks().size(), 3U);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(collective->local_ranks()[static_cast<std::size_t>(rank)], rank);
}

TEST(InProcessCollective, SumIsTheLeftFoldInRankOrder) {
  // (1 + 2^24) + -2^24 loses the 1; 1 + (2^24 + -2^24) would keep it.
  std::vector<float> first = {1.0F}, second = {0x1p24F}, third = {-0x1p24F};
  const std::array<std::span<float>, 3> buffers = {first, second, third};
  make_in_process_collective(3)->all_reduce_sum(buffers);
  EXPECT_EQ(first[0], 0.0F);
  EXPECT_EQ(second[0], 0.0F);
  EXPECT_EQ(third[0], 0.0F);
}

TEST(InProcessCollective, BitSumPassesOneOwnersBitsUnchanged) {
  const std::uint32_t negative_zero = std::bit_cast<std::uint32_t>(-0.0F);
  std::vector<std::uint32_t> owner = {negative_zero, 0x7fc00123U}, other = {0, 0};
  const std::array<std::span<std::uint32_t>, 2> buffers = {owner, other};
  make_in_process_collective(2)->all_reduce_sum_u32(buffers);
  EXPECT_EQ(other, (std::vector<std::uint32_t>{negative_zero, 0x7fc00123U}));
}

TEST(InProcessCollective, BitSumOfTwoOwnersIsNotEitherOne) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(0.75F);
  std::vector<std::uint32_t> first = {bits}, second = {bits};
  const std::array<std::span<std::uint32_t>, 2> buffers = {first, second};
  make_in_process_collective(2)->all_reduce_sum_u32(buffers);
  EXPECT_NE(first[0], bits);
}

TEST(InProcessCollective, GatherKeepsRankOrderAndUnevenSizes) {
  const std::vector<std::byte> first = {std::byte{1}}, second, third = {std::byte{2}, std::byte{3}};
  const std::array<std::span<const std::byte>, 3> sends = {first, second, third};
  std::vector<std::size_t> sizes;
  const auto all = make_in_process_collective(3)->all_gather_bytes(sends, sizes);
  EXPECT_EQ(all, (std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{3}}));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 0, 2}));
}

TEST(InProcessCollective, MaximumAndInt64SumReachEveryRank) {
  std::vector<std::int32_t> a = {-5, 7}, b = {3, -9};
  make_in_process_collective(2)->all_reduce_max_i32(std::array<std::span<std::int32_t>, 2>{a, b});
  EXPECT_EQ(a, (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(b, a);
  std::vector<std::int64_t> c = {std::int64_t{1} << 60, -1}, d = {std::int64_t{1} << 60, 5};
  make_in_process_collective(2)->all_reduce_sum_i64(std::array<std::span<std::int64_t>, 2>{c, d});
  EXPECT_EQ(c, (std::vector<std::int64_t>{std::int64_t{1} << 61, 4}));
  EXPECT_EQ(d, c);
}

TEST(InProcessCollective, AllToAllDeliversInSenderOrderAndCountsWhatLeavesARank) {
  const std::vector<std::byte> bytes = {std::byte{1}, std::byte{2}, std::byte{3}};
  const std::span<const std::byte> all = bytes;
  const auto collective = make_in_process_collective(2);
  const std::array<std::vector<std::span<const std::byte>>, 2> sends = {
      std::vector{all.first(1), all.subspan(1)}, std::vector{all.last(1), all.first(0)}};
  const auto received = collective->all_to_all_bytes(sends);
  EXPECT_EQ(received[0], (std::vector{std::byte{1}, std::byte{3}}));
  EXPECT_EQ(received[1], (std::vector{std::byte{2}, std::byte{3}}));
  EXPECT_EQ(collective->traffic().bytes, 2 + 1);
  EXPECT_EQ(collective->traffic().calls, 1);
}

TEST(InProcessCollective, RefusesAWrongNumberOrLengthOfBuffers) {
  const auto collective = make_in_process_collective(2);
  std::vector<float> one = {1.0F}, two = {1.0F, 2.0F};
  EXPECT_THROW(collective->all_reduce_sum(std::array<std::span<float>, 1>{one}), std::invalid_argument);
  EXPECT_THROW(collective->all_reduce_sum(std::array<std::span<float>, 2>{one, two}), std::invalid_argument);
  std::vector<std::size_t> sizes;
  EXPECT_THROW(collective->all_gather_bytes({}, sizes), std::invalid_argument);
  EXPECT_THROW(make_in_process_collective(0), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
