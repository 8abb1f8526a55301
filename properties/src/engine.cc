#include "engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

SequenceChunk chunk_of(const Sequences& sequences, std::size_t sequence, std::int64_t first,
                       std::int64_t last) {
  const auto begin = sequences[sequence].begin();
  return {static_cast<std::int64_t>(sequence), first, {begin + first, begin + last}};
}

std::int64_t longest(const Sequences& sequences) {
  std::int64_t most = 0;
  for (const auto& ids : sequences) most = std::max(most, static_cast<std::int64_t>(std::ssize(ids)));
  return most;
}

/// Rows of a step's logits, to where their tokens stand among all sequences.
class RowPlaces {
 public:
  explicit RowPlaces(const Sequences& sequences) {
    for (const auto& ids : sequences) first_.push_back(first_.back() + std::ssize(ids));
  }
  std::int64_t rows() const { return first_.back(); }
  std::int64_t of(const SequenceChunk& chunk) const {
    return first_[static_cast<std::size_t>(chunk.sequence)] + chunk.first;
  }

 private:
  std::vector<std::int64_t> first_ = {0};
};

}  // namespace

const Tensor& agreed(const std::vector<Tensor>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    const bool shared = ranks[rank].bytes().data() == ranks[0].bytes().data();
    if (!shared && !ranks[rank].same_bytes(ranks[0]))
      throw InvalidShards(fmt::format("rank {} disagrees with rank 0 on the logits", rank));
  }
  return ranks.front();
}

std::vector<BatchStep> whole_steps(const Sequences& sequences) { return chunked_steps(sequences, {}); }

std::vector<BatchStep> single_steps(const Sequences& sequences) {
  std::vector<BatchStep> steps;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    steps.push_back({chunk_of(sequences, i, 0, std::ssize(sequences[i]))});
  return steps;
}

std::vector<BatchStep> chunked_steps(const Sequences& sequences, const std::vector<std::int64_t>& starts) {
  std::vector<std::int64_t> bounds = {0};
  bounds.insert(bounds.end(), starts.begin(), starts.end());
  bounds.push_back(std::max(bounds.back(), longest(sequences)));
  std::vector<BatchStep> steps;
  for (std::size_t b = 0; b + 1 < bounds.size(); ++b) {
    BatchStep step;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::int64_t last = std::min<std::int64_t>(bounds[b + 1], std::ssize(sequences[i]));
      if (bounds[b] < last) step.push_back(chunk_of(sequences, i, bounds[b], last));
    }
    if (!step.empty()) steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<BatchStep> decoding_steps(const Sequences& sequences, std::int64_t prefill) {
  std::vector<std::int64_t> starts;
  for (std::int64_t at = prefill; at < longest(sequences); ++at) starts.push_back(at);
  return chunked_steps(sequences, starts);
}

Mesh without(const Mesh& mesh, Axis axis) {
  std::vector<std::pair<Axis, int>> axes;
  for (const auto& kept : mesh.axes()) {
    if (kept.first != axis) axes.push_back(kept);
  }
  return Mesh(axes);
}

void require_no_chunks(const Case& c) {
  if (c.chunks.empty()) return;
  throw InvalidInput(fmt::format("chunks={}: the law {} has steps of its own; allowed: chunks=whole",
                                 fmt::join(c.chunks, ","), c.law));
}

Sequences sequences_of(const Case& c) {
  Sequences sequences;
  Stream stream(c.seed, "sequences");
  for (const std::int64_t length : lengths_of(c)) {
    auto& ids = sequences.emplace_back();
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(stream.integer(0, c.geometry.vocab - 1)));
  }
  return sequences;
}

Engine::Engine(const Case& c, Subject& subject)
    : case_(c),
      subject_(subject),
      contract_(contract_of(c)),
      weights_(make_weights(c.geometry, c.weights, c.seed, c.dtype)),
      sequences_(sequences_of(c)) {
  if (c.target.table != "seed")
    throw UnsupportedLayout(
        fmt::format("target={}: the law {} runs ranks that read views; allowed: seed over any axes",
                    to_string(c.target), c.law));
  require_bounded_execution(c);
  if (c.arithmetic != Arithmetic::exact) packed_.emplace(c.geometry, weights_, c.arithmetic);
}

RunForm Engine::form(std::vector<BatchStep> steps) const {
  return {case_.target.mesh(), execution_of(case_), std::move(steps)};
}

RunForm Engine::form_without(Axis axis, std::vector<BatchStep> steps) const {
  RunForm form = this->form(std::move(steps));
  form.mesh = without(form.mesh, axis);
  if (axis == Axis::pp) form.execution.stage_ends.clear();
  if (axis == Axis::cp) form.execution.context_ends.clear();
  return form;
}

RunForm Engine::plain_form(std::vector<BatchStep> steps) const { return {Mesh(), {}, std::move(steps)}; }

Tensor Engine::logits(const RunForm& form) const {
  MeshGroups groups(form.mesh, [&](int degree) { return subject_.collective(degree); });
  const ShardedModel model = packed_
                                 ? ShardedModel(*packed_, groups, contract_, form.execution, subject_.steps())
                                 : ShardedModel(case_.geometry, weights_, groups, case_.arithmetic, contract_,
                                                form.execution, subject_.steps());
  const RowPlaces places(sequences_);
  Tensor all = Tensor::poisoned(DType::f32, {places.rows(), case_.geometry.vocab});
  const std::span<float> out = all.mutable_f32();
  KvCache cache = model.make_cache();
  for (const BatchStep& step : form.steps) {
    const auto slots = model.forward(step, cache);
    auto from = agreed(slots).f32().begin();
    for (const SequenceChunk& chunk : step) {
      const std::int64_t values = std::ssize(chunk.ids) * case_.geometry.vocab;
      std::copy(from, from + values, out.begin() + places.of(chunk) * case_.geometry.vocab);
      from += values;
    }
  }
  return all;
}

Outcome Engine::compare(std::string_view claim, const RunForm& expected, const RunForm& actual) const {
  if (expected == actual) return Outcome::of(Verdict::vacuous, "both runs are the same");
  const Tensor first = logits(expected), second = logits(actual);
  return with_digest(same_logits(claim, case_, first, second), Digest().add(first).add(second));
}

Outcome Engine::compare_without(Axis axis, std::string_view claim) const {
  const std::vector<BatchStep> steps = chunked_steps(sequences_, case_.chunks);
  return compare(claim, form_without(axis, steps), form(steps));
}

Case draw_axis_law(std::string_view law, Stream& stream, const AxisWish& wish) {
  Case c = draw_axis_case(stream, wish);
  c.law = law;
  return c;
}

std::vector<LabelShare> axis_shares(std::vector<LabelShare> own) {
  for (const LabelShare& common : std::initializer_list<LabelShare>{
           {"16_bit", 0.3}, {"exact", 0.08}, {"linear_tree", 0.1}, {"experts", 0.1}, {"layer_norm", 0.15}})
    own.push_back(common);
  return own;
}

}  // namespace shardcheck
