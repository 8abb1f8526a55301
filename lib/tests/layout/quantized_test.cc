#include "shardcheck/layout/quantized.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "shardcheck/tensor/float8.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum ParallelStyle;

// Problems --------------------------------------------------------------------------------------------------

template <typename Exception, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string refusal_of(const QuantizedMatrix& matrix, ParallelStyle style, int degree) {
  return message_of<UnsupportedLayout>([&] { PlacedQuantized(matrix, style, degree); });
}

/// Any bits, except that f16 and f32 scales are positive and finite.
Tensor random_tensor(Stream& stream, DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::zeros(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    std::uint64_t bits = stream.next_u32();
    if (dtype == DType::f16) bits = 0x2000U + bits % 0x2000U;
    if (dtype == DType::f32) bits = 0x3c000000U + bits % 0x04000000U;
    tensor.set_bits(i, bits);
  }
  return tensor;
}

Tensor group_ids(Stream& stream, const QuantizedMatrix& matrix, const Gptq& format) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(matrix.in));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = format.group == -1 ? 0 : static_cast<std::int32_t>(static_cast<std::int64_t>(i) / format.group);
  if (format.act_order) stream.shuffle(std::span(ids));
  Tensor tensor = Tensor::uninitialized(DType::i32, {matrix.in});
  std::ranges::copy(ids, tensor.mutable_as<std::int32_t>().begin());
  return tensor;
}

TensorMap random_tensors(const QuantizedMatrix& matrix, std::uint64_t seed = 1) {
  Stream stream(seed, matrix.name);
  TensorMap tensors;
  const PlacedQuantized whole(matrix, column, 1);
  for (const PlacedCompanion& companion : whole.companions())
    tensors.emplace(companion.name, random_tensor(stream, companion.dtype, companion.shape));
  if (const auto* gptq = std::get_if<Gptq>(&matrix.format))
    tensors.insert_or_assign("g_idx", group_ids(stream, matrix, *gptq));
  return tensors;
}

const std::vector<QuantFormat> kFormats = {
    Gptq{4, 8, false},
    Gptq{4, 8, true},
    Gptq{4, -1, false},
    Gptq{2, 16, false},
    Gptq{3, 32, false},
    Gptq{8, 4, true},
    Awq{8},
    Fp8PerTensor{},
    Fp8PerTensor{DType::f8_e5m2, true},
    Fp8PerChannel{},
    Fp8PerChannel{DType::f8_e5m2, true},
    Fp8Block{DType::f8_e4m3, 4, 8},
    Mxfp8{},
    Mxfp8{DType::f8_e5m2},
};

/// A matrix of three parts that every format can cut into 1 and 2, and most into 4, in both styles.
QuantizedMatrix stacked_matrix(const QuantFormat& format) {
  return {"layers.0.qkv", format, 256, 128, {128, 64, 64}};
}

std::size_t flat(std::int64_t row, std::int64_t cols, std::int64_t col) {
  return static_cast<std::size_t>(row * cols + col);
}

/// Rows (or columns) of a dense weight that a rank holds: its share of every part, by definition.
Tensor dense_part(const QuantizedMatrix& matrix, const Tensor& weight, ParallelStyle style, int degree,
                  int rank) {
  std::vector<std::int64_t> held;
  std::int64_t offset = 0;
  for (const std::int64_t part : style == column ? matrix.stacked() : std::vector{matrix.in}) {
    const std::int64_t share = part / degree;
    for (std::int64_t i = 0; i < share; ++i) held.push_back(offset + rank * share + i);
    offset += part;
  }
  const std::int64_t rows = style == column ? std::ssize(held) : matrix.out;
  const std::int64_t cols = style == row ? std::ssize(held) : matrix.in;
  Tensor part = Tensor::uninitialized(DType::f32, {rows, cols});
  const auto to = part.mutable_f32();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t o = style == column ? held[static_cast<std::size_t>(r)] : r;
      const std::int64_t i = style == row ? held[static_cast<std::size_t>(c)] : c;
      to[flat(r, cols, c)] = weight.f32()[flat(o, matrix.in, i)];
    }
  }
  return part;
}

void expect_same_map(const TensorMap& expected, const TensorMap& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(tensor.same_bytes(actual.at(name))) << name;
}

// Packing ---------------------------------------------------------------------------------------------------

Tensor u8_matrix(const Shape& shape, const std::vector<int>& values) {
  Tensor tensor = Tensor::zeros(DType::u8, shape);
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set_bits(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(values[i]));
  return tensor;
}

TEST(Packing, OneToEightAreThePublishedWords) {
  const std::vector<int> values = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(gptq_pack(u8_matrix({1, 8}, values), 4, 1).bits(0), 0x87654321U);
  EXPECT_EQ(gptq_pack(u8_matrix({8, 1}, values), 4, 0).bits(0), 0x87654321U);
  EXPECT_EQ(awq_pack(u8_matrix({1, 8}, values)).bits(0), 0x86427531U);
}

TEST(Packing, EveryBitOfAWordBelongsToOneValue) {
  Stream stream(3, "packing");
  for (const int bits : {2, 3, 4, 8}) {
    for (const int dim : {0, 1}) {
      const Tensor words = random_tensor(stream, DType::i32, {6, 12});
      const Tensor values = gptq_unpack(words, bits, dim);
      EXPECT_EQ(values.dim(dim) * bits, words.dim(dim) * 32);
      EXPECT_TRUE(gptq_pack(values, bits, dim).same_bytes(words)) << bits << " along " << dim;
    }
  }
  const Tensor words = random_tensor(stream, DType::i32, {3, 5});
  EXPECT_TRUE(awq_pack(awq_unpack(words)).same_bytes(words));
}

TEST(Packing, ValueIIsBitsBITimesIOfTheWordsOfItsLine) {
  Stream stream(4, "packing");
  for (const int bits : {2, 3, 4, 8}) {
    const Tensor words = random_tensor(stream, DType::i32, {6, 2});
    const Tensor values = gptq_unpack(words, bits, 0);
    for (std::int64_t i = 0; i < values.dim(0); ++i) {
      for (std::int64_t o = 0; o < 2; ++o) {
        std::uint64_t expected = 0;
        for (int b = 0; b < bits; ++b) {
          const std::int64_t bit = i * bits + b;
          expected |= ((words.bits(bit / 32 * 2 + o) >> (bit % 32)) & 1U) << b;
        }
        EXPECT_EQ(values.bits(i * 2 + o), expected) << bits << " bits, value " << i;
      }
    }
  }
}

TEST(Packing, WhatHasNoPlaceInAWordIsRefused) {
  const auto refused = [](const Tensor& values, int bits, int dim) {
    return message_of<InvalidInput>([&] { gptq_pack(values, bits, dim); });
  };
  const Tensor eight = u8_matrix({1, 8}, {1, 2, 3, 4, 5, 6, 7, 16});
  EXPECT_EQ(refused(eight, 4, 1), "values: 16 at [0, 7], allowed are 0..15");
  EXPECT_THAT(refused(eight, 5, 1), HasSubstr("bits=5, allowed are 2, 3, 4 and 8"));
  EXPECT_THAT(refused(eight, 4, 0), HasSubstr("extent 1 of dimension 0, allowed are multiples of 8"));
  EXPECT_THAT(refused(eight, 4, 2), HasSubstr("dim=2"));
  EXPECT_THAT(refused(Tensor::zeros(DType::i8, {1, 8}), 4, 1), HasSubstr("i8 [1, 8]"));
  EXPECT_THROW(gptq_unpack(Tensor::zeros(DType::i32, {2, 1}), 3, 0), InvalidInput);
  EXPECT_THROW(awq_pack(Tensor::zeros(DType::u8, {8, 4})), InvalidInput);
}

// Values ----------------------------------------------------------------------------------------------------

float scale_at(const Tensor& scales, std::int64_t row, std::int64_t col) {
  return f16_to_f32(scales.as<std::uint16_t>()[flat(row, scales.dim(1), col)]);
}

TEST(Dequantize, GptqSubtractsTheStoredZeroPlusOne) {
  for (const bool act_order : {false, true}) {
    const QuantizedMatrix matrix{"w", Gptq{4, 8, act_order}, 16, 24};
    const TensorMap tensors = random_tensors(matrix);
    const Tensor weight = dequantize(matrix, tensors);
    ASSERT_EQ(weight.shape(), (Shape{16, 24}));
    for (std::int64_t o = 0; o < 16; ++o) {
      for (std::int64_t i = 0; i < 24; ++i) {
        const auto group = static_cast<std::int64_t>(tensors.at("g_idx").bits(i));
        const auto q = tensors.at("qweight").bits(i / 8 * 16 + o) >> (4 * (i % 8)) & 15U;
        const auto z = tensors.at("qzeros").bits(group * 2 + o / 8) >> (4 * (o % 8)) & 15U;
        const float steps = static_cast<float>(q) - static_cast<float>(z + 1);
        EXPECT_EQ(weight.f32()[flat(o, 24, i)], steps * scale_at(tensors.at("scales"), group, o));
      }
    }
  }
}

TEST(Dequantize, AwqReadsColumnOrderKFromNibbleK) {
  constexpr std::int64_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  const QuantizedMatrix matrix{"w", Awq{4}, 16, 8};
  const TensorMap tensors = random_tensors(matrix);
  const Tensor weight = dequantize(matrix, tensors);
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t word = 0; word < 2; ++word) {
      for (int k = 0; k < 8; ++k) {
        const std::int64_t o = word * 8 + order[k];
        const auto q = tensors.at("qweight").bits(i * 2 + word) >> (4 * k) & 15U;
        const auto z = tensors.at("qzeros").bits(i / 4 * 2 + word) >> (4 * k) & 15U;
        const float steps = static_cast<float>(q) - static_cast<float>(z);
        EXPECT_EQ(weight.f32()[flat(o, 8, i)], steps * scale_at(tensors.at("scales"), i / 4, o));
      }
    }
  }
}

/// Row of the f32 scale of (o, i) in each 8-bit format, written as the format's definition.
float float8_scale(const QuantizedMatrix& m, const TensorMap& tensors, std::int64_t o, std::int64_t i) {
  if (const auto* block = std::get_if<Fp8Block>(&m.format)) {
    const Tensor& scales = tensors.at("weight_scale_inv");
    return scales.f32()[flat(o / block->block_out, scales.dim(1), i / block->block_in)];
  }
  const Tensor& scales = tensors.at("weight_scale");
  if (std::holds_alternative<Mxfp8>(m.format))
    return e8m0_to_f32(scales.as<std::uint8_t>()[flat(o, m.in / 32, i / 32)]);
  if (std::holds_alternative<Fp8PerChannel>(m.format)) return scales.f32()[static_cast<std::size_t>(o)];
  std::size_t part = 0;
  for (std::int64_t end = m.parts[0]; o >= end; end += m.parts[part]) ++part;
  return scales.f32()[std::get<Fp8PerTensor>(m.format).fused_scale ? 0 : part];
}

TEST(Dequantize, Float8IsTheProductOfCodeAndScale) {
  for (const QuantFormat& format : kFormats) {
    if (std::holds_alternative<Gptq>(format) || std::holds_alternative<Awq>(format)) continue;
    const QuantizedMatrix matrix = stacked_matrix(format);
    const TensorMap tensors = random_tensors(matrix);
    const Tensor weight = dequantize(matrix, tensors);
    const Tensor& codes = tensors.at("weight");
    for (std::int64_t o = 0; o < matrix.out; o += 7) {
      for (std::int64_t i = 0; i < matrix.in; ++i) {
        const std::size_t at = flat(o, matrix.in, i);
        const float expected =
            f8_to_f32(codes.dtype(), codes.as<std::uint8_t>()[at]) * float8_scale(matrix, tensors, o, i);
        if (std::isnan(expected)) {
          EXPECT_EQ(weight.bits(static_cast<std::int64_t>(at)), 0x7fc00000U);
        } else {
          EXPECT_EQ(weight.f32()[at], expected) << to_string(format) << " " << o << " " << i;
        }
      }
    }
  }
}

TEST(Dequantize, APartialLastBlockOrGroupHasAScaleOfItsOwn) {
  for (const QuantFormat& format :
       {QuantFormat{Fp8Block{DType::f8_e4m3, 128, 128}}, QuantFormat{Gptq{4, 128}}}) {
    const QuantizedMatrix matrix{"w", format, 192, 200};
    TensorMap tensors = random_tensors(matrix);
    const Tensor before = dequantize(matrix, tensors);
    const bool is_block = std::holds_alternative<Fp8Block>(format);
    Tensor& scales = tensors.at(is_block ? "weight_scale_inv" : "scales");
    ASSERT_EQ(scales.dim(0), 2);
    scales.set_bits(scales.elements() - 1, 0);
    const Tensor after = dequantize(matrix, tensors);
    for (std::int64_t o = 0; o < 192; ++o) {
      for (std::int64_t i = 0; i < 200; ++i) {
        const bool last = i >= 128 && (is_block ? o >= 128 : o == 191);
        const float value = after.f32()[flat(o, 200, i)];
        const bool kept = after.bits(o * 200 + i) == before.bits(o * 200 + i);
        EXPECT_TRUE(last ? value == 0.0F || std::isnan(value) : kept) << o << " " << i;
      }
    }
  }
}

/// Oracle: the tile as a [32, 16] picture, whose columns are (row / 32) * 4 + block.
TEST(Dequantize, SwizzledScalesAreTilesOf128x4) {
  const QuantizedMatrix plain{"w", Mxfp8{}, 160, 192}, swizzled{"w", Mxfp8{DType::f8_e4m3, true}, 160, 192};
  const TensorMap tensors = random_tensors(plain);
  TensorMap tiled = random_tensors(swizzled);  // padding holds anything
  ASSERT_EQ(tiled.at("weight_scale").shape(), (Shape{256 * 8}));
  tiled.insert_or_assign("weight", tensors.at("weight"));
  for (std::int64_t row = 0; row < 160; ++row) {
    for (std::int64_t block = 0; block < 6; ++block) {
      const std::int64_t tile = row / 128 * 2 + block / 4;
      const std::int64_t column = row % 128 / 32 * 4 + block % 4;
      tiled.at("weight_scale")
          .set_bits(tile * 512 + row % 32 * 16 + column, tensors.at("weight_scale").bits(row * 6 + block));
    }
  }
  EXPECT_TRUE(dequantize(swizzled, tiled).same_bytes(dequantize(plain, tensors)));
  EXPECT_THAT(refusal_of(swizzled, row, 2), HasSubstr("w.weight_scale: swizzled=1 at TP degree 2"));
}

TEST(Dequantize, GroupIdsThatNameNoGroupAreRefused) {
  const auto message = [](bool act_order, std::int32_t id) {
    const QuantizedMatrix matrix{"w", Gptq{4, 8, act_order}, 8, 16};
    TensorMap tensors = random_tensors(matrix);
    tensors.at("g_idx").mutable_as<std::int32_t>()[3] = id;
    return message_of<InvalidInput>([&] { dequantize(matrix, tensors); });
  };
  EXPECT_EQ(message(true, 2), "w.g_idx[3]: 2, allowed is 0..1");
  EXPECT_EQ(message(true, -1), "w.g_idx[3]: -1, allowed is 0..1");
  EXPECT_EQ(message(false, 1), "w.g_idx[3]: 1, allowed is 0 without act_order");
}

// Placements ------------------------------------------------------------------------------------------------

/// "qweight:1 g_idx:-": the cut dimension of each stored tensor, - when it is replicated.
std::string dims_of(const QuantFormat& format, ParallelStyle style) {
  const PlacedQuantized placed(stacked_matrix(format), style, 2);
  std::string text;
  for (const PlacedCompanion& companion : placed.companions())
    text += companion.name + ":" + (companion.shard ? std::to_string(companion.shard->dim) : "-") + " ";
  return text;
}

TEST(PlacedQuantized, EachStoredTensorIsCutWhereTheFormatPutsTheExtent) {
  EXPECT_EQ(dims_of(Gptq{4, 8, false}, column), "qweight:1 qzeros:1 scales:1 g_idx:- ");
  EXPECT_EQ(dims_of(Gptq{4, 8, true}, column), "qweight:1 qzeros:1 scales:1 g_idx:- ");
  EXPECT_EQ(dims_of(Gptq{4, 8, false}, row), "qweight:0 qzeros:0 scales:0 g_idx:0 ");
  EXPECT_EQ(dims_of(Gptq{4, 8, true}, row), "qweight:0 qzeros:- scales:- g_idx:0 ");
  EXPECT_EQ(dims_of(Gptq{4, -1, false}, row), "qweight:0 qzeros:- scales:- g_idx:0 ");
  EXPECT_EQ(dims_of(Awq{8}, column), "qweight:1 qzeros:1 scales:1 ");
  EXPECT_EQ(dims_of(Awq{8}, row), "qweight:0 qzeros:0 scales:0 ");
  EXPECT_EQ(dims_of(Fp8PerTensor{}, column), "weight:0 weight_scale:- ");
  EXPECT_EQ(dims_of(Fp8PerTensor{}, row), "weight:1 weight_scale:- ");
  EXPECT_EQ(dims_of(Fp8PerChannel{}, column), "weight:0 weight_scale:0 ");
  EXPECT_EQ(dims_of(Fp8PerChannel{}, row), "weight:1 weight_scale:- ");
  EXPECT_EQ(dims_of(Fp8Block{DType::f8_e4m3, 4, 8}, column), "weight:0 weight_scale_inv:0 ");
  EXPECT_EQ(dims_of(Fp8Block{DType::f8_e4m3, 4, 8}, row), "weight:1 weight_scale_inv:1 ");
  EXPECT_EQ(dims_of(Mxfp8{}, column), "weight:0 weight_scale:0 ");
  EXPECT_EQ(dims_of(Mxfp8{}, row), "weight:1 weight_scale:1 ");
}

/// Units of the sharding rules: what a rank's outputs and inputs must be multiples of.
struct Units {
  QuantFormat format;
  std::int64_t own_out, own_in;  // of any matrix
  std::int64_t out, in;          // of a rank of a cut matrix
};

TEST(PlacedQuantized, IsRefusedExactlyWhereARankWouldHoldAPartOfAUnit) {
  const std::vector<Units> rules = {{Gptq{4, 16, false}, 8, 8, 8, 16},
                                    {Gptq{4, 16, true}, 8, 8, 8, 8},
                                    {Gptq{4, -1, false}, 8, 8, 8, 8},
                                    {Gptq{4, 12, false}, 8, 8, 8, 24},
                                    {Gptq{3, 32, true}, 32, 32, 32, 32},
                                    {Awq{6}, 8, 6, 8, 6},
                                    {Fp8PerTensor{}, 1, 1, 1, 1},
                                    {Fp8PerChannel{}, 1, 1, 1, 1},
                                    {Fp8Block{DType::f8_e4m3, 4, 8}, 1, 1, 4, 8},
                                    {Mxfp8{}, 1, 32, 1, 32}};
  const std::vector<std::int64_t> extents = {1,  3,  6,  8,  12, 16, 18,  24,  32, 36,
                                             48, 60, 64, 72, 80, 96, 128, 144, 192};
  for (const Units& rule : rules) {
    for (const std::int64_t out : extents) {
      for (const std::int64_t in : extents) {
        if (const auto* gptq = std::get_if<Gptq>(&rule.format); gptq != nullptr && gptq->group > in) continue;
        const QuantizedMatrix matrix{"w", rule.format, out, in};
        const bool whole = out % rule.own_out == 0 && in % rule.own_in == 0;
        for (int degree = 1; degree <= 4; ++degree) {
          const auto cuts = [degree](std::int64_t length, std::int64_t unit) {
            return degree == 1 || (length % degree == 0 && length / degree % unit == 0);
          };
          ASSERT_EQ(is_aligned(matrix, column, degree), whole && cuts(out, rule.out))
              << to_string(rule.format) << " [" << out << ", " << in << "] column " << degree;
          ASSERT_EQ(is_aligned(matrix, row, degree), whole && cuts(in, rule.in))
              << to_string(rule.format) << " [" << out << ", " << in << "] row " << degree;
        }
      }
    }
  }
}

TEST(PlacedQuantized, ARefusalNamesTensorFieldValueDegreeAndWhatIsAllowed) {
  EXPECT_EQ(
      refusal_of({"w", Gptq{4, 8}, 48, 16}, column, 4),
      "w.qzeros: out=48 at TP degree 4: column parallel needs a multiple of 8 (word) on every rank; allowed "
      "is degree 1, 2, 3, 6");
  EXPECT_THAT(
      refusal_of({"w", Gptq{4, 128}, 8, 256}, row, 4),
      AllOf(HasSubstr("w.qzeros: in=256 at TP degree 4"), HasSubstr("128 (group)"), HasSubstr("1, 2")));
  EXPECT_THAT(refusal_of({"w", Awq{8}, 72, 16}, column, 2), HasSubstr("w.qweight: out=72 at TP degree 2"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 8, 96}, row, 2), HasSubstr("w.weight_scale: in=96 at TP degree 2"));
  EXPECT_THAT(refusal_of({"qkv", Fp8PerChannel{}, 12, 8, {8, 2, 2}}, column, 4),
              HasSubstr("qkv.weight: part of out=2 at TP degree 4"));
  EXPECT_THAT(refusal_of({"w", Fp8PerTensor{}, 4096, 8}, column, 3),
              HasSubstr("1, 2, 4, 8, 16, 32, 64, 128, ..."));
  EXPECT_THAT(refusal_of({"w", Gptq{5, 8}, 8, 8}, row, 1),
              HasSubstr("bits=5 at TP degree 1: allowed is 2, 3, 4 or 8"));
  EXPECT_THAT(refusal_of({"w", Gptq{4, 0}, 8, 8}, row, 1), HasSubstr("w.scales: group=0"));
  EXPECT_THAT(refusal_of({"w", Awq{-1}, 8, 8}, row, 1),
              HasSubstr("w.scales: group=-1 at TP degree 1: allowed is 1..8"));
  EXPECT_THAT(refusal_of({"w", Fp8Block{DType::f8_e4m3, 0, 8}, 8, 8}, row, 1), HasSubstr("block_out=0"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{DType::f8_e4m3fnuz}, 8, 32}, row, 1), HasSubstr("f8_e4m3fnuz"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 8, 40}, row, 1),
              HasSubstr("allowed are multiples of 32, whole blocks"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 0, 32}, row, 1), HasSubstr("w: out=0"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 8, std::int64_t{1} << 40}, row, 1),
              HasSubstr("allowed is 1..2147483648"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 8, 32, {4, 5}}, row, 1), HasSubstr("part=5"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 8, 32, {4, 3}}, row, 1), HasSubstr("the sum of its parts, 7"));
  EXPECT_THAT(refusal_of({"w", Mxfp8{}, 8, 32}, row, 0), HasSubstr("TP degree 0 is below 1"));
}

/// vLLM's adjust_block_scale_shard rounds offsets up: parts [192, 192] then claim block rows [0, 2) and [2,
/// 4) of a tensor of 3, and the second block holds rows of both parts.
TEST(PlacedQuantized, ABlockOfTwoPartsIsRefused) {
  const Fp8Block format{DType::f8_e4m3, 128, 128};
  const QuantizedMatrix straddling{"gate_up", format, 384, 128, {192, 192}};
  for (const int degree : {1, 2}) {
    for (const ParallelStyle style : {column, row})
      EXPECT_THAT(refusal_of(straddling, style, degree),
                  HasSubstr("gate_up.weight_scale_inv: part 0 of out=192 at TP degree"));
  }
  EXPECT_TRUE(is_aligned({"gate_up", format, 448, 128, {256, 192}}, column, 1));
  EXPECT_FALSE(is_aligned({"gate_up", format, 512, 128, {256, 256}}, column, 4));
  EXPECT_TRUE(is_aligned({"gate_up", format, 512, 128, {256, 256}}, column, 2));
}

// Split and gather ------------------------------------------------------------------------------------------

/// Calls use(placed, whole tensors) for every format, style and degree of 1, 2, 4 that it can be cut into.
template <typename Use>
void for_each_placement(Use use) {
  for (const QuantFormat& format : kFormats) {
    const QuantizedMatrix matrix = stacked_matrix(format);
    const TensorMap full = random_tensors(matrix);
    for (const ParallelStyle style : {column, row}) {
      for (const int degree : {1, 2, 4}) {
        if (!is_aligned(matrix, style, degree)) continue;
        SCOPED_TRACE(to_string(format) + " " + std::string(to_string(style)) + " " + std::to_string(degree));
        use(PlacedQuantized(matrix, style, degree), full);
      }
    }
  }
}

TEST(SplitQuantized, CommutesWithDequantize) {
  int cuts = 0;
  for_each_placement([&](const PlacedQuantized& placed, const TensorMap& full) {
    const Tensor weight = dequantize(placed.matrix(), full);
    const auto shards = split_quantized(placed, full);
    ASSERT_EQ(std::ssize(shards), placed.degree());
    for (int rank = 0; rank < placed.degree(); ++rank) {
      const Tensor expected = dense_part(placed.matrix(), weight, placed.style(), placed.degree(), rank);
      EXPECT_TRUE(dequantize(placed, shards[static_cast<std::size_t>(rank)]).same_bytes(expected)) << rank;
    }
    ++cuts;
  });
  EXPECT_GT(cuts, 5 * std::ssize(kFormats));
}

TEST(SplitQuantized, IsInvertedByGather) {
  for_each_placement([](const PlacedQuantized& placed, const TensorMap& full) {
    expect_same_map(full, gather_quantized(placed, split_quantized(placed, full)));
  });
}

TEST(GatherQuantized, RefusesDivergentReplicas) {
  int replicated = 0;
  for_each_placement([&](const PlacedQuantized& placed, const TensorMap& full) {
    for (const PlacedCompanion& companion : placed.companions()) {
      if (companion.shard || placed.degree() == 1) continue;
      auto shards = split_quantized(placed, full);
      shards.back().at(companion.name).mutable_bytes()[0] ^= std::byte{1};
      EXPECT_THAT(message_of<InvalidInput>([&] { gather_quantized(placed, shards); }),
                  AllOf(HasSubstr(companion.name), HasSubstr("differs from rank 0")));
      ++replicated;
    }
  });
  EXPECT_GT(replicated, 0);
}

TEST(SplitQuantized, GroupIdsStayThoseOfTheWholeMatrix) {
  for (const bool act_order : {false, true}) {
    const QuantizedMatrix matrix{"w", Gptq{4, 8, act_order}, 8, 32};
    const TensorMap full = random_tensors(matrix);
    const auto shards = split_quantized(PlacedQuantized(matrix, row, 2), full);
    for (std::int64_t i = 0; i < 32; ++i)
      EXPECT_EQ(shards[static_cast<std::size_t>(i / 16)].at("g_idx").bits(i % 16), full.at("g_idx").bits(i));
  }
}

TEST(SplitQuantized, WhatIsNotTheWeightIsRefusedByName) {
  const QuantizedMatrix matrix{"w", Awq{8}, 16, 16};
  const PlacedQuantized placed(matrix, row, 2);
  const auto message = [&](auto change) {
    TensorMap full = random_tensors(matrix);
    change(full);
    return message_of<InvalidInput>([&] { split_quantized(placed, full); });
  };
  EXPECT_EQ(message([](TensorMap& full) { full.erase("scales"); }), "w: scales is missing");
  EXPECT_EQ(message([](TensorMap& full) { full.emplace("g_idx", Tensor()); }),
            "w: 'g_idx' is no tensor of awq(group=8)");
  EXPECT_EQ(message([](TensorMap& full) { full["scales"] = full["scales"].rows(0, 1); }),
            "w: scales is f16 [1, 16], allowed is f16 [2, 16]");
  EXPECT_EQ(message([](TensorMap& full) {
              full["qzeros"] = Tensor::zeros(DType::u32, {2, 2});
            }),
            "w: qzeros is u32 [2, 2], allowed is i32 [2, 2]");
  const auto shards = split_quantized(placed, random_tensors(matrix));
  EXPECT_THAT(message_of<InvalidInput>([&] { gather_quantized(placed, {shards[0]}); }),
              HasSubstr("1 ranks, allowed is the TP degree 2"));
  EXPECT_THAT(message_of<InvalidInput>([&] {
                gather_quantized(placed, {shards[0], random_tensors(matrix)});
              }),
              HasSubstr("w on rank 1 of 2: qweight is i32 [16, 2], allowed is i32 [8, 2]"));
}

// Fused parts -----------------------------------------------------------------------------------------------

std::vector<QuantizedWeight> random_parts(const QuantFormat& format) {
  std::vector<QuantizedWeight> parts;
  for (const char* name : {"q", "k", "v"}) {
    const QuantizedMatrix matrix{name, format, *name == 'q' ? 64 : 32, 64};
    parts.push_back({matrix, random_tensors(matrix, static_cast<std::uint64_t>(*name))});
    // Parts of one input share its order.
    if (parts.front().tensors.contains("g_idx"))
      parts.back().tensors.insert_or_assign("g_idx", parts.front().tensors.at("g_idx"));
  }
  return parts;
}

bool is_fused(const QuantFormat& format) {
  const auto* per_tensor = std::get_if<Fp8PerTensor>(&format);
  return per_tensor != nullptr && per_tensor->fused_scale;
}

TEST(StackQuantized, DequantizesToTheStackOfItsParts) {
  for (const QuantFormat& format : kFormats) {
    if (is_fused(format)) continue;
    const auto parts = random_parts(format);
    const QuantizedWeight stack = stack_quantized("qkv", parts);
    EXPECT_EQ(stack.matrix.parts, (std::vector<std::int64_t>{64, 32, 32}));
    const Tensor whole = dequantize(stack.matrix, stack.tensors);
    std::int64_t first = 0;
    for (const auto& [matrix, tensors] : parts) {
      EXPECT_TRUE(whole.rows(first, matrix.out).same_bytes(dequantize(matrix, tensors))) << to_string(format);
      first += matrix.out;
    }
  }
}

TEST(StackQuantized, PartsThatCannotShareTensorsAreRefused) {
  const auto refused = [](const std::vector<QuantizedWeight>& parts) {
    return message_of<UnsupportedLayout>([&] { stack_quantized("qkv", parts); });
  };
  auto ordered = random_parts(Gptq{4, 8, true});
  ordered[1].tensors.at("g_idx").mutable_as<std::int32_t>()[0] ^= 1;
  EXPECT_THAT(refused(ordered), HasSubstr("qkv: part k: g_idx differs from that of part q"));
  EXPECT_THAT(
      refused(random_parts(Fp8Block{DType::f8_e4m3, 48, 32})),
      HasSubstr("qkv.weight_scale_inv: part 0 of out=64 at TP degree 1: allowed are multiples of 48"));
  EXPECT_THAT(refused(random_parts(Fp8PerTensor{DType::f8_e4m3, true})), HasSubstr("weight_scale is fused"));
  EXPECT_THAT(refused(random_parts(Mxfp8{DType::f8_e4m3, true})), HasSubstr("weight_scale is swizzled"));
  auto mixed = random_parts(Awq{8});
  mixed.push_back(random_parts(Awq{16}).front());
  EXPECT_THAT(refused(mixed), HasSubstr("format awq(group=16), allowed is awq(group=8)"));
  const QuantizedMatrix wide{"v", Awq{8}, 32, 72};
  mixed.back() = {wide, random_tensors(wide)};
  EXPECT_THAT(refused(mixed), HasSubstr("qkv: part v: in=72, allowed is 64"));
  EXPECT_THAT(refused({}), HasSubstr("0 parts"));
}

/// Spacing of 8-bit values of 3 or 2 fraction bits around `value`.
float ulp_of(DType dtype, float value) {
  const int fraction = dtype == DType::f8_e4m3 ? 3 : 2, smallest = dtype == DType::f8_e4m3 ? -6 : -14;
  const int exponent = value == 0.0F ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(1.0F, exponent - fraction);
}

TEST(RequantizeToMaxScale, MovesEveryElementByHalfAnUlpAtMost) {
  for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    const QuantizedWeight before = stack_quantized("qkv", random_parts(Fp8PerTensor{dtype}));
    const QuantizedWeight after = requantize_to_max_scale(before);
    const Tensor old_values = dequantize(before.matrix, before.tensors);
    const auto scales = before.tensors.at("weight_scale").f32();
    const float largest = *std::ranges::max_element(scales);
    ASSERT_EQ(after.tensors.at("weight_scale").f32()[0], largest);
    int changed = 0;
    for (std::int64_t i = 0; i < old_values.elements(); ++i) {
      const float old_value = old_values.f32()[static_cast<std::size_t>(i)];
      const auto code = static_cast<std::uint8_t>(after.tensors.at("weight").bits(i));
      const float value = f8_to_f32(dtype, code);
      if (std::isnan(old_value)) {
        EXPECT_TRUE(std::isnan(value));
      } else if (std::isfinite(old_value)) {
        // The bound holds for the real quotient; 1e-6 of it covers the rounding of this f32 one.
        const float quotient = old_value / largest;
        EXPECT_LE(std::fabs(value - quotient), ulp_of(dtype, quotient) / 2 + std::fabs(quotient) * 1e-6F)
            << i;
        changed += value * largest != old_value ? 1 : 0;
      }
    }
    EXPECT_GT(changed, 0) << "requantisation that changes nothing proves nothing";
  }
}

TEST(RequantizeToMaxScale, KeepsThePartThatHasTheLargestScaleAndCommutesWithSplit) {
  QuantizedWeight weight = stack_quantized("qkv", random_parts(Fp8PerTensor{}));
  weight.tensors.insert_or_assign("weight_scale", Tensor::from({3}, std::vector{0.25F, 3.0e38F, 3.0e38F}));
  const QuantizedWeight requantized = requantize_to_max_scale(weight);
  EXPECT_TRUE(
      requantized.tensors.at("weight").rows(64, 64).same_bytes(weight.tensors.at("weight").rows(64, 64)));

  weight.tensors.insert_or_assign("weight_scale", Tensor::from({3}, std::vector{0.25F, 0.7F, 0.5F}));
  const PlacedQuantized after(requantize_to_max_scale(weight).matrix, column, 2);
  const auto expected = split_quantized(after, requantize_to_max_scale(weight).tensors);
  const auto shards = split_quantized(PlacedQuantized(weight.matrix, column, 2), weight.tensors);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const QuantizedMatrix local{"qkv", weight.matrix.format, 64, 64, {32, 16, 16}};
    expect_same_map(expected[rank], requantize_to_max_scale({local, shards[rank]}).tensors);
  }
}

TEST(RequantizeToMaxScale, RefusesWhatHasNoScalePerPart) {
  const QuantizedMatrix fused{"w", Fp8PerTensor{DType::f8_e4m3, true}, 8, 8};
  EXPECT_THROW(requantize_to_max_scale({fused, random_tensors(fused)}), UnsupportedLayout);
  const QuantizedMatrix channel{"w", Fp8PerChannel{}, 8, 8};
  EXPECT_THROW(requantize_to_max_scale({channel, random_tensors(channel)}), UnsupportedLayout);
  const QuantizedMatrix matrix{"w", Fp8PerTensor{}, 8, 8, {4, 4}};
  TensorMap tensors = random_tensors(matrix);
  tensors.insert_or_assign("weight_scale", Tensor::from({2}, std::vector{1.0F, 0.0F}));
  EXPECT_THAT(message_of<InvalidInput>([&] {
                requantize_to_max_scale({matrix, tensors});
              }),
              HasSubstr("w.weight_scale[1]: 0, allowed are finite positive scales"));
}

}  // namespace
}  // namespace shardcheck
