#include "shardcheck/layout/placement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace shardcheck {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMaxSize = 12;
constexpr int kMaxDegree = 6;

template <typename Exception = UnsupportedLayout, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// Global indices of dimension `dim` that a rank holds, in local order.
std::vector<std::int64_t> indices(const PlacedTensor& placed, int rank) {
  std::vector<std::int64_t> all;
  for (const Run& run : placed.selection(rank).runs) {
    for (std::int64_t i = 0; i < run.length; ++i) all.push_back(run.global + i);
  }
  return all;
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

std::vector<std::int64_t> joined(std::initializer_list<std::vector<std::int64_t>> parts) {
  std::vector<std::int64_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void expect_covers_once(const PlacedTensor& placed, std::int64_t extent) {
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < placed.degree(); ++rank) {
    const auto held = indices(placed, rank);
    all.insert(all.end(), held.begin(), held.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, range(0, extent)) << to_string(placed.placement()) << " at " << placed.degree();
}

// numpy.array_split by its definition: deal one index at a time, the leftovers to the first ranks.
std::int64_t array_split_size(std::int64_t n, int t, int r) {
  std::int64_t size = 0;
  for (std::int64_t i = 0; i < n; ++i) size += (i % t == r) ? 1 : 0;
  return size;
}

TEST(PartOf, ChunkIsTorchChunk) {
  for (std::int64_t n = 0; n <= kMaxSize; ++n) {
    for (int t = 1; t <= kMaxDegree; ++t) {
      const std::int64_t full = -(-n / t) + (n % t != 0 ? 1 : 0);
      for (int r = 0; r < t; ++r) {
        const std::int64_t begin = std::min(full * r, n), end = std::min(begin + full, n);
        EXPECT_EQ(part_of(SplitPolicy::chunk, n, t, r), std::pair(begin, end)) << n << " / " << t;
      }
    }
  }
  const auto sizes = [](std::int64_t n) {
    std::vector<std::int64_t> all;
    for (int r = 0; r < 4; ++r) {
      const auto [begin, end] = part_of(SplitPolicy::chunk, n, 4, r);
      all.push_back(end - begin);
    }
    return all;
  };
  EXPECT_THAT(sizes(5), ElementsAre(2, 2, 1, 0));
  EXPECT_THAT(sizes(9), ElementsAre(3, 3, 3, 0));
}

TEST(PartOf, BalancedIsArraySplit) {
  for (std::int64_t n = 0; n <= kMaxSize; ++n) {
    for (int t = 1; t <= kMaxDegree; ++t) {
      std::int64_t begin = 0;
      for (int r = 0; r < t; ++r) {
        const std::int64_t end = begin + array_split_size(n, t, r);
        EXPECT_EQ(part_of(SplitPolicy::balanced, n, t, r), std::pair(begin, end)) << n << " / " << t;
        begin = end;
      }
    }
  }
}

TEST(PartOf, EvenRefusesARemainder) {
  for (std::int64_t n = 0; n <= kMaxSize; ++n) {
    for (int t = 1; t <= kMaxDegree; ++t) {
      for (int r = 0; r < t; ++r) {
        if (n % t != 0) {
          EXPECT_THROW(part_of(SplitPolicy::even, n, t, r), std::invalid_argument);
        } else {
          EXPECT_EQ(part_of(SplitPolicy::even, n, t, r), std::pair(n / t * r, n / t * (r + 1)));
        }
      }
    }
  }
}

TEST(PartOf, StaysInRangeAtTheEndOf64Bits) {
  constexpr std::int64_t kMost = INT64_MAX;
  constexpr int kManyRanks = INT32_MAX;
  for (const SplitPolicy policy : {SplitPolicy::chunk, SplitPolicy::balanced}) {
    const auto [begin, end] = part_of(policy, kMost, kManyRanks, kManyRanks - 1);
    EXPECT_LE(begin, end);
    EXPECT_EQ(end, kMost);
    EXPECT_EQ(part_of(policy, 3, kManyRanks, kManyRanks - 1), std::pair(std::int64_t{3}, std::int64_t{3}));
  }
}

TEST(PartOf, RefusesARankOutsideTheGroup) {
  EXPECT_THROW(part_of(SplitPolicy::chunk, 4, 2, 2), std::invalid_argument);
  EXPECT_THROW(part_of(SplitPolicy::chunk, 4, 2, -1), std::invalid_argument);
  EXPECT_THROW(part_of(SplitPolicy::chunk, 4, 0, 0), std::invalid_argument);
  EXPECT_THROW(part_of(SplitPolicy::chunk, -1, 2, 0), std::invalid_argument);
}

TEST(ShardPlacement, CoversEveryIndexOnceOrIsRefused) {
  for (const SplitPolicy policy : {SplitPolicy::even, SplitPolicy::chunk, SplitPolicy::balanced}) {
    for (std::int64_t n = 0; n <= kMaxSize; ++n) {
      for (int t = 1; t <= kMaxDegree; ++t) {
        for (int dim = 0; dim < 2; ++dim) {
          const Shape shape = dim == 0 ? Shape{n, 5} : Shape{5, n};
          const bool representable = policy != SplitPolicy::even || n % t == 0;
          if (representable) {
            expect_covers_once(PlacedTensor("w", shape, Shard{dim, policy}, t), n);
          } else {
            EXPECT_THROW(PlacedTensor("w", shape, Shard{dim, policy}, t), UnsupportedLayout);
          }
        }
      }
    }
  }
}

// Whole heads, the first n % t ranks one more: DeepSpeed's AutoTP with KV heads that t does not divide.
TEST(ShardPlacement, CutsWholeUnits) {
  for (const SplitPolicy policy : {SplitPolicy::even, SplitPolicy::chunk, SplitPolicy::balanced}) {
    for (std::int64_t units = 0; units <= kMaxSize; ++units) {
      for (int t = 1; t <= kMaxDegree; ++t) {
        if (policy == SplitPolicy::even && units % t != 0) {
          EXPECT_THROW(PlacedTensor("w", {3 * units}, Shard{0, policy, 1, 3}, t), UnsupportedLayout);
          continue;
        }
        const PlacedTensor placed("w", {3 * units}, Shard{0, policy, 1, 3}, t);
        for (int r = 0; r < t; ++r) {
          const auto [begin, end] = part_of(policy, units, t, r);
          EXPECT_EQ(indices(placed, r), range(3 * begin, 3 * end));
        }
      }
    }
  }
  EXPECT_THAT(message_of([] {
                PlacedTensor("w", {7}, Shard{0, SplitPolicy::balanced, 1, 3}, 2);
              }),
              HasSubstr("w: extent 7 of dimension 0 of [7] is not divisible by the unit 3 (TP degree 2)"));
  EXPECT_THAT(message_of([] {
                PlacedTensor("w", {9}, Shard{0, SplitPolicy::even, 1, 3}, 2);
              }),
              HasSubstr("3 units of 3 along dimension 0 of [9] are not divisible by TP degree 2"));
  EXPECT_THROW(PlacedTensor("w", {9}, Shard{0, SplitPolicy::even, 1, 0}, 1), UnsupportedLayout);
}

TEST(Runs, InverseUndoesEveryInterleave) {
  for (std::int64_t groups = 1; groups <= 4; ++groups) {
    for (std::int64_t first = 1; first <= 3; ++first) {
      for (std::int64_t second = 1; second <= 3; ++second) {
        const std::vector<shardcheck::Run> order = runs_of({groups, {first, second, 1}});
        const std::vector<shardcheck::Run> identity = {{0, groups * (first + second + 1)}};
        EXPECT_EQ(compose_runs(order, inverse_runs(order)), identity);
        EXPECT_EQ(compose_runs(inverse_runs(order), order), identity);
      }
    }
  }
  EXPECT_EQ(inverse_runs({{2, 2}, {0, 2}, {4, 1}}), (std::vector<shardcheck::Run>{{2, 2}, {0, 2}, {4, 1}}));
  EXPECT_TRUE(inverse_runs({}).empty());
}

TEST(ReplicatePlacement, AndPartialHoldEverythingOnEveryRank) {
  for (const Placement& placement : {Placement(Replicate{}), Placement(Partial{})}) {
    for (int t = 1; t <= kMaxDegree; ++t) {
      const PlacedTensor placed("w", {3, 5}, placement, t);
      for (int r = 0; r < t; ++r) {
        EXPECT_EQ(placed.selection(r), Selection{});
        EXPECT_EQ(placed.local_shape(r), (Shape{3, 5}));
      }
    }
  }
}

// Counts how often each index is covered: the definition, not the sweep of the library.
bool segments_are_representable(const std::vector<Segment>& segments, std::int64_t extent, int degree) {
  std::vector<int> covered(static_cast<std::size_t>(extent), 0);
  for (const Segment& segment : segments) {
    if (segment.items % degree != 0) return false;
    if (segment.begin > extent) return false;
    for (std::int64_t i = segment.begin; i < segment.begin + segment.items * segment.unit; ++i) {
      if (i >= extent) return false;
      ++covered[static_cast<std::size_t>(i)];
    }
  }
  return std::all_of(covered.begin(), covered.end(), [](int count) { return count == 1; });
}

std::vector<Segment> all_segments() {
  std::vector<Segment> all;
  for (std::int64_t begin = 0; begin <= 6; ++begin) {
    for (std::int64_t items = 0; items <= 4; ++items) {
      for (std::int64_t unit = 1; unit <= 2; ++unit) all.push_back({begin, items, unit, ""});
    }
  }
  return all;
}

TEST(SegmentsPlacement, AreRefusedExactlyWhenTheyAreNotRepresentable) {
  int accepted = 0;
  for (const Segment& first : all_segments()) {
    for (const Segment& second : all_segments()) {
      for (std::int64_t extent = 0; extent <= 6; extent += 2) {
        for (int t = 1; t <= 3; ++t) {
          const Segments placement{0, {first, second}};
          const bool expected = segments_are_representable(placement.segments, extent, t);
          try {
            const PlacedTensor placed("w", {extent, 2}, placement, t);
            ++accepted;
            ASSERT_TRUE(expected) << to_string(placement) << " extent " << extent << " at " << t;
            expect_covers_once(placed, extent);
          } catch (const UnsupportedLayout&) {
            ASSERT_FALSE(expected) << to_string(placement) << " extent " << extent << " at " << t;
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(HeadPartitioned, HoldsTheRowsOfTheSeedsFormula) {
  for (std::int64_t nh = 1; nh <= 6; ++nh) {
    for (std::int64_t nkv = 1; nkv <= nh; ++nkv) {
      for (std::int64_t hd = 1; hd <= 3; ++hd) {
        for (int t = 1; t <= kMaxDegree; ++t) {
          const Shape shape{(nh + 2 * nkv) * hd, 3};
          if (nh % t != 0 || nkv % t != 0) {
            EXPECT_THROW(PlacedTensor("qkv", shape, head_partitioned(nh, nkv, hd), t), UnsupportedLayout);
            continue;
          }
          const PlacedTensor placed("qkv", shape, head_partitioned(nh, nkv, hd), t);
          const std::int64_t q = nh * hd, kv = nkv * hd, lq = q / t, lk = kv / t;
          for (int r = 0; r < t; ++r) {
            EXPECT_EQ(indices(placed, r),
                      joined({range(r * lq, (r + 1) * lq), range(q + r * lk, q + (r + 1) * lk),
                              range(q + kv + r * lk, q + kv + (r + 1) * lk)}));
          }
          expect_covers_once(placed, shape[0]);
        }
      }
    }
  }
}

TEST(FusedPaired, HoldsTheRowsOfTheSeedsFormulaForBothOrdersOfTheRanges) {
  for (std::int64_t rows = 1; rows <= kMaxSize; ++rows) {
    for (int t = 1; t <= kMaxDegree; ++t) {
      for (const std::int64_t f0 : {std::int64_t{0}, rows}) {
        const std::int64_t s0 = rows - f0;
        const Segments placement = fused_paired({f0, f0 + rows}, {s0, s0 + rows});
        if (rows % t != 0) {
          EXPECT_THROW(PlacedTensor("gate_up", {2 * rows, 3}, placement, t), UnsupportedLayout);
          continue;
        }
        const PlacedTensor placed("gate_up", {2 * rows, 3}, placement, t);
        const std::int64_t p = rows / t;
        for (int r = 0; r < t; ++r) {
          EXPECT_EQ(indices(placed, r),
                    joined({range(f0 + r * p, f0 + (r + 1) * p), range(s0 + r * p, s0 + (r + 1) * p)}));
        }
      }
    }
  }
}

TEST(FusedPaired, RefusesRangesThatAreNoPair) {
  EXPECT_THROW(fused_paired({0, 4}, {4, 9}), UnsupportedLayout);
  EXPECT_THROW(fused_paired({0, 4}, {3, 7}), UnsupportedLayout);
  EXPECT_THROW(fused_paired({4, 0}, {4, 0}), UnsupportedLayout);
  EXPECT_THROW(fused_paired({-2, 0}, {0, 2}), UnsupportedLayout);
  EXPECT_THAT(message_of([] {
                fused_paired({0, 4}, {4, 9});
              }),
              HasSubstr("[0, 4) and [4, 9) differ in length"));
}

// The figures of the seed document for TOY at degree 2.
TEST(PlacedTensor, GivesTheRowsOfTheSeedDocument) {
  const PlacedTensor qkv("layers.0.qkv", {384, 256}, head_partitioned(8, 2, 32), 2);
  EXPECT_EQ(qkv.selection(0), (Selection{0, {{0, 128}, {256, 32}, {320, 32}}}));
  EXPECT_EQ(qkv.selection(1), (Selection{0, {{128, 128}, {288, 32}, {352, 32}}}));
  EXPECT_EQ(qkv.local_shape(0), (Shape{192, 256}));
  const PlacedTensor gate_up("layers.0.gate_up", {1408, 256}, fused_paired({0, 704}, {704, 1408}), 2);
  EXPECT_EQ(gate_up.selection(0), (Selection{0, {{0, 352}, {704, 352}}}));
  EXPECT_EQ(gate_up.selection(1), (Selection{0, {{352, 352}, {1056, 352}}}));
}

TEST(PlacedTensor, MergesAdjacentRunsAndDropsEmptyOnes) {
  EXPECT_EQ(PlacedTensor("w", {12}, head_partitioned(2, 2, 2), 1).selection(0), (Selection{0, {{0, 12}}}));
  EXPECT_EQ(PlacedTensor("w", {5}, Shard{0, SplitPolicy::chunk}, 4).selection(3), (Selection{0, {}}));
  EXPECT_EQ(PlacedTensor("w", {5}, Shard{0, SplitPolicy::chunk}, 4).local_shape(3), (Shape{0}));
}

TEST(PlacedTensor, NamesParameterSizesAndDegree) {
  const auto refused = [](const std::string& name, Shape shape, Placement placement, int degree) {
    return message_of([&] { PlacedTensor(name, shape, placement, degree); });
  };
  EXPECT_EQ(refused("layers.0.qkv", {384, 256}, head_partitioned(8, 2, 32), 4),
            "layers.0.qkv: n_kv_heads=2 is not divisible by TP degree 4");
  EXPECT_EQ(refused("layers.0.qkv", {384, 256}, head_partitioned(8, 2, 32), 3),
            "layers.0.qkv: n_heads=8 is not divisible by TP degree 3");
  EXPECT_EQ(refused("layers.1.gate_up", {10, 4}, fused_paired({0, 5}, {5, 10}), 2),
            "layers.1.gate_up: paired range=5 is not divisible by TP degree 2");
  EXPECT_EQ(refused("down", {4, 7}, Shard{1}, 2),
            "down: extent 7 of dimension 1 of [4, 7] is not divisible by TP degree 2");
  EXPECT_THAT(refused("norm", {4}, Shard{1}, 2), HasSubstr("norm: dimension 1 is outside the shape [4]"));
  EXPECT_THAT(refused("norm", {4}, Shard{-1}, 2), HasSubstr("dimension -1"));
  EXPECT_THAT(refused("norm", {4}, Replicate{}, 0), HasSubstr("norm: TP degree 0 is below 1"));
  EXPECT_THAT(refused("norm", {-4}, Replicate{}, 1), HasSubstr("[-4]"));
  EXPECT_THAT(refused("w", {12}, Segments{0, {{0, 4, 1, ""}, {8, 4, 1, ""}}}, 2),
              HasSubstr("no segment covers index 4"));
  EXPECT_THAT(refused("w", {8}, Segments{0, {{0, 6, 1, ""}, {4, 4, 1, ""}}}, 2),
              HasSubstr("overlap at index 4"));
  EXPECT_THAT(refused("w", {8}, Segments{0, {{4, 6, 1, "tail"}}}, 2),
              HasSubstr("tail: 6 items of 1 from 4 leave"));
  EXPECT_THAT(refused("w", {8}, Segments{0, {}}, 2), HasSubstr("no segment covers index 0"));
}

TEST(PlacedTensor, SurvivesSizesAtTheEndOf64Bits) {
  constexpr std::int64_t kMost = INT64_MAX;
  EXPECT_THROW(PlacedTensor("w", {8}, Segments{0, {{0, kMost, kMost, ""}}}, 1), UnsupportedLayout);
  EXPECT_THROW(PlacedTensor("w", {8}, Segments{0, {{kMost, 1, 1, ""}}}, 1), UnsupportedLayout);
  EXPECT_THROW(PlacedTensor("w", {8}, Segments{0, {{0, 8, 0, ""}}}, 1), UnsupportedLayout);
  EXPECT_THROW(PlacedTensor("w", {8}, Segments{0, {{0, -1, 1, ""}}}, 1), UnsupportedLayout);
  EXPECT_THROW(head_partitioned(kMost, 2, 2), UnsupportedLayout);
  EXPECT_NE(to_string(Placement(Segments{0, {{kMost, kMost, kMost, ""}}})), "");
}

TEST(PlacedTensor, RefusesWhatNoRankCouldHoldOrNoMemory) {
  const auto refusal = [](auto make) {
    try {
      make();
    } catch (const UnsupportedLayout& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const Mesh mesh({{Axis::pp, 2}, {Axis::tp, 2}});
  const std::vector<AxisPlacement> over_pp = {{Axis::pp, Shard{0}}};
  EXPECT_THAT(refusal([&] {
                PlacedTensor("w", {4}, over_pp, mesh, {{Axis::pp, 1}});
              }),
              HasSubstr("over the axis pp, which already decides which ranks hold it"));
  EXPECT_THAT(refusal([&] {
                PlacedTensor("w", {4}, over_pp, mesh).renamed("w", {{Axis::pp, 1}});
              }),
              HasSubstr("over the axis pp"));
  EXPECT_THAT(refusal([&] {
                PlacedTensor("w", {4}, {{Axis::tp, Partial{}}}, mesh);
              }),
              HasSubstr("on a mesh of tp alone"));
  EXPECT_THAT(refusal([&] {
                PlacedTensor("w", {1 << 24}, Strided{0, 1 << 16}, 1024);
              }),
              HasSubstr("split factor 65536; allowed at TP degree 1024: 1..16384"));
  EXPECT_THAT(refusal([] {
                const Mesh wide({{Axis::tp, 256}, {Axis::dp, 256}});
                PlacedTensor("w", {1 << 24},
                             {{Axis::tp, Strided{0, 1 << 10}}, {Axis::dp, Strided{0, 1 << 10}}}, wide);
              }),
              HasSubstr("lists more than"));
  // Groups are listed for the rank that holds them alone.
  EXPECT_EQ(PlacedTensor("w", {1 << 23}, Grouped{0, {1 << 22, {1, 1}}}, 512).selection(1).length(), 1 << 14);
}

TEST(PlacedTensor, RefusesARankOutsideTheGroup) {
  const PlacedTensor placed("w", {4}, Shard{0}, 2);
  EXPECT_THROW(placed.selection(2), std::out_of_range);
  EXPECT_THROW(placed.selection(-1), std::out_of_range);
  EXPECT_THROW(placed.local_shape(2), std::out_of_range);
}

TEST(PlacementText, IsPrintedWithWhatItNeeds) {
  EXPECT_EQ(to_string(Placement(Replicate{})), "replicate");
  EXPECT_EQ(to_string(Placement(Shard{1})), "shard(dim=1)");
  EXPECT_EQ(to_string(Placement(Shard{0, SplitPolicy::chunk})), "shard(dim=0, chunk)");
  EXPECT_EQ(to_string(Placement(Shard{0, SplitPolicy::balanced, 1, 32})),
            "shard(dim=0, balanced, units of 32)");
  EXPECT_EQ(to_string(Placement(Shard{0, SplitPolicy::padded, 8})), "shard(dim=0, padded to 8)");
  EXPECT_EQ(to_string(Placement(head_partitioned(8, 2, 32))), "segments(dim=0, 256+64+64)");
  EXPECT_EQ(to_string(Placement(fused_paired({4, 8}, {0, 4}))), "segments(dim=0, 4@4+4@0)");
  EXPECT_EQ(to_string(Placement(Partial{Partial::Encoding::equal_share})), "partial(equal_share)");
}

}  // namespace
}  // namespace shardcheck
