// Shrinking as small passes. Each pass proposes simpler cases and knows nothing of the others; one filter
// keeps the valid and strictly smaller ones.
#include <algorithm>
#include <array>
#include <numeric>

#include "layout_probe.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

constexpr LayoutName Case::*kLayouts[] = {&Case::via, &Case::source, &Case::target};

const Case& simplest() {
  static const Case c;
  return c;
}

using Pass = void (*)(const Case& c, std::vector<Case>& out);

/// Adds a copy of `c` after `edit` changed it.
template <typename Edit>
void propose(const Case& c, std::vector<Case>& out, Edit edit) {
  Case candidate = c;
  edit(candidate);
  out.push_back(std::move(candidate));
}

/// From `value` toward `goal`: the goal, the number before it (another parity), half way, a quarter, one
/// step. Each is rounded both ways to multiples of `unit`, so that a width stays divisible.
std::vector<std::int64_t> steps_toward(std::int64_t value, std::int64_t goal, std::int64_t unit = 1) {
  const std::int64_t gap = goal - value;
  const std::int64_t one = gap > 0 ? 1 : -1;
  std::vector<std::int64_t> steps;
  for (const std::int64_t step : {goal, goal - one, value + gap / 2, value + gap / 4, value + one}) {
    for (const std::int64_t rounded : {step / unit * unit, (step + unit - 1) / unit * unit}) {
      const bool known = std::find(steps.begin(), steps.end(), rounded) != steps.end();
      if (rounded >= 1 && rounded != value && !known) steps.push_back(rounded);
    }
  }
  return steps;
}

/// Common unit of everything that the case's degrees cut.
std::int64_t degree_unit(const Case& c) {
  const std::int64_t unit = std::lcm(c.source.tp_degree(), c.target.tp_degree());
  return std::lcm(unit, static_cast<std::int64_t>(c.via.tp_degree()));
}

/// Everything at once: the default geometry and inputs, with the heads and widths the degrees need.
void forget_everything(const Case& c, std::vector<Case>& out) {
  const std::int64_t unit = degree_unit(c);
  propose(c, out, [&](Case& s) {
    s.geometry = simplest().geometry;
    s.geometry.n_heads = s.geometry.n_kv_heads = unit;
    s.geometry.ffn = std::max<std::int64_t>(1, (s.geometry.ffn + unit - 1) / unit) * unit;
    s.batch = 1;
    s.length = simplest().length;
    s.seed = 0;
    s.dtype = simplest().dtype;
    s.degrees.clear();
  });
}

/// Switches features off, one at a time.
void drop_features(const Case& c, std::vector<Case>& out) {
  propose(c, out, [](Case& s) { s.geometry.tied = false; });
  propose(c, out, [](Case& s) { s.geometry.qkv_bias = false; });
  propose(c, out, [](Case& s) { s.geometry.o_bias = false; });
  propose(c, out, [](Case& s) { s.geometry.qk_norm = false; });
  propose(c, out, [](Case& s) {
    s.geometry.rope = Rope::none;
    s.geometry.rotary_dim = 0;
    s.geometry.rope_theta = simplest().geometry.rope_theta;
  });
  propose(c, out, [](Case& s) { s.geometry.rope_theta = simplest().geometry.rope_theta; });
  propose(c, out, [](Case& s) { s.geometry.norm_eps = simplest().geometry.norm_eps; });
  propose(c, out, [](Case& s) { s.dtype = simplest().dtype; });
  propose(c, out, [](Case& s) { s.weights = simplest().weights; });
}

/// What a Llama does not have, all at once and one at a time; widths half way too.
void plainer_family(const Case& c, std::vector<Case>& out) {
  constexpr std::int64_t Geometry::*kWidths[] = {
      &Geometry::positions,    &Geometry::n_experts, &Geometry::expert_ffn, &Geometry::shared_ffn,
      &Geometry::dense_layers, &Geometry::q_lora,    &Geometry::kv_lora,    &Geometry::nope_dim,
      &Geometry::rope_dim,     &Geometry::v_dim};
  const Geometry& plain = simplest().geometry;
  propose(c, out, [&](Case& s) {
    for (const auto width : kWidths) s.geometry.*width = plain.*width;
    s.geometry.experts_per_token = plain.experts_per_token;
    s.geometry.router_bias = false;
  });
  propose(c, out, [](Case& s) {
    s.geometry.q_lora = s.geometry.kv_lora = s.geometry.nope_dim = s.geometry.rope_dim = s.geometry.v_dim = 0;
  });
  propose(c, out, [](Case& s) {
    s.geometry.n_experts = s.geometry.expert_ffn = s.geometry.shared_ffn = s.geometry.dense_layers = 0;
    s.geometry.router_bias = false;
  });
  propose(c, out, [](Case& s) { s.geometry.n_experts = s.geometry.experts_per_token; });
  propose(c, out, [](Case& s) { s.geometry.router_bias = false; });
  propose(c, out, [](Case& s) { s.geometry.mlp_bias = false; });
  propose(c, out, [](Case& s) { s.geometry.sinks = false; });
  propose(c, out, [](Case& s) { s.geometry.parallel_residual = false; });
  propose(c, out, [](Case& s) { s.geometry.rotary_dim = 0; });
  propose(c, out, [](Case& s) { s.geometry.alibi = false; });
  propose(c, out, [](Case& s) { s.geometry.gated = true; });
  propose(c, out, [](Case& s) { s.geometry.norm = Norm::rms; });
  propose(c, out, [](Case& s) { s.geometry.activation = Activation::silu; });
  for (const std::int64_t experts : steps_toward(c.geometry.experts_per_token, plain.experts_per_token))
    propose(c, out, [&](Case& s) { s.geometry.experts_per_token = experts; });
  for (const auto width : kWidths) {
    for (const std::int64_t less : {std::int64_t{0}, std::int64_t{1}, c.geometry.*width / 2}) {
      propose(c, out, [&](Case& s) { s.geometry.*width = less; });
    }
  }
}

/// Each axis of each layout away, or at half its degree; equal end stages.
void fewer_axes(const Case& c, std::vector<Case>& out) {
  for (LayoutName Case::*layout : kLayouts) {
    for (std::size_t a = 0; a < (c.*layout).axes.size(); ++a) {
      propose(c, out, [&](Case& s) {
        auto& axes = (s.*layout).axes;
        axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(a));
        if ((s.*layout).degree("pp") == 1) (s.*layout).first_stage_layers = (s.*layout).last_stage_layers = 0;
      });
      if ((c.*layout).axes[a].second >= 4) propose(c, out, [&](Case& s) { (s.*layout).axes[a].second /= 2; });
    }
    propose(c, out, [&](Case& s) { (s.*layout).first_stage_layers = (s.*layout).last_stage_layers = 0; });
  }
}

/// The contract's keys to their defaults, together and one at a time.
void default_contract(const Case& c, std::vector<Case>& out) {
  const auto shape = [](Case& s) { s.tree_shape = simplest().tree_shape; };
  const auto leaf = [](Case& s) { s.leaf = simplest().leaf; };
  const auto key_block = [](Case& s) { s.key_block = simplest().key_block; };
  const auto degrees = [](Case& s) { s.degrees.clear(); };
  const auto exchange = [](Case& s) { s.exchange = simplest().exchange; };
  propose(c, out, [&](Case& s) { shape(s), leaf(s), key_block(s), degrees(s), exchange(s); });
  propose(c, out, shape);
  propose(c, out, leaf);
  propose(c, out, key_block);
  propose(c, out, degrees);
  propose(c, out, exchange);
}

void fewer_layers(const Case& c, std::vector<Case>& out) {
  for (const std::int64_t layers : steps_toward(c.geometry.n_layers, 1))
    propose(c, out, [&](Case& s) { s.geometry.n_layers = layers; });
}

/// Every layout, then each one, from the seed table.
void simpler_tables(const Case& c, std::vector<Case>& out) {
  propose(c, out, [](Case& s) { s.source.table = s.target.table = s.via.table = simplest().source.table; });
  for (LayoutName Case::*layout : kLayouts)
    propose(c, out, [&](Case& s) { (s.*layout).table = simplest().source.table; });
}

/// Each degree toward 1; source and target together where they are equal.
void smaller_degrees(const Case& c, std::vector<Case>& out) {
  for (LayoutName Case::*layout : kLayouts) {
    const LayoutName& name = c.*layout;
    for (int degree = 1; degree < name.tp_degree(); ++degree)
      propose(c, out, [&](Case& s) { s.*layout = layout_at(name.table, degree); });
  }
  if (c.source.tp_degree() != c.target.tp_degree()) return;
  for (int degree = 1; degree < c.target.tp_degree(); ++degree) {
    propose(c, out, [&](Case& s) {
      s.source = layout_at(c.source.table, degree);
      s.target = layout_at(c.target.table, degree);
    });
  }
}

/// What equals d_model stays equal to it: the edit as it is, and with d_model following the attention width
/// or ffn.
template <typename Edit>
void propose_keeping_squares(const Case& c, std::vector<Case>& out, Edit edit) {
  propose(c, out, edit);
  const Geometry& g = c.geometry;
  const bool square_attention = g.d_model == g.attention_width();
  if (!square_attention && g.d_model != g.ffn) return;
  propose(c, out, [&](Case& s) {
    edit(s);
    s.geometry.d_model = square_attention ? s.geometry.attention_width() : s.geometry.ffn;
  });
}

void propose_heads(const Case& c, std::vector<Case>& out, std::int64_t kv_heads, std::int64_t group,
                   std::int64_t head_dim) {
  propose_keeping_squares(c, out, [&](Case& s) {
    s.geometry.n_kv_heads = kv_heads;
    s.geometry.n_heads = kv_heads * group;
    s.geometry.head_dim = head_dim;
  });
}

/// Fewer KV heads (multiples of the degrees, or any), fewer query heads per KV head, head_dim toward its
/// default.
void fewer_heads(const Case& c, std::vector<Case>& out) {
  const Geometry& g = c.geometry;
  const std::int64_t group = g.n_heads / g.n_kv_heads;
  for (const std::int64_t unit : {degree_unit(c), std::int64_t{1}}) {
    propose_heads(c, out, unit, 1, g.head_dim);
    for (const std::int64_t fewer : steps_toward(g.n_kv_heads, unit, unit))
      propose_heads(c, out, fewer, group, g.head_dim);
  }
  for (const std::int64_t fewer : steps_toward(group, 1))
    propose_heads(c, out, g.n_kv_heads, fewer, g.head_dim);
  for (const std::int64_t width : steps_toward(g.head_dim, simplest().geometry.head_dim, 2))
    propose_heads(c, out, g.n_kv_heads, group, width);
}

/// Degrees together with the heads they cut: tp4 with 4 KV heads becomes tp2 with 2, though tp4 alone may
/// be needed for the 4 heads and the other way round.
void fewer_heads_and_degrees(const Case& c, std::vector<Case>& out) {
  const Geometry& g = c.geometry;
  for (int degree = 1; degree < c.target.tp_degree(); ++degree) {
    propose_keeping_squares(c, out, [&](Case& s) {
      for (LayoutName Case::*layout : kLayouts)
        s.*layout = layout_at((c.*layout).table, std::min(degree, (c.*layout).tp_degree()));
      const std::int64_t unit = degree_unit(s);
      s.geometry.n_kv_heads = unit;
      s.geometry.n_heads = unit * (g.n_heads / g.n_kv_heads);
      s.geometry.ffn = (simplest().geometry.ffn + unit - 1) / unit * unit;
    });
  }
}

/// Widths toward their defaults, in multiples the degrees divide; a square down projection stays square.
void narrower(const Case& c, std::vector<Case>& out) {
  const Geometry& g = c.geometry;
  const Geometry& goal = simplest().geometry;
  const std::int64_t unit = degree_unit(c);
  for (const std::int64_t vocab : steps_toward(g.vocab, goal.vocab))
    propose(c, out, [&](Case& s) { s.geometry.vocab = vocab; });
  for (const std::int64_t vocab : steps_toward(g.vocab, goal.vocab, unit))
    propose(c, out, [&](Case& s) { s.geometry.vocab = vocab; });
  for (const std::int64_t width : steps_toward(g.d_model, goal.d_model))
    propose(c, out, [&](Case& s) { s.geometry.d_model = width; });
  for (const std::int64_t ffn : steps_toward(g.ffn, goal.ffn, unit))
    propose_keeping_squares(c, out, [&](Case& s) { s.geometry.ffn = ffn; });
}

/// Fewer and shorter sequences, fewer chunks, plainer execution.
void plainer_steps(const Case& c, std::vector<Case>& out) {
  propose(c, out, [](Case& s) { s.sequence_parallel = false; });
  propose(c, out, [](Case& s) { s.context_ends.clear(); });
  for (std::size_t i = 0; i < c.lengths.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    if (c.lengths.size() > 1) propose(c, out, [&](Case& s) { s.lengths.erase(s.lengths.begin() + at); });
    for (const std::int64_t length : steps_toward(c.lengths[i], 1))
      propose(c, out, [&](Case& s) { s.lengths[i] = length; });
  }
  for (std::size_t i = 0; i < c.chunks.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    propose(c, out, [&](Case& s) { s.chunks.erase(s.chunks.begin() + at); });
    propose(c, out, [&](Case& s) { --s.chunks[i]; });
  }
}

void shorter_inputs(const Case& c, std::vector<Case>& out) {
  for (const std::int64_t batch : steps_toward(c.batch, 1))
    propose(c, out, [&](Case& s) { s.batch = batch; });
  for (const std::int64_t length : steps_toward(c.length, simplest().length))
    propose(c, out, [&](Case& s) { s.length = length; });
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, c.seed / 1000, c.seed / 2})
    propose(c, out, [&](Case& s) { s.seed = seed; });
}

/// Text: nothing, either half, then without one byte (at most 64 places).
void shorter_text(const Case& c, std::vector<Case>& out) {
  const std::string& text = c.input;
  propose(c, out, [](Case& s) { s.input.clear(); });
  propose(c, out, [&](Case& s) { s.input = text.substr(0, text.size() / 2); });
  propose(c, out, [&](Case& s) { s.input = text.substr(text.size() / 2); });
  const std::size_t stride = std::max<std::size_t>(1, text.size() / 64);
  for (std::size_t at = 0; at < text.size(); at += stride)
    propose(c, out, [&](Case& s) { s.input.erase(at, 1); });
}

/// Most drastic first.
constexpr Pass kPasses[] = {
    forget_everything, fewer_axes,       plainer_family, plainer_steps,   fewer_layers,
    drop_features,     default_contract, simpler_tables, smaller_degrees, fewer_heads_and_degrees,
    fewer_heads,       narrower,         shorter_inputs, shorter_text};

bool parses_back(const Case& c) {
  try {
    return parse_case(print_case(c)) == c;
  } catch (const InvalidCase&) {
    return false;
  }
}

/// What a layout allows for a geometry.
struct Ability {
  bool representable = false;
  bool runnable = false;
};

Ability ability_of(const LayoutName& name, const Geometry& geometry) {
  const bool representable = is_representable(name, geometry);
  return {representable, representable && has_running_consumer(name, geometry)};
}

using Abilities = std::array<Ability, std::size(kLayouts)>;

Abilities abilities_of(const Case& c) {
  Abilities all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = ability_of(c.*kLayouts[i], c.geometry);
  return all;
}

/// A simpler case allows no less than the case it comes from.
bool allows_as_much(const Abilities& needed, const Case& candidate) {
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const LayoutName& name = candidate.*kLayouts[i];
    if (needed[i].runnable && !has_running_consumer(name, candidate.geometry)) return false;
    if (needed[i].representable && !is_representable(name, candidate.geometry)) return false;
  }
  return true;
}

}  // namespace

std::vector<Case> shrink_case(const Case& c) {
  std::vector<Case> proposed;
  for (const Pass pass : kPasses) pass(c, proposed);
  const double size = case_size(c);
  const Abilities needed = abilities_of(c);
  std::vector<Case> simpler;
  for (Case& candidate : proposed) {
    const bool known = std::find(simpler.begin(), simpler.end(), candidate) != simpler.end();
    if (!known && case_size(candidate) < size && allows_as_much(needed, candidate) && parses_back(candidate))
      simpler.push_back(std::move(candidate));
  }
  return simpler;
}

}  // namespace shardcheck
