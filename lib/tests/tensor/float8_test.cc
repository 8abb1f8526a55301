#include "shardcheck/tensor/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace shardcheck {
namespace {

struct Format {
  const char* name;
  float (*decode)(std::uint8_t) noexcept;
  std::uint8_t (*encode)(float) noexcept;
  int fraction_bits, bias, largest;
};
constexpr Format kFormats[] = {{"e4m3", e4m3_to_f32, f32_to_e4m3, 3, 7, 0x7e},
                               {"e5m2", e5m2_to_f32, f32_to_e5m2, 2, 15, 0x7b}};

/// The definition: (-1)^s 2^(e - bias) (1 + f / 2^m), and 2^(1 - bias) f / 2^m at e = 0.
float by_definition(const Format& format, int code) {
  const int exponent = (code & 0x7f) >> format.fraction_bits;
  const int fraction = code & ((1 << format.fraction_bits) - 1);
  const int significand = exponent == 0 ? fraction : fraction + (1 << format.fraction_bits);
  const float magnitude =
      std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - format.bias - format.fraction_bits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Float8, EveryFinitePatternHasItsDefinedValueAndRoundsToItself) {
  for (const Format& format : kFormats) {
    for (int sign = 0; sign <= 0x80; sign += 0x80) {
      for (int code = 0; code <= format.largest; ++code) {
        const auto bits = static_cast<std::uint8_t>(sign | code);
        const float value = format.decode(bits);
        EXPECT_EQ(value, by_definition(format, bits)) << format.name << " " << int{bits};
        EXPECT_EQ(std::signbit(value), sign != 0) << format.name << " " << int{bits};
        EXPECT_EQ(format.encode(value), bits) << format.name << " " << int{bits};
      }
    }
  }
  EXPECT_EQ(e4m3_to_f32(0x7e), 448.0F);
  EXPECT_EQ(e5m2_to_f32(0x7b), 57344.0F);
}

TEST(Float8, PatternsThatAreNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7f)) && std::isnan(e4m3_to_f32(0xff)));
  EXPECT_EQ(e5m2_to_f32(0x7c), infinity);
  EXPECT_EQ(e5m2_to_f32(0xfc), -infinity);
  for (const int bits : {0x7d, 0x7e, 0x7f, 0xfd, 0xff})
    EXPECT_TRUE(std::isnan(e5m2_to_f32(static_cast<std::uint8_t>(bits)))) << bits;
  for (const Format& format : kFormats) {
    EXPECT_TRUE(std::isnan(format.decode(format.encode(std::numeric_limits<float>::quiet_NaN()))));
    EXPECT_EQ(format.encode(infinity), format.largest);
    EXPECT_EQ(format.encode(-infinity), 0x80 | format.largest);
  }
}

/// Rounding is fixed by what happens at, just below and just above every midpoint.
TEST(Float8, RoundsToNearestWithTiesToEven) {
  for (const Format& format : kFormats) {
    for (int code = 0; code < format.largest; ++code) {
      const float low = format.decode(static_cast<std::uint8_t>(code));
      const float high = format.decode(static_cast<std::uint8_t>(code + 1));
      const float middle = (low + high) / 2;
      EXPECT_EQ(format.encode(middle), code % 2 == 0 ? code : code + 1) << format.name << " " << code;
      EXPECT_EQ(format.encode(std::nextafter(middle, 0.0F)), code) << format.name << " " << code;
      EXPECT_EQ(format.encode(std::nextafter(middle, high)), code + 1) << format.name << " " << code;
      EXPECT_EQ(format.encode(-middle), 0x80 | format.encode(middle)) << format.name << " " << code;
    }
    EXPECT_EQ(format.encode(std::numeric_limits<float>::denorm_min()), 0) << format.name;
    EXPECT_EQ(format.encode(std::numeric_limits<float>::max()), format.largest) << format.name;
  }
}

TEST(Float8, E8m0IsAPowerOfTwo) {
  for (int bits = 0; bits < 255; ++bits)
    EXPECT_EQ(e8m0_to_f32(static_cast<std::uint8_t>(bits)), std::ldexp(1.0F, bits - 127)) << bits;
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(Float8, ADtypeOfAnotherKindIsRefused) {
  EXPECT_EQ(f8_to_f32(DType::f8_e4m3, 0x38), 1.0F);
  EXPECT_EQ(f8_to_f32(DType::f8_e5m2, 0x3c), 1.0F);
  EXPECT_EQ(f8_to_f32(DType::f8_e8m0, 127), 1.0F);
  EXPECT_EQ(f32_to_f8(DType::f8_e4m3, 1.0F), 0x38);
  EXPECT_EQ(f32_to_f8(DType::f8_e5m2, 1.0F), 0x3c);
  EXPECT_THROW(f8_to_f32(DType::f8_e4m3fnuz, 0), std::invalid_argument);
  EXPECT_THROW(f32_to_f8(DType::f8_e8m0, 1.0F), std::invalid_argument);
}

}  // namespace
}  // namespace shardcheck
