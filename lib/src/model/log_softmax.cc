#include "model/log_softmax.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "arithmetic/ceil_div.h"
#include "shardcheck/arithmetic/functions.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {
namespace {

std::vector<float> exponentials(std::span<const float> logits, float maximum) {
  std::vector<float> weights(logits.begin(), logits.end());
  for (float& value : weights) value -= maximum;
  exp_f32(weights, weights);
  return weights;
}

template <typename T>
void append(std::vector<std::byte>& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

float chain_sum(std::span<const float> values) {
  float sum = 0.0F;
  for (const float value : values) sum += value;
  return sum;
}

/// Nodes of a tree whose leaves are chains of `leaf` values, left to right.
std::vector<float> node_sums(const MergeSchedule& schedule, std::int64_t leaf,
                             std::span<const float> values) {
  std::vector<float> stack;
  for (const int merges : schedule.merges) {
    const std::size_t held = std::min(static_cast<std::size_t>(leaf), values.size());
    stack.push_back(chain_sum(values.first(held)));
    values = values.subspan(held);
    for (int merge = 0; merge < merges; ++merge) {
      const float right = stack.back();
      stack.pop_back();
      stack.back() += right;
    }
  }
  return stack;
}

}  // namespace

std::vector<float> row_maxima(const Matrix& x) {
  std::vector<float> maxima(static_cast<std::size_t>(x.rows), -std::numeric_limits<float>::infinity());
  for (std::int64_t i = 0; i < x.rows; ++i) {
    float& top = maxima[static_cast<std::size_t>(i)];
    for (const float value : std::span(x.row(i), static_cast<std::size_t>(x.width)))
      top = value > top ? value : top;
  }
  return maxima;
}

void SumOfExponentials::require_between_leaves(std::int64_t begin, std::int64_t end) const {
  if (numerics_.arithmetic != Arithmetic::tree) return;
  for (const std::int64_t boundary : {begin, end}) {
    if (boundary % leaf_ == 0 || boundary == vocab_) continue;
    throw UnsupportedLayout(
        fmt::format("the vocabulary is cut at {}, inside a leaf of {} entries of its {}: allowed are "
                    "multiples of the leaf",
                    boundary, leaf_, vocab_));
  }
}

std::vector<TreeNode> SumOfExponentials::nodes_of(std::int64_t begin, std::int64_t end) const {
  require_between_leaves(begin, end);
  return cover(numerics_.contract.shape, ceil_div(vocab_, leaf_), ceil_div(begin, leaf_),
               ceil_div(end, leaf_));
}

MergeSchedule SumOfExponentials::schedule_of(std::int64_t begin, std::int64_t end) const {
  require_between_leaves(begin, end);
  return merge_schedule(numerics_.contract.shape, ceil_div(vocab_, leaf_), ceil_div(begin, leaf_),
                        ceil_div(end, leaf_));
}

std::vector<std::byte> SumOfExponentials::partial(const Matrix& logits, std::span<const float> maxima,
                                                  std::int64_t begin, std::int64_t end) const {
  std::vector<std::byte> out;
  MergeSchedule schedule;
  if (numerics_.arithmetic == Arithmetic::tree) schedule = schedule_of(begin, end);
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const std::vector<float> weights = exponentials({logits.row(i), static_cast<std::size_t>(logits.width)},
                                                    maxima[static_cast<std::size_t>(i)]);
    if (numerics_.arithmetic == Arithmetic::exact) {
      append<std::uint64_t>(out, exact_sum_partial(weights).words());
    } else if (numerics_.arithmetic == Arithmetic::tree) {
      append<float>(out, node_sums(schedule, leaf_, weights));
    } else {
      const float sum = chain_sum(weights);
      append<float>(out, std::span(&sum, 1));
    }
  }
  return out;
}

std::vector<float> SumOfExponentials::complete(std::int64_t rows, const std::vector<Part>& parts) const {
  const Arithmetic arithmetic = numerics_.arithmetic;
  // Bytes of a row in every part, and the tree's nodes.
  std::vector<std::size_t> row_bytes;
  std::vector<TreeNode> nodes;
  for (const Part& part : parts) {
    std::size_t own = sizeof(float);
    if (arithmetic == Arithmetic::exact) own = LongAccumulator::kWords * sizeof(std::uint64_t);
    if (arithmetic == Arithmetic::tree) {
      const auto held = nodes_of(part.range.first, part.range.second);
      nodes.insert(nodes.end(), held.begin(), held.end());
      own = held.size() * sizeof(float);
    }
    if (part.bytes.size() != own * static_cast<std::size_t>(rows))
      throw InvalidShards(fmt::format("log-softmax: a rank sent {} bytes of sums, expected {}",
                                      part.bytes.size(), own * static_cast<std::size_t>(rows)));
    row_bytes.push_back(own);
  }
  std::vector<float> sums;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    std::vector<float> values;
    LongAccumulator exact;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto bytes = parts[p].bytes.subspan(row * row_bytes[p], row_bytes[p]);
      if (arithmetic == Arithmetic::exact) {
        std::array<std::uint64_t, LongAccumulator::kWords> words{};
        std::memcpy(words.data(), bytes.data(), bytes.size());
        exact.merge(LongAccumulator::from_words(words));
      } else if (!bytes.empty()) {
        const std::size_t before = values.size();
        values.resize(before + bytes.size() / sizeof(float));
        std::memcpy(values.data() + before, bytes.data(), bytes.size());
      }
    }
    if (arithmetic == Arithmetic::exact) {
      sums.push_back(exact.round());
    } else if (arithmetic == Arithmetic::native) {
      sums.push_back(chain_sum(values));
    } else {
      std::vector<const float*> starts;
      for (const float& value : values) starts.push_back(&value);
      complete_tree(numerics_.contract.shape, ceil_div(vocab_, leaf_), nodes, starts, 1,
                    &sums.emplace_back());
    }
  }
  return sums;
}

void log_softmax_rows(const Numerics& numerics, Matrix& logits) {
  const std::vector<float> maxima = row_maxima(logits);
  const SumOfExponentials sum(numerics, logits.width, kVocabularyLeaf);
  const std::vector<std::byte> bytes = sum.partial(logits, maxima, 0, logits.width);
  const std::vector<float> sums = sum.complete(logits.rows, {{{0, logits.width}, bytes}});
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    const auto row = static_cast<std::size_t>(i);
    const float log_sum = log_f32(sums[row]);
    for (float& value : std::span(logits.row(i), static_cast<std::size_t>(logits.width)))
      value = logprob(value, maxima[row], log_sum);
  }
}

}  // namespace shardcheck
