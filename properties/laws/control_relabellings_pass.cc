#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"
#include "shardcheck/mutators/fault.h"

namespace shardcheck::laws {
namespace {

/// The control that the seed chooses among those that apply, nullptr when none does.
const Fault* chosen_control(const Case& c) {
  std::vector<const Fault*> controls;
  for (const Fault* fault : all_faults()) {
    if (fault->is_relabel_control() && !fault->why_inapplicable(c, "")) controls.push_back(fault);
  }
  return controls.empty() ? nullptr : controls[c.seed % controls.size()];
}

Outcome check(const Case& c, Subject& subject) {
  const Fault* control = chosen_control(c);
  if (control == nullptr) return Outcome::of(Verdict::vacuous, "there is nothing to relabel");
  const auto relabelling = control->relabels(c, "");
  if (!relabelling) return Outcome::of(Verdict::vacuous, "the relabelling changes nothing");
  Workbench bench(c);
  const auto wrapped =
      control->inject(std::shared_ptr<Subject>(&subject, [](Subject*) {}), c, "");  // not ours to delete
  const ShardedTensors plain = bench.moved(subject, bench.weights());
  const ShardedTensors shards = bench.moved(*wrapped, bench.weights());
  if (!Workbench::first_difference(bench.target(), plain, shards))
    return Outcome::fail(fmt::format("{} changes no byte", control->name));
  const TensorMap renamed = relabelled(c.geometry, bench.weights(), *relabelling);
  Outcome outcome = same_shards(fmt::format("{}: {}", control->name, describe(*relabelling)), bench.target(),
                                bench.moved(subject, renamed), shards);
  if (outcome.verdict != Verdict::passed) return outcome;
  outcome = bench.judge_shards(oracle_of(c.arithmetic), *wrapped, shards);
  outcome.labels.emplace_back(control->name);
  return with_digest(std::move(outcome), Digest().add(shards));
}

Case draw(Stream& stream) {
  Case c = draw_for("control_relabellings_pass", stream, {.any_dtype = true});
  // Models of 16 bits have no measured threshold.
  c.arithmetic = c.dtype != DType::f32 || stream.chance(1, 2) ? Arithmetic::exact : Arithmetic::native;
  return c;
}

}  // namespace

const Law& control_relabellings_pass() {
  static const Law law{
      .name = "control_relabellings_pass",
      .claim =
          "Ranks permuted in gate, up and down together, FFN channels permuted through, KV groups relabelled "
          "in q, k, v and o_proj, and heads inside a group with their columns of o_proj give other bytes, "
          "those of the relabelled model, and the same logits: bit for bit under exact, below the threshold "
          "under native.",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.4}, {"exact", 0.3}, {"groups>=2x2", 0.3}},
      .arithmetics = {Arithmetic::exact, Arithmetic::native},
      .smoke_cases = 60};
  return law;
}

}  // namespace shardcheck::laws
