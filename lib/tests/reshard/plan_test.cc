#include "shardcheck/reshard/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "shardcheck/reshard/reshard.h"
#include "small_layouts.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

using Coordinates = std::array<std::int64_t, Piece::kMaxRank>;
/// An element of a rank's file tensor: entry, rank, coordinates.
using Place = std::tuple<std::int64_t, int, Coordinates>;
/// An element of a logical tensor.
using Element = std::pair<std::int64_t, Coordinates>;

/// Calls `visit(offset)` for every element of a box, in row-major order.
template <typename Visit>
void for_each_offset(const Coordinates& size, Visit visit) {
  Coordinates at{};
  for (at[0] = 0; at[0] < size[0]; ++at[0])
    for (at[1] = 0; at[1] < size[1]; ++at[1])
      for (at[2] = 0; at[2] < size[2]; ++at[2])
        for (at[3] = 0; at[3] < size[3]; ++at[3]) visit(at);
}

Coordinates sum(const Coordinates& a, const Coordinates& b) {
  return {a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]};
}

Coordinates extents(const Shape& shape) {
  Coordinates size = {1, 1, 1, 1};
  std::copy(shape.begin(), shape.end(), size.begin());
  return size;
}

constexpr std::uint64_t kTensorBits = 32;

/// What every element of every rank is, from splitting tensors whose values name their place: the definition
/// that pieces must agree with.
std::map<Place, Element> contents(const Layout& layout) {
  const auto all = logical_tensors(layout.geometry);
  TensorMap labels;
  for (std::size_t t = 0; t < all.size(); ++t) {
    labels.emplace(all[t].name, small::counting(DType::u64, all[t].shape, ((t + 1) << kTensorBits)));
  }
  std::map<Place, Element> held;
  const ShardedTensors shards = split(labels, layout);
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    for (int rank = 0; rank < layout.degree; ++rank) {
      const Tensor& local = shards.at(layout.entries[e].name)[static_cast<std::size_t>(rank)];
      std::int64_t flat = 0;
      for_each_offset(extents(local.shape()), [&](const Coordinates& at) {
        const std::uint64_t label = local.bits(flat++);
        if (label == 0) return;  // padding
        const auto tensor = static_cast<std::int64_t>(label >> kTensorBits) - 1;
        auto index = static_cast<std::int64_t>(label & ((std::uint64_t{1} << kTensorBits) - 1));
        const Shape& shape = all[static_cast<std::size_t>(tensor)].shape;
        Coordinates logical{};
        for (std::size_t d = shape.size(); d-- > 0; index /= shape[d]) logical[d] = index % shape[d];
        held[{static_cast<std::int64_t>(e), rank, at}] = {tensor, logical};
      });
    }
  }
  return held;
}

/// `origin` moved by an offset that is listed by another array's dimensions.
Coordinates moved_by(Coordinates origin, const std::array<std::int8_t, Piece::kMaxRank>& dims, int count,
                     const Coordinates& offset) {
  for (int d = 0; d < count; ++d) {
    const auto at = static_cast<std::size_t>(d);
    if (dims[at] >= 0) origin[static_cast<std::size_t>(dims[at])] += offset[at];
  }
  return origin;
}

void expect_right_plan(const Layout& source, const Layout& target) {
  const std::map<Place, Element> held = contents(source), wanted = contents(target);
  const Plan plan = make_plan(source, target);
  std::map<Place, Element> written;
  std::int64_t moved = 0;
  for (const Copy& copy : plan.copies) {
    moved += copy.elements();
    for_each_offset(copy.size, [&](const Coordinates& offset) {
      const Place to{copy.target_entry, copy.target_rank, sum(copy.target_origin, offset)};
      const auto from = held.find({copy.source_entry, copy.source_rank,
                                   moved_by(copy.source_origin, copy.source_dim, copy.dims, offset)});
      ASSERT_NE(from, held.end());
      ASSERT_TRUE(written.emplace(to, from->second).second) << "an element is written twice";
    });
  }
  EXPECT_EQ(written, wanted) << to_string(source.name) << " -> " << to_string(target.name);
  EXPECT_EQ(plan.elements_moved, moved);
  EXPECT_EQ(plan.elements_moved, std::ssize(wanted));
}

std::vector<Copy> copies_into(const Plan& plan, const Layout& target, const std::string& entry) {
  std::vector<Copy> copies;
  for (const Copy& copy : plan.copies) {
    if (target.entries[static_cast<std::size_t>(copy.target_entry)].name == entry) copies.push_back(copy);
  }
  return copies;
}

TEST(Pieces, DescribeEveryElementOfEveryRankOnce) {
  for (const Geometry& geometry : small::geometries()) {
    for (const Layout& layout : small::layouts(geometry, 4)) {
      std::map<Place, Element> described;
      for (const Piece& piece : pieces(layout)) {
        for_each_offset(piece.size, [&](const Coordinates& offset) {
          const Place place{piece.entry, piece.rank, sum(piece.local, offset)};
          Coordinates at{};
          for (int d = 0; d < piece.dims; ++d) {
            const auto dim = static_cast<std::size_t>(d);
            if (piece.logical_dim[dim] >= 0) {
              at[static_cast<std::size_t>(piece.logical_dim[dim])] = piece.begin[dim] + offset[dim];
            }
          }
          ASSERT_TRUE(described.emplace(place, Element{piece.logical, at}).second);
        });
      }
      EXPECT_EQ(described, contents(layout)) << to_string(layout.name);
    }
  }
}

TEST(Pieces, AreListedByRankEntryAndLocalOrder) {
  for (const Layout& layout : small::layouts(small::geometries()[2], 6)) {
    std::vector<std::tuple<int, std::int64_t, Coordinates>> keys;
    for (const Piece& piece : pieces(layout)) keys.emplace_back(piece.rank, piece.entry, piece.local);
    EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end())) << to_string(layout.name);
  }
}

TEST(Plan, WritesEveryTargetElementOnceFromAnEqualSourceElement) {
  for (const Geometry& geometry : small::geometries()) {
    if (geometry.n_heads > 4) continue;  // the same structure, more elements
    const std::vector<Layout> layouts = small::layouts(geometry, 4);
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) expect_right_plan(source, target);
    }
  }
}

TEST(Plan, HandlesSegmentsAlongTheSecondDimensionAndOutOfOrder) {
  const Geometry geometry = small::geometry(4, 2, 8, 12);
  const Layout plain = make_layout({"seed", {{"tp", 2}}}, geometry);
  const Layout odd =
      small::with_placement(small::with_placement(plain, "layers.0.o_proj", fused_paired({4, 8}, {0, 4}, 1)),
                            "layers.1.gate_up", Segments{0, {{12, 4, 1, ""}, {0, 4, 1, ""}, {4, 8, 1, ""}}});
  expect_right_plan(plain, odd);
  expect_right_plan(odd, plain);
  expect_right_plan(odd, small::with_placement(plain, "layers.0.o_proj", Shard{0}));
  expect_right_plan(small::with_placement(plain, "layers.1.gate_up", Shard{1}), odd);
}

TEST(Plan, IsSortedByTargetAndEveryCopyIsMaximal) {
  for (const Geometry& geometry : small::geometries()) {
    const std::vector<Layout> layouts = small::layouts(geometry, 6);
    for (const Layout& source : layouts) {
      for (const Layout& target : layouts) {
        const Plan plan = make_plan(source, target);
        std::vector<std::tuple<int, std::int64_t, Coordinates>> keys;
        for (const Copy& copy : plan.copies)
          keys.emplace_back(copy.target_rank, copy.target_entry, copy.target_origin);
        EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
        for (std::size_t i = 1; i < plan.copies.size(); ++i) {
          const Copy &a = plan.copies[i - 1], &b = plan.copies[i];
          const bool same_pair = a.source_entry == b.source_entry && a.source_rank == b.source_rank &&
                                 a.target_entry == b.target_entry && a.target_rank == b.target_rank;
          Coordinates next_source = a.source_origin, next_target = a.target_origin;
          next_source[0] += a.size[0];
          next_target[0] += a.size[0];
          EXPECT_FALSE(same_pair && a.size[1] == b.size[1] && next_source == b.source_origin &&
                       next_target == b.target_origin)
              << "two copies could be one";
        }
      }
    }
  }
}

TEST(Plan, IsOneCopyPerTensorWhenNothingChanges) {
  const Geometry geometry = small::geometries()[2];
  for (const Layout& layout : small::layouts(geometry, 6)) {
    const Plan plan = make_plan(layout, layout);
    std::set<std::pair<std::int64_t, int>> held;  // a rank may hold padding alone
    for (const auto& [place, element] : contents(layout))
      held.emplace(std::get<0>(place), std::get<1>(place));
    EXPECT_EQ(plan.copies.size(), held.size()) << to_string(layout.name);
  }
}

// The minimum: boundaries of a and b parts of one block coincide gcd(a, b) times.
TEST(Plan, NeedsAPlusBMinusGcdCopiesPerBlock) {
  Geometry geometry = small::geometry(56, 56, 56, 56);
  geometry.n_layers = 1;
  for (const auto& [a, b] :
       std::vector<std::pair<int, int>>{{7, 8}, {8, 7}, {2, 4}, {4, 2}, {7, 14}, {8, 28}, {4, 7}}) {
    const Layout source = make_layout({"seed", {{"tp", a}}}, geometry);
    const Layout target = make_layout({"seed", {{"tp", b}}}, geometry);
    const Plan plan = make_plan(source, target);
    const auto expected = static_cast<std::size_t>(a + b - std::gcd(a, b));
    EXPECT_EQ(copies_into(plan, target, "embed").size(), expected) << a << " -> " << b;
    EXPECT_EQ(copies_into(plan, target, "layers.0.down").size(), expected) << a << " -> " << b;
    EXPECT_EQ(copies_into(plan, target, "layers.0.qkv").size(), 3 * expected) << a << " -> " << b;
    EXPECT_EQ(copies_into(plan, target, "layers.0.gate_up").size(), 2 * expected) << a << " -> " << b;
  }
}

TEST(Plan, NeedsTheSameNumberWhereTheLeastCommonMultipleDoesNotDivide) {
  Geometry geometry = small::geometry(24, 24, 24, 24);
  geometry.n_layers = 1;
  for (const auto& [a, b, copies] :
       std::vector<std::tuple<int, int, std::size_t>>{{2, 3, 4}, {6, 8, 12}, {3, 4, 6}}) {
    const Layout source = make_layout({"seed", {{"tp", a}}}, geometry);
    const Layout target = make_layout({"seed", {{"tp", b}}}, geometry);
    EXPECT_EQ(copies_into(make_plan(source, target), target, "embed").size(), copies);
  }
  // 56 rows over 7 and 8 ranks: 14 copies.
  const Geometry rows = small::geometry(56, 56, 56, 56);
  const Layout target = make_layout({"seed", {{"tp", 8}}}, rows);
  EXPECT_EQ(copies_into(make_plan(make_layout({"seed", {{"tp", 7}}}, rows), target), target, "embed").size(),
            14u);
}

TEST(Plan, SpreadsTheReadsOfAReplicaOverItsRanks) {
  const Geometry geometry = small::geometry(6, 6, 12, 12);
  const Layout source = make_layout({"hf-llama", {{"tp", 3}}}, geometry);
  const Layout target = make_layout({"seed", {{"tp", 6}}}, geometry);
  const Plan plan = make_plan(source, target);
  for (const std::string name : {"final_norm", "embed"}) {
    const auto copies = copies_into(plan, target, name);
    EXPECT_EQ(copies.size(), 6u);
    for (const Copy& copy : copies) EXPECT_EQ(copy.source_rank, copy.target_rank % 3);
  }
}

TEST(Plan, IsDeterministic) {
  const Geometry geometry = small::geometries()[2];
  const Layout source = make_layout({"seed", {{"tp", 2}}}, geometry),
               target = make_layout({"hf-llama", {{"tp", 3}}}, geometry);
  const Plan first = make_plan(source, target), second = make_plan(source, target);
  ASSERT_EQ(first.copies.size(), second.copies.size());
  for (std::size_t i = 0; i < first.copies.size(); ++i) {
    EXPECT_EQ(first.copies[i].source_rank, second.copies[i].source_rank);
    EXPECT_EQ(first.copies[i].source_origin, second.copies[i].source_origin);
    EXPECT_EQ(first.copies[i].target_origin, second.copies[i].target_origin);
  }
}

template <typename Exception>
std::string plan_refusal(const Layout& source, const Layout& target) {
  try {
    make_plan(source, target);
  } catch (const Exception& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Plan, RefusesWhatItCannotDo) {
  const Geometry geometry = small::geometries()[0];
  const Layout layout = make_layout({"seed", {{"tp", 2}}}, geometry);
  EXPECT_THAT(plan_refusal<InvalidLayout>(layout, make_layout({}, toy())), HasSubstr("different geometries"));
  const Layout partial = small::with_placement(layout, "layers.1.attn_norm", Partial{});
  for (const auto& [source, target] : {std::pair(partial, layout), std::pair(layout, partial)}) {
    EXPECT_THAT(plan_refusal<UnsupportedLayout>(source, target),
                HasSubstr("layers.1.attn_norm: partial(first_rank) at TP degree 2"));
  }
  Layout less = layout, more = layout;
  less.entries.pop_back();
  more.entries.push_back(layout.entries.front());
  for (const auto& [source, target] : {std::pair(less, layout), std::pair(layout, less)}) {
    EXPECT_THAT(plan_refusal<InvalidLayout>(source, target), HasSubstr("holds the tensor 'lm_head' 0 times"));
  }
  EXPECT_THAT(plan_refusal<InvalidLayout>(layout, more),
              HasSubstr("holds the tensor 'embed' in 'embed' and 'embed', expected once"));
  Layout strange = layout;
  strange.entries.front().parts.front().name = "embedding";
  EXPECT_THAT(plan_refusal<InvalidLayout>(strange, layout), HasSubstr("no logical tensor 'embedding'"));
  Layout short_stack = layout;
  short_stack.entries[1].parts.front().shape.front() -= 1;
  EXPECT_THAT(plan_refusal<InvalidLayout>(short_stack, layout), HasSubstr("make the shape"));
}

TEST(Copy, CountsItsElements) {
  Copy copy;
  copy.dims = 2;
  copy.size = {3, 5, 7, 9};
  EXPECT_EQ(copy.elements(), 15);
}

}  // namespace
}  // namespace shardcheck
