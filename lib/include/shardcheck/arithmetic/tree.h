// The reduction DAG of arithmetic `tree`: where a sum of length K is cut into leaves, how leaves are
// combined, and which nodes a rank that owns only some leaves can compute and ship. `native` is the same
// machinery with one leaf per rank and a left fold over ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardcheck {

enum class Arithmetic : std::uint8_t { native, tree, exact };
std::string_view to_string(Arithmetic arithmetic) noexcept;

/// Shape of the tree over leaves. `halving` splits an even count in the middle and an odd count after its
/// largest power of two; `linear` is a left fold.
enum class TreeShape : std::uint8_t { halving, linear };
std::string_view to_string(TreeShape shape) noexcept;

/// Node [first, last) of the tree, in leaves.
struct TreeNode {
  std::int64_t first = 0;
  std::int64_t last = 0;
  auto operator<=>(const TreeNode&) const = default;
};

/// Where node [first, last) splits, last - first > 1. The split depends on the number of leaves only
/// (halving), or is last - 1 (linear).
std::int64_t split_point(TreeShape shape, TreeNode node);

/// The maximal tree nodes of a tree over `leaves` leaves that lie inside [first, last), left to right.
/// One node for the whole range; empty for an empty range; at most 2 ceil(log2 leaves) - 2 nodes under
/// `halving` for leaves > 2. Throws std::out_of_range unless 0 <= first <= last <= leaves.
std::vector<TreeNode> cover(TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last);

/// Completes a tree in place: `values` holds one row of `width` floats per node of `nodes`, the nodes being
/// sorted, disjoint, covering [0, leaves) and all nodes of the tree. The root row is written to `out`.
/// Each addition is one f32 rounding, left + right; over no leaves the root is +0. Throws
/// std::invalid_argument on a gap, an overlap or a range that is no node.
void complete_tree(TreeShape shape, std::int64_t leaves, std::span<const TreeNode> nodes,
                   std::span<const float* const> values, std::int64_t width, float* out);

/// A schedule for streaming leaves [first, last) of a tree: after leaf first + l is pushed, merge the
/// top two stack entries `merges[l]` times. What is left on the stack afterwards, bottom to top, are the
/// nodes of `cover(shape, leaves, first, last)`. Only merges whose node lies inside the range are counted.
struct MergeSchedule {
  std::vector<int> merges;
  int stack_depth = 0;  // most entries ever on the stack
};
MergeSchedule merge_schedule(TreeShape shape, std::int64_t leaves, std::int64_t first, std::int64_t last);

}  // namespace shardcheck
