#include <fmt/format.h>

#include "law_support.h"
#include "shardcheck/model/consumer.h"

namespace shardcheck::laws {
namespace {

/// Whether a layout can be represented and whether its framework can run it.
struct Expected {
  bool represented = false;
  bool runs = false;
};

/// The divisibility each framework's layout needs, written down apart from placements and tables. nullopt: no
/// such statement is known for the table.
std::optional<Expected> expected_of(const std::string& table, const Geometry& g, std::int64_t degree) {
  const auto divides = [degree](std::int64_t extent) { return extent % degree == 0; };
  const bool blocks = divides(g.n_heads) && divides(g.n_kv_heads) && divides(g.ffn);
  const auto both = [](bool holds) { return Expected{holds, holds}; };
  if (table == "seed") return both(blocks);  // torch.chunk takes any vocabulary
  // The embedding stays whole; a head of its own is cut evenly.
  if (table == "hf-llama") return both(blocks && (g.tied || divides(g.vocab)));
  if (table == "vllm-llama") {
    // Rows are padded to 64. KV heads are replicated for more ranks than heads, which no forward pass here
    // runs.
    const bool padded = divides((g.vocab + 63) / 64 * 64);
    const bool replicated = degree % g.n_kv_heads == 0 && divides(g.n_heads) && divides(g.ffn);
    return Expected{padded && (blocks || replicated), padded && blocks};
  }
  return std::nullopt;
}

/// Empty when `use` succeeds, else the text of its refusal.
template <typename Use>
std::string refusal_of(Use use) {
  try {
    use();
    return {};
  } catch (const UnsupportedLayout& refusal) {
    return refusal.what();
  }
}

Outcome wrong_answer(const LayoutName& name, bool expected, std::string_view who,
                     const std::string& refusal) {
  Difference d;
  d.target_degree = name.tp_degree();
  d.expected = expected ? "accepted" : "refused";
  d.actual = refusal.empty() ? "accepted" : "refused: " + refusal;
  return Outcome::fail(
      fmt::format("{} at degree {}: {}, expected {}", who, d.target_degree, d.actual, d.expected), d);
}

Outcome check_layout(const LayoutName& name, const Case& c, Subject& subject, Digest& digest) {
  const int degree = name.tp_degree();
  const bool only_tp = name.mesh().size() == degree;
  const std::optional<Expected> known = expected_of(name.table, c.geometry, degree);
  if (!known || !only_tp)
    return Outcome::of(Verdict::skipped,
                       fmt::format("no divisibility rule is written down for {}", to_string(name)));
  const bool expected = known->represented;
  const std::string refused = refusal_of([&] { (void)make_layout(name, c.geometry); });
  if (refused.empty() != expected) return wrong_answer(name, expected, name.table, refused);
  if (!expected && refused.find(std::to_string(degree)) == std::string::npos)
    return Outcome::fail(fmt::format("the refusal names no degree: {}", refused));
  const LayoutTable& table = LayoutTable::built_in(name.table);
  if (table.unrepresentable(c.geometry, degree).empty() != expected)
    return wrong_answer(name, expected, "probing " + name.table, refused);
  const std::string cannot_run =
      refusal_of([&] { consumer_named(table.consumer()).require_supported(c.geometry, degree); });
  if (cannot_run.empty() != known->runs)
    return wrong_answer(name, known->runs, "consumer " + table.consumer(), cannot_run);
  digest.add(refused);
  if (!expected) return Outcome::pass();
  const Layout layout = make_layout(name, c.geometry);
  const std::string unsplit = refusal_of([&] { digest.add(subject.split(fingerprints_of(c), layout)); });
  return unsplit.empty() ? Outcome::pass() : wrong_answer(name, true, "split", unsplit);
}

Outcome check(const Case& c, Subject& subject) {
  Digest digest;
  for (const LayoutName* name : {&c.source, &c.target}) {
    const Outcome outcome = check_layout(*name, c, subject, digest);
    if (outcome.verdict != Verdict::passed) return outcome;
  }
  Outcome outcome = Outcome::pass();
  const bool accepted = expected_of(c.target.table, c.geometry, c.target.tp_degree())->represented;
  outcome.labels.emplace_back(accepted ? "representable" : "unrepresentable");
  return with_digest(std::move(outcome), digest);
}

Case draw(Stream& stream) {
  return draw_for("rejected_iff_unrepresentable", stream, {.forward = false, .allow_unrepresentable = true});
}

}  // namespace

const Law& rejected_iff_unrepresentable() {
  static const Law law{
      .name = "rejected_iff_unrepresentable",
      .claim =
          "A layout is refused exactly where heads, KV heads, ffn or an evenly cut vocabulary do not divide "
          "by the "
          "degree, and its framework replicates no KV heads.",
      .check = check,
      .draw = draw,
      .shares = {{"representable", 0.3}, {"unrepresentable", 0.15}, {"target_degree>1", 0.4}},
      .smoke_cases = 50};
  return law;
}

}  // namespace shardcheck::laws
