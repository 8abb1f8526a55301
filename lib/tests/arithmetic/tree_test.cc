#include "shardcheck/arithmetic/tree.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "scalar_oracle.h"

namespace shardcheck {
namespace {

constexpr TreeShape kShapes[] = {TreeShape::halving, TreeShape::linear};
constexpr std::int64_t kMaxLeaves = 64;

int ceil_log2(std::int64_t n) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1))); }

// Every node below `node`, with its parent.
void collect(TreeShape shape, TreeNode node, TreeNode parent, std::map<TreeNode, TreeNode>& parents) {
  parents[node] = parent;
  if (node.last - node.first < 2) return;
  const std::int64_t middle = oracle::split(shape, node.first, node.last);
  collect(shape, {node.first, middle}, node, parents);
  collect(shape, {middle, node.last}, node, parents);
}

std::map<TreeNode, TreeNode> nodes_with_parents(TreeShape shape, std::int64_t leaves) {
  std::map<TreeNode, TreeNode> parents;
  collect(shape, {0, leaves}, {-1, leaves + 1}, parents);
  return parents;
}

template <typename Check>
void for_every_range(const Check& check) {
  for (const TreeShape shape : kShapes) {
    for (std::int64_t leaves = 1; leaves <= kMaxLeaves; ++leaves) {
      for (std::int64_t first = 0; first <= leaves; ++first) {
        for (std::int64_t last = first; last <= leaves; ++last) check(shape, leaves, first, last);
      }
    }
  }
}

TEST(SplitPoint, HalvesEvenCountsAndCutsOddOnesAfterTheirLargestPowerOfTwo) {
  const std::map<std::int64_t, std::int64_t> expected = {{2, 1}, {3, 2}, {4, 2}, {5, 4},  {6, 3},
                                                         {7, 4}, {8, 4}, {9, 8}, {12, 6}, {31, 16}};
  for (const auto& [n, left] : expected) {
    EXPECT_EQ(split_point(TreeShape::halving, {0, n}), left) << n;
    EXPECT_EQ(split_point(TreeShape::halving, {100, 100 + n}), 100 + left) << n;
    EXPECT_EQ(split_point(TreeShape::linear, {100, 100 + n}), 100 + n - 1) << n;
  }
}

TEST(SplitPoint, RefusesALeaf) {
  EXPECT_THROW(split_point(TreeShape::halving, {3, 4}), std::invalid_argument);
  EXPECT_THROW(split_point(TreeShape::linear, {3, 3}), std::invalid_argument);
}

TEST(Cover, IsMadeOfMaximalNodesThatTileTheRange) {
  std::map<std::pair<TreeShape, std::int64_t>, std::map<TreeNode, TreeNode>> trees;
  for_every_range([&](TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last) {
    auto& parents = trees[{shape, leaves}];
    if (parents.empty()) parents = nodes_with_parents(shape, leaves);
    std::int64_t next = first;
    for (const TreeNode node : cover(shape, leaves, first, last)) {
      ASSERT_EQ(node.first, next);
      ASSERT_TRUE(parents.contains(node)) << node.first << ' ' << node.last;
      const TreeNode parent = parents.at(node);
      ASSERT_TRUE(parent.first < first || last < parent.last) << "a larger node lies inside";
      next = node.last;
    }
    ASSERT_EQ(next, last);
  });
}

TEST(Cover, OfHalvingStaysWithinItsBoundAndReachesItAtPowersOfTwo) {
  std::map<std::int64_t, std::size_t> longest;
  for_every_range([&](TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last) {
    if (shape != TreeShape::halving || leaves <= 2) return;
    const std::size_t count = cover(shape, leaves, first, last).size();
    ASSERT_LE(count, static_cast<std::size_t>(2 * ceil_log2(leaves) - 2));
    longest[leaves] = std::max(longest[leaves], count);
  });
  for (std::int64_t leaves = 4; leaves <= kMaxLeaves; leaves *= 2) {
    EXPECT_EQ(longest[leaves], static_cast<std::size_t>(2 * ceil_log2(leaves) - 2)) << leaves;
  }
}

TEST(Cover, RefusesARangeOutsideTheTree) {
  EXPECT_THROW(cover(TreeShape::halving, 8, -1, 4), std::out_of_range);
  EXPECT_THROW(cover(TreeShape::halving, 8, 5, 4), std::out_of_range);
  EXPECT_THROW(cover(TreeShape::linear, 8, 0, 9), std::out_of_range);
  EXPECT_TRUE(cover(TreeShape::halving, 0, 0, 0).empty());
}

TEST(Cover, OfAnEnormousTreeIsFound) {
  const std::int64_t leaves = std::int64_t{1} << 40;
  EXPECT_EQ(cover(TreeShape::halving, leaves, 1, leaves).size(), 40U);
}

TEST(MergeSchedule, LeavesTheCoverOnTheStack) {
  for_every_range([](TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last) {
    const MergeSchedule schedule = merge_schedule(shape, leaves, first, last);
    ASSERT_EQ(std::ssize(schedule.merges), last - first);
    std::vector<TreeNode> stack;
    int deepest = 0;
    for (std::int64_t l = first; l < last; ++l) {
      stack.push_back({l, l + 1});
      deepest = std::max(deepest, static_cast<int>(stack.size()));
      for (int merge = 0; merge < schedule.merges[static_cast<std::size_t>(l - first)]; ++merge) {
        const TreeNode right = stack.back();
        stack.pop_back();
        ASSERT_EQ(oracle::split(shape, stack.back().first, right.last), right.first);
        stack.back().last = right.last;
      }
    }
    ASSERT_EQ(stack, cover(shape, leaves, first, last));
    ASSERT_EQ(schedule.stack_depth, deepest);
  });
}

TEST(MergeSchedule, OfAWholeTreeNeedsOneEntryPerLevel) {
  for (std::int64_t leaves = 1; leaves <= 1000; ++leaves) {
    EXPECT_LE(merge_schedule(TreeShape::halving, leaves, 0, leaves).stack_depth, 1 + ceil_log2(leaves));
    EXPECT_LE(merge_schedule(TreeShape::linear, leaves, 0, leaves).stack_depth, 2);
  }
}

// A partition of the leaves among ranks: the covers of all ranks with their values, by naive recursion.
struct Shipment {
  Shipment(TreeShape shape, const std::vector<float>& leaves, std::int64_t width,
           const std::vector<std::int64_t>& cuts) {
    const std::int64_t count = std::ssize(leaves) / width;
    for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
      for (const TreeNode node : cover(shape, count, cuts[r], cuts[r + 1])) {
        nodes.push_back(node);
        rows.push_back(node_row(shape, leaves, width, node));
      }
    }
    for (const auto& row : rows) values.push_back(row.data());
  }

  static std::vector<float> node_row(TreeShape shape, const std::vector<float>& leaves, std::int64_t width,
                                     TreeNode node) {
    std::vector<float> row;
    for (std::int64_t j = 0; j < width; ++j) {
      row.push_back(oracle::root(shape, node.first, node.last, [&](std::int64_t l) {
        return leaves[static_cast<std::size_t>(l * width + j)];
      }));
    }
    return row;
  }

  std::vector<TreeNode> nodes;
  std::vector<std::vector<float>> rows;
  std::vector<const float*> values;
};

std::vector<std::int64_t> random_cuts(Stream& stream, std::int64_t leaves, std::int64_t ranks) {
  std::vector<std::int64_t> cuts = {0, leaves};
  for (std::int64_t r = 1; r < ranks; ++r) cuts.push_back(stream.integer(0, leaves));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

void expect_completes(TreeShape shape, std::int64_t leaves, std::int64_t width, Stream& stream) {
  const std::vector<float> values = oracle::random_values(stream, leaves * width);
  const std::vector<float> expected = Shipment::node_row(shape, values, width, {0, leaves});
  const Shipment shipment(shape, values, width, random_cuts(stream, leaves, stream.integer(1, 9)));
  std::vector<float> actual(static_cast<std::size_t>(width));
  complete_tree(shape, leaves, shipment.nodes, shipment.values, width, actual.data());
  ASSERT_EQ(oracle::bits(actual), oracle::bits(expected)) << leaves << " leaves";
}

TEST(CompleteTree, GivesTheRootBitForBitWhereverRanksAreCut) {
  Stream stream(1, "complete_tree");
  for (const TreeShape shape : kShapes) {
    for (std::int64_t leaves = 1; leaves <= kMaxLeaves; ++leaves) {
      for (int draw = 0; draw < 20; ++draw) expect_completes(shape, leaves, 3, stream);
    }
    expect_completes(shape, 37, 5000, stream);
  }
}

TEST(CompleteTree, OverNoLeavesIsZero) {
  float out = 7.0F;
  complete_tree(TreeShape::halving, 0, {}, {}, 1, &out);
  EXPECT_EQ(out, 0.0F);
}

void expect_refused(TreeShape shape, std::int64_t leaves, const std::vector<TreeNode>& nodes,
                    const std::string& reason) {
  const float value = 1.0F;
  float out = 0.0F;
  const std::vector<const float*> values(nodes.size(), &value);
  try {
    complete_tree(shape, leaves, nodes, values, 1, &out);
    FAIL() << "accepted; expected " << reason;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(CompleteTree, RefusesWhatIsNoPartitionIntoNodes) {
  expect_refused(TreeShape::halving, 8, {{0, 4}, {5, 6}, {6, 8}}, "gap at leaf 4");
  expect_refused(TreeShape::halving, 8, {{0, 4}, {2, 4}, {4, 8}}, "overlap at leaf 2");
  expect_refused(TreeShape::halving, 8, {{0, 4}, {4, 6}}, "gap at leaf 6");
  expect_refused(TreeShape::halving, 8, {{0, 3}, {3, 4}, {4, 8}}, "[0, 3) is no node");
  expect_refused(TreeShape::halving, 8, {{0, 8}, {8, 9}}, "[8, 9) is no node");
  expect_refused(TreeShape::halving, 8, {{0, 4}, {4, 4}, {4, 8}}, "[4, 4) is no node");
  expect_refused(TreeShape::halving, 8, {}, "gap at leaf 0");
  expect_refused(TreeShape::linear, std::int64_t{1} << 50, {{0, 1}, {1, std::int64_t{1} << 50}},
                 "is no node");
}

TEST(CompleteTree, RefusesAnotherNumberOfRows) {
  const TreeNode node{0, 1};
  float out = 0.0F;
  EXPECT_THROW(complete_tree(TreeShape::halving, 1, {&node, 1}, {}, 1, &out), std::invalid_argument);
}

TEST(TreeNames, AreThoseOfTheCaseLine) {
  EXPECT_EQ(to_string(Arithmetic::native), "native");
  EXPECT_EQ(to_string(Arithmetic::tree), "tree");
  EXPECT_EQ(to_string(Arithmetic::exact), "exact");
  EXPECT_EQ(to_string(TreeShape::halving), "halving");
  EXPECT_EQ(to_string(TreeShape::linear), "linear");
}

}  // namespace
}  // namespace shardcheck
