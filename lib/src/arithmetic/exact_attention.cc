#include "shardcheck/arithmetic/exact_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "arithmetic/attention_shape.h"
#include "arithmetic/exact_bytes.h"
#include "arithmetic/exact_calls.h"
#include "arithmetic/exact_partial_builder.h"
#include "arithmetic/exact_rounding.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kUnit = 44;                                  // probabilities are multiples of 2^-44
constexpr std::int64_t kMostKeys = std::int64_t{1} << 18;  // their sum in that unit stays within 2^62
constexpr std::int64_t kMostUnits = kMostKeys << kUnit;
constexpr std::int64_t kNotANumber = -1;
constexpr std::uint64_t kMark = 0x3154544158455853;  // "SXEXATT1"
constexpr std::uint64_t kMarkWithMaxima = 0x3254544158455853;

constexpr std::string_view kName = "exact attention";

void require_shape(const AttentionShape& shape, std::int64_t keys, std::span<const std::int64_t> kv_of_head) {
  require_heads(kName, shape, kv_of_head);
  if (keys > kMostKeys) {
    throw std::invalid_argument(fmt::format("{}: {} keys; at most {}", kName, keys, kMostKeys));
  }
}

std::vector<std::int64_t> all_positions(std::int64_t keys) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(keys));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

// Scores of one head, then their weights. Only the first `seen` of a row are meaningful, the others are 0.
struct ScoreRow {
  std::span<float> seen;
  ScaledRow scaled;
};

// One KV head of the keys held here, sorted by position so that a query sees the first so many.
class KeyValueHead {
 public:
  KeyValueHead(const AttentionShape& shape, const ExactKeys& keys, std::int64_t kv)
      : shape_(shape), positions_(keys.positions.begin(), keys.positions.end()) {
    const std::vector<std::int64_t> order = order_of(keys.positions);
    std::sort(positions_.begin(), positions_.end());
    std::vector<float> rows, columns(static_cast<std::size_t>(shape.head_dim * count()));
    rows.reserve(columns.size());
    for (std::int64_t j = 0; j < count(); ++j) {
      const float* key = keys.k + order[static_cast<std::size_t>(j)] * shape.k_stride + kv * shape.head_dim;
      const float* value = keys.v + order[static_cast<std::size_t>(j)] * shape.v_stride + kv * shape.head_dim;
      rows.insert(rows.end(), key, key + shape.head_dim);
      for (std::int64_t d = 0; d < shape.head_dim; ++d) {
        // A query that does not see this key must not meet 0 * inf.
        const bool finite = std::isfinite(value[d]);
        if (!finite) specials_.push_back({j, d, value[d]});
        columns[static_cast<std::size_t>(d * count() + j)] = finite ? value[d] : 0.0F;
      }
    }
    keys_ = ExactWeights(rows.data(), count(), shape.head_dim, shape.head_dim);
    values_ = ExactWeights(columns.data(), shape.head_dim, count(), count());
  }

  std::int64_t count() const { return std::ssize(positions_); }

  /// Turns scores [rows, count] into weights by visit(query, scores the query sees).
  template <typename Visit>
  std::vector<float> weights(const float* q, std::int64_t head, const Visit& visit) const {
    std::vector<float> scores(static_cast<std::size_t>(shape_.rows * count()));
    exact_gemm(q + head * shape_.head_dim, shape_.q_stride, shape_.rows, keys_, scores.data(), count());
    const float scale = rsqrt_f32(static_cast<float>(shape_.head_dim));
    for (std::int64_t i = 0; i < shape_.rows; ++i) {
      float* row = scores.data() + i * count();
      const std::int64_t seen = seen_by(i);
      ScaledRow scaled = scale_row(row, seen, scale);
      if (shape_.slopes != nullptr) scaled = add_slope(row, seen, shape_.slopes[head], i);
      visit(i, ScoreRow{{row, static_cast<std::size_t>(seen)}, scaled});
      std::fill(row + seen, row + count(), 0.0F);
    }
    return scores;
  }

  void weigh(std::span<const float> weights, float* out, std::int64_t out_stride) const {
    if (specials_.empty()) {
      exact_gemm(weights.data(), count(), shape_.rows, values_, out, out_stride);
    } else {
      weigh(weights).round(out, out_stride);
    }
  }

  /// Rows have the same exponents on every rank.
  ExactPartial weigh(std::span<const float> weights) const {
    const std::vector<std::int32_t> tops(static_cast<std::size_t>(shape_.rows), 1);
    ExactPartial partial = exact_partial(weights.data(), count(), shape_.rows, values_, tops);
    ExactPartialBuilder builder(partial);
    for (const Special& special : specials_) {
      for (std::int64_t i = 0; i < shape_.rows; ++i) {
        if (special.key >= seen_by(i)) continue;
        builder.add_product(i * shape_.head_dim + special.column,
                            weights[static_cast<std::size_t>(i * count() + special.key)], special.value);
      }
    }
    return partial;
  }

 private:
  struct Special {
    std::int64_t key, column;
    float value;
  };

  static std::vector<std::int64_t> order_of(std::span<const std::int64_t> positions) {
    std::vector<std::int64_t> order(positions.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return positions[static_cast<std::size_t>(a)] < positions[static_cast<std::size_t>(b)];
    });
    return order;
  }

  ScaledRow add_slope(float* scores, std::int64_t seen, float slope, std::int64_t query) const {
    for (std::int64_t j = 0; j < seen; ++j) {
      const std::int64_t distance = positions_[static_cast<std::size_t>(j)] - (shape_.first_query + query);
      scores[j] = std::fma(slope, static_cast<float>(distance), scores[j]);
    }
    return scale_row(scores, seen, 1.0F);
  }

  std::int64_t seen_by(std::int64_t query) const {
    if (!shape_.causal) return count();
    const std::int64_t position = shape_.first_query + query;
    return std::upper_bound(positions_.begin(), positions_.end(), position) - positions_.begin();
  }

  const AttentionShape& shape_;
  std::vector<std::int64_t> positions_;
  ExactWeights keys_, values_;
  std::vector<Special> specials_;  // values that are not finite
};

// visit(head, kv head), heads of one KV head one after the other so that it is packed once.
template <typename Visit>
void for_each_head(const AttentionShape& shape, const ExactKeys& keys,
                   std::span<const std::int64_t> kv_of_head, const Visit& visit) {
  for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
    if (std::find(kv_of_head.begin(), kv_of_head.end(), kv) == kv_of_head.end()) continue;
    const KeyValueHead packed(shape, keys, kv);
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      if (kv_of_head[static_cast<std::size_t>(h)] == kv) visit(h, packed);
    }
  }
}

// To a multiple of 2^-44; from 2^-21 on it is one.
float rounded_weight(float weight) { return weight < 0x1p-21F ? (weight + 0x1p-21F) - 0x1p-21F : weight; }

// Scores become probabilities before division, multiples of 2^-44; returns their sum in that unit.
std::int64_t weigh_row(const ScoreRow& row, float maximum) {
  if (row.scaled.largest > maximum) {
    throw std::invalid_argument(
        fmt::format("{}: maximum {} is below a score of {}", kName, maximum, row.scaled.largest));
  }
  if (!row.scaled.ordered || !std::isfinite(maximum)) {
    std::fill(row.seen.begin(), row.seen.end(), 0.0F);
    return kNotANumber;
  }
  for (float& score : row.seen) score -= maximum;
  exp_f32(row.seen, row.seen);
  for (float& weight : row.seen) weight = rounded_weight(weight);
  IntegerSumCall call{
      .x = row.seen.data(), .count = std::ssize(row.seen), .scale = 0x1p44, .high = 0, .low = 0};
  sum_integers(call);
  return call.low;
}

// The denominator with the weight of the head's sink.
std::int64_t with_sink_weight(const AttentionShape& shape, std::int64_t head, float maximum,
                              std::int64_t denominator) {
  if (shape.sinks == nullptr || denominator == kNotANumber) return denominator;
  const float sink = shape.sinks[head];
  if (std::isnan(sink)) return kNotANumber;
  if (sink > maximum) {
    throw std::invalid_argument(fmt::format("{}: maximum {} is below a sink of {}", kName, maximum, sink));
  }
  return denominator + static_cast<std::int64_t>(rounded_weight(exp_f32(sink - maximum)) * 0x1p44F);
}

void divide_row(float* numerators, std::int64_t count, std::int64_t denominator) {
  if (denominator <= 0) {
    std::fill_n(numerators, count, kNan);
    return;
  }
  const float divisor = round_magnitude(false, static_cast<UInt128>(denominator), false, -kUnit);
  for (std::int64_t d = 0; d < count; ++d) numerators[d] /= divisor;
}

}  // namespace

void exact_attention(const AttentionShape& shape, const float* q, const float* k, const float* v,
                     std::span<const std::int64_t> kv_of_head, float* out) {
  require_shape(shape, shape.keys, kv_of_head);
  require_all_keys(kName, shape);
  if (shape.rows == 0 || shape.head_dim == 0) return;
  const std::vector<std::int64_t> positions = all_positions(shape.keys);
  for_each_head(shape, {k, v, positions}, kv_of_head, [&](std::int64_t h, const KeyValueHead& head) {
    std::vector<std::int64_t> denominators;
    const std::vector<float> weights = head.weights(q, h, [&](std::int64_t /*i*/, const ScoreRow& row) {
      const float maximum = with_sink(shape, h, row.scaled.largest);
      denominators.push_back(with_sink_weight(shape, h, maximum, weigh_row(row, maximum)));
    });
    float* numerators = out + h * shape.head_dim;
    head.weigh(weights, numerators, shape.out_stride);
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      divide_row(numerators + i * shape.out_stride, shape.head_dim,
                 denominators[static_cast<std::size_t>(i)]);
    }
  });
}

std::vector<float> exact_attention_maxima(const AttentionShape& shape, const float* q, const ExactKeys& keys,
                                          std::span<const std::int64_t> kv_of_head) {
  require_shape(shape, std::ssize(keys.positions), kv_of_head);
  std::vector<float> maxima(static_cast<std::size_t>(shape.heads * shape.rows), -kInfinity);
  for_each_head(shape, keys, kv_of_head, [&](std::int64_t h, const KeyValueHead& head) {
    head.weights(q, h, [&](std::int64_t i, const ScoreRow& row) {
      maxima[static_cast<std::size_t>(h * shape.rows + i)] = row.scaled.largest;
    });
  });
  return maxima;
}

ExactAttentionPartial exact_attention_partial(const AttentionShape& shape, const float* q,
                                              const ExactKeys& keys, std::span<const std::int64_t> kv_of_head,
                                              std::span<const float> maxima) {
  require_shape(shape, std::ssize(keys.positions), kv_of_head);
  require_maxima(kName, shape, maxima);
  ExactAttentionPartial partial;
  partial.rows_ = shape.rows;
  partial.denominators_.resize(maxima.size());
  partial.numerators_.resize(static_cast<std::size_t>(shape.heads));
  if (shape.sinks != nullptr) partial.maxima_.assign(maxima.begin(), maxima.end());
  for_each_head(shape, keys, kv_of_head, [&](std::int64_t h, const KeyValueHead& head) {
    const std::vector<float> weights = head.weights(q, h, [&](std::int64_t i, const ScoreRow& row) {
      const auto at = static_cast<std::size_t>(h * shape.rows + i);
      partial.denominators_[at] = weigh_row(row, maxima[at]);
    });
    partial.numerators_[static_cast<std::size_t>(h)] = head.weigh(weights);
  });
  return partial;
}

void ExactAttentionPartial::merge(const ExactAttentionPartial& other) {
  if (rows_ != other.rows_ || numerators_.size() != other.numerators_.size()) {
    throw std::invalid_argument(
        fmt::format("exact attention: merge of {} heads of {} queries into {} of {}; they must agree",
                    other.numerators_.size(), other.rows_, numerators_.size(), rows_));
  }
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  if (!std::ranges::equal(maxima_, other.maxima_, same)) {
    throw std::invalid_argument(fmt::format("{}: merge of partials relative to different maxima", kName));
  }
  for (std::size_t i = 0; i < denominators_.size(); ++i) {
    const std::int64_t mine = denominators_[i], theirs = other.denominators_[i];
    const bool number = mine != kNotANumber && theirs != kNotANumber;
    if (number && theirs > kMostUnits - mine) {
      throw std::invalid_argument(fmt::format("exact attention: more than {} keys", kMostKeys));
    }
    denominators_[i] = number ? mine + theirs : kNotANumber;
  }
  for (std::size_t h = 0; h < numerators_.size(); ++h) numerators_[h].merge(other.numerators_[h]);
}

void ExactAttentionPartial::round(const AttentionShape& shape, float* out) const {
  const auto fits = [&](const ExactPartial& part) {
    return part.rows() == shape.rows && part.columns() == shape.head_dim;
  };
  if (rows_ != shape.rows || std::ssize(numerators_) != shape.heads ||
      !std::all_of(numerators_.begin(), numerators_.end(), fits)) {
    throw std::invalid_argument(fmt::format(
        "exact attention: a partial of {} heads of {} queries does not fit rows={} heads={} head_dim={}",
        numerators_.size(), rows_, shape.rows, shape.heads, shape.head_dim));
  }
  if (shape.sinks != nullptr) require_maxima(kName, shape, maxima_);
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    float* head = out + h * shape.head_dim;
    numerators_[static_cast<std::size_t>(h)].round(head, shape.out_stride);
    for (std::int64_t i = 0; i < rows_; ++i) {
      const auto at = static_cast<std::size_t>(h * rows_ + i);
      std::int64_t denominator = denominators_[at];
      if (shape.sinks != nullptr) denominator = with_sink_weight(shape, h, maxima_[at], denominator);
      divide_row(head + i * shape.out_stride, shape.head_dim, denominator);
    }
  }
}

std::vector<std::byte> ExactAttentionPartial::bytes() const {
  std::vector<std::byte> out;
  ByteWriter writer(out);
  writer.put(maxima_.empty() ? kMark : kMarkWithMaxima);
  writer.put(static_cast<std::uint64_t>(rows_));
  writer.put(numerators_.size());
  writer.put(std::span(denominators_));
  writer.put(std::span(maxima_));
  for (const ExactPartial& part : numerators_) {
    const std::vector<std::byte> bytes = part.bytes();
    writer.put(bytes.size());
    writer.put(std::span(bytes));
  }
  return out;
}

ExactAttentionPartial ExactAttentionPartial::from_bytes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "exact attention partial");
  const std::uint64_t mark = reader.get();
  reader.require(mark == kMark || mark == kMarkWithMaxima, "no partial begins here");
  const std::int64_t rows = reader.count(1), heads = reader.count(1);
  reader.require(Int128{8} * rows * heads <= static_cast<Int128>(reader.left()), "ends early");
  ExactAttentionPartial partial;
  partial.rows_ = rows;
  partial.denominators_.resize(static_cast<std::size_t>(rows * heads));
  reader.get(std::span(partial.denominators_));
  for (const std::int64_t units : partial.denominators_) {
    reader.require(kNotANumber <= units && units <= kMostUnits, "a denominator lies outside 0..2^62");
  }
  partial.maxima_.resize(mark == kMark ? 0 : partial.denominators_.size());
  reader.get(std::span(partial.maxima_));
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto size = static_cast<std::size_t>(reader.count(1));
    partial.numerators_.push_back(ExactPartial::from_bytes(reader.take(size)));
    reader.require(partial.numerators_.back().rows() == rows, "a head has another number of queries");
  }
  reader.require(reader.left() == 0, "has bytes beyond its end");
  return partial;
}

}  // namespace shardcheck
