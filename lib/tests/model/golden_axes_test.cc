// The trained checkpoint over every axis of determinism at once: batch, chunks, decoding, tensor, sequence,
// context and pipeline parallelism.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/model/sharded_model.h"

namespace shardcheck {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(SHARDCHECK_SOURCE_DIR) / ".." / "shared" / "checkpoints" / "stories260K";

/// In the order in which an engine serves them: a step adds tokens to some of the sequences.
using Schedule = std::vector<BatchStep>;

/// Each a piece of the story, of its own length; the first one is 96 tokens.
class Prompts {
 public:
  explicit Prompts(const std::vector<std::int32_t>& story) {
    constexpr std::array<std::int64_t, 8> kLengths = {96, 5, 33, 64, 17, 48, 1, 80};
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const auto begin = story.begin() + 7 * static_cast<std::int64_t>(i);
      ids_.emplace_back(begin, begin + kLengths[i]);
    }
  }

  const std::vector<std::int32_t>& ids(std::int64_t sequence) const {
    return ids_[static_cast<std::size_t>(sequence)];
  }
  std::int64_t count() const { return std::ssize(ids_); }

  /// The first `batch` sequences, in one step for each piece between two of the bounds.
  Schedule cut(std::int64_t batch, const std::vector<std::int64_t>& bounds) const {
    Schedule schedule;
    for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
      BatchStep step;
      for (std::int64_t i = 0; i < batch; ++i) {
        const std::int64_t last = std::min<std::int64_t>(bounds[b + 1], std::ssize(ids(i)));
        if (bounds[b] < last)
          step.push_back({i, bounds[b], {ids(i).begin() + bounds[b], ids(i).begin() + last}});
      }
      if (!step.empty()) schedule.push_back(std::move(step));
    }
    return schedule;
  }

 private:
  std::vector<std::vector<std::int32_t>> ids_;
};

struct NamedSchedule {
  std::string name;
  Schedule steps;
};

/// Alone and among eight; prefill as a whole, in chunks on and off the blocks of keys, and token by token.
std::vector<NamedSchedule> schedules(const Prompts& prompts) {
  std::vector<std::int64_t> decoding = {0};
  for (std::int64_t at = 80; at <= 96; ++at) decoding.push_back(at);
  std::vector<NamedSchedule> all;
  for (const std::int64_t batch : {1, 8}) {
    all.push_back({fmt::format("batch {} whole", batch), prompts.cut(batch, {0, 96})});
    all.push_back({fmt::format("batch {} chunks of 32", batch), prompts.cut(batch, {0, 32, 64, 96})});
    all.push_back({fmt::format("batch {} uneven chunks", batch), prompts.cut(batch, {0, 1, 18, 47, 95, 96})});
    all.push_back({fmt::format("batch {} chunk in a block", batch), prompts.cut(batch, {0, 24, 96})});
    all.push_back({fmt::format("batch {} prefill and decoding", batch), prompts.cut(batch, decoding)});
  }
  return all;
}

struct Shape {
  int pp, cp, tp;
  bool sequence_parallel;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int pp : {1, 2, 5}) {
    for (const int cp : {1, 2}) {
      for (const int tp : {1, 2, 4}) {
        all.push_back({pp, cp, tp, false});
        if (tp > 1) all.push_back({pp, cp, tp, true});
      }
    }
  }
  return all;
}

class GoldenAxes : public ::testing::TestWithParam<DType> {
 protected:
  GoldenAxes()
      : checkpoint_(load_checkpoint(kFolder)),
        contract_(contract_for(geometry(), {.key_block = 16, .storage = GetParam()})),
        prompts_(story()) {
    for (const auto& [name, tensor] : checkpoint_.logical) weights_.emplace(name, tensor.to(GetParam()));
    const ReferenceModel reference(geometry(), weights_, Arithmetic::tree, contract_);
    for (std::int64_t i = 0; i < prompts_.count(); ++i) {
      const auto& ids = prompts_.ids(i);
      expected_.push_back(reference.forward({1, std::ssize(ids), ids}));
    }
  }

  const Geometry& geometry() const { return checkpoint_.config.geometry; }

  static std::vector<std::int32_t> story() {
    const Tensor tokens = SafetensorsFile(kFolder / "golden.safetensors").tensor("tokens");
    std::vector<std::int32_t> ids;
    for (const std::int64_t id : tokens.as<std::int64_t>()) ids.push_back(static_cast<std::int32_t>(id));
    return ids;
  }

  /// Every logit of every step against the sequence alone; what was compared.
  std::int64_t compare(const ShardedModel& model, const Schedule& schedule) const {
    std::int64_t rows = 0;
    KvCache cache = model.make_cache();
    for (const BatchStep& step : schedule) {
      const Tensor logits = model.forward(step, cache).back();
      std::int64_t row = 0;
      for (const SequenceChunk& chunk : step) {
        const std::int64_t count = std::ssize(chunk.ids);
        const Tensor& whole = expected_[static_cast<std::size_t>(chunk.sequence)];
        EXPECT_TRUE(logits.rows(row, count).same_bytes(whole.rows(chunk.first, count)))
            << "sequence " << chunk.sequence << " from " << chunk.first;
        row += count;
      }
      rows += row;
    }
    return rows;
  }

  Checkpoint checkpoint_;
  Contract contract_;
  Prompts prompts_;
  TensorMap weights_;
  std::vector<Tensor> expected_;  // logits of each prompt alone, on one rank
};

TEST_P(GoldenAxes, EveryLogitHasTheSameBitsOverEveryCombination) {
  const PackedModel packed(geometry(), weights_, Arithmetic::tree);
  const std::vector<NamedSchedule> all = schedules(prompts_);
  for (const Shape& shape : shapes()) {
    MeshGroups groups(Mesh({{Axis::pp, shape.pp}, {Axis::cp, shape.cp}, {Axis::tp, shape.tp}}),
                      make_in_process_collective);
    Execution execution{.sequence_parallel = shape.sequence_parallel};
    if (shape.cp > 1) execution.context_ends = {48};
    const ShardedModel model(packed, groups, contract_, execution);
    for (const NamedSchedule& schedule : all) {
      SCOPED_TRACE(fmt::format("PP {} CP {} TP {}{}, {}", shape.pp, shape.cp, shape.tp,
                               shape.sequence_parallel ? " sequence parallel" : "", schedule.name));
      EXPECT_GE(compare(model, schedule.steps), 96);
    }
  }
}

/// The widest product through the files that a layout cuts, not through views.
TEST_P(GoldenAxes, RanksThatReadTheirShardsGiveTheSameBits) {
  const Layout layout = make_layout(parse_layout_name("seed:pp5,cp2,tp4"), geometry());
  MeshGroups groups(layout.mesh, make_in_process_collective);
  const ShardedModel model(geometry(), split(weights_, layout), consumer_named(layout.consumer), groups,
                           Arithmetic::tree, contract_, {.sequence_parallel = true, .context_ends = {32}});
  compare(model, prompts_.cut(8, {0, 40, 96}));
}

INSTANTIATE_TEST_SUITE_P(Storage, GoldenAxes, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& storage) { return std::string(short_name(storage.param)); });

}  // namespace
}  // namespace shardcheck
