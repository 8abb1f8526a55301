#include "shardcheck/comm/mesh_groups.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {
namespace {

constexpr std::array<Axis, kAxes> kEveryAxis = {Axis::tp, Axis::ep, Axis::etp, Axis::pp, Axis::dp, Axis::cp};

Mesh mesh_of(const std::string& axes) { return parse_layout_name("seed:" + axes).mesh(); }

/// Where a rank stands on all axes but one.
std::vector<int> others(const Mesh& mesh, int rank, Axis axis) {
  std::vector<int> at;
  for (const Axis other : kEveryAxis) {
    if (other != axis) at.push_back(mesh.coordinate(rank, other));
  }
  return at;
}

TEST(MeshGroups, AreTheRanksThatDifferInOneCoordinateInItsOrder) {
  for (const char* axes : {"tp1", "tp4", "pp2,cp3,tp2", "tp2,cp3,pp2", "ep2,tp3", "dp2,pp2,ep2,cp2,tp2"}) {
    const Mesh mesh = mesh_of(axes);
    const MeshGroups groups(mesh, make_in_process_collective);
    EXPECT_EQ(groups.mesh(), mesh);
    ASSERT_EQ(static_cast<int>(groups.local_ranks().size()), mesh.size());
    for (const Axis axis : kEveryAxis) {
      std::multiset<std::size_t> seen;
      for (const MeshGroups::Group& group : groups.along(axis)) {
        ASSERT_EQ(static_cast<int>(group.slots.size()), mesh.degree(axis));
        EXPECT_EQ(group.collective->degree(), mesh.degree(axis));
        EXPECT_EQ(group.collective->local_ranks().size(), group.slots.size());
        const int first = groups.local_ranks()[group.slots.front()];
        for (std::size_t i = 0; i < group.slots.size(); ++i) {
          const int rank = groups.local_ranks()[group.slots[i]];
          EXPECT_EQ(groups.coordinate(group.slots[i], axis), static_cast<int>(i)) << axes;
          EXPECT_EQ(others(mesh, rank, axis), others(mesh, first, axis)) << axes;
          seen.insert(group.slots[i]);
        }
      }
      EXPECT_EQ(static_cast<int>(seen.size()), mesh.size()) << axes << " " << to_string(axis);
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size()) << axes << " " << to_string(axis);
    }
  }
}

TEST(MeshGroups, EveryGroupHasACollectiveOfItsOwn) {
  int made = 0;
  const MeshGroups groups(mesh_of("pp2,cp2,tp3"), [&](int degree) {
    ++made;
    return make_in_process_collective(degree);
  });
  std::set<const Collective*> distinct;
  for (const Axis axis : kEveryAxis) {
    for (const MeshGroups::Group& group : groups.along(axis)) distinct.insert(group.collective);
  }
  EXPECT_EQ(static_cast<int>(distinct.size()), made);
  // tp: 4 groups of 3, pp and cp: 6 of 2, ep, etp and dp: every rank alone.
  EXPECT_EQ(made, 4 + 6 + 6 + 3 * 12);
}

/// Holds two ranks of four, as one of two programs does.
class Half final : public CollectiveDecorator {
 public:
  Half() : CollectiveDecorator(make_in_process_collective(4)) {}
  std::span<const int> local_ranks() const override { return ranks_; }

 private:
  std::vector<int> ranks_ = {1, 3};
};

TEST(MeshGroups, OfACollectiveHaveASlotForEachOfItsLocalRanks) {
  Half half;
  const MeshGroups groups(half);
  EXPECT_EQ(groups.mesh(), Mesh::tensor_parallel(4));
  EXPECT_EQ(std::vector<int>(groups.local_ranks().begin(), groups.local_ranks().end()),
            (std::vector<int>{1, 3}));
  ASSERT_EQ(groups.along(Axis::tp).size(), 1U);
  EXPECT_EQ(groups.along(Axis::tp)[0].collective, &half);
  EXPECT_EQ(groups.along(Axis::tp)[0].slots, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(groups.coordinate(1, Axis::tp), 3);
  for (const Axis axis : {Axis::pp, Axis::cp, Axis::ep}) {
    ASSERT_EQ(groups.along(axis).size(), 2U);
    for (std::size_t slot = 0; slot < 2; ++slot) {
      EXPECT_EQ(groups.along(axis)[slot].slots, (std::vector<std::size_t>{slot}));
      EXPECT_EQ(groups.along(axis)[slot].collective->degree(), 1);
    }
  }
}

}  // namespace
}  // namespace shardcheck
