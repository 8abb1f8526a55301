#include "shardcheck/reshard/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "arithmetic/scalar_oracle.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/tensor/stream.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// ---- The definition, element by element, written from the header's contract alone.

std::uint64_t splitmix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t weight(std::uint64_t h, std::uint64_t k) {
  return splitmix((1024 * h + k + 1) * 0x9e3779b97f4a7c15) >> 32;
}

std::string hex_of(std::uint64_t first, std::uint64_t second) {
  std::string text;
  for (const std::uint64_t half : {first, second}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
  }
  return text;
}

/// Of all whole bytes of a tensor.
std::string defined_digest(const std::string& name, DType dtype, const Bytes& bytes) {
  const int bits = size_bits(dtype);
  const std::size_t size = bits <= 8 ? 1 : bits == 16 ? 2 : 4;
  std::uint64_t sums[2] = {};
  for (std::uint64_t h = 0; h < 2; ++h) {
    const std::uint64_t key = stream_key(h, std::string(safetensors_name(dtype)) + " " + name);
    for (std::size_t u = 0; u * size < bytes.size(); ++u) {
      std::uint64_t value = 0;
      for (std::size_t i = size; i-- > 0;)
        value = value << 8 | std::to_integer<std::uint64_t>(bytes[u * size + i]);
      const std::uint64_t factor = splitmix(key + (u / 1024 + 1) * 0x9e3779b97f4a7c15) | 1;
      sums[h] += factor * weight(h, u % 1024) * (value + 1);
    }
  }
  return hex_of(sums[0], sums[1]);
}

// ---- Random tensors.

/// A logical tensor of whole-byte elements in one dimension.
struct Content {
  std::string name = "w";
  DType dtype = DType::bf16;
  Bytes bytes;

  std::int64_t width() const { return size_bits(dtype) / 8; }
  std::int64_t count() const { return std::ssize(bytes) / width(); }
  const std::byte* at(std::int64_t element) const { return bytes.data() + element * width(); }
  std::byte* at(std::int64_t element) { return bytes.data() + element * width(); }
  bool equal(std::int64_t i, std::int64_t j) const {
    return std::memcmp(at(i), at(j), static_cast<std::size_t>(width())) == 0;
  }
  void swap(std::int64_t i, std::int64_t j) { std::swap_ranges(at(i), at(i + 1), at(j)); }
  TensorDigest empty_digest() const { return {name, dtype, {count()}}; }
};

WeightDigest digest_of(const Content& content) {
  TensorDigest digest = content.empty_digest();
  digest.add_run(0, content.bytes.data(), content.count());
  return digest.sum();
}

const std::vector<DType>& dtypes() {
  static const std::vector<DType> all = {DType::boolean, DType::u8,   DType::f8_e4m3, DType::i16,
                                         DType::f16,     DType::bf16, DType::f32,     DType::i32,
                                         DType::f64,     DType::i64,  DType::u64,     DType::c64};
  return all;
}

/// Fillings in which damage is easily missed: zeros, ones, sign bits, few values, and plain random bits.
void fill(Stream& stream, Content& content) {
  const std::int64_t style = stream.integer(0, 4);
  const std::int64_t width = content.width();
  for (std::int64_t i = 0; i < std::ssize(content.bytes); ++i) {
    std::byte& byte = content.bytes[static_cast<std::size_t>(i)];
    const std::uint32_t word = stream.next_u32();
    const bool is_top = i % width == width - 1;
    byte = std::byte{0};
    if (style == 1) byte = std::byte{0xff};
    if (style == 2 && is_top) byte = std::byte(word & 0x80);
    if (style == 3 && is_top) byte = std::byte(word % 3);
    if (style == 4) byte = std::byte(word & 0xff);
  }
}

Content draw_content(Stream& stream, std::int64_t least, std::int64_t most) {
  Content content;
  content.name = "layers." + std::to_string(stream.integer(0, 99)) + ".w";
  content.dtype = stream.pick(dtypes());
  content.bytes.resize(static_cast<std::size_t>(stream.integer(least, most) * content.width()));
  fill(stream, content);
  return content;
}

/// Within a few vectors, or over blocks.
Content draw_content(Stream& stream) { return draw_content(stream, 1, stream.chance(1, 2) ? 40 : 2500); }

struct Part {
  std::int64_t first, count;
};

/// [0, count) cut anywhere, empty parts included, in random order.
std::vector<Part> draw_partition(Stream& stream, std::int64_t count) {
  std::vector<std::int64_t> cuts = {0, count};
  for (std::int64_t n = stream.integer(0, 12); n > 0; --n) cuts.push_back(stream.integer(0, count));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) parts.push_back({cuts[i], cuts[i + 1] - cuts[i]});
  stream.shuffle(std::span(parts));
  return parts;
}

constexpr int kCases = 2000;

// ---- The sum.

TEST(Digest, IsTheDefinitionOnEverySimdTarget) {
  for (const std::string& target : simd_targets()) {
    const oracle::ForcedTarget forced(target);
    Stream stream(1, "definition");
    for (int i = 0; i < 300; ++i) {
      const Content content = draw_content(stream);
      EXPECT_EQ(digest_of(content).hex(), defined_digest(content.name, content.dtype, content.bytes))
          << target << ' ' << short_name(content.dtype) << ' ' << content.count();
    }
  }
}

TEST(Digest, OfARecordedTensorNeverChanges) {
  Content content{.name = "model.norm.weight", .dtype = DType::bf16, .bytes = Bytes(6000)};
  for (std::size_t i = 0; i < content.bytes.size(); ++i) content.bytes[i] = std::byte(i * 37 & 0xff);
  EXPECT_EQ(digest_of(content).hex(), "0427aeb749134cab02bd40732f8c29c7");
  EXPECT_EQ(digest_of_header("model.norm.weight", DType::bf16, {3000}).hex(),
            "6b29d046e4d4f85a3f6a78c4cd08554a");
}

TEST(Digest, WeightsAreDistinctAndNotZero) {
  for (std::uint64_t h = 0; h < 2; ++h) {
    std::set<std::uint64_t> seen = {0};
    for (std::uint64_t k = 0; k < 1024; ++k) EXPECT_TRUE(seen.insert(weight(h, k)).second) << k;
  }
}

TEST(Digest, OfAnyPartitionOverAnyRanksInAnyOrderIsTheSame) {
  Stream stream(1, "partition");
  for (int i = 0; i < kCases; ++i) {
    const Content content = draw_content(stream);
    std::vector<TensorDigest> ranks(static_cast<std::size_t>(stream.integer(1, 8)), content.empty_digest());
    for (const Part& part : draw_partition(stream, content.count())) {
      // Elsewhere in memory, at any alignment.
      Bytes shard(static_cast<std::size_t>(stream.integer(0, 7)));
      const std::size_t start = shard.size();
      shard.insert(shard.end(), content.at(part.first), content.at(part.first + part.count));
      TensorDigest& rank = ranks[static_cast<std::size_t>(stream.integer(0, std::ssize(ranks) - 1))];
      rank.add_run(part.first, shard.data() + start, part.count);
    }
    stream.shuffle(std::span(ranks));
    WeightDigest sum;
    for (const TensorDigest& rank : ranks) sum += rank.sum();
    ASSERT_EQ(sum.hex(), digest_of(content).hex()) << short_name(content.dtype) << ' ' << content.count();
  }
}

TEST(Digest, OfColumnsIsTheDigestOfRows) {
  Stream stream(1, "columns");
  for (int i = 0; i < 300; ++i) {
    const Content content = draw_content(stream);
    const std::int64_t step = stream.integer(1, 2000);
    TensorDigest digest = content.empty_digest();
    for (std::int64_t first = 0; first < std::min(step, content.count()); ++first) {
      Bytes column;
      for (std::int64_t e = first; e < content.count(); e += step) {
        column.insert(column.end(), content.at(e), content.at(e + 1));
      }
      digest.add_strided(first, step, column.data(), std::ssize(column) / content.width());
    }
    ASSERT_EQ(digest.sum(), digest_of(content)) << short_name(content.dtype) << " step " << step;
  }
}

TEST(Digest, OfNothingIsZero) {
  EXPECT_EQ(WeightDigest().hex(), std::string(32, '0'));
  TensorDigest digest("w", DType::f32, {0, 3});
  digest.add_run(0, nullptr, 0);
  digest.add_strided(0, 5, nullptr, 0);
  EXPECT_EQ(digest.sum(), WeightDigest());
}

// ---- What it must see.

/// The digest changes exactly when bytes do; 1 when they do.
int expect_seen(const Content& before, const Content& after) {
  EXPECT_EQ(digest_of(after) != digest_of(before), after.bytes != before.bytes)
      << short_name(before.dtype) << ' ' << before.count();
  return after.bytes != before.bytes ? 1 : 0;
}

/// The same after `damage` to random tensors, of which it must change at least a quarter.
void expect_seen(const char* name, const std::function<void(Stream&, Content&)>& damage) {
  Stream stream(1, name);
  int changed = 0;
  for (int i = 0; i < kCases; ++i) {
    const Content before = draw_content(stream);
    Content after = before;
    damage(stream, after);
    changed += expect_seen(before, after);
  }
  EXPECT_GE(changed, kCases / 4);
}

TEST(DigestSees, OneChangedBit) {
  expect_seen("bit", [](Stream& stream, Content& content) {
    const std::int64_t bit = stream.integer(0, 8 * std::ssize(content.bytes) - 1);
    content.bytes[static_cast<std::size_t>(bit / 8)] ^= std::byte(1 << bit % 8);
  });
}

TEST(DigestSees, OneChangedElement) {
  expect_seen("element", [](Stream& stream, Content& content) {
    std::byte* element = content.at(stream.integer(0, content.count() - 1));
    for (std::int64_t i = 0; i < content.width(); ++i) element[i] = std::byte(stream.next_u32() & 0xff);
  });
}

TEST(DigestSees, AnExchangeOfTwoUnequalElements) {
  expect_seen("exchange", [](Stream& stream, Content& content) {
    const std::int64_t i = stream.integer(0, content.count() - 1);
    for (std::int64_t tries = 0; tries < 20; ++tries) {
      const std::int64_t j = stream.integer(0, content.count() - 1);
      if (!content.equal(i, j)) return content.swap(i, j);
    }
  });
}

TEST(DigestSees, AShiftByOne) {
  expect_seen("shift", [](Stream&, Content& content) {
    std::rotate(content.bytes.begin(), content.bytes.begin() + content.width(), content.bytes.end());
  });
}

TEST(DigestSees, AReversal) {
  expect_seen("reversal", [](Stream&, Content& content) {
    for (std::int64_t i = 0, j = content.count() - 1; i < j; ++i, --j) content.swap(i, j);
  });
}

TEST(DigestSees, TwoFlippedSigns) {
  expect_seen("signs", [](Stream& stream, Content& content) {
    for (int n = 0; n < 2; ++n) {
      const std::int64_t element = stream.integer(0, content.count() - 1);
      content.at(element + 1)[-1] ^= std::byte{0x80};
    }
  });
}

TEST(DigestSees, AStaleRun) {
  expect_seen("stale", [](Stream& stream, Content& content) {
    Content stale = content;
    fill(stream, stale);
    const std::int64_t first = stream.integer(0, content.count() - 1);
    std::copy(stale.at(first), stale.at(stream.integer(first + 1, content.count())), content.at(first));
  });
}

TEST(DigestSees, ATransposedSquareMatrix) {
  Stream stream(1, "transpose");
  int changed = 0;
  for (int i = 0; i < kCases; ++i) {
    const std::int64_t side = stream.integer(2, 48);
    const Content before = draw_content(stream, side * side, side * side);
    Content after = before;
    for (std::int64_t row = 0; row < side; ++row) {
      for (std::int64_t column = 0; column < row; ++column) {
        after.swap(row * side + column, column * side + row);
      }
    }
    changed += expect_seen(before, after);
  }
  EXPECT_GE(changed, kCases / 4);
}

TEST(DigestSees, ALostOrRepeatedElementWhateverItsBits) {
  Stream stream(1, "lost");
  for (int i = 0; i < kCases; ++i) {
    const Content content = draw_content(stream);
    const std::int64_t element = stream.integer(0, content.count() - 1);
    TensorDigest lost = content.empty_digest(), repeated = content.empty_digest();
    lost.add_run(0, content.bytes.data(), element);
    lost.add_run(element + 1, content.at(element + 1), content.count() - element - 1);
    repeated.add_run(0, content.bytes.data(), content.count());
    repeated.add_run(element, content.at(element), 1);
    ASSERT_NE(lost.sum(), digest_of(content)) << short_name(content.dtype) << ' ' << element;
    ASSERT_NE(repeated.sum(), digest_of(content)) << short_name(content.dtype) << ' ' << element;
  }
}

TEST(DigestSees, TwoTensorsThatChangedPlaces) {
  Stream stream(1, "tensors");
  int changed = 0;
  for (int i = 0; i < kCases; ++i) {
    Content first = draw_content(stream, 1, 300);
    Content second = first;
    second.name += ".second";
    fill(stream, second);
    const WeightDigest before = digest_of(first) + digest_of(second);
    const bool differ = first.bytes != second.bytes;
    std::swap(first.bytes, second.bytes);
    changed += differ ? 1 : 0;
    ASSERT_EQ(digest_of(first) + digest_of(second) != before, differ);
  }
  EXPECT_GE(changed, kCases / 2);
}

TEST(DigestSees, TheSameBytesUnderAnotherDtypeOrName) {
  Stream stream(1, "dtype");
  for (int i = 0; i < kCases; ++i) {
    const Content content = draw_content(stream, 1, 300);
    Content other = content;
    other.name = content.name + "s";
    ASSERT_NE(digest_of(other), digest_of(content));
    other = content;
    other.dtype = stream.pick(dtypes());
    if (other.dtype == content.dtype || std::ssize(content.bytes) % other.width() != 0) continue;
    ASSERT_NE(digest_of(other), digest_of(content))
        << short_name(other.dtype) << ' ' << short_name(content.dtype);
  }
}

TEST(DigestOfHeader, SeesNameDtypeAndShapeOfEmptyTensorsToo) {
  std::set<std::string> seen = {WeightDigest().hex()};
  const std::vector<Shape> shapes = {{}, {0}, {0, 2}, {2, 0}, {1}, {6}, {2, 3}, {3, 2}, {1, 6}, {23}};
  for (const char* name : {"", "w", "w ", "[2] w"}) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f4}) {
      for (const Shape& shape : shapes) {
        EXPECT_TRUE(seen.insert(digest_of_header(name, dtype, shape).hex()).second)
            << name << short_name(dtype) << to_string(shape);
      }
    }
  }
  EXPECT_THROW(digest_of_header("w", DType::f32, {-1}), std::invalid_argument);
}

// ---- Refusals.

template <typename Error, typename Run>
std::string refusal_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

TEST(TensorDigest, RefusesElementsOutsideTheTensorAndNamesIt) {
  const std::byte none[16] = {};
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<Part> outside = {{0, 7},  {6, 1}, {7, 0},     {-1, 1},    {-1, 0},
                                     {2, -1}, {5, 2}, {5, kMost}, {kMost, 1}, {0, kMost}};
  for (const Part& part : outside) {
    TensorDigest digest("layers.3.q", DType::bf16, {2, 3});
    const auto run = [&] { digest.add_run(part.first, none, part.count); };
    const std::string text = refusal_of<std::out_of_range>(run);
    EXPECT_THAT(text, HasSubstr("layers.3.q")) << part.first << ' ' << part.count;
    EXPECT_THAT(text, HasSubstr("has 6"));
    EXPECT_THROW(digest.add_strided(part.first, 1, none, part.count), std::out_of_range);
    EXPECT_EQ(digest.sum(), WeightDigest());
  }
  TensorDigest digest("w", DType::bf16, {2, 3});
  EXPECT_THROW(digest.add_strided(0, 3, none, 3), std::out_of_range);
  EXPECT_THROW(digest.add_strided(0, kMost, none, 2), std::out_of_range);
  EXPECT_THROW(digest.add_strided(0, 0, none, 1), std::invalid_argument);
  EXPECT_THROW(TensorDigest("w", DType::f32, {kMost}), std::overflow_error);
  EXPECT_THROW(TensorDigest("w", DType::f32, {-1}), std::invalid_argument);
}

TEST(TensorDigest, TakesWholeBytesOfSubByteDtypesAndRefusesCutsInsideOne) {
  Stream stream(1, "sub-byte");
  for (const auto& [dtype, grain] : {std::pair{DType::f4, 2}, {DType::f6_e2m3, 4}, {DType::f6_e3m2, 4}}) {
    const std::int64_t grains = 700;
    const std::int64_t grain_bytes = grain * size_bits(dtype) / 8;
    Bytes bytes(static_cast<std::size_t>(grains * grain_bytes));
    for (std::byte& byte : bytes) byte = std::byte(stream.next_u32() & 0xff);
    TensorDigest digest("experts.w", dtype, {grains, grain});
    for (const Part& part : draw_partition(stream, grains)) {
      digest.add_run(part.first * grain, bytes.data() + part.first * grain_bytes, part.count * grain);
    }
    EXPECT_EQ(digest.sum().hex(), defined_digest("experts.w", dtype, bytes));
    for (const Part& part : {Part{1, grain}, {0, 1}, {grain, grain + 1}, {grain - 1, 1}}) {
      const auto run = [&] { digest.add_run(part.first, bytes.data(), part.count); };
      EXPECT_THAT(refusal_of<UnsupportedLayout>(run), HasSubstr("experts.w"));
    }
    EXPECT_THROW(digest.add_strided(0, 2, bytes.data(), 2), UnsupportedLayout);
    EXPECT_THROW(TensorDigest("w", dtype, {3}), UnsupportedLayout);
  }
}

TEST(WeightDigest, HexParsesBack) {
  Stream stream(1, "hex");
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t first = stream.next_u64() >> stream.integer(0, 63), second = stream.next_u64();
    const WeightDigest digest({first, second});
    EXPECT_EQ(digest.hex(), hex_of(first, second));
    EXPECT_EQ(WeightDigest::parse(digest.hex()), digest);
  }
}

TEST(WeightDigest, ParseRefusesEverythingElse) {
  const std::string good = hex_of(0x0123456789abcdef, 0xfedcba9876543210);
  ASSERT_TRUE(WeightDigest::parse(good));
  std::vector<std::string> bad = {
      "", "0", good + "0", good.substr(1), " " + good.substr(1), "0x" + good.substr(2)};
  for (const char wrong : {'A', 'F', 'g', ' ', '-', '+', '\0', '/', ':', '`', '\xff'}) {
    for (const std::size_t at : {0, 15, 16, 31}) {
      bad.push_back(good);
      bad.back()[at] = wrong;
    }
  }
  for (const std::string& text : bad) EXPECT_FALSE(WeightDigest::parse(text)) << text;
}

}  // namespace
}  // namespace shardcheck
