#include "shardcheck/tensor/stream.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/stream.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target.
#include "arithmetic/functions-inl.h"

#ifndef SHARDCHECK_SRC_TENSOR_STREAM_CC_ONCE
#define SHARDCHECK_SRC_TENSOR_STREAM_CC_ONCE
namespace shardcheck {
namespace {

// Philox constants (Salmon et al. 2011, table 2; Random123's philox.h).
constexpr std::uint32_t kMultiplier0 = 0xd2511f53;
constexpr std::uint32_t kMultiplier1 = 0xcd9e8d57;
constexpr std::uint32_t kWeyl0 = 0x9e3779b9;
constexpr std::uint32_t kWeyl1 = 0xbb67ae85;
constexpr int kRounds = 10;

// Third counter word, so that the readers of one key never share a block.
enum Domain : std::uint32_t { kSequential = 0, kNormal = 1, kUniform = 2 };

struct Scale {
  float factor;
  float offset;
  float limit;  // fill_uniform: the largest value it may return
};

}  // namespace
}  // namespace shardcheck
#endif

HWY_BEFORE_NAMESPACE();
namespace shardcheck {
namespace HWY_NAMESPACE {
namespace {

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Words = hn::Vec<WordTag>;

/// Word w of blocks first, first + 1, ..., one block per lane.
struct Blocks {
  Words word[4];
};

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE Blocks PhiloxBlocks(std::uint64_t first, Domain domain, std::uint64_t key) {
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(first),
                                    static_cast<std::uint32_t>(first >> 32), domain, 0};
  const std::uint32_t keys[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  std::uint32_t out[4];
  philox4x32_10(counter, keys, out);
  const WordTag d;
  return {{hn::Set(d, out[0]), hn::Set(d, out[1]), hn::Set(d, out[2]), hn::Set(d, out[3])}};
}

#else

using WideTag = hn::Repartition<std::uint64_t, WordTag>;
using Wides = hn::Vec<WideTag>;

/// Low 32 bits of each 64-bit lane; the high halves are left over from the products and never read.
struct HalfBlocks {
  Wides word[4];
};

HWY_INLINE HalfBlocks PhiloxHalfBlocks(std::uint64_t first, Domain domain, std::uint64_t key) {
  const WordTag d;
  const WideTag wide;
  const auto multiply = [&](Wides a, std::uint32_t b)
                            HWY_ATTR { return hn::MulEven(hn::BitCast(d, a), hn::Set(d, b)); };
  const Wides block = hn::Add(hn::Set(wide, first), hn::Iota(wide, std::uint64_t{0}));
  Wides c0 = block;
  Wides c1 = hn::ShiftRight<32>(block);
  Wides c2 = hn::Set(wide, std::uint64_t{domain});
  Wides c3 = hn::Zero(wide);
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const Wides product0 = multiply(c0, kMultiplier0);
    const Wides product1 = multiply(c2, kMultiplier1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(wide, std::uint64_t{key0}));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(wide, std::uint64_t{key1}));
    c1 = product1;
    c3 = product0;
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

HWY_INLINE Blocks PhiloxBlocks(std::uint64_t first, Domain domain, std::uint64_t key) {
  const WordTag d;
  const HalfBlocks low = PhiloxHalfBlocks(first, domain, key);
  const HalfBlocks high = PhiloxHalfBlocks(first + hn::Lanes(WideTag()), domain, key);
  const auto join = [&](int w) HWY_ATTR {
    return hn::ConcatEven(d, hn::BitCast(d, high.word[w]), hn::BitCast(d, low.word[w]));
  };
  return {{join(0), join(1), join(2), join(3)}};
}

#endif

/// Box-Muller: a radius from one word, an angle from the next, two normals.
HWY_INLINE void Normals(Words radius_word, Words angle_word, Floats& cosine, Floats& sine) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const Floats half = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<1>(radius_word)));
  const Floats uniform = FusedMulAdd(half, hn::Set(d, 0x1p-31f), hn::Set(d, 0x1p-32f));  // in (0, 1]
  const Floats radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), Log(d, uniform)));
  // A signed word is an angle in [-pi, pi] when it counts 2 pi / 2^32.
  const Floats angle = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, angle_word)), hn::Set(d, 0x1.921fb6p-30f));
  SinCos(d, angle, sine, cosine);
  sine = hn::Mul(radius, sine);
  cosine = hn::Mul(radius, cosine);
}

struct Four {
  Floats value[4];
};

HWY_INLINE Four NormalFour(std::uint64_t block, std::uint64_t key, const Scale& scale) {
  const FloatTag d;
  const Blocks blocks = PhiloxBlocks(block, kNormal, key);
  Four four;
  Normals(blocks.word[0], blocks.word[1], four.value[0], four.value[1]);
  Normals(blocks.word[2], blocks.word[3], four.value[2], four.value[3]);
  for (Floats& value : four.value)
    value = FusedMulAdd(value, hn::Set(d, scale.factor), hn::Set(d, scale.offset));
  return four;
}

HWY_INLINE Four UniformFour(std::uint64_t block, std::uint64_t key, const Scale& scale) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const Blocks blocks = PhiloxBlocks(block, kUniform, key);
  Four four;
  for (int w = 0; w < 4; ++w) {
    const Floats unit =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(blocks.word[w]))), hn::Set(d, 0x1p-24f));
    const Floats value = FusedMulAdd(unit, hn::Set(d, scale.factor), hn::Set(d, scale.offset));
    four.value[w] = hn::Min(value, hn::Set(d, scale.limit));
  }
  return four;
}

/// out[i] = element first + i, where block b makes elements 4b .. 4b+3.
template <class MakeFour>
HWY_INLINE void Fill(float* out, std::size_t size, std::uint64_t first, MakeFour&& make) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN float group[4 * hn::MaxLanes(d)];
  std::uint64_t block = first / 4;
  std::size_t skip = first % 4;
  for (std::size_t done = 0; done < size; block += lanes) {
    const Four four = make(block);
    const std::size_t count = std::min(4 * lanes - skip, size - done);
    float* to = count == 4 * lanes ? out + done : group;
    hn::StoreInterleaved4(four.value[0], four.value[1], four.value[2], four.value[3], d, to);
    if (to == group) std::memcpy(out + done, group + skip, count * sizeof(float));
    done += count;
    skip = 0;
  }
}

void FillNormal(float* out, std::size_t size, std::uint64_t key, std::uint64_t first, Scale scale) {
  Fill(out, size, first, [&](std::uint64_t block) HWY_ATTR { return NormalFour(block, key, scale); });
}

void FillUniform(float* out, std::size_t size, std::uint64_t key, std::uint64_t first, Scale scale) {
  Fill(out, size, first, [&](std::uint64_t block) HWY_ATTR { return UniformFour(block, key, scale); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace shardcheck
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shardcheck {
namespace {

HWY_EXPORT(FillNormal);
HWY_EXPORT(FillUniform);

constexpr float kUnitStep = 0x1p-24f;

}  // namespace

void philox4x32_10(const std::uint32_t counter[4], const std::uint32_t key[2],
                   std::uint32_t out[4]) noexcept {
  std::uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  std::uint32_t key0 = key[0];
  std::uint32_t key1 = key[1];
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * c[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * c[2];
    c[0] = static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<std::uint32_t>(product1);
    c[2] = static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<std::uint32_t>(product0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  std::copy(c, c + 4, out);
}

std::uint64_t stream_key(std::uint64_t seed, std::string_view name) noexcept {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

std::uint32_t Stream::next_u32() noexcept {
  const std::uint64_t block = counter_ / 4;
  const std::uint32_t counter[4] = {static_cast<std::uint32_t>(block),
                                    static_cast<std::uint32_t>(block >> 32), kSequential, 0};
  const std::uint32_t key[2] = {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)};
  std::uint32_t out[4];
  philox4x32_10(counter, key, out);
  return out[counter_++ % 4];
}

std::uint64_t Stream::next_u64() noexcept {
  const std::uint64_t low = next_u32();
  return (std::uint64_t{next_u32()} << 32) | low;
}

std::int64_t Stream::integer(std::int64_t low, std::int64_t high) {
  if (low > high)
    throw std::invalid_argument("random integer in [" + std::to_string(low) + ", " + std::to_string(high) +
                                "]: the range is empty");
  const std::uint64_t size = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (size == 0) return static_cast<std::int64_t>(next_u64());
  // Lemire 2019: the high word of draw * size; rejecting low words below 2^64 mod size makes it unbiased.
  const std::uint64_t rejected = (0 - size) % size;
  unsigned __int128 product = 0;
  do {
    product = static_cast<unsigned __int128>(next_u64()) * size;
  } while (static_cast<std::uint64_t>(product) < rejected);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) +
                                   static_cast<std::uint64_t>(product >> 64));
}

float Stream::unit() noexcept { return static_cast<float>(next_u32() >> 8) * kUnitStep; }

bool Stream::chance(std::int64_t numerator, std::int64_t denominator) {
  if (denominator <= 0 || numerator < 0 || numerator > denominator)
    throw std::invalid_argument("chance of " + std::to_string(numerator) + "/" + std::to_string(denominator) +
                                ": must be a fraction in [0, 1]");
  return integer(0, denominator - 1) < numerator;
}

std::size_t Stream::pick_index(std::size_t size) {
  if (size == 0) throw std::invalid_argument("cannot pick from an empty list");
  return static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(size - 1)));
}

void fill_normal(std::span<float> out, std::uint64_t key, float mean, float stddev, std::uint64_t first) {
  HWY_DYNAMIC_DISPATCH(FillNormal)(out.data(), out.size(), key, first, Scale{stddev, mean, 0.0f});
}

void fill_uniform(std::span<float> out, std::uint64_t key, float low, float high, std::uint64_t first) {
  const float width = high - low;
  if (!(low <= high) || !std::isfinite(width))
    throw std::invalid_argument("uniform in [" + std::to_string(low) + ", " + std::to_string(high) +
                                "): the bounds must be finite, ascending and a finite distance apart");
  // Rounding may reach `high`; the greatest value below it is the limit.
  const float limit = low < high ? std::nextafter(high, low) : low;
  HWY_DYNAMIC_DISPATCH(FillUniform)(out.data(), out.size(), key, first, Scale{width, low, limit});
}

}  // namespace shardcheck
#endif  // HWY_ONCE
