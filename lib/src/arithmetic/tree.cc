#include "shardcheck/arithmetic/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

namespace shardcheck {
namespace {

constexpr std::int64_t size(TreeNode node) { return node.last - node.first; }

std::string text(TreeNode node) { return fmt::format("[{}, {})", node.first, node.last); }

bool contains(TreeNode outer, TreeNode inner) {
  return outer.first <= inner.first && inner.last <= outer.last;
}

bool overlap(TreeNode x, TreeNode y) { return x.first < y.last && y.first < x.last; }

// Whether `node` is a node of the tree over `leaves` leaves.
bool is_node(TreeShape shape, std::int64_t leaves, TreeNode node) {
  if (size(node) < 1 || !contains({0, leaves}, node)) return false;
  if (shape == TreeShape::linear) return node.first == 0 || size(node) == 1;
  TreeNode at{0, leaves};
  while (at != node) {
    if (size(at) == 1) return false;
    const std::int64_t middle = split_point(shape, at);
    const TreeNode left{at.first, middle}, right{middle, at.last};
    if (contains(left, node)) {
      at = left;
    } else if (contains(right, node)) {
      at = right;
    } else {
      return false;
    }
  }
  return true;
}

bool are_siblings(TreeShape shape, std::int64_t leaves, TreeNode left, TreeNode right) {
  const TreeNode parent{left.first, right.last};
  return is_node(shape, leaves, parent) && split_point(shape, parent) == left.last;
}

// How often to merge the top of the stack after each node is pushed, so that the root is left.
MergeSchedule completion_schedule(TreeShape shape, std::int64_t leaves, std::span<const TreeNode> nodes) {
  MergeSchedule schedule;
  std::vector<TreeNode> stack;
  std::int64_t next = 0;
  for (const TreeNode node : nodes) {
    if (node.first != next) {
      throw std::invalid_argument(fmt::format("tree over {} leaves: node {} leaves {} at leaf {}", leaves,
                                              text(node), node.first > next ? "a gap" : "an overlap",
                                              std::min(next, node.first)));
    }
    if (!is_node(shape, leaves, node)) {
      throw std::invalid_argument(fmt::format("tree over {} leaves ({}): {} is no node of the tree", leaves,
                                              to_string(shape), text(node)));
    }
    next = node.last;
    stack.push_back(node);
    schedule.stack_depth = std::max(schedule.stack_depth, static_cast<int>(stack.size()));
    int merges = 0;
    while (stack.size() > 1 && are_siblings(shape, leaves, stack[stack.size() - 2], stack.back())) {
      stack[stack.size() - 2].last = stack.back().last;
      stack.pop_back();
      ++merges;
    }
    schedule.merges.push_back(merges);
  }
  if (next != leaves) {
    throw std::invalid_argument(
        fmt::format("tree over {} leaves: the nodes leave a gap at leaf {}", leaves, next));
  }
  return schedule;
}

// Columns that complete_tree treats at a time: a stack of such rows stays in the first-level cache.
constexpr std::int64_t kStrip = 512;

// Runs the stack machine over columns [column, column + count) and returns the root row.
const float* complete_strip(const MergeSchedule& schedule, std::span<const float* const> values,
                            std::int64_t column, std::int64_t count, std::vector<const float*>& stack,
                            std::vector<float>& rows) {
  stack.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    stack.push_back(values[i] + column);
    for (int merge = 0; merge < schedule.merges[i]; ++merge) {
      const float* right = stack.back();
      stack.pop_back();
      const float* left = stack.back();
      float* sum = rows.data() + static_cast<std::int64_t>(stack.size() - 1) * kStrip;
      for (std::int64_t j = 0; j < count; ++j) sum[j] = left[j] + right[j];
      stack.back() = sum;
    }
  }
  return stack.front();
}

}  // namespace

std::string_view to_string(Arithmetic arithmetic) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"native", "tree", "exact"};
  return kNames[static_cast<std::size_t>(arithmetic)];
}

std::string_view to_string(TreeShape shape) noexcept {
  constexpr std::array<std::string_view, 2> kNames = {"halving", "linear"};
  return kNames[static_cast<std::size_t>(shape)];
}

std::int64_t split_point(TreeShape shape, TreeNode node) {
  const std::int64_t n = size(node);
  if (n < 2) throw std::invalid_argument(fmt::format("tree node {} has no split point", text(node)));
  if (shape == TreeShape::linear) return node.last - 1;
  if (n % 2 == 0) return node.first + n / 2;
  return node.first + static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

std::vector<TreeNode> cover(TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last) {
  if (first < 0 || last < first || leaves < last) {
    throw std::out_of_range(
        fmt::format("leaves [{}, {}) do not lie in a tree over {} leaves", first, last, leaves));
  }
  const TreeNode range{first, last};
  std::vector<TreeNode> nodes;
  std::vector<TreeNode> pending;  // an explicit stack: a linear tree is as deep as it has leaves
  const auto visit = [&](TreeNode node) {
    if (overlap(node, range)) pending.push_back(node);
  };
  visit({0, leaves});
  while (!pending.empty()) {
    const TreeNode node = pending.back();
    pending.pop_back();
    if (contains(range, node)) {
      nodes.push_back(node);
      continue;
    }
    const std::int64_t middle = split_point(shape, node);
    visit({middle, node.last});
    visit({node.first, middle});
  }
  return nodes;
}

void complete_tree(TreeShape shape, std::int64_t leaves, std::span<const TreeNode> nodes,
                   std::span<const float* const> values, std::int64_t width, float* out) {
  if (nodes.size() != values.size()) {
    throw std::invalid_argument(fmt::format("tree over {} leaves: {} nodes but {} rows of values", leaves,
                                            nodes.size(), values.size()));
  }
  const MergeSchedule schedule = completion_schedule(shape, leaves, nodes);
  if (nodes.empty()) {
    std::fill_n(out, width, 0.0F);
    return;
  }
  std::vector<const float*> stack;
  std::vector<float> rows(static_cast<std::size_t>(schedule.stack_depth * kStrip));
  for (std::int64_t column = 0; column < width; column += kStrip) {
    const std::int64_t count = std::min(kStrip, width - column);
    std::copy_n(complete_strip(schedule, values, column, count, stack, rows), count, out + column);
  }
}

MergeSchedule merge_schedule(TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last) {
  std::vector<TreeNode> pending = cover(shape, leaves, first, last);
  MergeSchedule schedule;
  schedule.merges.assign(static_cast<std::size_t>(last - first), 0);
  while (!pending.empty()) {
    const TreeNode node = pending.back();
    pending.pop_back();
    if (size(node) == 1) continue;
    ++schedule.merges[static_cast<std::size_t>(node.last - 1 - first)];
    const std::int64_t middle = split_point(shape, node);
    pending.push_back({node.first, middle});
    pending.push_back({middle, node.last});
  }
  int depth = 0;
  for (const int merges : schedule.merges) {
    schedule.stack_depth = std::max(schedule.stack_depth, ++depth);
    depth -= merges;
  }
  return schedule;
}

}  // namespace shardcheck
