#include "case_input.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardcheck::fuzz {
namespace {

/// Whether all that the layouts' ranks may hold is within the bounds, from fields alone: nothing is computed
/// of a model that is too large.
bool has_small_extents(const Bounds& bounds, const Geometry& g) {
  const auto is_small = [&](std::int64_t extent) { return extent <= bounds.width; };
  return g.n_layers <= bounds.layers && g.n_experts <= 16 &&
         std::ranges::all_of(
             std::initializer_list<std::int64_t>{g.d_model, g.n_heads, g.head_dim, g.ffn, g.expert_ffn,
                                                 g.shared_ffn, g.q_lora, g.kv_lora, g.nope_dim, g.rope_dim,
                                                 g.v_dim, g.rotary_dim},
             is_small) &&
         g.vocab <= 8 * bounds.width && g.positions <= 8 * bounds.width &&
         g.attention_width() <= 4 * bounds.width;
}

std::int64_t ranks_of(const LayoutName& name) {
  std::int64_t ranks = 1;
  for (const auto& [axis, degree] : name.axes) ranks = std::min<std::int64_t>(ranks * degree, 1 << 20);
  return ranks;
}

std::int64_t elements_of(const Geometry& g) {
  std::int64_t elements = 0;
  for (const LogicalTensor& tensor : logical_tensors(g)) elements += element_count(tensor.shape);
  return elements;
}

double multiply_adds_of(const Case& c, std::int64_t elements, std::int64_t tokens, std::int64_t longest) {
  const Geometry& g = c.geometry;
  return static_cast<double>(tokens) *
         (static_cast<double>(elements) +
          2.0 * static_cast<double>(g.n_layers * longest) * static_cast<double>(g.attention_width()));
}

}  // namespace

std::optional<Case> read_case(std::string_view input) {
  try {
    if (input.find('\n') == std::string_view::npos) return parse_case(input);
    return parse_case_file(input, "input").value;
  } catch (const InvalidInput&) {
    return std::nullopt;
  }
}

bool is_within(const Bounds& bounds, const Case& c) {
  std::int64_t ranks = 1;
  for (const LayoutName* name : {&c.source, &c.target, &c.via}) ranks = std::max(ranks, ranks_of(*name));
  if (ranks > bounds.ranks || !has_small_extents(bounds, c.geometry)) return false;
  const std::vector<std::int64_t> lengths = lengths_of(c);
  std::int64_t tokens = 0;
  for (const std::int64_t length : lengths) tokens += length;
  if (tokens > bounds.tokens) return false;
  const std::int64_t elements = elements_of(c.geometry);
  return elements * ranks <= bounds.elements &&
         multiply_adds_of(c, elements, tokens, std::ranges::max(lengths)) <= bounds.multiply_adds;
}

Outcome outcome_of(const Law& law, const Case& c, const MakeSubject& subject) {
  try {
    if (speaks_of(law, c.arithmetic)) {
      Outcome outcome = law.check(c, *subject(c));
      if (outcome.verdict != Verdict::failed && outcome.verdict != Verdict::error) return outcome;
    }
  } catch (const UnsupportedLayout& refusal) {
    return Outcome::of(Verdict::skipped, refusal.what());
  } catch (const std::exception&) {
    // check_case says what it means.
  }
  return check_case(law, c, *subject(c));
}

bool says_failed(const Outcome& outcome) {
  return outcome.verdict == Verdict::failed || (outcome.verdict == Verdict::error && !outcome.refused);
}

void report(const Law& law, const Outcome& outcome) {
  throw Finding(fmt::format("law {} {}: {}", law.name, to_string(outcome.verdict), outcome.message));
}

void require_holds(const Law& law, const Case& c, const MakeSubject& subject) {
  if (const Outcome outcome = outcome_of(law, c, subject); says_failed(outcome)) report(law, outcome);
}

const Law* law_of(const Case& c, const std::vector<std::string_view>& laws) {
  return std::ranges::find(laws, c.law) == laws.end() ? nullptr : &law_named(c.law);
}

bool keeps_bits(const Layout& layout) {
  return std::ranges::all_of(layout.entries, [](const LayoutEntry& entry) {
    return entry.arrangement().shift == 0 && !entry.placed.is_partial();
  });
}

}  // namespace shardcheck::fuzz
