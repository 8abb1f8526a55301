// Every placement at every small size, every pair of degrees and every mesh of up to 8 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/reshard/reshard.h"
#include "small_layouts.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxExtent = 12;
constexpr int kMaxDegree = 6;
constexpr int kMaxRanks = 8;

/// A model whose embedding is [rows, columns] and everything else as small as can be.
Geometry around(std::int64_t rows, std::int64_t columns) {
  Geometry g;
  g.d_model = columns, g.n_layers = 1, g.n_heads = g.n_kv_heads = g.head_dim = g.ffn = 1;
  g.vocab = rows;
  g.tied = true;
  return g;
}

/// Every kind of placement along a dimension of `extent`.
std::vector<Placement> placements(int dim, std::int64_t extent) {
  std::vector<Placement> all = {Replicate{}, Shard{dim}, Shard{dim, SplitPolicy::chunk},
                                Shard{dim, SplitPolicy::balanced}};
  for (const std::int64_t multiple : {1, 3}) all.emplace_back(Shard{dim, SplitPolicy::padded, multiple});
  for (const std::int64_t factor : {2, 3}) all.emplace_back(Strided{dim, factor});
  for (const std::int64_t blocks : {1, 2, 3}) all.emplace_back(ReplicatedGroups{dim, blocks});
  for (const std::int64_t unit : {1, 2}) {
    if (extent % (3 * unit) == 0) all.emplace_back(Grouped{dim, {extent / (3 * unit), {unit, 2 * unit}}});
    if (extent % (2 * unit) == 0) {
      const std::int64_t items = extent / (2 * unit);
      all.emplace_back(Segments{dim, {{0, items, unit, "first"}, {items * unit, items, unit, "second"}}});
      all.emplace_back(
          Segments{dim, {{items * unit, items, unit, "second"}, {0, items, unit, "first", true}}});
    }
  }
  return all;
}

/// The layout whose embedding is placed so; nullopt where that cannot be represented.
std::optional<Layout> placed_so(const Geometry& geometry, std::vector<AxisPlacement> cuts, const Mesh& mesh) {
  Layout layout = logical_layout(geometry);
  layout.mesh = mesh;
  layout.degree = mesh.size();
  try {
    for (LayoutEntry& entry : layout.entries) {
      const bool chosen = entry.name == "embed";
      entry.placed =
          PlacedTensor(entry.name, entry.placed.shape(), chosen ? cuts : std::vector<AxisPlacement>{}, mesh);
    }
  } catch (const UnsupportedLayout&) {
    return std::nullopt;
  }
  return layout;
}

std::string text_of(const Layout& layout) {
  std::string text = to_string(layout.entries.front().placed.shape());
  for (const auto& [axis, degree] : layout.mesh.axes()) {
    text += ' ' + std::string(to_string(axis)) + std::to_string(degree);
  }
  for (const auto& [axis, placement] : layout.entries.front().placed.placements()) {
    text += ' ' + std::string(to_string(axis)) + ':' + to_string(placement);
  }
  return text;
}

/// A layout with the shards of the numbered model.
struct Held {
  Layout layout;
  ShardedTensors shards;
};

bool same(const ShardedTensors& one, const ShardedTensors& other) {
  return std::all_of(one.begin(), one.end(), [&](const auto& item) {
    const std::vector<Tensor>& ranks = other.find(item.first)->second;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!item.second[rank].same_bytes(ranks[rank])) return false;
    }
    return true;
  });
}

/// Covers, gather after split, digest.
void expect_sound(const Held& held, const TensorMap& full, const WeightDigest& digest) {
  const TensorMap gathered = gather(held.shards, held.layout);
  ASSERT_TRUE(gathered.find("embed")->second.same_bytes(full.find("embed")->second)) << text_of(held.layout);
  ASSERT_EQ(digest_of(held.layout, held.shards), digest) << text_of(held.layout);
}

/// Direct, total, minimal and reversible.
void expect_pair(const Held& source, const Held& target) {
  // Spelled on failure alone: there are many pairs.
  const auto what = [&] { return text_of(source.layout) + " -> " + text_of(target.layout); };
  const ShardedTensors moved = reshard(source.shards, source.layout, target.layout);
  ASSERT_TRUE(same(moved, target.shards)) << what();
  const Plan plan = make_plan(source.layout, target.layout);
  const PlanBound bound = plan_bound(source.layout, target.layout);
  ASSERT_EQ(plan.elements_moved, bound.elements) << what();
  ASSERT_EQ(plan.elements_local, bound.held_already) << what();
}

std::vector<Held> hold(const std::vector<Layout>& layouts, const TensorMap& full) {
  std::vector<Held> held;
  for (const Layout& layout : layouts) held.push_back({layout, split(full, layout)});
  return held;
}

class EveryPlacement : public testing::TestWithParam<int> {};

/// All pairs of placements and degrees along one dimension.
TEST_P(EveryPlacement, KeepsEveryLawAtEverySizeAndPairOfDegrees) {
  const int dim = GetParam();
  int pairs = 0;
  for (std::int64_t extent = 1; extent <= kMaxExtent; ++extent) {
    const Geometry geometry = dim == 0 ? around(extent, 1) : around(2, extent);
    const TensorMap full = small::logical(geometry, DType::i64);
    const WeightDigest digest = digest_of(full);
    std::vector<Layout> layouts;
    for (const Placement& placement : placements(dim, extent)) {
      for (int degree = 1; degree <= kMaxDegree; ++degree) {
        auto layout = placed_so(geometry, {{Axis::tp, placement}}, Mesh::tensor_parallel(degree));
        if (layout) layouts.push_back(std::move(*layout));
      }
    }
    const std::vector<Held> held = hold(layouts, full);
    for (const Held& one : held) {
      ASSERT_NO_FATAL_FAILURE(expect_sound(one, full, digest));
    }
    for (const Held& source : held) {
      for (const Held& target : held) {
        ASSERT_NO_FATAL_FAILURE(expect_pair(source, target));
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 20000);
}

INSTANTIATE_TEST_SUITE_P(Dims, EveryPlacement, testing::Values(0, 1));

/// Every mesh of two or three axes with at most 8 ranks, its axes in every order.
std::vector<Mesh> meshes() {
  std::vector<Mesh> all;
  for (int tp = 1; tp <= kMaxRanks; ++tp) {
    for (int dp = 1; tp * dp <= kMaxRanks; ++dp) {
      for (int cp = 1; tp * dp * cp <= kMaxRanks; cp *= 2) {
        std::vector<std::pair<Axis, int>> axes = {{Axis::tp, tp}, {Axis::dp, dp}, {Axis::cp, cp}};
        std::sort(axes.begin(), axes.end());
        do {
          const Mesh mesh(axes);
          if (std::find(all.begin(), all.end(), mesh) == all.end()) all.push_back(mesh);
        } while (std::next_permutation(axes.begin(), axes.end()));
      }
    }
  }
  return all;
}

/// Cuts over two axes, the second within what the first left: the same dimension or the other.
std::vector<std::vector<AxisPlacement>> cuts() {
  std::vector<std::vector<AxisPlacement>> all;
  for (const Placement& first : {Placement(Shard{0, SplitPolicy::balanced}), Placement(Strided{0, 2}),
                                 Placement(Shard{1, SplitPolicy::chunk})}) {
    for (const Placement& second : {Placement(Replicate{}), Placement(Shard{0, SplitPolicy::chunk}),
                                    Placement(Shard{1, SplitPolicy::padded, 2})}) {
      all.push_back({{Axis::tp, first}, {Axis::dp, second}});
      all.push_back({{Axis::dp, first}, {Axis::tp, second}});
    }
  }
  return all;
}

TEST(EveryMesh, KeepsEveryLawWithCutsOverTwoAxesInEitherOrder) {
  const Geometry geometry = around(7, 5);
  const TensorMap full = small::logical(geometry, DType::i64);
  const WeightDigest digest = digest_of(full);
  std::vector<Layout> layouts;
  for (const Mesh& mesh : meshes()) {
    for (const auto& cut : cuts()) {
      auto layout = placed_so(geometry, cut, mesh);
      if (layout) layouts.push_back(std::move(*layout));
    }
  }
  const std::vector<Held> held = hold(layouts, full);
  for (const Held& one : held) {
    ASSERT_NO_FATAL_FAILURE(expect_sound(one, full, digest));
  }
  // Every layout as source and as target, against partners that change from one to the next.
  const std::size_t count = held.size();
  for (std::size_t s = 0; s < count; ++s) {
    for (std::size_t step = 1; step < count; step = step * 2 + 1) {
      ASSERT_NO_FATAL_FAILURE(expect_pair(held[s], held[(s + step) % count]));
    }
  }
}

}  // namespace
}  // namespace shardcheck
