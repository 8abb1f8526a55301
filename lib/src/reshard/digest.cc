#include "shardcheck/reshard/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "shardcheck/tensor/stream.h"
#include "shardcheck/text/errors.h"
#include "tensor/mix64.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reshard/digest.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#ifndef SHARDCHECK_SRC_RESHARD_DIGEST_CC_ONCE
#define SHARDCHECK_SRC_RESHARD_DIGEST_CC_ONCE
namespace shardcheck {
namespace {

static_assert(std::endian::native == std::endian::little, "units are read as they lie in memory");

constexpr std::size_t kBlock = 1024;  // units
constexpr std::size_t kMaxLanes = 16;
constexpr std::size_t kAhead = 2048;  // bytes
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

using Halves = std::array<std::uint64_t, 2>;

struct Weights {
  // Vectors that start at the last weights may be loaded whole, and again one weight further on.
  alignas(64) std::uint32_t of[2][kBlock + 2 * kMaxLanes];
  std::uint64_t sum_before[2][kBlock + 1];
};

constexpr Weights make_weights() {
  Weights weights{};
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t k = 0; k < kBlock; ++k) {
      weights.of[h][k] = static_cast<std::uint32_t>(mix64((kBlock * h + k + 1) * kStep) >> 32);
      weights.sum_before[h][k + 1] = weights.sum_before[h][k] + weights.of[h][k];
    }
  }
  return weights;
}

constexpr Weights kWeights = make_weights();

}  // namespace
}  // namespace shardcheck
#endif

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

/// Sum of weight * value of units first .. first+count-1 of a block.
template <typename Unit>
HWY_INLINE Halves WeighUnits(const std::byte* bits, std::size_t first, std::size_t count) {
  Halves sums{};
  for (std::size_t i = 0; i < count; ++i) {
    Unit unit;
    std::memcpy(&unit, bits + i * sizeof(Unit), sizeof(Unit));
    for (std::size_t h = 0; h < 2; ++h) sums[h] += std::uint64_t{kWeights.of[h][first + i]} * unit;
  }
  return sums;
}

#else

using Word = hn::CappedTag<std::uint32_t, kMaxLanes>;
using Wide = hn::Repartition<std::uint64_t, Word>;

/// One vector of units, each in a lane of 32 bits.
template <typename Unit>
HWY_INLINE hn::Vec<Word> LoadUnits(const std::byte* bits) {
  const hn::Rebind<Unit, Word> d;
  const auto units = hn::LoadU(d, reinterpret_cast<const Unit*>(bits));
  if constexpr (sizeof(Unit) == sizeof(std::uint32_t)) {
    return units;
  } else {
    return hn::PromoteTo(Word(), units);
  }
}

/// Products of even and of odd lanes go into sums of their own.
struct WideSums {
  hn::Vec<Wide> even, odd;

  HWY_INLINE void Add(hn::Vec<Word> units, hn::Vec<Word> odd_units, const std::uint32_t* weights) {
    const Word d;
    even = hn::Add(even, hn::MulEven(units, hn::LoadU(d, weights)));
    odd = hn::Add(odd, hn::MulEven(odd_units, hn::LoadU(d, weights + 1)));
  }
};

/// Sums of all lanes. Not by SumOfLanes: on AVX-512 g++ 12 adds lanes as signed numbers, whose overflow is
/// undefined.
HWY_INLINE Halves Totals(const WideSums& sums0, const WideSums& sums1) {
  const Wide d;
  const auto total0 = hn::Add(sums0.even, sums0.odd), total1 = hn::Add(sums1.even, sums1.odd);
  const auto pairs = hn::Add(hn::InterleaveLower(d, total0, total1), hn::InterleaveUpper(d, total0, total1));
  HWY_ALIGN std::uint64_t lanes[kMaxLanes / 2];
  hn::Store(pairs, d, lanes);
  Halves totals{};
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) totals[i % 2] += lanes[i];
  return totals;
}

/// Sum of weight * value of units first .. first+count-1 of a block.
template <typename Unit>
HWY_INLINE Halves WeighUnits(const std::byte* bits, std::size_t first, std::size_t count) {
  const Word d;
  const std::size_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(Wide());
  WideSums sums0{zero, zero}, sums1{zero, zero};
  const auto add = [&](const std::byte* from, std::size_t k) HWY_ATTR {
    const auto units = LoadUnits<Unit>(from);
    const auto odd_units = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(Wide(), units)));
    sums0.Add(units, odd_units, kWeights.of[0] + k);
    sums1.Add(units, odd_units, kWeights.of[1] + k);
  };
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const std::byte* from = bits + i * sizeof(Unit);
    // An address that may lie beyond every object: formed as a number.
    hwy::Prefetch(reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(from) + kAhead));
    add(from, first + i);
  }
  if (i < count) {
    alignas(64) std::byte rest[kMaxLanes * sizeof(Unit)] = {};
    std::memcpy(rest, bits + i * sizeof(Unit), (count - i) * sizeof(Unit));
    add(rest, first + i);
  }
  return Totals(sums0, sums1);
}

#endif

Halves WeighBytes(const std::byte* bits, std::size_t first, std::size_t count) {
  return WeighUnits<std::uint8_t>(bits, first, count);
}
Halves WeighPairs(const std::byte* bits, std::size_t first, std::size_t count) {
  return WeighUnits<std::uint16_t>(bits, first, count);
}
Halves WeighQuads(const std::byte* bits, std::size_t first, std::size_t count) {
  return WeighUnits<std::uint32_t>(bits, first, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardcheck {
namespace {

HWY_EXPORT(WeighBytes);
HWY_EXPORT(WeighPairs);
HWY_EXPORT(WeighQuads);

constexpr std::size_t kHexDigits = 16;  // of a half

std::int64_t unit_bytes(DType dtype) { return std::clamp(size_bits(dtype) / 8, 1, 4); }

std::uint64_t block_factor(std::uint64_t key, std::uint64_t block) {
  return mix64(key + (block + 1) * kStep) | 1;
}

Halves weigh(const std::byte* bits, std::size_t unit_size, std::size_t first, std::size_t count) {
  switch (unit_size) {
    case 1:
      return HWY_DYNAMIC_DISPATCH(WeighBytes)(bits, first, count);
    case 2:
      return HWY_DYNAMIC_DISPATCH(WeighPairs)(bits, first, count);
    default:
      return HWY_DYNAMIC_DISPATCH(WeighQuads)(bits, first, count);
  }
}

/// Digest of consecutive units.
WeightDigest digest_of_units(const Halves& keys, const std::byte* bits, std::size_t unit_size,
                             std::uint64_t first, std::uint64_t count) {
  Halves sums{};
  while (count > 0) {
    const std::size_t at = first % kBlock;
    const std::size_t part = std::min<std::uint64_t>(count, kBlock - at);
    const Halves weighed = weigh(bits, unit_size, at, part);
    for (std::size_t h = 0; h < 2; ++h) {
      const std::uint64_t ones = kWeights.sum_before[h][at + part] - kWeights.sum_before[h][at];
      sums[h] += block_factor(keys[h], first / kBlock) * (weighed[h] + ones);
    }
    bits += part * unit_size;
    first += part;
    count -= part;
  }
  return WeightDigest(sums);
}

/// Digest of one unit, without the cost of starting a run.
WeightDigest digest_of_unit(const Halves& keys, const std::byte* bits, std::size_t unit_size,
                            std::uint64_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, bits, unit_size);
  Halves sums{};
  for (std::size_t h = 0; h < 2; ++h) {
    sums[h] = block_factor(keys[h], index / kBlock) * kWeights.of[h][index % kBlock] * (value + 1);
  }
  return WeightDigest(sums);
}

std::optional<std::uint64_t> parse_half(std::string_view hex) {
  if (hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  return value;
}

}  // namespace

WeightDigest& WeightDigest::operator+=(const WeightDigest& other) noexcept {
  for (std::size_t h = 0; h < 2; ++h) halves_[h] += other.halves_[h];
  return *this;
}

std::string WeightDigest::hex() const { return fmt::format("{:016x}{:016x}", halves_[0], halves_[1]); }

std::optional<WeightDigest> WeightDigest::parse(std::string_view hex) {
  if (hex.size() != 2 * kHexDigits) return std::nullopt;
  const auto first = parse_half(hex.substr(0, kHexDigits)), second = parse_half(hex.substr(kHexDigits));
  if (!first || !second) return std::nullopt;
  return WeightDigest({*first, *second});
}

WeightDigest digest_of_header(std::string_view logical_name, DType dtype, const Shape& shape) {
  element_count(shape);
  const std::string text = fmt::format("{} {} {}", safetensors_name(dtype), to_string(shape), logical_name);
  return WeightDigest({stream_key(2, text), stream_key(3, text)});
}

TensorDigest::TensorDigest(std::string_view logical_name, DType dtype, const Shape& shape)
    : name_(logical_name), dtype_(dtype), elements_(element_count(shape)) {
  if (elements_ > std::numeric_limits<std::int64_t>::max() / size_bits(dtype)) {
    throw std::overflow_error(fmt::format("digest of {}: {} elements of {} have more than 2^63 - 1 bits",
                                          name_, elements_, safetensors_name(dtype)));
  }
  require_whole_bytes(0, elements_);
  const std::string text = fmt::format("{} {}", safetensors_name(dtype), name_);
  keys_ = {stream_key(0, text), stream_key(1, text)};
}

void TensorDigest::add_run(std::int64_t first, const std::byte* bits, std::int64_t count) {
  require_inside(first, 1, count);
  require_whole_bytes(first, count);
  const std::int64_t unit = unit_bytes(dtype_), unit_bits = 8 * unit;
  const auto first_unit = static_cast<std::uint64_t>(first * size_bits(dtype_) / unit_bits);
  const auto units = static_cast<std::uint64_t>(count * size_bits(dtype_) / unit_bits);
  sum_ += digest_of_units(keys_, bits, static_cast<std::size_t>(unit), first_unit, units);
}

void TensorDigest::add_strided(std::int64_t first, std::int64_t step, const std::byte* bits,
                               std::int64_t count) {
  if (step < 1)
    throw std::invalid_argument(fmt::format("digest of {}: step={} is not positive", name_, step));
  if (size_bits(dtype_) < 8) {
    throw UnsupportedLayout(fmt::format("digest of {}: single elements of {} do not fill whole bytes", name_,
                                        safetensors_name(dtype_)));
  }
  require_inside(first, step, count);
  const auto unit = static_cast<std::size_t>(unit_bytes(dtype_));
  const std::size_t units = static_cast<std::size_t>(size_bits(dtype_)) / (8 * unit);  // of an element
  for (std::int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<std::uint64_t>(first + i * step);
    for (std::size_t u = 0; u < units; ++u, bits += unit) {
      sum_ += digest_of_unit(keys_, bits, unit, element * units + u);
    }
  }
}

void TensorDigest::require_inside(std::int64_t first, std::int64_t step, std::int64_t count) const {
  const bool ordered = first >= 0 && count >= 0 && first <= elements_;
  if (ordered && (count == 0 || (first < elements_ && count - 1 <= (elements_ - 1 - first) / step))) return;
  throw std::out_of_range(fmt::format("digest of {}: {} elements from {} in steps of {}; the tensor has {}",
                                      name_, count, first, step, elements_));
}

void TensorDigest::require_whole_bytes(std::int64_t first, std::int64_t count) const {
  const std::int64_t grain = 8 / std::gcd(8, size_bits(dtype_));
  if (first % grain == 0 && count % grain == 0) return;
  throw UnsupportedLayout(fmt::format(
      "digest of {}: {} elements of {} from {} do not lie in whole bytes; allowed are multiples of {}", name_,
      count, safetensors_name(dtype_), first, grain));
}

}  // namespace shardcheck
#endif  // HWY_ONCE
