#include "layout/packed_words.h"

#include <fmt/format.h>

#include <array>

#include "arithmetic/ceil_div.h"
#include "shardcheck/layout/quantized.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kTileRows = 128, kTileBlocks = 4, kTileSize = kTileRows * kTileBlocks;
constexpr std::int64_t kTileStripe = 32;  // rows of a tile that lie 16 elements apart

constexpr std::array<std::int64_t, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

void require_matrix(const Tensor& tensor, DType dtype, std::string_view what) {
  if (tensor.dtype() != dtype || tensor.rank() != 2)
    throw InvalidInput(fmt::format("{}: {} {}, allowed is {} [rows, cols]", what, short_name(tensor.dtype()),
                                   to_string(tensor.shape()), short_name(dtype)));
}

/// The packed dimension of a matrix seen as [outer, packed, inner].
struct Lines {
  std::int64_t outer, length, inner;
};

Lines lines_of(const Tensor& tensor, int dim, std::int64_t unit, std::string_view what) {
  if (dim != 0 && dim != 1) throw InvalidInput(fmt::format("{}: dim={}, allowed are 0 and 1", what, dim));
  if (tensor.dim(dim) % unit != 0)
    throw InvalidInput(fmt::format("{}: extent {} of dimension {}, allowed are multiples of {}", what,
                                   tensor.dim(dim), dim, unit));
  return dim == 0 ? Lines{1, tensor.dim(0), tensor.dim(1)} : Lines{tensor.dim(0), tensor.dim(1), 1};
}

PackUnit checked_unit(int bits, std::string_view what) {
  if (!is_packable(bits))
    throw InvalidInput(fmt::format("{}: bits={}, allowed are 2, 3, 4 and 8", what, bits));
  return pack_unit_of(bits);
}

Shape with_extent(Shape shape, int dim, std::int64_t extent) {
  shape.at(static_cast<std::size_t>(dim)) = extent;
  return shape;
}

/// Calls use(flat index of the value, flat index of its first word, bit in it, stride to the next word).
template <typename Use>
void for_each_value(const Lines& values, int bits, Use use) {
  const std::int64_t words = values.length * bits / kWordBits;
  for (std::int64_t outer = 0; outer < values.outer; ++outer) {
    for (std::int64_t i = 0; i < values.length; ++i) {
      const std::int64_t bit = i * bits;
      const std::int64_t value_row = (outer * values.length + i) * values.inner;
      const std::int64_t word_row = (outer * words + bit / kWordBits) * values.inner;
      for (std::int64_t inner = 0; inner < values.inner; ++inner)
        use(static_cast<std::size_t>(value_row + inner), static_cast<std::size_t>(word_row + inner),
            static_cast<int>(bit % kWordBits), static_cast<std::size_t>(values.inner));
    }
  }
}

std::uint32_t mask_of(int bits) { return (1U << bits) - 1; }

bool crosses_word(int bit, int bits) { return bit + bits > kWordBits; }

std::uint32_t word_at(std::span<const std::int32_t> words, std::size_t i) {
  return static_cast<std::uint32_t>(words[i]);
}

void add_bits(std::span<std::int32_t> words, std::size_t i, std::uint32_t bits) {
  words[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(words[i]) | bits);
}

/// Columns of every eight exchanged: out[order[k]] = in[k], or out[k] = in[order[k]] when gathering.
Tensor awq_ordered(const Tensor& values, bool gathering) {
  Tensor out = Tensor::uninitialized(DType::u8, values.shape());
  const auto from = values.as<std::uint8_t>();
  const auto to = out.mutable_as<std::uint8_t>();
  for (std::size_t base = 0; base < from.size(); base += kAwqOrder.size()) {
    for (std::size_t k = 0; k < kAwqOrder.size(); ++k) {
      const std::size_t column = base + static_cast<std::size_t>(kAwqOrder[k]);
      if (gathering) {
        to[base + k] = from[column];
      } else {
        to[column] = from[base + k];
      }
    }
  }
  return out;
}

}  // namespace

std::int64_t swizzled_size(std::int64_t rows, std::int64_t blocks) {
  return ceil_div(rows, kTileRows) * ceil_div(blocks, kTileBlocks) * kTileSize;
}

std::int64_t swizzled_index(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t tile = row / kTileRows * ceil_div(blocks, kTileBlocks) + block / kTileBlocks;
  const std::int64_t in_tile = row % kTileRows;
  return tile * kTileSize + in_tile % kTileStripe * (kTileSize / kTileStripe) +
         in_tile / kTileStripe * kTileBlocks + block % kTileBlocks;
}

Tensor gptq_pack(const Tensor& values, int bits, int dim) {
  require_matrix(values, DType::u8, "values");
  const PackUnit unit = checked_unit(bits, "values");
  const Lines lines = lines_of(values, dim, unit.values, "values");
  Tensor packed =
      Tensor::zeros(DType::i32, with_extent(values.shape(), dim, lines.length * bits / kWordBits));
  const auto from = values.as<std::uint8_t>();
  const auto words = packed.mutable_as<std::int32_t>();
  for_each_value(lines, bits, [&](std::size_t value, std::size_t word, int bit, std::size_t stride) {
    if (from[value] > mask_of(bits))
      throw InvalidInput(fmt::format("values: {} at {}, allowed are 0..{}", from[value],
                                     coordinates(values.shape(), static_cast<std::int64_t>(value)),
                                     mask_of(bits)));
    add_bits(words, word, static_cast<std::uint32_t>(from[value]) << bit);
    if (crosses_word(bit, bits))
      add_bits(words, word + stride, static_cast<std::uint32_t>(from[value]) >> (kWordBits - bit));
  });
  return packed;
}

Tensor gptq_unpack(const Tensor& words, int bits, int dim) {
  require_matrix(words, DType::i32, "words");
  const PackUnit unit = checked_unit(bits, "words");
  Lines lines = lines_of(words, dim, unit.words, "words");
  lines.length = lines.length / unit.words * unit.values;
  Tensor values = Tensor::uninitialized(DType::u8, with_extent(words.shape(), dim, lines.length));
  const auto from = words.as<std::int32_t>();
  const auto to = values.mutable_as<std::uint8_t>();
  for_each_value(lines, bits, [&](std::size_t value, std::size_t word, int bit, std::size_t stride) {
    std::uint32_t found = word_at(from, word) >> bit;
    if (crosses_word(bit, bits)) found |= word_at(from, word + stride) << (kWordBits - bit);
    to[value] = static_cast<std::uint8_t>(found & mask_of(bits));
  });
  return values;
}

Tensor awq_pack(const Tensor& values) {
  require_matrix(values, DType::u8, "values");
  lines_of(values, 1, kAwqColumns, "values");
  return gptq_pack(awq_ordered(values, true), 4, 1);
}

Tensor awq_unpack(const Tensor& words) { return awq_ordered(gptq_unpack(words, 4, 1), false); }

}  // namespace shardcheck
