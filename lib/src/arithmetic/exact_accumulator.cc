#include <fmt/format.h>

#include <stdexcept>

#include "arithmetic/exact_rounding.h"
#include "shardcheck/arithmetic/exact.h"

namespace shardcheck {
namespace {

constexpr int kLowest = -298;  // exponent of bit 0
constexpr int kLimbBits = 64;

// limbs += value * 2^offset, modulo 2^640.
template <std::size_t kLimbs>
void add_integer(std::array<std::uint64_t, kLimbs>& limbs, Int128 value, int offset) noexcept {
  const int shift = offset % kLimbBits;
  const UInt128 low = static_cast<UInt128>(value) << shift;
  const std::uint64_t sign = value < 0 ? ~std::uint64_t{0} : 0;
  const std::uint64_t top = shift == 0 ? sign : static_cast<std::uint64_t>(value >> (128 - shift));
  const std::array<std::uint64_t, 3> parts = {static_cast<std::uint64_t>(low),
                                              static_cast<std::uint64_t>(low >> kLimbBits), top};
  UInt128 carry = 0;
  for (std::size_t i = static_cast<std::size_t>(offset / kLimbBits), part = 0; i < kLimbs; ++i, ++part) {
    carry += limbs[i];
    carry += part < parts.size() ? parts[part] : sign;
    limbs[i] = static_cast<std::uint64_t>(carry);
    carry >>= kLimbBits;
    if (part + 1 >= parts.size() && carry == (sign & 1)) return;  // the other limbs stay as they are
  }
}

}  // namespace

void LongAccumulator::add(float value) noexcept { add_product(value, 1.0F); }

void LongAccumulator::add_product(float a, float b) noexcept {
  if (std::isfinite(a) && std::isfinite(b)) {
    const Decoded x = decode(a), y = decode(b);
    add_integer(limbs_, Int128{x.integer * y.integer}, x.exponent + y.exponent - kLowest);
    return;
  }
  const float product = a * b;  // no finite value can come out
  if (std::isnan(product)) {
    nan_ = true;
  } else {
    (product > 0.0F ? plus_infinity_ : minus_infinity_) = true;
  }
}

void LongAccumulator::add_words(std::int64_t high, std::int64_t low, int exponent) noexcept {
  add_integer(limbs_, join_words(high, low), exponent - kLowest);
}

void LongAccumulator::merge(const LongAccumulator& other) noexcept {
  UInt128 carry = 0;
  for (std::size_t i = 0; i < kLimbs; ++i) {
    carry += limbs_[i];
    carry += other.limbs_[i];
    limbs_[i] = static_cast<std::uint64_t>(carry);
    carry >>= kLimbBits;
  }
  nan_ |= other.nan_;
  plus_infinity_ |= other.plus_infinity_;
  minus_infinity_ |= other.minus_infinity_;
}

float LongAccumulator::round() const noexcept {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (nan_ || (plus_infinity_ && minus_infinity_)) return std::bit_cast<float>(0x7fc00000U);
  if (plus_infinity_ || minus_infinity_) return plus_infinity_ ? kInfinity : -kInfinity;

  const bool negative = limbs_.back() >> 63 != 0;
  std::array<std::uint64_t, kLimbs> magnitude = limbs_;
  if (negative) {
    for (std::uint64_t& limb : magnitude) limb = ~limb;
    add_integer(magnitude, 1, 0);
  }
  std::size_t top = kLimbs - 1;
  while (top > 1 && magnitude[top] == 0) --top;
  // The two highest limbs hold more than 64 significant bits when anything lies below them.
  const UInt128 head = (static_cast<UInt128>(magnitude[top]) << kLimbBits) | magnitude[top - 1];
  const int exponent = kLowest + static_cast<int>(top - 1) * kLimbBits;
  bool sticky = false;
  for (std::size_t i = 0; i + 1 < top; ++i) sticky |= magnitude[i] != 0;
  return round_magnitude(negative, head, sticky, exponent);
}

std::array<std::uint64_t, LongAccumulator::kWords> LongAccumulator::words() const noexcept {
  std::array<std::uint64_t, kWords> out{};
  std::copy(limbs_.begin(), limbs_.end(), out.begin());
  out.back() = (nan_ ? 1U : 0U) | (plus_infinity_ ? 2U : 0U) | (minus_infinity_ ? 4U : 0U);
  return out;
}

LongAccumulator LongAccumulator::from_words(std::span<const std::uint64_t, kWords> words) {
  if (words.back() > 7) {
    throw std::invalid_argument(fmt::format("long accumulator: flags={:#x}; allowed are 0..7", words.back()));
  }
  LongAccumulator out;
  std::copy_n(words.begin(), kLimbs, out.limbs_.begin());
  out.nan_ = (words.back() & 1) != 0;
  out.plus_infinity_ = (words.back() & 2) != 0;
  out.minus_infinity_ = (words.back() & 4) != 0;
  return out;
}

}  // namespace shardcheck
