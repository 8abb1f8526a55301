#include <array>
#include <bit>
#include <optional>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

constexpr std::array<const char*, 3> kEncodings = {"seed", "seed-bias-on-first-rank", "seed-bias-divided"};

/// Shares of a number of ranks that is no power of two round: bits cannot agree, and 16 bits have no measured
/// threshold.
std::optional<Oracle> asked(const Case& c) {
  const bool rounds = c.target.table == "seed-bias-divided" &&
                      !std::has_single_bit(static_cast<unsigned>(c.target.tp_degree()));
  if (!rounds) return oracle_of(c.arithmetic);
  return c.dtype == DType::f32 ? std::optional(Oracle::native) : std::nullopt;
}

Outcome check(const Case& c, Subject& subject) {
  if (!c.geometry.o_bias || !target_is_sharded(c))
    return Outcome::of(Verdict::vacuous, "needs a bias of the output projection and a second rank");
  Digest digest;
  for (const char* table : kEncodings) {
    Case encoded = c;
    encoded.target.table = table;
    const auto oracle = asked(encoded);
    if (!oracle) continue;
    Workbench bench(encoded);
    const ShardedTensors shards = bench.moved(subject, bench.weights());
    Outcome outcome = bench.judge_shards(*oracle, subject, shards);
    digest.add(shards).add(outcome.deviation);
    if (outcome.verdict == Verdict::passed) continue;
    outcome.message = to_string(encoded.target) + ": " + outcome.message;
    return outcome;
  }
  return with_digest(Outcome::pass(), digest);
}

bool runs_sharded_as_seed(const Case& c) {
  return target_is_sharded(c) && is_runnable(layout_at("seed", c.target.tp_degree()), c.geometry);
}

Case draw(Stream& stream) {
  Case c = draw_where("control_bias_encodings_are_equal", stream, {.any_dtype = true, .any_arithmetic = true},
                      runs_sharded_as_seed);
  c.geometry.o_bias = true;
  c.target.table = "seed";
  return c;
}

}  // namespace

const Law& control_bias_encodings_are_equal() {
  static const Law law{
      .name = "control_bias_encodings_are_equal",
      .claim =
          "A row-parallel bias gives the reference's logits whether it is added once after the reduction, "
          "stored on the first rank alone beside zeros, or divided among the ranks (bit for bit where their "
          "number is a power of two).",
      .check = check,
      .draw = draw,
      .shares = {{"target_degree>1", 0.7}, {"o_bias", 0.9}, {"degree_not_power_of_two", 0.1}},
      .smoke_cases = 40};
  return law;
}

}  // namespace shardcheck::laws
