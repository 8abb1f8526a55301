// The forward body with one process per rank, each holding its own shards alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/process_group.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck {
namespace {

struct Cell {
  Geometry geometry;
  int degree;
};

std::vector<Cell> recorded_cells() {
  return {{toy(), 1}, {toy(), 2}, {toy_kv4(), 1}, {toy_kv4(), 2}, {toy_kv4(), 4}};
}

/// A model, its tokens and its shards, the same in every process.
struct Problem {
  explicit Problem(const Cell& cell)
      : geometry(cell.geometry),
        degree(cell.degree),
        contract(contract_for(geometry)),
        weights(make_weights(geometry, WeightStyle::recorded, 0, DType::f32)),
        tokens(make_tokens(geometry, 2, 16, 10000)),
        layout(LayoutTable::built_in("seed").instantiate(geometry, degree)),
        shards(split(weights, layout)) {}

  Tensor reference(Arithmetic arithmetic) const {
    return ReferenceModel(geometry, weights, arithmetic, contract).forward(tokens);
  }
  std::vector<Tensor> forward(const ShardedTensors& held, Collective& collective,
                              Arithmetic arithmetic) const {
    return ShardedModel(geometry, held, consumer_named(layout.consumer), collective, arithmetic, contract,
                        right_steps(), exchange)
        .forward(tokens);
  }
  Tensor in_process(Arithmetic arithmetic) const {
    return forward(shards, *make_in_process_collective(degree), arithmetic)[0];
  }
  /// The bytes of the logits that every process computes, rank r from the shards of rank `shards_of(r)`.
  template <typename ShardsOf>
  std::vector<std::vector<std::byte>> one_process_per_rank(Arithmetic arithmetic, ShardsOf shards_of) const {
    return test::on_processes(degree, [&](Collective& collective) {
      const auto rank = static_cast<std::size_t>(shards_of(collective.local_ranks()[0]));
      ShardedTensors held;
      for (const auto& [name, parts] : shards) held[name] = {parts.at(rank)};
      const Tensor logits = forward(held, collective, arithmetic).at(0);
      return std::vector<std::byte>(logits.bytes().begin(), logits.bytes().end());
    });
  }

  Geometry geometry;
  int degree;
  Contract contract;
  TensorMap weights;
  Tokens tokens;
  Layout layout;
  ShardedTensors shards;
  CoverExchange exchange = CoverExchange::automatic;
};

int own(int rank) { return rank; }

TEST(ProcessPerRank, EveryRecordedCellHasTheBitsOfTheSameRanksInProcess) {
  for (const Cell& cell : recorded_cells()) {
    const Problem problem(cell);
    for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tree, Arithmetic::exact}) {
      const auto expected = problem.in_process(arithmetic);
      const auto logits = problem.one_process_per_rank(arithmetic, own);
      ASSERT_EQ(logits.size(), static_cast<std::size_t>(cell.degree));
      for (const auto& bytes : logits)
        EXPECT_TRUE(std::ranges::equal(bytes, expected.bytes())) << cell.degree << " processes";
    }
  }
}

TEST(ProcessPerRank, EveryRecordedCellIsWithinTheThresholdOfTheReferenceAndTreeIsEqual) {
  for (const Cell& cell : recorded_cells()) {
    const Problem problem(cell);
    const Tensor reference = problem.reference(Arithmetic::native);
    const auto native = problem.one_process_per_rank(Arithmetic::native, own);
    ASSERT_FALSE(native.empty());
    ASSERT_EQ(native[0].size(), reference.bytes().size());
    std::vector<float> logits(reference.f32().size());
    std::memcpy(logits.data(), native[0].data(), native[0].size());
    for (std::size_t i = 0; i < logits.size(); ++i)
      ASSERT_LT(std::abs(logits[i] - reference.f32()[i]), 1e-3F) << cell.degree << " processes, logit " << i;
    const auto tree = problem.one_process_per_rank(Arithmetic::tree, own);
    ASSERT_FALSE(tree.empty());
    EXPECT_TRUE(std::ranges::equal(tree[0], problem.reference(Arithmetic::tree).bytes()));
  }
}

TEST(ProcessPerRank, ExactWordsAndCoversInTwoShotsCrossProcesses) {
  Geometry small = toy_kv4();
  small.n_layers = 1, small.d_model = 64, small.ffn = 96, small.vocab = 50;
  Problem problem({small, 4});
  for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::tree}) {
    problem.exchange = CoverExchange::two_shot;
    const auto logits = problem.one_process_per_rank(arithmetic, own);
    ASSERT_EQ(logits.size(), 4U);
    for (const auto& bytes : logits)
      EXPECT_TRUE(std::ranges::equal(bytes, problem.reference(arithmetic).bytes())) << to_string(arithmetic);
  }
}

TEST(ProcessPerRank, ProcessesThatHoldEachOthersShardsAreSeen) {
  const Problem problem({toy(), 2});
  const auto logits = problem.one_process_per_rank(Arithmetic::tree, [](int rank) { return 1 - rank; });
  ASSERT_EQ(logits.size(), 2U);
  EXPECT_FALSE(std::ranges::equal(logits[0], problem.in_process(Arithmetic::tree).bytes()));
}

}  // namespace
}  // namespace shardcheck
