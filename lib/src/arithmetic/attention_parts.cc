#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

#include "arithmetic/attention_shape.h"
#include "shardcheck/arithmetic/attention.h"
#include "shardcheck/arithmetic/functions.h"

namespace shardcheck {
namespace {

// The parts of all ranks, and what a query takes from them.
class Completion {
 public:
  Completion(const AttentionShape& shape, std::span<const AttentionPart> parts)
      : shape_(shape), root_(static_cast<std::size_t>(node_width(shape))) {
    for (const AttentionPart& part : parts) append(part);
    const std::int64_t seen = positions_seen(shape, shape.rows - 1, std::max(all_, std::int64_t{1}));
    if (all_ < seen) {
      throw std::invalid_argument(
          fmt::format("attention: the parts end at key {}; queries see keys up to {}", all_, seen));
    }
    for (Rank& rank : ranks_) index(rank);
  }

  void complete(std::int64_t row, float* out) {
    collect(row);
    for (std::int64_t h = 0; h < shape_.heads; ++h) complete(h, row, out + h * shape_.head_dim);
  }

 private:
  struct Rank {
    const AttentionPart* part;
    std::vector<std::int64_t> starts;
    HeldKeys held() const { return {part->first_key, part->keys}; }
  };
  struct Source {  // of node `at` of a head
    const Rank* rank;
    std::int64_t at;
  };

  void append(const AttentionPart& part) {
    if (part.keys == 0 && part.nodes.empty()) return;
    if (part.keys <= 0 || part.first_key != all_) {
      throw std::invalid_argument(
          fmt::format("attention: a part of {} values holds {} keys from {} on; expected keys from {} on",
                      part.nodes.size(), part.keys, part.first_key, all_));
    }
    all_ += part.keys;
    ranks_.push_back({&part, {}});
  }

  void index(Rank& rank) const {
    const AttentionPart& part = *rank.part;
    require_whole_blocks("attention", shape_, rank.held(), all_);
    require_maxima("attention", shape_, part.maxima);
    rank.starts = node_starts(shape_, rank.held(), all_);
    const std::int64_t expected = shape_.heads * rank.starts.back() * node_width(shape_);
    if (std::ssize(part.nodes) != expected) {
      throw std::invalid_argument(
          fmt::format("attention: the part of keys [{}, {}) has {} values of nodes; "
                      "expected {}",
                      part.first_key, rank.held().end(), part.nodes.size(), expected));
    }
  }

  // The nodes of a query of any head. Without blocks a rank's node is a leaf, and the tree a left fold.
  void collect(std::int64_t row) {
    nodes_.clear();
    sources_.clear();
    leaves_ = 0;
    for (const Rank& rank : ranks_) {
      const SeenKeys seen = seen_keys(shape_, row, rank.held(), all_);
      if (seen.count == 0) continue;
      std::int64_t at = rank.starts[static_cast<std::size_t>(row)];
      if (shape_.key_block == 0) {
        nodes_.push_back({leaves_, leaves_ + 1});
        ++leaves_;
      } else {
        const auto part = cover(shape_.shape, seen.leaves, seen.first, seen.last);
        nodes_.insert(nodes_.end(), part.begin(), part.end());
        leaves_ = seen.leaves;
      }
      while (sources_.size() < nodes_.size()) sources_.push_back({&rank, at++});
    }
  }

  float maximum(std::int64_t head, std::int64_t row) const {
    float top = -std::numeric_limits<float>::infinity();
    for (const Source& source : sources_) top = std::max(top, own_maximum(source, head, row));
    return with_sink(shape_, head, top);
  }

  float own_maximum(const Source& source, std::int64_t head, std::int64_t row) const {
    return source.rank->part->maxima[query_index(shape_, head, row)];
  }

  void complete(std::int64_t head, std::int64_t row, float* out) {
    const float top = maximum(head, row);
    scaled_.resize(sources_.size() * root_.size());
    values_.clear();
    for (const Source& source : sources_) {
      float* scaled = scaled_.data() + values_.size() * root_.size();
      values_.push_back(scaled_node(source, head, own_maximum(source, head, row) - top, scaled));
    }
    const TreeShape tree = shape_.key_block == 0 ? TreeShape::linear : shape_.shape;
    complete_tree(tree, leaves_, nodes_, values_, node_width(shape_), root_.data());
    divide_by_denominator(shape_, head, top, root_.data(), out);
  }

  // A node relative to the largest maximum, which is `below` 0 from its own.
  const float* scaled_node(const Source& source, std::int64_t head, float below, float* scaled) const {
    const std::int64_t index = head * source.rank->starts.back() + source.at;
    const float* node = source.rank->part->nodes.data() + index * node_width(shape_);
    if (!(below < 0)) return node;
    const float factor = exp_f32(below);
    for (std::size_t j = 0; j < root_.size(); ++j) scaled[j] = node[j] * factor;
    return scaled;
  }

  const AttentionShape& shape_;
  std::int64_t all_ = 0;     // keys of all parts
  std::vector<Rank> ranks_;  // that hold keys
  // Of the query at hand.
  std::int64_t leaves_ = 0;
  std::vector<TreeNode> nodes_;
  std::vector<Source> sources_;
  std::vector<const float*> values_;
  std::vector<float> scaled_, root_;
};

}  // namespace

void complete_attention(const AttentionShape& shape, std::span<const AttentionPart> parts, float* out) {
  require_counts("attention", shape);
  if (shape.rows == 0 || shape.heads == 0 || shape.head_dim == 0) return;
  Completion completion(shape, parts);
  for (std::int64_t i = 0; i < shape.rows; ++i) completion.complete(i, out + i * shape.out_stride);
}

std::vector<float> alibi_slopes(std::int64_t heads) {
  if (heads < 0) throw std::invalid_argument(fmt::format("ALiBi slopes: heads={} is negative", heads));
  std::vector<float> slopes;
  if (heads == 0) return slopes;
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto append = [&](std::int64_t head, std::int64_t of) {
    slopes.push_back(pow_f32(2.0F, -8.0 * static_cast<double>(head + 1) / static_cast<double>(of)));
  };
  for (std::int64_t h = 0; h < power; ++h) append(h, power);
  for (std::int64_t h = 0; h < heads - power; ++h) append(2 * h, 2 * power);
  return slopes;
}

}  // namespace shardcheck
