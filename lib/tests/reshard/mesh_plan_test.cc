// Layouts over meshes: what ranks hold, plans between them and the bounds of plans, element by element
// against tensors whose values name their place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "mesh_layouts.h"
#include "shardcheck/reshard/plan.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {
namespace {

using meshes::families;
using meshes::Family;

std::int64_t elements_of(const Geometry& geometry) {
  std::int64_t all = 0;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) all += element_count(tensor.shape);
  return all;
}

/// Logical tensors in which every element is a number of its own; 0 is left for padding.
TensorMap numbered(const Geometry& geometry, DType dtype = DType::i64) {
  TensorMap tensors;
  std::uint64_t next = 1;
  for (const LogicalTensor& logical : logical_tensors(geometry)) {
    Tensor tensor = Tensor::uninitialized(dtype, logical.shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set_bits(i, next++);
    tensors.emplace(logical.name, std::move(tensor));
  }
  return tensors;
}

bool shifts(const Layout& layout) {
  return std::any_of(layout.entries.begin(), layout.entries.end(),
                     [](const LayoutEntry& entry) { return entry.arrangement().shift != 0; });
}

/// The numbers each rank holds.
std::vector<std::set<std::uint64_t>> held_numbers(const Layout& layout, const ShardedTensors& shards) {
  std::vector<std::set<std::uint64_t>> held(static_cast<std::size_t>(layout.degree));
  for (const auto& [name, ranks] : shards) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::int64_t i = 0; i < ranks[rank].elements(); ++i) held[rank].insert(ranks[rank].bits(i));
    }
  }
  for (auto& numbers : held) numbers.erase(0);
  return held;
}

void expect_same(const ShardedTensors& actual, const ShardedTensors& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, ranks] : expected) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_TRUE(actual.at(name)[rank].same_bytes(ranks[rank])) << what << ": " << name << " rank " << rank;
    }
  }
}

TEST(MeshLayouts, EveryElementIsHeldAndEveryRankKnowsWhatItHolds) {
  for (const Family& family : families()) {
    const TensorMap logical = numbered(family.geometry);
    for (const std::string& name : family.layouts) {
      const Layout layout = meshes::layout(name, family.geometry);
      if (shifts(layout)) continue;
      const ShardedTensors shards = split(logical, layout);
      std::set<std::uint64_t> all;
      for (const auto& numbers : held_numbers(layout, shards)) all.insert(numbers.begin(), numbers.end());
      EXPECT_EQ(std::ssize(all), elements_of(family.geometry)) << name;
      for (const LayoutEntry& entry : layout.entries) {
        for (int rank = 0; rank < layout.degree; ++rank) {
          const Tensor& local = shards.at(entry.name)[static_cast<std::size_t>(rank)];
          const bool held = entry.placed.held_by(rank);
          EXPECT_EQ(local.shape(), held ? entry.placed.local_shape(rank) : Tensor().shape()) << entry.name;
        }
      }
    }
  }
}

TEST(MeshLayouts, GatherInvertsSplit) {
  for (const Family& family : families()) {
    const TensorMap logical = numbered(family.geometry);
    for (const std::string& name : family.layouts) {
      const Layout layout = meshes::layout(name, family.geometry);
      if (shifts(layout)) continue;
      const TensorMap gathered = gather(split(logical, layout), layout);
      ASSERT_EQ(gathered.size(), logical.size()) << name;
      for (const auto& [tensor, values] : logical) {
        EXPECT_TRUE(gathered.at(tensor).same_bytes(values)) << name << " " << tensor;
      }
    }
  }
}

TEST(MeshLayouts, NamesOnARankAreUniqueAndCountedFromZeroWhereTheFrameworkDoes) {
  for (const Family& family : families()) {
    for (const std::string& name : family.layouts) {
      const Layout layout = meshes::layout(name, family.geometry);
      for (int rank = 0; rank < layout.degree; ++rank) {
        std::set<std::string> names;
        for (const LayoutEntry& entry : layout.entries) {
          if (!entry.placed.held_by(rank)) continue;
          EXPECT_TRUE(names.insert(entry.file_name()).second) << name << " " << entry.file_name();
        }
        if (!name.starts_with("megatron")) continue;
        EXPECT_TRUE(names.contains("decoder.layers.0.self_attention.linear_proj.weight")) << name;
      }
    }
  }
}

class Pairs : public testing::TestWithParam<int> {
 protected:
  template <typename Check>
  void for_each_pair(Check check) const {
    const Family family = families()[static_cast<std::size_t>(GetParam())];
    for (const std::string& source : family.layouts) {
      for (const std::string& target : family.layouts) {
        check(meshes::layout(source, family.geometry), meshes::layout(target, family.geometry));
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(Pairs, ReshardingEqualsGatherThenSplit) {
  const TensorMap logical = numbered(families()[static_cast<std::size_t>(GetParam())].geometry);
  for_each_pair([&](const Layout& source, const Layout& target) {
    if (shifts(source) || shifts(target)) return;
    const ShardedTensors moved = reshard(split(logical, source), source, target);
    expect_same(moved, split(logical, target), to_string(source.name) + " -> " + to_string(target.name));
  });
}

TEST_P(Pairs, PlansWriteEveryElementOnceAndMoveNoMoreThanTheBound) {
  const TensorMap logical = numbered(families()[static_cast<std::size_t>(GetParam())].geometry);
  for_each_pair([&](const Layout& source, const Layout& target) {
    const std::string what = to_string(source.name) + " -> " + to_string(target.name);
    const Plan plan = make_plan(source, target);
    std::map<std::pair<int, int>, std::int64_t> written;
    for (const Copy& copy : plan.copies) written[{copy.target_entry, copy.target_rank}] += copy.elements();
    std::int64_t total = 0, already = 0;
    if (!shifts(source) && !shifts(target)) {
      const ShardedTensors target_shards = split(logical, target);
      const auto held = held_numbers(source, split(logical, source));
      for (std::size_t e = 0; e < target.entries.size(); ++e) {
        for (int rank = 0; rank < target.degree; ++rank) {
          const Tensor& local = target_shards.at(target.entries[e].name)[static_cast<std::size_t>(rank)];
          std::int64_t real = 0;
          for (std::int64_t i = 0; i < local.elements(); ++i) {
            if (local.bits(i) == 0) continue;
            ++real;
            if (rank < source.degree && held[static_cast<std::size_t>(rank)].contains(local.bits(i)))
              ++already;
          }
          const auto found = written.find({static_cast<int>(e), rank});
          ASSERT_EQ(found == written.end() ? 0 : found->second, real)
              << what << " " << target.entries[e].name;
          total += real;
        }
      }
      EXPECT_EQ(plan.elements_moved, total) << what;
      EXPECT_EQ(plan.elements_local, already) << what << ": what a process holds is not fetched";
    }
    const PlanBound bound = plan_bound(source, target);
    EXPECT_EQ(bound.elements, plan.elements_moved) << what;
    EXPECT_EQ(bound.held_already, plan.elements_local) << what;
  });
}

INSTANTIATE_TEST_SUITE_P(Families, Pairs, testing::Range(0, 5));

TEST(MeshLayouts, ZeroCentredNormsComeBackWhereTheirValuesAllowIt) {
  const Geometry geometry = meshes::llama();
  TensorMap logical;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    Tensor values = Tensor::uninitialized(DType::f32, tensor.shape);
    for (std::int64_t i = 0; i < values.elements(); ++i) {
      values.mutable_f32()[static_cast<std::size_t>(i)] = 1.0F + static_cast<float>(i % 64) / 64.0F;
    }
    logical.emplace(tensor.name, std::move(values));
  }
  const Layout plain = meshes::layout("hf-llama", geometry);
  const Layout centred = meshes::layout("megatron-llama-zero-centered:tp2", geometry);
  const ShardedTensors stored = reshard(split(logical, plain), plain, centred);
  EXPECT_EQ(stored.at("decoder.final_layernorm.weight")[0].f32()[1], 1.0F / 64.0F);
  EXPECT_EQ(stored.at("decoder.layers.0.self_attention.linear_proj.bias")[0].f32()[0], 1.0F) << "no norm";
  expect_same(stored, split(logical, centred), "plan and split");
  const TensorMap back = gather(stored, centred);
  for (const auto& [name, values] : logical) EXPECT_TRUE(back.at(name).same_bytes(values)) << name;
}

/// One tensor of `rows` rows cut over t ranks.
Layout rows_over(std::int64_t rows, int degree) {
  Geometry geometry;
  geometry.d_model = 1, geometry.n_layers = 1, geometry.n_heads = geometry.n_kv_heads = 1;
  geometry.head_dim = geometry.ffn = 1;
  geometry.vocab = rows;
  Layout layout = logical_layout(geometry);
  layout.degree = degree;
  layout.mesh = Mesh::tensor_parallel(degree);
  for (LayoutEntry& entry : layout.entries) {
    const bool cut = entry.name == "embed";
    entry.placed =
        PlacedTensor(entry.name, entry.placed.shape(),
                     cut ? Placement(Shard{0, SplitPolicy::balanced}) : Placement(Replicate{}), degree);
  }
  return layout;
}

std::int64_t copies_of_embed(const Plan& plan) {
  return std::count_if(plan.copies.begin(), plan.copies.end(),
                       [](const Copy& copy) { return copy.target_entry == 0; });
}

TEST(PlanCopies, AreAPlusBMinusTheirDivisorPerBlock) {
  for (int a = 1; a <= 8; ++a) {
    for (int b = 1; b <= 8; ++b) {
      const std::int64_t rows = std::lcm(a, b);
      const Plan plan = make_plan(rows_over(rows, a), rows_over(rows, b));
      EXPECT_EQ(copies_of_embed(plan), a + b - std::gcd(a, b)) << a << " -> " << b;
    }
  }
  EXPECT_EQ(copies_of_embed(make_plan(rows_over(56, 7), rows_over(56, 8))), 14) << "lcm tiling needs 56";
}

/// Moved share of the tensor that is cut.
double moved(int a, int b, bool relabel) {
  const std::int64_t rows = std::lcm(a, b) * 1000;
  const Layout source = rows_over(rows, a), target = rows_over(rows, b);
  const RankMap map = relabel ? best_rank_map(source, target) : RankMap{};
  const Plan plan = make_plan(source, target, map);
  std::int64_t remote = 0;
  for (const Copy& copy : plan.copies) {
    const int process = map.empty() ? copy.target_rank : map[static_cast<std::size_t>(copy.target_rank)];
    if (copy.target_entry == 0 && copy.source_rank != process) remote += copy.elements();
  }
  return static_cast<double>(remote) / static_cast<double>(rows);
}

TEST(RankMaps, RelabellingReachesTheKnownOptima) {
  EXPECT_DOUBLE_EQ(moved(2, 4, false), 0.75);
  EXPECT_DOUBLE_EQ(moved(2, 4, true), 0.5);
  EXPECT_DOUBLE_EQ(moved(2, 3, false), 0.5);
  EXPECT_NEAR(moved(2, 3, true), 1.0 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(moved(7, 8, false), 0.5);
  EXPECT_NEAR(moved(7, 8, true), 2.0 / 7, 1e-12);
}

/// The most that any assignment of target ranks to processes leaves where it is.
std::int64_t most_held(const Layout& source, const Layout& target) {
  RankMap map(static_cast<std::size_t>(std::max(source.degree, target.degree)));
  std::iota(map.begin(), map.end(), 0);
  std::int64_t most = 0;
  do {
    const RankMap chosen(map.begin(), map.begin() + target.degree);
    most = std::max(most, plan_bound(source, target, chosen).held_already);
  } while (std::next_permutation(map.begin(), map.end()));
  return most;
}

TEST(RankMaps, AreOptimalAlsoWhereACopyIsTied) {
  const auto check = [](const Geometry& geometry, const std::string& from, const std::string& to) {
    const Layout source = meshes::layout(from, geometry), target = meshes::layout(to, geometry);
    const RankMap best = best_rank_map(source, target);
    EXPECT_EQ(plan_bound(source, target, best).held_already, most_held(source, target))
        << from << " -> " << to;
  };
  const std::vector<std::string> layouts = {"hf-llama",           "megatron-llama:pp2,tp2", "vllm-llama:tp4",
                                            "vllm-llama:tp2,pp2", "megatron-llama:tp2",     "fsdp2-tp:dp2"};
  for (const std::string& from : layouts) {
    for (const std::string& to : layouts) {
      check(meshes::llama(), from, to);
      check(meshes::tied_llama(), from, to);
    }
  }
}

TEST(RankMaps, MustGiveEveryTargetRankAProcessOfItsOwn) {
  const Layout source = rows_over(6, 2), target = rows_over(6, 3);
  EXPECT_THROW(make_plan(source, target, {0, 1}), std::invalid_argument);
  EXPECT_THROW(make_plan(source, target, {0, 1, 1}), std::invalid_argument);
  EXPECT_THROW(make_plan(source, target, {0, 1, -1}), std::invalid_argument);
  EXPECT_NO_THROW(make_plan(source, target, {7, 1, 0}));
}

}  // namespace
}  // namespace shardcheck
