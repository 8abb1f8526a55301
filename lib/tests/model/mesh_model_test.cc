// ShardedModel over meshes of tensor, pipeline, context and expert parallelism against ReferenceModel.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/mesh_problem.h"

namespace shardcheck {
namespace {

using meshes::layout_name;
using meshes::MeshRun;
using meshes::Problem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kNames = [](const auto& info) { return info.param.name; };

/// Every axis alone and products of them, axes in several orders.
std::vector<std::string> meshes_for(const Geometry& geometry) {
  std::vector<std::string> all = {"",    "tp2", "pp2",         "pp3,first1,last1",
                                  "cp2", "cp3", "pp2,cp2,tp2", "tp2,cp2,pp2"};
  if (geometry.n_experts > 0) {
    for (const char* axes : {"ep2", "ep4", "ep2,tp2", "tp2,ep2", "pp2,ep2,cp2", "cp2,tp2,pp2,ep2"})
      all.emplace_back(axes);
  }
  return all;
}

/// Exact sums are slow: the axes alone, and products.
std::vector<std::string> few_meshes_for(const Geometry& geometry) {
  if (geometry.n_experts > 0) return {"ep2,tp2", "cp2,tp2,pp2,ep2"};
  return {"tp2", "pp2", "cp2", "tp2,cp2,pp2"};
}

void expect_on_every_rank(const std::vector<Tensor>& ranks, const Tensor& expected) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_TRUE(ranks[rank].same_bytes(expected)) << "rank " << rank << " of " << ranks.size();
}

Tensor looked_up(const Tensor& all, const std::vector<std::int32_t>& targets) {
  Tensor picked = Tensor::uninitialized(DType::f32, {std::ssize(targets)});
  for (std::size_t i = 0; i < targets.size(); ++i)
    picked.mutable_f32()[i] =
        all.f32()[i * static_cast<std::size_t>(all.dim(1)) + static_cast<std::size_t>(targets[i])];
  return picked;
}

std::vector<std::int32_t> shifted(std::vector<std::int32_t> ids) {
  std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  return ids;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.f32().size(); ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(a.f32()[i]) - b.f32()[i]));
  return largest;
}

class MeshFamilies : public ::testing::TestWithParam<meshes::Variant> {
 protected:
  static void expect_bits(const Problem& problem, Arithmetic arithmetic,
                          const std::vector<std::string>& meshes) {
    const ReferenceModel reference = problem.reference(arithmetic);
    const Tensor logits = reference.forward(problem.tokens),
                 normalised = reference.log_softmax(problem.tokens);
    const std::vector<std::int32_t> targets = shifted(problem.tokens.ids);
    const Tensor picked = looked_up(normalised, targets);
    const BatchStep step = whole_step(problem.tokens);
    for (const std::string& axes : meshes) {
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && layout_name(axes).tp_degree() == 1) continue;
        SCOPED_TRACE(fmt::format("mesh '{}' sequence_parallel {}", axes, sequence_parallel));
        const MeshRun run = problem.from_shards(axes, arithmetic, {.sequence_parallel = sequence_parallel});
        expect_on_every_rank(run.model->forward(problem.tokens), logits);
        KvCache first = run.model->make_cache(), second = run.model->make_cache();
        expect_on_every_rank(run.model->log_softmax(step, first), normalised);
        expect_on_every_rank(run.model->token_logprobs(step, targets, second), picked);
      }
    }
  }
};

TEST_P(MeshFamilies, GivesTheBitsOfTheReferenceUnderTree) {
  for (const DType dtype : {DType::f32, DType::bf16})
    expect_bits(Problem(GetParam().geometry, dtype), Arithmetic::tree, meshes_for(GetParam().geometry));
}

TEST_P(MeshFamilies, GivesTheBitsOfTheReferenceUnderExact) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Problem problem(GetParam().geometry, dtype);
    problem.tokens = make_tokens(problem.geometry, 1, 9, 3);
    expect_bits(problem, Arithmetic::exact, few_meshes_for(problem.geometry));
  }
}

TEST_P(MeshFamilies, IsNearTheReferenceUnderNative) {
  const Problem problem(GetParam().geometry);
  const ReferenceModel reference = problem.reference(Arithmetic::native);
  const Tensor logits = reference.forward(problem.tokens);
  for (const std::string& axes : meshes_for(problem.geometry)) {
    const MeshRun run = problem.from_shards(axes, Arithmetic::native);
    const std::vector<Tensor> ranks = run.model->forward(problem.tokens);
    for (const Tensor& rank : ranks) EXPECT_TRUE(rank.same_bytes(ranks.front())) << axes;
    EXPECT_LT(largest_difference(ranks.front(), logits), 1e-4) << axes;
    KvCache cache = run.model->make_cache();
    EXPECT_LT(largest_difference(run.model->log_softmax(whole_step(problem.tokens), cache).front(),
                                 reference.log_softmax(problem.tokens)),
              1e-4)
        << axes;
  }
}

TEST_P(MeshFamilies, ReadsViewsAsItReadsShards) {
  const Problem problem(GetParam().geometry, DType::bf16);
  for (const char* axes : {"pp2,cp2,tp2", "ep2,tp2"}) {
    if (problem.geometry.n_experts == 0 && std::string_view(axes).starts_with("ep")) continue;
    const Tensor logits = problem.reference(Arithmetic::tree).forward(problem.tokens);
    expect_on_every_rank(problem.from_views(axes, Arithmetic::tree).model->forward(problem.tokens), logits);
    expect_on_every_rank(problem.from_packed(axes, Arithmetic::tree).model->forward(problem.tokens), logits);
    expect_on_every_rank(problem.from_views(axes, Arithmetic::exact).model->forward(problem.tokens),
                         problem.reference(Arithmetic::exact).forward(problem.tokens));
  }
}

/// Rank by rank: what belongs to other stages and experts is not even of the right type.
TEST_P(MeshFamilies, ReadsNothingThatBelongsToOtherStagesOrExperts) {
  const Problem problem(GetParam().geometry);
  const std::string axes = problem.geometry.n_experts > 0 ? "pp4,ep2,tp2" : "pp4,tp2";
  ShardedTensors shards = problem.shards(axes);
  const Mesh mesh = layout_name(axes).mesh();
  std::int64_t poisoned = 0;
  for (auto& [name, ranks] : shards) {
    for (Tensor& held : ranks) {
      if (held.bytes().empty()) held = Tensor::zeros(DType::i32, {3}), ++poisoned;
    }
  }
  EXPECT_GT(poisoned, mesh.size());
  expect_on_every_rank(
      problem.from_shards(axes, Arithmetic::tree, {}, "seed", shards).model->forward(problem.tokens),
      problem.reference(Arithmetic::tree).forward(problem.tokens));
}

INSTANTIATE_TEST_SUITE_P(Families, MeshFamilies, ::testing::ValuesIn(meshes::variants()), kNames);

TEST(MeshModel, StagesAndContextsMayBeCutAnywhere) {
  const Problem problem(meshes::small_llama());
  const Tensor logits = problem.reference(Arithmetic::tree).forward(problem.tokens);
  for (const std::int64_t end : {1, 2, 3})
    expect_on_every_rank(
        problem.from_views("pp2", Arithmetic::tree, {.stage_ends = {end}}).model->forward(problem.tokens),
        logits);
  // The last ranks may hold nothing, and all but the last.
  for (const std::vector<std::int64_t>& ends :
       {std::vector<std::int64_t>{4, 8}, {4, 12}, {8, 12}, {16, 20}, {400, 800}})
    expect_on_every_rank(
        problem.from_views("cp3,tp2", Arithmetic::tree, {.sequence_parallel = true, .context_ends = ends})
            .model->forward(problem.tokens),
        logits);
}

TEST(MeshModel, SummedBiasesKeepTheBitsUnderSequenceParallelism) {
  const Problem problem(meshes::small_llama());
  const Tensor logits = problem.reference(Arithmetic::tree).forward(problem.tokens);
  for (const char* table : {"seed-bias-on-first-rank", "seed-bias-divided"})
    expect_on_every_rank(problem.from_shards("tp2", Arithmetic::tree, {.sequence_parallel = true}, table)
                             .model->forward(problem.tokens),
                         logits);
}

TEST(MeshModel, TwoShotsAndOneGiveTheSameBitsOnMeshFamilies) {
  const Problem problem(meshes::small_deepseek(), DType::bf16);
  const Tensor logits = problem.reference(Arithmetic::tree).forward(problem.tokens);
  for (const CoverExchange exchange : {CoverExchange::one_shot, CoverExchange::two_shot})
    expect_on_every_rank(
        problem
            .from_packed("pp2,ep2,tp2", Arithmetic::tree, {.exchange = exchange, .sequence_parallel = true})
            .model->forward(problem.tokens),
        logits);
}

TEST(MeshModel, BlocksOfKeysArePartOfTheFunctionAndRanksAreNot) {
  const Problem problem(meshes::small_llama());
  Problem other = problem;
  other.contract.key_block = 5;
  EXPECT_FALSE(problem.reference(Arithmetic::tree)
                   .forward(problem.tokens)
                   .same_bytes(other.reference(Arithmetic::tree).forward(problem.tokens)));
  expect_on_every_rank(other.from_views("cp3", Arithmetic::tree).model->forward(problem.tokens),
                       other.reference(Arithmetic::tree).forward(problem.tokens));
}

TEST(MeshTraffic, AStageSendsItsHiddenStateOnceAndTheLastOneTheLogitsToAll) {
  const Problem problem(meshes::small_llama());
  const std::int64_t rows = problem.tokens.count();
  for (const int stages : {2, 3}) {
    const MeshRun run = problem.from_views(fmt::format("pp{}", stages), Arithmetic::tree);
    run.model->forward(problem.tokens);
    EXPECT_EQ(run.bytes(Axis::pp),
              4 * rows * (stages - 1) * (problem.geometry.d_model + problem.geometry.vocab));
  }
}

TEST(MeshTraffic, StagesSendNoMoreWithinTheirTensorParallelGroups) {
  const Problem problem(meshes::small_llama());
  const MeshRun one = problem.from_views("tp2", Arithmetic::tree),
                three = problem.from_views("pp3,tp2", Arithmetic::tree);
  one.model->forward(problem.tokens);
  three.model->forward(problem.tokens);
  EXPECT_GT(one.bytes(Axis::tp), 0);
  EXPECT_EQ(one.bytes(Axis::tp), three.bytes(Axis::tp));
}

/// Queries, and per query and head what a rank knows of its keys: under native one maximum and one node of
/// numerators and a denominator, whatever the number of keys.
TEST(MeshTraffic, ContextParallelRanksSendQueriesAndSumsButNoKeys) {
  Problem problem(meshes::small_llama());
  const Geometry& g = problem.geometry;
  for (const std::int64_t length : {8, 16}) {
    problem.tokens = make_tokens(g, 1, length, 3);
    const MeshRun run = problem.from_views("cp2", Arithmetic::native, {.context_ends = {length / 2 / 4 * 4}});
    run.model->forward(problem.tokens);
    const std::int64_t half = length / 2;
    const std::int64_t queries = length * g.attention_width();
    const std::int64_t maxima = length * g.n_heads;
    // Rank 0 sends a node for each query of rank 1; its own queries see no key of rank 1.
    const std::int64_t nodes = half * g.n_heads * (g.head_dim + 1);
    const std::int64_t counts = 2 * 8;
    EXPECT_EQ(run.bytes(Axis::cp),
              g.n_layers * (4 * (queries + maxima + nodes) + counts) + 4 * length * g.vocab)
        << length;
  }
}

TEST(MeshTraffic, ExpertParallelRanksSendTheRowsOfTheirExperts) {
  const Problem problem(meshes::small_mixtral());
  const Geometry& g = problem.geometry;
  for (const int degree : {2, 4}) {
    const MeshRun run = problem.from_views(fmt::format("ep{}", degree), Arithmetic::tree);
    run.model->forward(problem.tokens);
    EXPECT_EQ(run.bytes(Axis::ep),
              g.n_layers * (degree - 1) * 4 * problem.tokens.count() * g.experts_per_token * g.d_model);
  }
}

TEST(MeshTraffic, TokenLogprobsOverACutVocabularySendLessThanLogits) {
  Geometry g = meshes::small_llama();
  g.vocab = 400;
  const Problem problem(g);
  const BatchStep step = whole_step(problem.tokens);
  const MeshRun logits = problem.from_views("tp2", Arithmetic::native),
                logprobs = problem.from_views("tp2", Arithmetic::native);
  KvCache first = logits.model->make_cache(), second = logprobs.model->make_cache();
  logits.model->forward(step, first);
  logprobs.model->token_logprobs(step, problem.tokens.ids, second);
  EXPECT_GE(logits.bytes(Axis::tp), 4 * problem.tokens.count() * g.vocab);
  EXPECT_LT(logprobs.bytes(Axis::tp), logits.bytes(Axis::tp) / 8);
}

/// Message of an exception of type Error, or nothing.
template <typename Error, typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string mesh_refusal(const Geometry& geometry, const std::string& axes, const Execution& execution = {}) {
  const Problem problem(geometry);
  return refusal<UnsupportedLayout>([&] { problem.from_views(axes, Arithmetic::tree, execution); });
}

TEST(MeshRefusals, NameTheAxisItsRanksAndWhatIsAllowed) {
  const Geometry llama = meshes::small_llama();
  EXPECT_THAT(mesh_refusal(llama, "dp2"), AllOf(HasSubstr("tp, pp, cp and ep"), HasSubstr("dp=2")));
  EXPECT_THAT(mesh_refusal(meshes::small_mixtral(), "ep2,etp2,tp2"),
              AllOf(HasSubstr("tp, pp, cp and ep"), HasSubstr("etp=2")));
  EXPECT_THAT(mesh_refusal(llama, "pp5"), AllOf(HasSubstr("pp=5"), HasSubstr("4 layers")));
  EXPECT_THAT(mesh_refusal(meshes::small_mixtral(), "ep3"),
              AllOf(HasSubstr("n_experts=4"), HasSubstr("EP degree 3")));
  EXPECT_THAT(mesh_refusal(llama, "tp3"), AllOf(HasSubstr("n_kv_heads"), HasSubstr("3")));
}

TEST(MeshRefusals, NameStageEndsThatDoNotCutTheLayers) {
  for (const std::vector<std::int64_t>& ends :
       {std::vector<std::int64_t>{0}, {4}, {-1}, {1, 2}, {5}, {std::numeric_limits<std::int64_t>::max()}})
    EXPECT_THAT(mesh_refusal(meshes::small_llama(), "pp2", {.stage_ends = ends}),
                AllOf(HasSubstr(fmt::format("stage_ends {}", fmt::join(ends, ","))), HasSubstr("in 1..3")));
  for (const std::vector<std::int64_t>& ends : {std::vector<std::int64_t>{2, 1}, {1, 1}, {1}})
    EXPECT_THAT(mesh_refusal(meshes::small_llama(), "pp3", {.stage_ends = ends}), HasSubstr("2 ascending"));
  EXPECT_THAT(mesh_refusal(meshes::small_llama(), "", {.stage_ends = {1}}), HasSubstr("stage_ends 1"));
}

TEST(MeshRefusals, NameContextEndsThatAreNotAscendingMultiplesOfTheKeyBlock) {
  for (const std::vector<std::int64_t>& ends : {std::vector<std::int64_t>{4},
                                                {4, 8, 12},
                                                {8, 4},
                                                {4, 4},
                                                {0, 4},
                                                {-4, 4},
                                                {4, 10},
                                                {4, std::int64_t{1} << 60}})
    EXPECT_THAT(mesh_refusal(meshes::small_llama(), "cp3", {.context_ends = ends}),
                AllOf(HasSubstr(fmt::format("context_ends {}", fmt::join(ends, ","))), HasSubstr("3 ranks"),
                      HasSubstr("2 ascending multiples of 4")));
  EXPECT_THAT(mesh_refusal(meshes::small_llama(), "tp2", {.context_ends = {4}}), HasSubstr("context_ends 4"));
}

TEST(MeshRefusals, AStageWithoutATensorThatItReadsIsNamed) {
  const Problem problem(meshes::small_llama());
  const ShardedTensors right = problem.shards("pp4");
  const auto refusal_without = [&](const std::string& name, std::size_t rank) {
    ShardedTensors shards = right;
    shards.at(name).at(rank) = Tensor();
    return refusal<InvalidShards>([&] { problem.from_shards("pp4", Arithmetic::tree, {}, "seed", shards); });
  };
  EXPECT_EQ(refusal_without("embed", 1), "accepted");
  EXPECT_EQ(refusal_without("final_norm", 0), "accepted");
  EXPECT_THAT(refusal_without("embed", 0), HasSubstr("embed"));
  EXPECT_THAT(refusal_without("final_norm", 3), HasSubstr("final_norm"));
  EXPECT_THAT(refusal_without("layers.1.o_proj", 1), HasSubstr("layers.1.o_proj"));
}

}  // namespace
}  // namespace shardcheck
