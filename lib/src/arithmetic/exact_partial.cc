#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

#include "arithmetic/exact_bytes.h"
#include "arithmetic/exact_calls.h"
#include "arithmetic/exact_partial_builder.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kLowMask = (std::int64_t{1} << kExactRadix) - 1;
constexpr int kWordBits = 106;  // a value in words is below 2^106 in magnitude, so that |high| < 2^54
constexpr std::int64_t kHighLimit = std::int64_t{1} << (kWordBits - kExactRadix);
// Sums of kMaxRanks such words.
constexpr std::int64_t kSummedLimit = kHighLimit * ExactPartial::kMaxRanks;

constexpr std::uint64_t kPartialMark = 0x3154524150584553;  // "SEXPART1"
constexpr std::uint64_t kRestMark = 0x3154534552584553;     // "SEXREST1"

bool below_power(Int128 value, int bits) {
  if (bits <= 0) return value == 0;
  const Int128 limit = Int128{1} << bits;
  return -limit < value && value < limit;
}

// total += value * 2^shift, if both the addend and the total stay integers below 2^106.
bool add_if_it_fits(Int128& total, Int128 value, int shift) {
  if (shift < 0) {
    if (-shift > kWordBits || (value & ((Int128{1} << -shift) - 1)) != 0) return value == 0;
    value >>= -shift;
  } else {
    if (!below_power(value, kWordBits - shift)) return false;
    if (value != 0) value <<= shift;
  }
  if (!below_power(value, kWordBits) || !below_power(total + value, kWordBits)) return false;
  total += value;
  return true;
}

std::uint64_t digest_of(std::span<const std::int32_t> row_exponents,
                        std::span<const std::int32_t> column_exponents) {
  const auto hash = [](std::span<const std::int32_t> values, std::uint64_t seed) {
    return XXH3_64bits_withSeed(values.data(), values.size_bytes(), seed);
  };
  return hash(column_exponents, hash(row_exponents, row_exponents.size()));
}

// One rank's sparse part: its entries, each checked to lie in [0, elements) and to follow the one before.
template <typename Visit>
void read_rest(ByteReader& reader, std::uint64_t digest, std::int64_t elements, const Visit& visit) {
  reader.require(reader.get() == kRestMark, "no sparse part where one should begin");
  reader.require(reader.get() == digest, "shape or exponents differ from those of this rank");
  const std::int64_t count = reader.count(sizeof(std::uint64_t) * (1 + LongAccumulator::kWords));
  std::int64_t previous = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::int64_t>(reader.get());
    reader.require(previous < index && index < elements, "an index of the sparse part is out of order");
    std::array<std::uint64_t, LongAccumulator::kWords> words{};
    reader.get(std::span<std::uint64_t>(words));
    visit(index, LongAccumulator::from_words(words));
    previous = index;
  }
}

void write_rest(ByteWriter& writer, std::uint64_t digest,
                std::span<const std::pair<std::int64_t, LongAccumulator>> rest) {
  writer.put(kRestMark);
  writer.put(digest);
  writer.put(rest.size());
  for (const auto& [index, value] : rest) {
    writer.put(static_cast<std::uint64_t>(index));
    writer.put(std::span<const std::uint64_t>(value.words()));
  }
}

std::vector<double> powers_of_two(std::span<const std::int32_t> exponents) {
  std::vector<double> powers;
  powers.reserve(exponents.size());
  for (const std::int32_t exponent : exponents) powers.push_back(power_of_two(exponent));
  return powers;
}

// For equal exponents; returns whether some word has become too large for a sum over ranks.
bool add_words(std::span<std::int64_t> to, std::span<const std::int64_t> from) {
  const std::size_t elements = to.size() / 2;
  std::uint64_t magnitudes = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::int64_t low = to[elements + i] + from[elements + i];
    const std::int64_t high = to[i] + from[i] + (low >> kExactRadix);
    to[i] = high;
    to[elements + i] = low & kLowMask;
    magnitudes |= static_cast<std::uint64_t>(high ^ (high >> 63));
  }
  return magnitudes >= static_cast<std::uint64_t>(kHighLimit);
}

std::vector<std::int32_t> smaller_of(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  std::vector<std::int32_t> smaller(a.size());
  std::transform(a.begin(), a.end(), b.begin(), smaller.begin(),
                 [](std::int32_t x, std::int32_t y) { return std::min(x, y); });
  return smaller;
}

}  // namespace

ExactPartialBuilder::ExactPartialBuilder(ExactPartial& partial) : partial_(partial) {
  const std::size_t count = partial.rest_.size();
  if (count != 0) slots_.resize(partial.words_.size() / 2);
  for (std::size_t i = 0; i < count; ++i) {
    slots_[static_cast<std::size_t>(partial.rest_[i].first)] = static_cast<std::int32_t>(i + 1);
  }
}

ExactPartialBuilder::~ExactPartialBuilder() {
  const auto by_index = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::sort(partial_.rest_.begin(), partial_.rest_.end(), by_index);
}

void ExactPartialBuilder::reset(ExactPartial& partial, std::vector<std::int32_t> row_exponents,
                                std::vector<std::int32_t> column_exponents) {
  partial.rows_ = std::ssize(row_exponents);
  partial.columns_ = std::ssize(column_exponents);
  partial.row_exponents_ = std::move(row_exponents);
  partial.column_exponents_ = std::move(column_exponents);
  partial.words_.assign(static_cast<std::size_t>(2 * partial.rows_ * partial.columns_), 0);
  partial.rest_.clear();
}

LongAccumulator& ExactPartialBuilder::rest(std::int64_t index) {
  if (slots_.empty()) slots_.resize(partial_.words_.size() / 2);
  std::int32_t& slot = slots_[static_cast<std::size_t>(index)];
  if (slot == 0) {
    partial_.rest_.emplace_back(index, LongAccumulator());
    slot = static_cast<std::int32_t>(partial_.rest_.size());
  }
  return partial_.rest_[static_cast<std::size_t>(slot - 1)].second;
}

int ExactPartialBuilder::exponent_at(const ExactPartial& partial, std::int64_t index) {
  return partial.row_exponents_[static_cast<std::size_t>(index / partial.columns_)] +
         partial.column_exponents_[static_cast<std::size_t>(index % partial.columns_)];
}

void ExactPartialBuilder::add(std::int64_t index, Int128 value, int exponent) {
  Int128 total = join_words(*high(index), *low(index));
  if (add_if_it_fits(total, value, exponent - exponent_at(partial_, index))) {
    *high(index) = static_cast<std::int64_t>(total >> kExactRadix);
    *low(index) = static_cast<std::int64_t>(total & kLowMask);
  } else {
    rest(index).add_words(static_cast<std::int64_t>(value >> kExactRadix),
                          static_cast<std::int64_t>(value & kLowMask), exponent);
  }
}

void ExactPartialBuilder::add_product(std::int64_t index, float a, float b) {
  if (std::isfinite(a) && std::isfinite(b)) {
    const Decoded x = decode(a), y = decode(b);
    add(index, Int128{x.integer * y.integer}, x.exponent + y.exponent);
  } else {
    rest(index).add_product(a, b);
  }
}

void ExactPartialBuilder::add(const ExactPartial& other) {
  const std::size_t count = other.words_.size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const Int128 value = join_words(other.words_[i], other.words_[count + i]);
    const auto index = static_cast<std::int64_t>(i);
    if (value != 0) add(index, value, exponent_at(other, index));
  }
  for (const auto& [index, value] : other.rest_) rest(index).merge(value);
}

void ExactPartialBuilder::spill_large_words() {
  for (std::int64_t i = 0; i < elements(); ++i) {
    if (-kHighLimit < *high(i) && *high(i) < kHighLimit) continue;
    rest(i).add_words(*high(i), *low(i), exponent_at(partial_, i));
    *high(i) = *low(i) = 0;
  }
}

void ExactPartial::merge(const ExactPartial& other) {
  if (rows_ != other.rows_ || columns_ != other.columns_) {
    throw std::invalid_argument(
        fmt::format("exact partial: merge of [{}, {}] into [{}, {}]; the shapes must agree", other.rows_,
                    other.columns_, rows_, columns_));
  }
  if (&other == this) return merge(ExactPartial(other));
  if (row_exponents_ != other.row_exponents_ || column_exponents_ != other.column_exponents_) {
    const ExactPartial mine = std::move(*this);
    ExactPartialBuilder::reset(*this, smaller_of(mine.row_exponents_, other.row_exponents_),
                               smaller_of(mine.column_exponents_, other.column_exponents_));
    ExactPartialBuilder builder(*this);
    builder.add(mine);
    builder.add(other);
    return;
  }
  const bool large = add_words(words_, other.words_);
  if (!large && other.rest_.empty()) return;
  ExactPartialBuilder builder(*this);
  if (large) builder.spill_large_words();
  for (const auto& [index, value] : other.rest_) builder.rest(index).merge(value);
}

void ExactPartial::add_product(std::int64_t row, std::int64_t column, float a, float b) {
  if (row < 0 || row >= rows_ || column < 0 || column >= columns_) {
    throw std::out_of_range(
        fmt::format("exact partial: element ({}, {}) of [{}, {}]", row, column, rows_, columns_));
  }
  ExactPartialBuilder(*this).add_product(row * columns_ + column, a, b);
}

void ExactPartial::add_bias(std::span<const float> bias) {
  if (std::ssize(bias) != columns_) {
    throw std::invalid_argument(
        fmt::format("exact partial: {} bias values for {} columns", bias.size(), columns_));
  }
  ExactPartialBuilder builder(*this);
  for (std::int64_t i = 0; i < builder.elements(); ++i) {
    builder.add_product(i, bias[static_cast<std::size_t>(i % columns_)], 1.0F);
  }
}

void ExactPartial::round(float* y, std::int64_t ldy) const {
  const std::int64_t elements = rows_ * columns_;
  const std::vector<double> row_scales = powers_of_two(row_exponents_),
                            column_scales = powers_of_two(column_exponents_);
  round_block({.words = {.high = words_.data(),
                         .low = words_.data() + elements,
                         .stride = columns_,
                         .rows = rows_,
                         .count = columns_},
               .row_scales = row_scales.data(),
               .column_scales = column_scales.data(),
               .y = y,
               .y_stride = ldy});
  for (const auto& [index, rest] : rest_) {
    const auto i = static_cast<std::size_t>(index);
    const std::int64_t row = index / columns_, column = index % columns_;
    LongAccumulator total = rest;
    total.add_words(
        words_[i], words_[static_cast<std::size_t>(elements) + i],
        row_exponents_[static_cast<std::size_t>(row)] + column_exponents_[static_cast<std::size_t>(column)]);
    y[row * ldy + column] = total.round();
  }
}

std::vector<std::byte> ExactPartial::bytes() const {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  writer.put(kPartialMark);
  writer.put(static_cast<std::uint64_t>(rows_));
  writer.put(static_cast<std::uint64_t>(columns_));
  writer.put(std::span(row_exponents_));
  writer.put(std::span(column_exponents_));
  writer.put(std::span(words_));
  write_rest(writer, digest_of(row_exponents_, column_exponents_), rest_);
  return out;
}

ExactPartial ExactPartial::from_bytes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "exact partial");
  reader.require(reader.get() == kPartialMark, "no partial begins here");
  const std::int64_t rows = reader.count(1), columns = reader.count(1);
  const Int128 needed = Int128{4} * (rows + columns) + Int128{16} * rows * columns;
  reader.require(needed <= static_cast<Int128>(reader.left()), "ends early");

  std::vector<std::int32_t> row_exponents(static_cast<std::size_t>(rows)),
      column_exponents(static_cast<std::size_t>(columns));
  reader.get(std::span(row_exponents));
  reader.get(std::span(column_exponents));
  const auto is_exponent = [](std::int32_t e) { return kLowestExponent <= e && e <= kHighestExponent; };
  reader.require(std::all_of(row_exponents.begin(), row_exponents.end(), is_exponent) &&
                     std::all_of(column_exponents.begin(), column_exponents.end(), is_exponent),
                 "an exponent lies outside -149..83");
  const std::uint64_t digest = digest_of(row_exponents, column_exponents);
  ExactPartial partial;
  ExactPartialBuilder::reset(partial, std::move(row_exponents), std::move(column_exponents));
  reader.get(std::span(partial.words_));
  const auto is_word = [](std::int64_t word) { return -kSummedLimit < word && word < kSummedLimit; };
  reader.require(std::all_of(partial.words_.begin(), partial.words_.end(), is_word),
                 "a word lies outside -2^61..2^61");
  read_rest(reader, digest, rows * columns, [&](std::int64_t index, const LongAccumulator& value) {
    partial.rest_.emplace_back(index, value);
  });
  reader.require(reader.left() == 0, "has bytes beyond its end");
  return partial;
}

std::vector<std::byte> ExactPartial::rest_bytes() const {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  write_rest(writer, digest_of(row_exponents_, column_exponents_), rest_);
  return out;
}

void ExactPartial::set_rest(std::span<const std::byte> gathered) {
  ByteReader reader(gathered, "sparse parts of exact partials");
  const std::uint64_t digest = digest_of(row_exponents_, column_exponents_);
  ExactPartial sum;
  ExactPartialBuilder::reset(sum, row_exponents_, column_exponents_);
  {
    ExactPartialBuilder builder(sum);
    std::int64_t ranks = 0;
    while (reader.left() != 0) {
      read_rest(reader, digest, rows_ * columns_,
                [&](std::int64_t index, const LongAccumulator& value) { builder.rest(index).merge(value); });
      reader.require(++ranks <= kMaxRanks, "more ranks than kMaxRanks");
    }
    reader.require(ranks > 0, "no rank's part is here");
  }
  rest_ = std::move(sum.rest_);
}

}  // namespace shardcheck
