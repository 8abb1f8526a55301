#include "shardcheck/tolerance/workbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

#include "control.h"
#include "origin.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/tolerance/floor.h"

namespace shardcheck {
namespace {

constexpr std::uint64_t kFirstTokenSeed = 10000;
constexpr std::array<std::pair<Oracle, std::string_view>, 4> kOracles = {{{Oracle::layout, "layout"},
                                                                          {Oracle::exact, "exact"},
                                                                          {Oracle::tree, "tree"},
                                                                          {Oracle::native, "native"}}};

/// What a recorded floor speaks about; anything else is measured for the case.
bool has_recorded_floor(const Case& c, const Tokens& tokens) {
  return (c.geometry == toy() || c.geometry == toy_kv4()) && c.weights == WeightStyle::recorded &&
         c.dtype == DType::f32 && tokens.batch == 2 && tokens.length == 16 && c.source.table == "seed" &&
         c.target.table == "seed";
}

Threshold recorded_threshold(const Geometry& geometry) {
  const RecordedFloor& floor = floor_in_use();
  const bool recorded =
      std::ranges::any_of(floor.configs, [&](const auto& config) { return config.second == geometry; });
  if (!recorded) {
    throw InvalidInput(fmt::format("{}: no recorded configuration has the geometry {}",
                                   source_of_floor_in_use(), to_string(geometry)));
  }
  Threshold threshold;
  threshold.value = floor.threshold;
  threshold.floor = floor.max_deviation;
  threshold.source = source_of_floor_in_use();
  return threshold;
}

std::string described(const Tensor& tensor) {
  return fmt::format("{} {}", short_name(tensor.dtype()), to_string(tensor.shape()));
}

Arithmetic arithmetic_of(Oracle oracle) {
  if (oracle == Oracle::exact) return Arithmetic::exact;
  return oracle == Oracle::tree ? Arithmetic::tree : Arithmetic::native;
}

/// Copies share their bytes, and a tensor that shares them cannot differ.
bool same(const Tensor& expected, const Tensor& actual) {
  const bool shared = expected.bytes().data() == actual.bytes().data() &&
                      expected.shape() == actual.shape() && expected.dtype() == actual.dtype();
  return shared || expected.same_bytes(actual);
}

/// The reference runs a batch of equally long sequences as a whole.
void require_even_sequences(const Case& c) {
  if (!c.lengths.empty() || !c.chunks.empty())
    throw InvalidInput(
        fmt::format("{}: the law {} runs whole batches of equally long sequences; allowed: batch "
                    "and length",
                    c.lengths.empty() ? "chunks" : "lengths", c.law));
}

}  // namespace

std::string_view to_string(Oracle oracle) noexcept {
  for (const auto& [known, name] : kOracles) {
    if (known == oracle) return name;
  }
  return "unknown";
}

std::optional<Oracle> oracle_from(std::string_view text) noexcept {
  for (const auto& [oracle, name] : kOracles) {
    if (name == text) return oracle;
  }
  return std::nullopt;
}

struct Workbench::State {
  State(Case c, TensorMap w, Tokens t)
      : value(std::move(c)),
        weights(std::move(w)),
        tokens(std::move(t)),
        source(make_layout(value.source, value.geometry)),
        target(make_layout(value.target, value.geometry)),
        contract(contract_of(value)) {}

  Difference difference(const Comparison& comparison, const Shape& shape) const {
    Difference d;
    d.source_degree = source.degree;
    d.target_degree = target.degree;
    d.max_abs = comparison.max_abs;
    d.worst_index = comparison.worst_index;
    d.worst_place = comparison.worst_index < 0 ? "" : "logits" + coordinates(shape, comparison.worst_index);
    d.expected = fmt::format("{:.9g}", comparison.expected);
    d.actual = fmt::format("{:.9g}", comparison.actual);
    return d;
  }

  /// A source of computed values rounds, and so may the shards that come from it.
  ShardedTensors right_shards(const TensorMap& full) const {
    if (!holds_computed_values(source)) return split(full, target);
    Subject ours;
    return ours.reshard(ours.split(full, source), source, target);
  }

  /// Whether fingerprints number every element of the moved model: not those of 16 bits, nor values that are
  /// computed on the way.
  bool fingerprints_tell_all() const {
    return value.dtype == DType::f32 && !holds_computed_values(source) && !holds_computed_values(target);
  }

  const ShardedTensors& expected_fingerprints(const TensorMap& full) {
    if (!right_fingerprints) right_fingerprints = right_shards(full);
    return *right_fingerprints;
  }

  const ShardedTensors& expected_weights() {
    if (!right_weights) right_weights = right_shards(weights);
    return *right_weights;
  }

  Outcome judge_bytes(const ShardedTensors& expected, const ShardedTensors& shards, bool fingerprinted) const;
  Outcome changed_in_place(const Outcome& found, const ShardedTensors& fingerprint_shards,
                           const ShardedTensors& own_shards);
  Outcome judge_logits(const Tensor& reference, const std::vector<Tensor>& logits,
                       const Threshold* limit) const;

  Case value;
  TensorMap weights;
  Tokens tokens;
  Layout source, target;
  Contract contract;
  std::optional<TensorMap> fingerprints;
  std::optional<ShardedTensors> right_fingerprints, right_weights;
  std::map<Arithmetic, Tensor> references;
  std::optional<Threshold> threshold;
};

Workbench::Workbench(Case c) {
  validate(c.geometry);
  require_even_sequences(c);
  // Layouts are refused before a weight is drawn.
  make_layout(c.source, c.geometry);
  make_layout(c.target, c.geometry);
  TensorMap weights = make_weights(c.geometry, c.weights, c.seed, c.dtype);
  Tokens tokens = make_tokens(c.geometry, c.batch, c.length, kFirstTokenSeed + c.seed);
  state_ = std::make_unique<State>(std::move(c), std::move(weights), std::move(tokens));
}

Workbench::Workbench(Case c, TensorMap weights, Tokens tokens) {
  validate(c.geometry);
  require_even_sequences(c);
  require_weights_of(c.geometry, weights);
  state_ = std::make_unique<State>(std::move(c), std::move(weights), std::move(tokens));
}

Workbench::~Workbench() = default;

const Case& Workbench::value() const { return state_->value; }
const TensorMap& Workbench::weights() const { return state_->weights; }
const Tokens& Workbench::tokens() const { return state_->tokens; }
const Layout& Workbench::source() const { return state_->source; }
const Layout& Workbench::target() const { return state_->target; }
const Contract& Workbench::contract() const { return state_->contract; }

const TensorMap& Workbench::fingerprints() {
  State& s = *state_;
  // Always f32: 16 bits are too few to number the elements of a model.
  if (!s.fingerprints) {
    s.fingerprints = make_weights(s.value.geometry, WeightStyle::fingerprint, s.value.seed, DType::f32);
  }
  return *s.fingerprints;
}

const Tensor& Workbench::reference(Arithmetic arithmetic) {
  State& s = *state_;
  auto found = s.references.find(arithmetic);
  if (found == s.references.end()) {
    const ReferenceModel model(s.value.geometry, s.weights, arithmetic, s.contract);
    found = s.references.emplace(arithmetic, model.forward(s.tokens)).first;
  }
  return found->second;
}

const Threshold& Workbench::threshold() {
  State& s = *state_;
  if (!s.threshold) {
    const Tensor& native = reference(Arithmetic::native);
    if (has_recorded_floor(s.value, s.tokens)) {
      s.threshold = recorded_threshold(s.value.geometry);
      s.threshold->control = control_deviation(s.value.geometry, s.contract, s.weights, s.tokens, native);
    } else {
      s.threshold = threshold_for(s.value, s.weights, s.tokens, native);
    }
  }
  return *s.threshold;
}

ShardedTensors Workbench::moved(Subject& subject, const TensorMap& full) {
  return subject.reshard(subject.split(full, state_->source), state_->source, state_->target);
}

std::vector<Tensor> Workbench::execute(Subject& subject, const ShardedTensors& shards,
                                       Arithmetic arithmetic) {
  const State& s = *state_;
  require_executable(s.target);
  require_bounded_execution(s.value);
  MeshGroups groups(s.target.mesh, [&](int degree) { return subject.collective(degree); });
  const ShardedModel model(s.value.geometry, shards, consumer_named(s.target.consumer), groups, arithmetic,
                           s.contract, execution_of(s.value), subject.steps());
  return model.forward(s.tokens);
}

Outcome Workbench::State::judge_bytes(const ShardedTensors& expected, const ShardedTensors& shards,
                                      bool fingerprinted) const {
  auto d = first_difference(target, expected, shards);
  if (!d) return Outcome::pass();
  d->source_degree = source.degree;
  if (d->worst_index < 0) {
    return Outcome::fail(fmt::format("{}: rank {} of {} holds {}, expected {}", d->parameter, d->rank,
                                     target.degree, d->actual, d->expected),
                         d);
  }
  const auto rank = static_cast<std::size_t>(d->rank);
  const Tensor& right = expected.at(d->parameter).at(rank);
  if (fingerprinted) {
    d->expected = origin_text(value.geometry, right, d->worst_index);
    d->actual = origin_text(value.geometry, shards.at(d->parameter).at(rank), d->worst_index);
  }
  return Outcome::fail(
      fmt::format("{}: rank {} of {} holds {} at local {}, expected {}", d->parameter, d->rank, target.degree,
                  d->actual, coordinates(right.shape(), d->worst_index), d->expected),
      d);
}

/// A fingerprint that a fault computed with may decode to an element it never was. The model's own weights
/// tell the two apart: a moved element brings its own value along. Returns `found` unless values changed in
/// place.
Outcome Workbench::State::changed_in_place(const Outcome& found, const ShardedTensors& fingerprint_shards,
                                           const ShardedTensors& own_shards) {
  Difference d = *found.difference;
  const auto rank = static_cast<std::size_t>(d.rank);
  const Tensor& right = expected_weights().at(d.parameter).at(rank);
  const auto own = own_shards.find(d.parameter);
  if (own == own_shards.end() || rank >= own->second.size()) return found;
  const Tensor& held = own->second[rank];
  if (held.shape() != right.shape() || held.dtype() != right.dtype() || same(right, held)) return found;
  const auto print =
      static_cast<std::uint32_t>(fingerprint_shards.at(d.parameter).at(rank).bits(d.worst_index));
  // What was not moved may be memory that nobody wrote: zero.
  const auto origin = decode_fingerprint(value.geometry, print);
  const std::uint64_t brought = origin ? weights.find(origin->tensor)->second.bits(origin->index) : 0;
  if (held.bits(d.worst_index) == brought) return found;
  d.worst_index = right.first_difference(held);
  d.worst_place = d.parameter + coordinates(right.shape(), d.worst_index);
  d.expected = element_text(right, d.worst_index);
  d.actual = element_text(held, d.worst_index);
  return Outcome::fail(
      fmt::format(
          "{}: {} of {} values of rank {} of {} changed in place, the first at local {} from {} to {}",
          d.parameter, differing_elements(right, held), right.elements(), d.rank, target.degree,
          coordinates(right.shape(), d.worst_index), d.expected, d.actual),
      d);
}

/// Bit for bit without a limit, else deviation < limit. Every rank is held against the reference, so that a
/// rank which disagrees counts with its deviation. What differs fails under any usable limit; what does not
/// passes only under one that can be trusted.
Outcome Workbench::State::judge_logits(const Tensor& reference, const std::vector<Tensor>& logits,
                                       const Threshold* limit) const {
  const RankComparison ranks = compare_ranks(reference, logits);
  const Comparison& worst = ranks.worst;
  Difference d = difference(worst, reference.shape());
  d.rank = ranks.dissenting_rank < 0 ? -1 : ranks.worst_rank;
  d.threshold = limit == nullptr ? 0.0 : limit->value;
  Outcome outcome = Outcome::pass();
  if (!worst.vacuous.empty()) {
    outcome = Outcome::of(Verdict::vacuous, worst.vacuous);
  } else if (ranks.dissenting_rank >= 0) {
    outcome = Outcome::fail(
        fmt::format("rank {} disagrees with rank 0 on the logits; rank {} is farthest from the reference, by "
                    "{:.4g} at token {}",
                    ranks.dissenting_rank, ranks.worst_rank, worst.max_abs, worst.worst_row),
        d);
  } else if (limit == nullptr && worst.differing_bits > 0) {
    outcome =
        Outcome::fail(fmt::format("{} of {} logits differ in their bits, the worst by {:.4g} at token {}",
                                  worst.differing_bits, reference.elements(), worst.max_abs, worst.worst_row),
                      d);
  } else if (limit != nullptr && limit->is_usable() && !(worst.max_abs < limit->value)) {
    outcome = Outcome::fail(fmt::format("logits deviate by {:.4g} at token {}, the threshold is {:.4g} ({})",
                                        worst.max_abs, worst.worst_row, limit->value, limit->source),
                            d);
  } else if (limit != nullptr && !limit->mistrusted().empty()) {
    outcome = Outcome::of(Verdict::mistrusted, limit->mistrusted());
  }
  outcome.deviation = worst.max_abs;
  outcome.threshold = d.threshold;
  return outcome;
}

namespace {

/// A subject's shards that the library refuses, and ranks that bring different sizes to a collective because
/// they route tokens to other experts, are a failure of the subject, with the library's sentence.
template <typename Judge>
Outcome refusals_fail(Judge judge) {
  try {
    return judge();
  } catch (const InvalidShards& refusal) {
    return Outcome::fail(refusal.what());
  } catch (const CollectiveMismatch& refusal) {
    return Outcome::fail(refusal.what());
  }
}

}  // namespace

Outcome Workbench::judge(Oracle oracle, Subject& subject) {
  return refusals_fail([&] {
    if (oracle != Oracle::layout) return judge_shards(oracle, subject, moved(subject, state_->weights));
    const TensorMap& full = fingerprints();
    const ShardedTensors shards = moved(subject, full);
    const Outcome outcome = state_->judge_bytes(state_->expected_fingerprints(full), shards, true);
    if (outcome.verdict == Verdict::failed && outcome.difference->worst_index >= 0)
      return state_->changed_in_place(outcome, shards, moved(subject, state_->weights));
    if (outcome.verdict != Verdict::passed || state_->fingerprints_tell_all()) return outcome;
    return judge_shards(oracle, subject, moved(subject, state_->weights));
  });
}

Outcome Workbench::judge_shards(Oracle oracle, Subject& subject, const ShardedTensors& shards) {
  return refusals_fail([&] {
    if (oracle == Oracle::layout) return state_->judge_bytes(state_->expected_weights(), shards, false);
    const Arithmetic arithmetic = arithmetic_of(oracle);
    const std::vector<Tensor> logits = execute(subject, shards, arithmetic);
    const Threshold* limit = oracle == Oracle::native ? &threshold() : nullptr;
    return state_->judge_logits(reference(arithmetic), logits, limit);
  });
}

std::optional<Difference> Workbench::first_difference(const Layout& layout, const ShardedTensors& expected,
                                                      const ShardedTensors& actual) {
  const auto differ = [&](const std::string& name, std::size_t rank, std::string right, std::string wrong) {
    Difference d;
    d.parameter = name;
    d.target_degree = layout.degree;
    d.rank = static_cast<int>(rank);
    d.expected = std::move(right);
    d.actual = std::move(wrong);
    return d;
  };
  for (const LayoutEntry& entry : layout.entries) {
    const auto& right = expected.at(entry.name);
    const auto found = actual.find(entry.name);
    for (std::size_t rank = 0; rank < right.size(); ++rank) {
      if (found == actual.end() || rank >= found->second.size()) {
        return differ(entry.name, rank, described(right[rank]), "nothing");
      }
      const Tensor& held = found->second[rank];
      if (same(right[rank], held)) continue;
      if (held.shape() != right[rank].shape() || held.dtype() != right[rank].dtype()) {
        return differ(entry.name, rank, described(right[rank]), described(held));
      }
      const std::int64_t at = right[rank].first_difference(held);
      Difference d = differ(entry.name, rank, element_text(right[rank], at), element_text(held, at));
      d.worst_index = at;
      d.worst_place = entry.name + coordinates(held.shape(), at);
      return d;
    }
    if (found->second.size() > right.size()) {
      return differ(entry.name, right.size(), "nothing", described(found->second[right.size()]));
    }
  }
  for (const auto& [name, shards] : actual) {
    if (layout.find(name) == nullptr && !shards.empty()) {
      return differ(name, 0, "nothing", described(shards.front()));
    }
  }
  return std::nullopt;
}

}  // namespace shardcheck
