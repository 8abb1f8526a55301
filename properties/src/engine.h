// A case's model run as an engine runs one: sequences in steps, over a mesh. What the laws about determinism
// axes compare: two ways to run the same model on the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/case/subject.h"
#include "shardcheck/model/packed_model.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/properties/generator.h"
#include "shardcheck/properties/law.h"

namespace shardcheck {

using Sequences = std::vector<std::vector<std::int32_t>>;

/// One way to run the sequences.
struct RunForm {
  Mesh mesh;
  Execution execution;
  std::vector<BatchStep> steps;  // in the order they run; a sequence's chunks follow each other

  bool operator==(const RunForm&) const = default;
};

/// All sequences in one step, each one in a step of its own, cut at `starts`, or `prefill` tokens and then
/// one at a time.
std::vector<BatchStep> whole_steps(const Sequences& sequences);
std::vector<BatchStep> single_steps(const Sequences& sequences);
std::vector<BatchStep> chunked_steps(const Sequences& sequences, const std::vector<std::int64_t>& starts);
std::vector<BatchStep> decoding_steps(const Sequences& sequences, std::int64_t prefill);

/// The mesh without one axis.
Mesh without(const Mesh& mesh, Axis axis);

class Engine {
 public:
  /// Draws weights and tokens from the case's seed; collectives and steps are the subject's. Ranks read views
  /// of the weights, cut as the table `seed` cuts: throws UnsupportedLayout for any other target.
  Engine(const Case& c, Subject& subject);

  const Sequences& sequences() const { return sequences_; }
  /// The case's own mesh and execution, over the given steps.
  RunForm form(std::vector<BatchStep> steps) const;
  /// `form` on a mesh without an axis, with what that axis alone needs left at its default.
  RunForm form_without(Axis axis, std::vector<BatchStep> steps) const;
  /// One rank.
  RunForm plain_form(std::vector<BatchStep> steps) const;

  /// Logits [tokens of all sequences, vocab], sequence after sequence, whatever the steps' order. Throws
  /// InvalidShards when ranks disagree.
  Tensor logits(const RunForm& form) const;

  /// Fails with `claim` where two runs differ in a bit; vacuous where they are one and the same.
  Outcome compare(std::string_view claim, const RunForm& expected, const RunForm& actual) const;
  /// The case as it is, its chunks too, against the same on a mesh without an axis.
  Outcome compare_without(Axis axis, std::string_view claim) const;

 private:
  Case case_;
  Subject& subject_;
  Contract contract_;
  TensorMap weights_;
  std::optional<PackedModel> packed_;  // but under exact
  Sequences sequences_;
};

/// Throws InvalidInput for a case with chunks: its law has steps of its own.
void require_no_chunks(const Case& c);

/// Sequences of the case's lengths, tokens drawn from its seed.
Sequences sequences_of(const Case& c);

/// A drawn case of a law about an axis, and the label shares that each of these laws needs besides its own.
Case draw_axis_law(std::string_view law, Stream& stream, const AxisWish& wish);
std::vector<LabelShare> axis_shares(std::vector<LabelShare> own = {});

/// What every rank returned. Throws InvalidShards when ranks disagree.
const Tensor& agreed(const std::vector<Tensor>& ranks);

}  // namespace shardcheck
