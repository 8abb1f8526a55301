#include "shardcheck/mutators/effective.h"

#include <fmt/format.h>

#include "shardcheck/mutators/fault.h"

namespace shardcheck {
namespace {

Outcome wrong(const Case& c, const std::string& name, int rank, const std::string& expected,
              const std::string& actual, std::int64_t index = -1) {
  Difference d;
  d.parameter = name;
  d.target_degree = c.target.tp_degree();
  d.rank = rank;
  d.worst_index = index;
  d.expected = expected;
  d.actual = actual;
  return Outcome::fail(
      fmt::format("rank {} computes with {} in {}, expected {}", rank, actual, name, expected), d);
}

std::string described(const Tensor& tensor) {
  return fmt::format("{} [{}]", short_name(tensor.dtype()), fmt::join(tensor.shape(), ", "));
}

Outcome compare(const Case& c, const std::string& name, int rank, const Tensor& expected,
                const Tensor& actual) {
  if (expected.dtype() != actual.dtype() || expected.shape() != actual.shape())
    return wrong(c, name, rank, described(expected), described(actual));
  if (expected.same_bytes(actual)) return Outcome::pass();
  const std::int64_t at = expected.first_difference(actual);
  return wrong(c, name, rank, fmt::format("{:#x}", expected.bits(at)), fmt::format("{:#x}", actual.bits(at)),
               at);
}

Outcome compare_all(const Case& c, const ShardedTensors& expected, const ShardedTensors& actual) {
  if (expected.size() != actual.size())
    return Outcome::fail(fmt::format("{} tensors, expected {}", actual.size(), expected.size()));
  for (const auto& [name, ranks] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end() || found->second.size() != ranks.size())
      return Outcome::fail(fmt::format("{} is not there for {} ranks", name, ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      Outcome outcome = compare(c, name, static_cast<int>(rank), ranks[rank], found->second[rank]);
      if (outcome.verdict != Verdict::passed) return outcome;
    }
  }
  return Outcome::pass();
}

}  // namespace

const EffectiveModel& effective_model(EffectiveKind kind) {
  for (const EffectiveModel* model : all_effective_models()) {
    if (model->kind == kind) return *model;
  }
  throw InvalidInput(fmt::format("effective={}: there are no such weights", to_string(kind)));
}

std::optional<std::string> why_no_effective_weights(const Case& c) {
  if (c.effective == EffectiveKind::none) return "effective=none: the case names no weights";
  return effective_model(c.effective).why_not(c);
}

ShardedTensors effective_weights(const Case& c) {
  const EffectiveModel& model = effective_model(c.effective);
  if (c.fault.empty()) return model.delivered(c);
  const FaultChoice choice = parse_fault(c.fault);
  const Fault& fault = *choice.fault;
  const bool acts = fault.effective != nullptr && !fault.why_inapplicable(c, choice.argument);
  return acts ? fault.effective(c, choice.argument) : model.delivered(c);
}

Outcome judge_effective(const Case& c) {
  if (const auto reason = why_no_effective_weights(c)) return Outcome::of(Verdict::skipped, *reason);
  return judge_effective(c, effective_weights(c));
}

Outcome judge_effective(const Case& c, const ShardedTensors& held) {
  return compare_all(c, effective_model(c.effective).expected(c), held);
}

}  // namespace shardcheck
