#include "shardcheck/tensor/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace shardcheck {
namespace {

constexpr DType kAll[] = {
    DType::boolean, DType::f4,      DType::f6_e2m3, DType::f6_e3m2,     DType::u8,          DType::i8,
    DType::f8_e5m2, DType::f8_e4m3, DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz, DType::i16,
    DType::u16,     DType::f16,     DType::bf16,    DType::i32,         DType::u32,         DType::f32,
    DType::c64,     DType::f64,     DType::i64,     DType::u64};

// A 16-bit format as its definition reads: sign, exponent, fraction.
struct Format {
  const char* name;
  int fraction_bits;
  int bias;
  float (*widen)(std::uint16_t) noexcept;
  std::uint16_t (*narrow)(float) noexcept;

  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(0x7fffU >> fraction_bits << fraction_bits);
  }
  friend std::ostream& operator<<(std::ostream& out, const Format& format) { return out << format.name; }
  bool is_nan(std::uint16_t bits) const { return (bits & 0x7fff) > infinity(); }
  /// Value of a non-negative pattern; infinity's pattern gives the next power of two, where rounding puts it.
  double value(std::uint16_t bits) const {
    const int exponent = bits >> fraction_bits;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
    return std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }
};

constexpr Format kBf16{"bf16", 7, 127, bf16_to_f32, f32_to_bf16};
constexpr Format kF16{"f16", 10, 15, f16_to_f32, f32_to_f16};

class NarrowFormat : public testing::TestWithParam<Format> {
 protected:
  // The pattern whose value is nearest to a non-negative x; of two equally near ones the even pattern.
  std::uint16_t nearest(double x) const {
    const auto above = std::lower_bound(values_.begin(), values_.end(), x);
    if (above == values_.end()) return GetParam().infinity();
    const auto high = static_cast<std::uint16_t>(above - values_.begin());
    if (high == 0) return 0;
    const double to_high = *above - x;
    const double to_low = x - *(above - 1);
    if (to_high != to_low) return to_high < to_low ? high : static_cast<std::uint16_t>(high - 1);
    return high % 2 == 0 ? high : static_cast<std::uint16_t>(high - 1);
  }

  void SetUp() override {
    for (int bits = 0; bits <= GetParam().infinity(); ++bits)
      values_.push_back(GetParam().value(static_cast<std::uint16_t>(bits)));
  }

  std::vector<double> values_;
};

TEST_P(NarrowFormat, WidensEveryPatternExactly) {
  const Format& format = GetParam();
  for (std::uint16_t bits = 0; bits < format.infinity(); ++bits) {
    ASSERT_EQ(static_cast<double>(format.widen(bits)), format.value(bits)) << bits;
    const float negative = format.widen(static_cast<std::uint16_t>(bits | 0x8000));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(negative),
              std::bit_cast<std::uint32_t>(-static_cast<float>(format.value(bits))));
  }
  EXPECT_EQ(format.widen(format.infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(format.widen(static_cast<std::uint16_t>(format.infinity() | 0x8000)),
            -std::numeric_limits<float>::infinity());
}

TEST_P(NarrowFormat, NarrowingUndoesWideningOfEveryPattern) {
  const Format& format = GetParam();
  int nans = 0;
  for (int pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const std::uint16_t back = format.narrow(format.widen(bits));
    if (!format.is_nan(bits)) {
      ASSERT_EQ(back, bits);
      continue;
    }
    ++nans;
    ASSERT_TRUE(std::isnan(format.widen(bits))) << bits;
    // Same sign and payload, quiet bit set.
    ASSERT_EQ(back, bits | (1 << (format.fraction_bits - 1)));
  }
  EXPECT_EQ(nans, 2 * ((1 << format.fraction_bits) - 1));
}

TEST_P(NarrowFormat, NarrowsToTheNearestTiesToEven) {
  const Format& format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint16_t bits = 0; bits < format.infinity(); ++bits) {
    const double low = values_[bits];
    const double high = values_[bits + 1U];
    const auto middle = static_cast<float>(low + (high - low) / 2);
    const auto quarter = static_cast<float>(low + (high - low) / 4);
    ASSERT_EQ(static_cast<double>(middle), low + (high - low) / 2);
    for (const float x : {static_cast<float>(low), quarter, std::nextafter(middle, -infinity), middle,
                          std::nextafter(middle, infinity)}) {
      if (std::signbit(x)) continue;
      const std::uint16_t expected = nearest(static_cast<double>(x));
      ASSERT_EQ(format.narrow(x), expected) << format.name << " of " << x;
      ASSERT_EQ(format.narrow(-x), expected | 0x8000) << format.name << " of " << -x;
    }
  }
}

TEST_P(NarrowFormat, NarrowsTheEnds) {
  const Format& format = GetParam();
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ(format.narrow(max), format.infinity());
  EXPECT_EQ(format.narrow(-max), format.infinity() | 0x8000);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(format.narrow(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST_P(NarrowFormat, NarrowsEveryKindOfNanToAQuietNanOfTheSameSign) {
  const Format& format = GetParam();
  for (int bit = 0; bit < 23; ++bit) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const auto nan = std::bit_cast<float>(sign | 0x7f800000U | (1U << bit));
      const std::uint16_t narrow = format.narrow(nan);
      EXPECT_TRUE(format.is_nan(narrow)) << bit;
      EXPECT_NE(narrow & (1 << (format.fraction_bits - 1)), 0) << bit;
      EXPECT_EQ(narrow >> 15, static_cast<int>(sign >> 31));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DType, NarrowFormat, testing::Values(kBf16, kF16),
                         [](const auto& format) { return std::string(format.param.name); });

TEST(DType, NamesAreDistinctAndParseBack) {
  for (const DType dtype : kAll) {
    EXPECT_EQ(dtype_from_safetensors(safetensors_name(dtype)), dtype);
    EXPECT_EQ(dtype_from_short_name(short_name(dtype)), dtype);
    EXPECT_FALSE(safetensors_name(dtype).empty());
  }
}

TEST(DType, UnknownNamesAreRefused) {
  for (const std::string_view name : {"", "f32", "F33", "F32 ", "bf16", "BOOLEAN"})
    EXPECT_EQ(dtype_from_safetensors(name), std::nullopt) << name;
  for (const std::string_view name : {"", "F32", "float32", " bf16"})
    EXPECT_EQ(dtype_from_short_name(name), std::nullopt) << name;
}

TEST(DType, SizesFollowTheNames) {
  for (const DType dtype : kAll) {
    const std::string name(safetensors_name(dtype));
    const auto digit = name.find_first_of("0123456789");
    const int bits = digit == std::string::npos ? 8 : std::stoi(name.substr(digit));
    EXPECT_EQ(size_bits(dtype), bits) << name;
  }
}

TEST(DType, ForwardTypesAreTheThreeFloats) {
  for (const DType dtype : kAll)
    EXPECT_EQ(is_forward_dtype(dtype), dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16);
}

TEST(DType, SpansConvertElementwise) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<std::uint16_t> back(all.size());
  bf16_to_f32(all, wide);
  f32_to_bf16(wide, back);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(back[i], f32_to_bf16(bf16_to_f32(all[i])));
  f16_to_f32(all, wide);
  f32_to_f16(wide, back);
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(back[i], f32_to_f16(f16_to_f32(all[i])));
}

TEST(DType, SpansOfDifferentLengthAreRefused) {
  std::vector<std::uint16_t> narrow(3);
  std::vector<float> wide(2);
  EXPECT_THROW(bf16_to_f32(narrow, wide), std::invalid_argument);
  EXPECT_THROW(f32_to_bf16(wide, narrow), std::invalid_argument);
  EXPECT_THROW(f16_to_f32(narrow, wide), std::invalid_argument);
  EXPECT_THROW(f32_to_f16(wide, narrow), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
