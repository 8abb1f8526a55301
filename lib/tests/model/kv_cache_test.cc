// Steps over a KvCache: ragged sequences that are prefilled, decoded and join at any time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "model/mesh_problem.h"

namespace shardcheck {
namespace {

using meshes::MeshRun;
using meshes::Problem;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Way {
  Geometry geometry;
  std::string axes;
  Execution execution = {};
};

std::vector<Way> ways() {
  const Geometry llama = meshes::small_llama(), gpt2 = meshes::small_gpt2(), moe = meshes::small_deepseek();
  return {{llama, ""},
          {llama, "tp2", {.sequence_parallel = true}},
          {llama, "cp3", {.context_ends = {4, 8}}},
          {llama, "cp3", {.context_ends = {8, 20}}},
          {gpt2, "pp2,cp2,tp2", {.sequence_parallel = true, .context_ends = {8}}},
          {moe, "ep2,tp2", {.sequence_parallel = true}},
          {moe, "cp2,ep2", {}}};
}

/// Sequences of random tokens with the logits of each one alone.
class Conversations {
 public:
  Conversations(const Problem& problem, Arithmetic arithmetic,
                const std::map<std::int64_t, std::int64_t>& lengths) {
    for (const auto& [number, length] : lengths) {
      const auto seed = static_cast<std::uint64_t>(100 + number);
      ids_[number] = make_tokens(problem.geometry, 1, length, seed).ids;
      logits_.emplace(number, problem.reference_of(arithmetic, ids_[number]));
    }
  }

  SequenceChunk chunk(std::int64_t number, std::int64_t first, std::int64_t count) const {
    const auto begin = ids_.at(number).begin() + first;
    return {number, first, {begin, begin + count}};
  }

  /// Rows of a step against those of its sequences alone.
  void expect_rows(const BatchStep& step, const Tensor& rows) const {
    std::int64_t row = 0;
    for (const SequenceChunk& part : step) {
      const std::int64_t count = std::ssize(part.ids);
      EXPECT_TRUE(rows.rows(row, count).same_bytes(logits_.at(part.sequence).rows(part.first, count)))
          << "sequence " << part.sequence << " from " << part.first;
      row += count;
    }
    EXPECT_EQ(rows.dim(0), row);
  }

 private:
  std::map<std::int64_t, std::vector<std::int32_t>> ids_;
  std::map<std::int64_t, Tensor> logits_;
};

/// Decoding, prefill in between, a sequence that joins later, another order, a sequence that pauses.
std::vector<BatchStep> schedule(const Conversations& talk) {
  return {{talk.chunk(0, 0, 5), talk.chunk(7, 0, 1)},
          {talk.chunk(0, 5, 1), talk.chunk(7, 1, 1)},
          {talk.chunk(7, 2, 6), talk.chunk(3, 0, 9), talk.chunk(0, 6, 1)},
          {talk.chunk(3, 9, 1)},
          {talk.chunk(0, 7, 4), talk.chunk(3, 10, 1)},
          {talk.chunk(7, 8, 1), talk.chunk(0, 11, 2), talk.chunk(3, 11, 1)}};
}

const std::map<std::int64_t, std::int64_t> kLengths = {{0, 13}, {3, 12}, {7, 9}};

void expect_conversations(const Way& way, Arithmetic arithmetic, DType dtype) {
  SCOPED_TRACE(fmt::format("{} {} mesh '{}'", to_string(arithmetic), short_name(dtype), way.axes));
  const Problem problem(way.geometry, dtype);
  const Conversations talk(problem, arithmetic, kLengths);
  const MeshRun run = problem.from_views(way.axes, arithmetic, way.execution);
  KvCache cache = run.model->make_cache();
  for (const BatchStep& step : schedule(talk)) {
    const std::vector<Tensor> ranks = run.model->forward(step, cache);
    talk.expect_rows(step, ranks.front());
    for (const Tensor& rank : ranks) EXPECT_TRUE(rank.same_bytes(ranks.front()));
    for (const SequenceChunk& chunk : step)
      EXPECT_EQ(cache.length(chunk.sequence), chunk.first + std::ssize(chunk.ids));
  }
}

TEST(KvCache, MixedStepsGiveTheBitsOfEachSequenceAlone) {
  for (const Way& way : ways()) {
    for (const DType dtype : {DType::f32, DType::bf16}) expect_conversations(way, Arithmetic::tree, dtype);
    expect_conversations(way, Arithmetic::exact, DType::f32);
  }
}

TEST(KvCache, LogSoftmaxAndTokenLogprobsJoinTheCacheLikeLogits) {
  const Problem problem(meshes::small_llama());
  const Conversations talk(problem, Arithmetic::tree, kLengths);
  const MeshRun run = problem.from_views("cp2,tp2", Arithmetic::tree);
  KvCache cache = run.model->make_cache();
  run.model->log_softmax({talk.chunk(0, 0, 6)}, cache);
  run.model->token_logprobs({talk.chunk(0, 6, 2)}, std::vector<std::int32_t>{1, 2}, cache);
  EXPECT_EQ(cache.length(0), 8);
  const BatchStep last = {talk.chunk(0, 8, 5)};
  talk.expect_rows(last, run.model->forward(last, cache).front());
}

/// Tensor and context parallelism and stages cut what is kept; expert-parallel ranks all keep it.
TEST(KvCache, HoldsEveryPositionOnceButOnExpertParallelRanks) {
  for (const Way& way : ways()) {
    const Problem problem(way.geometry);
    const Geometry& g = problem.geometry;
    const Conversations talk(problem, Arithmetic::native, kLengths);
    const MeshRun run = problem.from_views(way.axes, Arithmetic::native, way.execution);
    KvCache cache = run.model->make_cache();
    EXPECT_EQ(cache.bytes(), 0);
    std::int64_t tokens = 0;
    for (const BatchStep& step : schedule(talk)) {
      run.model->forward(step, cache);
      tokens += row_count(step);
      EXPECT_EQ(cache.bytes(),
                2 * 4 * g.n_layers * g.kv_width() * tokens * run.groups->mesh().degree(Axis::ep))
          << way.axes;
    }
  }
}

TEST(KvCache, KnowsNoSequenceThatWasNotAdded) {
  const Problem problem(meshes::small_llama());
  const MeshRun run = problem.from_views("tp2", Arithmetic::native);
  KvCache cache = run.model->make_cache();
  run.model->forward({{4, 0, {1, 2}}}, cache);
  EXPECT_EQ(cache.length(4), 2);
  EXPECT_EQ(cache.length(0), 0);
  EXPECT_EQ(cache.length(-1), 0);
  EXPECT_EQ(KvCache().length(4), 0);
  EXPECT_EQ(KvCache().bytes(), 0);
}

std::string refusal_of(const ShardedModel& model, const BatchStep& step, KvCache& cache) {
  try {
    model.forward(step, cache);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

TEST(KvCache, RefusesAChunkThatDoesNotBeginWhereItEndsAndStaysAsItWas) {
  const Problem problem(meshes::small_llama());
  const Conversations talk(problem, Arithmetic::tree, kLengths);
  const MeshRun run = problem.from_views("pp2,cp2,tp2", Arithmetic::tree);
  KvCache cache = run.model->make_cache();
  run.model->forward({talk.chunk(0, 0, 5), talk.chunk(7, 0, 3)}, cache);
  const std::int64_t bytes = cache.bytes();
  // The right chunk beside a wrong one is not added either.
  for (const std::int64_t first : {0, 4, 6})
    EXPECT_THAT(refusal_of(*run.model, {talk.chunk(7, 3, 2), talk.chunk(0, first, 2)}, cache),
                AllOf(HasSubstr("chunk 1"), HasSubstr(fmt::format("first={}", first)),
                      HasSubstr("allowed: 5, where sequence 0 ends")));
  EXPECT_THAT(refusal_of(*run.model, {talk.chunk(3, 1, 2)}, cache),
              AllOf(HasSubstr("first=1"), HasSubstr("allowed: 0")));
  EXPECT_EQ(cache.bytes(), bytes);
  EXPECT_EQ(cache.length(0), 5);
  EXPECT_EQ(cache.length(7), 3);
  EXPECT_EQ(cache.length(3), 0);
  const BatchStep next = {talk.chunk(7, 3, 2), talk.chunk(0, 5, 8)};
  talk.expect_rows(next, run.model->forward(next, cache).front());
}

TEST(KvCache, RefusesStepsThatAreWrongInThemselvesAndStaysAsItWas) {
  const Problem problem(meshes::small_llama());
  const MeshRun run = problem.from_views("tp2", Arithmetic::tree);
  KvCache cache = run.model->make_cache();
  run.model->forward({{0, 0, {1, 2, 3}}}, cache);
  EXPECT_THAT(refusal_of(*run.model, {}, cache), HasSubstr("no chunk"));
  EXPECT_THAT(refusal_of(*run.model, {{0, 3, {4}}, {0, 4, {5}}}, cache), HasSubstr("each once"));
  EXPECT_THAT(refusal_of(*run.model, {{0, 3, {23}}}, cache), HasSubstr("token id=23; allowed: 0..22"));
  EXPECT_EQ(cache.length(0), 3);
}

TEST(KvCache, BelongsToTheModelThatMadeIt) {
  const Problem problem(meshes::small_llama());
  const MeshRun one = problem.from_views("", Arithmetic::tree),
                other = problem.from_views("", Arithmetic::tree);
  KvCache cache = one.model->make_cache(), none;
  const BatchStep step = {{0, 0, {1, 2}}};
  EXPECT_THAT(refusal_of(*other.model, step, cache), HasSubstr("belongs to another model"));
  EXPECT_THAT(refusal_of(*one.model, step, none), HasSubstr("belongs to another model"));
  EXPECT_EQ(refusal_of(*one.model, step, cache), "accepted");
  KvCache moved = std::move(cache);
  EXPECT_EQ(moved.length(0), 2);
  const ShardedModel moved_model = std::move(*one.model);
  EXPECT_EQ(refusal_of(moved_model, {{0, 2, {3}}}, moved), "accepted");
}

/// The next model is likely to lie where the last one lay.
TEST(KvCache, IsRefusedByAModelMadeAfterItsOwnIsGone) {
  const Problem problem(meshes::small_llama());
  MeshGroups groups(meshes::layout_name("").mesh(), make_in_process_collective);
  const auto fresh = [&] {
    return ShardedModel(problem.geometry, problem.weights, groups, Arithmetic::tree, problem.contract, {});
  };
  std::optional<ShardedModel> model(fresh());
  KvCache cache = model->make_cache();
  for (int i = 0; i < 8; ++i) {
    model.reset();
    model.emplace(fresh());
    EXPECT_THAT(refusal_of(*model, {{0, 0, {1, 2}}}, cache), HasSubstr("belongs to another model"));
  }
}

TEST(KvCache, TokenLogprobsRefuseOtherTargetsAndLeaveTheCacheAsItWas) {
  const Problem problem(meshes::small_llama());
  const MeshRun run = problem.from_views("tp2", Arithmetic::tree);
  KvCache cache = run.model->make_cache();
  const auto refusal = [&](const std::vector<std::int32_t>& targets) -> std::string {
    try {
      run.model->token_logprobs({{0, 0, {1, 2, 3}}}, targets, cache);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({1, 2}), AllOf(HasSubstr("2 targets for 3 rows"), HasSubstr("one a row")));
  EXPECT_THAT(refusal({1, 2, 3, 4}), HasSubstr("4 targets for 3 rows"));
  EXPECT_THAT(refusal({1, 2, 23}), AllOf(HasSubstr("target 23"), HasSubstr("allowed 0..22")));
  EXPECT_THAT(refusal({-1, 2, 3}), AllOf(HasSubstr("target -1"), HasSubstr("allowed 0..22")));
  EXPECT_EQ(cache.length(0), 0);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_EQ(refusal({0, 22, 5}), "accepted");
}

/// Breaks off in a layer when told to.
class Breaking final : public ForwardSteps {
 public:
  bool causal(const StepSite& site) const override {
    if (site.layer == breaks_in) throw std::runtime_error("broken off");
    return true;
  }
  std::int64_t breaks_in = -2;
};

TEST(KvCache, AStepThatBreaksOffLeavesItUsable) {
  const Problem problem(meshes::small_llama());
  const Conversations talk(problem, Arithmetic::tree, kLengths);
  for (const char* axes : {"", "cp2", "pp2,cp2,tp2"}) {
    MeshGroups groups(meshes::layout_name(axes).mesh(), make_in_process_collective);
    Breaking steps;
    const ShardedModel model(problem.geometry, problem.weights, groups, Arithmetic::tree, problem.contract,
                             {}, steps);
    KvCache cache = model.make_cache();
    model.forward({talk.chunk(0, 0, 2)}, cache);
    for (const std::int64_t layer : {0, 2, 3}) {
      steps.breaks_in = layer;
      EXPECT_THROW(model.forward({talk.chunk(0, 2, 9), talk.chunk(7, 0, 9)}, cache), std::runtime_error);
      EXPECT_EQ(cache.length(0), 2);
      EXPECT_EQ(cache.length(7), 0);
    }
    steps.breaks_in = -2;
    for (const BatchStep& step : {BatchStep{talk.chunk(0, 2, 1)}, BatchStep{talk.chunk(7, 0, 3)},
                                  BatchStep{talk.chunk(7, 3, 6), talk.chunk(0, 3, 10)}})
      talk.expect_rows(step, model.forward(step, cache).front());
    EXPECT_EQ(cache.bytes(), 2 * 4 * problem.geometry.n_layers * problem.geometry.kv_width() * (13 + 9));
  }
}

}  // namespace
}  // namespace shardcheck
