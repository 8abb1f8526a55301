#include "shardcheck/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace shardcheck {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Tensor counting(Shape shape) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(std::move(shape), values);
}

TEST(Shape, PrintsAndCounts) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(coordinates({2, 3}, 5), "[1, 2]");
  EXPECT_EQ(coordinates({4}, 3), "[3]");
  EXPECT_EQ(coordinates({2, 3, 4}, 12), "[1, 0, 0]");
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({5, 0}), 0);
}

TEST(Shape, ImpossibleExtentsAreRefused) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(element_count({2, -1}), std::invalid_argument);
  EXPECT_THROW(element_count({0, -1}), std::invalid_argument);
  EXPECT_THROW(element_count({huge, 2}), std::overflow_error);
  EXPECT_THROW(element_count({std::int64_t{1} << 32, std::int64_t{1} << 31}), std::overflow_error);
  EXPECT_EQ(element_count({huge, 1}), huge);
  EXPECT_EQ(element_count({huge, huge, 0}), 0);
}

TEST(Tensor, DefaultIsEmpty) {
  Tensor empty;
  EXPECT_EQ(empty.shape(), Shape{0});
  EXPECT_EQ(empty.dtype(), DType::f32);
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_TRUE(empty.bytes().empty());
  EXPECT_TRUE(empty.mutable_bytes().empty());
  EXPECT_TRUE(empty.same_bytes(Tensor()));
}

TEST(Tensor, OwnedBytesAreZeroAndAligned) {
  for (const std::int64_t size : {1, 3, 64, 1000}) {
    const Tensor zeros = Tensor::zeros(DType::u8, {size});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(zeros.bytes().data()) % 64, 0U);
    EXPECT_EQ(zeros.bytes().size(), static_cast<std::size_t>(size));
    EXPECT_THAT(zeros.as<std::uint8_t>(), Each(0));
  }
}

TEST(Tensor, ScalarsHoldOneElement) {
  const Tensor scalar = Tensor::from({}, std::array{2.5f});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_THAT(scalar.f32(), ElementsAre(2.5f));
  EXPECT_THROW(scalar.dim(0), std::out_of_range);
  EXPECT_THROW(scalar.rows(0, 1), std::out_of_range);
}

TEST(Tensor, ValuesMustFitTheShape) {
  EXPECT_THROW(Tensor::from({2, 2}, std::array{1.0f}), std::invalid_argument);
  EXPECT_THROW(Tensor::from({0}, std::array{1.0f}), std::invalid_argument);
}

TEST(Tensor, AbsurdSizesAreRefusedWithAMessage) {
  const std::int64_t huge = std::int64_t{1} << 60;
  EXPECT_THAT([&] { Tensor::zeros(DType::u8, {huge}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("cannot allocate 1152921504606846976 bytes")));
  EXPECT_THROW(Tensor::uninitialized(DType::f32, {huge}), std::runtime_error);
  EXPECT_THROW(Tensor::uninitialized(DType::f64, {huge}), std::overflow_error);
  EXPECT_THROW(Tensor::zeros(DType::f32, {huge, 16}), std::overflow_error);
}

TEST(Tensor, SubByteElementsMustFillBytes) {
  EXPECT_EQ(Tensor::zeros(DType::f4, {4}).bytes().size(), 2U);
  EXPECT_EQ(Tensor::zeros(DType::f6_e2m3, {2, 4}).bytes().size(), 6U);
  EXPECT_THROW(Tensor::zeros(DType::f4, {3}), std::invalid_argument);
  EXPECT_EQ(Tensor::zeros(DType::f4, {3, 2}).rows(1, 1).bytes().size(), 1U);
  EXPECT_THROW(Tensor::zeros(DType::f4, {2, 3}).rows(1, 1), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::f4, {4}).as<std::uint8_t>(), std::invalid_argument);
}

TEST(Tensor, ReadingAsAnotherSizeIsRefused) {
  Tensor tensor = Tensor::zeros(DType::bf16, {4});
  EXPECT_EQ(tensor.as<std::uint16_t>().size(), 4U);
  EXPECT_THROW(tensor.as<float>(), std::invalid_argument);
  EXPECT_THROW(tensor.mutable_f32(), std::invalid_argument);
}

TEST(Tensor, ReadingAsAnotherTypeOfTheSameSizeIsRefused) {
  EXPECT_THROW(Tensor::zeros(DType::f32, {2}).as<std::uint32_t>(), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::f32, {2}).mutable_as<std::int32_t>(), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::u32, {2}).f32(), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::i32, {2}).as<std::uint32_t>(), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::f64, {2}).as<std::int64_t>(), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::c64, {2}).as<double>(), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::bf16, {2}).as<std::int16_t>(), std::invalid_argument);
  EXPECT_EQ(Tensor::zeros(DType::f8_e4m3, {2}).as<std::uint8_t>().size(), 2U);
  EXPECT_EQ(Tensor::zeros(DType::i64, {2}).as<std::int64_t>().size(), 2U);
}

TEST(Tensor, BitsOfAnElementAreReadAndReplacedWhateverItsType) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    Tensor tensor = Tensor::zeros(dtype, {3});
    const Tensor before = tensor;
    tensor.set_bits(1, 0xF1E2D3C4B5A69788U);
    const int width = size_bits(dtype);
    EXPECT_EQ(tensor.bits(1), 0xF1E2D3C4B5A69788U << (64 - width) >> (64 - width));
    EXPECT_EQ(tensor.bits(0) + tensor.bits(2) + before.bits(1), 0U);
  }
  Tensor tensor = Tensor::zeros(DType::f32, {3});
  EXPECT_THROW(tensor.bits(3), std::out_of_range);
  EXPECT_THROW(tensor.set_bits(-1, 0), std::out_of_range);
  EXPECT_THROW(Tensor::zeros(DType::f4, {4}).bits(0), std::invalid_argument);
}

TEST(Tensor, TheFirstDifferenceIsFoundToTheElement) {
  for (const DType dtype : {DType::f4, DType::f6_e2m3, DType::u8, DType::bf16, DType::f32, DType::f64}) {
    const Tensor zeros = Tensor::zeros(dtype, {8, 4});
    EXPECT_EQ(zeros.first_difference(zeros), -1);
    const std::int64_t width = size_bits(dtype);
    for (const std::int64_t element : {0, 1, 7, 31}) {
      Tensor other = zeros;
      const std::int64_t bit = element * width + width - 1;
      other.mutable_bytes()[static_cast<std::size_t>(bit / 8)] = std::byte{1} << bit % 8;
      EXPECT_EQ(zeros.first_difference(other), element) << short_name(dtype);
    }
  }
  EXPECT_THROW(Tensor::zeros(DType::f32, {2}).first_difference(Tensor::zeros(DType::f32, {1, 2})),
               std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::f32, {2}).first_difference(Tensor::zeros(DType::u32, {2})),
               std::invalid_argument);
}

TEST(Tensor, PoisonIsNoNumber) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor values = Tensor::poisoned(dtype, {5}).to(DType::f32);
    for (const float value : values.f32()) EXPECT_NE(value, value) << short_name(dtype);
  }
}

TEST(Tensor, CopiesShareBytesUntilOneIsWritten) {
  Tensor original = counting({4});
  Tensor copy = original;
  EXPECT_EQ(copy.bytes().data(), original.bytes().data());
  copy.mutable_f32()[0] = 9.0f;
  EXPECT_THAT(original.f32(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(copy.f32(), ElementsAre(9, 1, 2, 3));
  original.mutable_f32()[1] = 8.0f;
  EXPECT_THAT(copy.f32(), ElementsAre(9, 1, 2, 3));
}

TEST(Tensor, TheOnlyHolderWritesInPlace) {
  Tensor tensor = counting({4});
  const std::byte* before = tensor.bytes().data();
  Tensor copy = tensor;
  copy = Tensor();
  tensor.mutable_f32()[0] = 5.0f;
  EXPECT_EQ(tensor.bytes().data(), before);
}

TEST(Tensor, AReaderInAnotherThreadNeverSeesAWrite) {
  Tensor tensor = Tensor::zeros(DType::i32, {1024});
  for (std::int32_t round = 1; round <= 50; ++round) {
    const std::int32_t expected = round - 1;
    bool clean = true;
    std::thread reader([copy = tensor, expected, &clean]() mutable {
      const Tensor mine = std::move(copy);
      for (const std::int32_t value : mine.as<std::int32_t>()) clean = clean && value == expected;
    });
    for (std::int32_t& value : tensor.mutable_as<std::int32_t>()) value = round;
    reader.join();
    ASSERT_TRUE(clean);
  }
}

TEST(Tensor, BorrowedBytesAreKeptAliveAndNeverWritten) {
  auto owner = std::make_shared<std::array<float, 3>>(std::array{1.0f, 2.0f, 3.0f});
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  const std::weak_ptr<void> alive = owner;
  Tensor tensor = Tensor::borrowed(DType::f32, {3}, owner, data);
  EXPECT_EQ(tensor.bytes().data(), data);
  auto* raw = owner->data();
  owner.reset();
  ASSERT_FALSE(alive.expired());
  const Tensor view = tensor;
  tensor.mutable_f32()[0] = 7.0f;
  EXPECT_EQ(raw[0], 1.0f);
  EXPECT_THAT(tensor.f32(), ElementsAre(7, 2, 3));
  EXPECT_THAT(view.f32(), ElementsAre(1, 2, 3));
}

TEST(Tensor, MisalignedBorrowedBytesReadCorrectly) {
  auto owner = std::make_shared<std::array<std::byte, 16>>();
  const auto bits = std::bit_cast<std::array<std::byte, 4>>(1.5f);
  std::copy(bits.begin(), bits.end(), owner->begin() + 1);
  const Tensor tensor = Tensor::borrowed(DType::f32, {1}, owner, owner->data() + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.f32().data()) % alignof(float), 0U);
  EXPECT_THAT(tensor.f32(), ElementsAre(1.5f));
}

TEST(Tensor, BorrowingNothingIsRefused) {
  EXPECT_THROW(Tensor::borrowed(DType::f32, {1}, nullptr, nullptr), std::invalid_argument);
  EXPECT_EQ(Tensor::borrowed(DType::f32, {0}, nullptr, nullptr).elements(), 0);
}

TEST(Tensor, RowsAreViews) {
  const Tensor tensor = counting({4, 3});
  const Tensor middle = tensor.rows(1, 2);
  EXPECT_EQ(middle.shape(), (Shape{2, 3}));
  EXPECT_THAT(middle.f32(), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(middle.f32().data(), tensor.f32().data() + 3);
  EXPECT_THAT(middle.rows(1, 1).f32(), ElementsAre(6, 7, 8));
  EXPECT_EQ(tensor.rows(4, 0).elements(), 0);
  EXPECT_EQ(counting({0, 3}).rows(0, 0).shape(), (Shape{0, 3}));
}

TEST(Tensor, WritingRowsLeavesTheWholeAlone) {
  Tensor tensor = counting({2, 2});
  Tensor row = tensor.rows(1, 1);
  row.mutable_f32()[0] = 9.0f;
  EXPECT_THAT(tensor.f32(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(row.f32(), ElementsAre(9, 3));
}

TEST(Tensor, RowsOutsideAreRefused) {
  const Tensor tensor = counting({4, 3});
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(tensor.rows(-1, 1), std::out_of_range);
  EXPECT_THROW(tensor.rows(0, -1), std::out_of_range);
  EXPECT_THROW(tensor.rows(3, 2), std::out_of_range);
  EXPECT_THROW(tensor.rows(5, 0), std::out_of_range);
  EXPECT_THROW(tensor.rows(huge, huge), std::out_of_range);
}

TEST(Tensor, ReshapingKeepsTheBytes) {
  const Tensor tensor = counting({2, 3});
  const Tensor flat = tensor.reshaped({6});
  EXPECT_EQ(flat.bytes().data(), tensor.bytes().data());
  EXPECT_EQ(flat.shape(), Shape{6});
  EXPECT_THROW(tensor.reshaped({5}), std::invalid_argument);
}

TEST(Tensor, ConvertsAmongForwardTypes) {
  const Tensor tensor = Tensor::from({4}, std::array{1.0f, -2.5f, 65504.0f, 0.0f});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor narrow = tensor.to(dtype);
    EXPECT_EQ(narrow.dtype(), dtype);
    EXPECT_EQ(narrow.shape(), tensor.shape());
    EXPECT_TRUE(narrow.to(DType::f32).to(dtype).same_bytes(narrow));
    EXPECT_EQ(narrow.to(dtype).bytes().data(), narrow.bytes().data());
  }
  EXPECT_TRUE(tensor.to(DType::f16).to(DType::f32).same_bytes(tensor));
  EXPECT_EQ(tensor.to(DType::f16).to(DType::bf16).as<std::uint16_t>()[2], f32_to_bf16(65504.0f));
  EXPECT_THROW(tensor.to(DType::i32), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros(DType::u8, {1}).to(DType::f32), std::invalid_argument);
}

TEST(Tensor, EqualityIsOfEveryByte) {
  const Tensor zero = Tensor::from({1}, std::array{0.0f});
  EXPECT_FALSE(zero.same_bytes(Tensor::from({1}, std::array{-0.0f})));
  EXPECT_FALSE(zero.same_bytes(Tensor::zeros(DType::i32, {1})));
  EXPECT_FALSE(zero.same_bytes(zero.reshaped({1, 1})));
  EXPECT_TRUE(zero.same_bytes(Tensor::zeros(DType::f32, {1})));
  const Tensor nan = Tensor::from({1}, std::array{std::nanf("1")});
  EXPECT_TRUE(nan.same_bytes(nan));
  EXPECT_FALSE(nan.same_bytes(Tensor::from({1}, std::array{std::nanf("2")})));
}

}  // namespace
}  // namespace shardcheck
