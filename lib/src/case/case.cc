#include "shardcheck/case/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "case/case_fields.h"
#include "case/case_text.h"
#include "case/line_reader.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
constexpr double kMaxParameters = 0x1p31;

/// Upper bound of the parameters, in floating point: products of unusual fields leave 64 bits.
double parameter_count(const Geometry& g) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double d = number(g.d_model), heads = number(g.n_heads);
  const double attention = d * number(2 * g.attention_width() + 2 * g.kv_width());
  const double vectors = number(8 * g.d_model + 4 * g.head_dim + 2 * g.attention_width() + 4 * g.kv_width());
  const double mlp = 3.0 * (d + 1.0) * number(g.ffn);
  const double experts =
      (3.0 * number(g.expert_ffn) + 2.0) * d * number(g.n_experts) + 3.0 * d * number(g.shared_ffn);
  const double latent = number(g.q_lora + g.kv_lora + g.rope_dim) * (d + 1.0) +
                        heads * (number(g.nope_dim + g.rope_dim) * (number(g.q_lora) + d) +
                                 number(g.nope_dim + g.v_dim) * number(g.kv_lora) + number(g.v_dim) * d);
  return number(g.n_layers) * (attention + vectors + mlp + experts + latent) +
         d * (2.0 * number(g.vocab) + number(g.positions) + 2.0);
}

/// What a forward pass of the case costs, in multiply-adds, and the largest of its activations, in elements.
struct Work {
  double multiply_adds = 0.0;
  double largest_activation = 0.0;
};

std::int64_t longest(const Case& c) { return c.lengths.empty() ? c.length : std::ranges::max(c.lengths); }

std::int64_t token_count(const Case& c) {
  return c.lengths.empty() ? c.batch * c.length
                           : std::accumulate(c.lengths.begin(), c.lengths.end(), std::int64_t{0});
}

Work work_of(const Case& c) {
  const Geometry& g = c.geometry;
  const auto tokens = static_cast<double>(token_count(c));
  const auto d = static_cast<double>(g.d_model), vocab = static_cast<double>(g.vocab);
  const auto width = static_cast<double>(g.attention_width()), ffn = static_cast<double>(g.ffn);
  const auto experts = static_cast<double>(g.n_experts), shared_ffn = static_cast<double>(g.shared_ffn);
  const auto expert_ffn = static_cast<double>(g.expert_ffn);
  const double per_token = std::min(experts, static_cast<double>(g.experts_per_token));
  const double mlp = std::max(3.0 * ffn, experts + 3.0 * (per_token * expert_ffn + shared_ffn));
  const double layer = d * (2.0 * width + 2.0 * static_cast<double>(g.kv_width()) + mlp) +
                       2.0 * static_cast<double>(longest(c)) * width;
  Work work;
  work.multiply_adds = tokens * (static_cast<double>(g.n_layers) * layer + d * vocab);
  work.largest_activation =
      tokens * std::max({d, width, ffn, vocab, experts, per_token * d, expert_ffn, shared_ffn});
  // A rank of a linear tree ships every leaf it owns.
  if (c.arithmetic == Arithmetic::tree && c.tree_shape == TreeShape::linear)
    work.largest_activation *= std::max(1.0, std::max(width, ffn) / static_cast<double>(c.leaf) / 16.0);
  return work;
}

/// "lengths=3,5" or "length=32 batch=1".
std::string spelled_sequences(const Case& c) {
  return c.lengths.empty() ? fmt::format("length={} batch={}", c.length, c.batch)
                           : fmt::format("lengths={}", fmt::join(c.lengths, ","));
}

/// A case runs about two dozen forward passes; one that would take hours or tens of gigabytes is refused
/// before anything is allocated.
void require_bounded_work(const Case& c) {
  constexpr double kMaxMultiplyAdds = 0x1p37, kMaxActivation = 0x1p28;
  const Work work = work_of(c);
  if (work.multiply_adds > kMaxMultiplyAdds)
    throw InvalidCase(
        fmt::format("{} layers={}: a forward pass of this case takes {:.4e} multiply-adds, allowed is at "
                    "most {:.4e}",
                    spelled_sequences(c), c.geometry.n_layers, work.multiply_adds, kMaxMultiplyAdds));
  if (work.largest_activation > kMaxActivation)
    throw InvalidCase(
        fmt::format("{}: the largest activation of this case has {:.4e} elements, allowed are at most {:.4e}",
                    spelled_sequences(c), work.largest_activation, kMaxActivation));
}

/// Refuses the value that the case has for a key.
[[noreturn]] void refuse_own(const Case& c, std::string_view key, const std::string& allowed) {
  refuse(key, get_case_key(c, key), allowed);
}

/// Elements and file tensors that all ranks of a layout hold, from above: the vocabulary's tensors are cut
/// over tp, layers over tp and pp, and experts over ep too; along other axes ranks may hold copies.
void require_bounded_layout(const Case& c, std::string_view key, const LayoutName& name) {
  constexpr double kMaxElements = 0x1p29, kMaxTensors = 0x1p19;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const Geometry& g = c.geometry;
  const double ranks = name.mesh().size(), tp = name.tp_degree(), pp = name.degree("pp"),
               ep = name.degree("ep");
  const double vocabulary = number(g.d_model) * (2.0 * number(g.vocab) / tp + number(g.positions));
  Geometry plain = g;
  plain.vocab = 1, plain.positions = 0, plain.n_experts = 0;
  const double experts =
      parameter_count(g) - parameter_count(plain) - number(g.d_model) * (2.0 * number(g.vocab));
  const double layers = (parameter_count(plain) + std::max(0.0, experts) / ep) / (tp * pp);
  const double held = ranks * (vocabulary + layers);
  const double tensors = ranks * (number(g.n_layers) / pp * (16.0 + 3.0 * number(g.n_experts) / ep) + 4.0);
  const auto refuse_layout = [&](std::string_view what, double value, double limit) {
    refuse_own(c, key,
               fmt::format("a layout whose ranks hold at most {:.4g} {}, copies counted (here {:.4g})", limit,
                           what, value));
  };
  // Without copies the ranks hold the parameters, whose number has a limit of its own; the estimate rounds
  // up.
  const double allowed = std::max(1.1 * parameter_count(g), kMaxElements);
  if (held > allowed) refuse_layout("elements", held, allowed);
  if (tensors > kMaxTensors) refuse_layout("tensors", tensors, kMaxTensors);
}

/// Under tree a rank boundary of the target must be one of the contract's: of its degrees.
void require_target_of(const Contract& contract, const Case& c) {
  const int degree = c.target.tp_degree();
  if (c.arithmetic != Arithmetic::tree ||
      std::ranges::find(contract.degrees, degree) != contract.degrees.end())
    return;
  refuse_own(c, "degrees",
             fmt::format("a list that holds the degree {} of target={}", degree, to_string(c.target)));
}

/// What no single field can say.
void require_consistent(const Case& c) {
  const Geometry& g = c.geometry;
  if (g.n_heads % g.n_kv_heads != 0)
    refuse_own(c, "kv_heads", fmt::format("a divisor of heads={}", g.n_heads));
  if (g.rope != Rope::none && g.head_dim % 2 != 0) refuse_own(c, "head_dim", "an even number with rope=half");
  if (c.batch * c.length > kMaxTokens)
    refuse_own(
        c, "length",
        fmt::format("at most {} with batch={} ({} tokens)", kMaxTokens / c.batch, c.batch, kMaxTokens));
  if (!c.lengths.empty() && (c.batch != 1 || c.length != Case().length))
    refuse_own(c, "lengths",
               fmt::format("even with batch={} and length={}, which it would replace: leave those out",
                           c.batch, c.length));
  if (token_count(c) > kMaxTokens)
    refuse_own(c, "lengths", fmt::format("at most {} tokens in all", kMaxTokens));
  for (const std::int64_t end : c.context_ends) {
    if (end % c.key_block != 0)
      refuse_own(c, "context_ends", fmt::format("multiples of key_block={}", c.key_block));
  }
  require_bounded_layout(c, "source", c.source);
  require_bounded_layout(c, "target", c.target);
  require_bounded_layout(c, "via", c.via);
  if (const std::int64_t usual = Geometry().experts_per_token; g.experts_per_token != usual) {
    if (g.n_experts == 0) refuse_own(c, "experts_per_token", "left out without experts");
    if (g.experts_per_token > g.n_experts)
      refuse_own(c, "experts_per_token", fmt::format("1..{}, as experts", g.n_experts));
  }
  if (!c.context_ends.empty() && c.target.degree("cp") == 1)
    refuse_own(c, "context_ends",
               fmt::format("blocks with target={}, which has no axis cp", to_string(c.target)));
  if (!c.context_ends.empty() && std::ssize(c.context_ends) != c.target.degree("cp") - 1)
    refuse_own(c, "context_ends",
               fmt::format("{} numbers with target={}", c.target.degree("cp") - 1, to_string(c.target)));
  require_bounded_work(c);
  // Exact attention keeps a value per query and key.
  if (c.arithmetic == Arithmetic::exact && longest(c) > kMaxExactLength)
    refuse_own(c, c.lengths.empty() ? "length" : "lengths",
               fmt::format("at most {} with arithmetic=exact", kMaxExactLength));
  if (!c.degrees.empty()) require_target_of(contract_of(c), c);
  const double parameters = parameter_count(g);
  if (parameters > kMaxParameters)
    throw InvalidCase(fmt::format("the geometry has {:.0f} parameters: allowed is at most {:.0f}", parameters,
                                  kMaxParameters));
  try {
    validate(g);
  } catch (const InvalidInput& error) {
    throw InvalidCase(error.what());
  }
}

void require_line_length(std::size_t bytes, std::string_view what) {
  if (bytes > kMaxLineBytes)
    throw InvalidCase(fmt::format("{} has {} bytes: allowed is at most {}", what, bytes, kMaxLineBytes));
}

}  // namespace

Geometry default_geometry() {
  Geometry g;
  g.d_model = 8;
  g.n_layers = 1;
  g.n_heads = 1;
  g.n_kv_heads = 1;
  g.head_dim = 8;
  g.ffn = 8;
  g.vocab = 16;
  return g;
}

Execution execution_of(const Case& c) {
  Execution execution;
  execution.exchange = c.exchange;
  execution.sequence_parallel = c.sequence_parallel;
  execution.context_ends = c.context_ends;
  const std::vector<std::int64_t> bounds = stage_bounds(c.geometry.n_layers, c.target);
  execution.stage_ends.assign(bounds.begin() + 1, bounds.end() - 1);
  return execution;
}

void require_bounded_execution(const Case& c) {
  constexpr double kMaxElements = 0x1p28, kMaxMultiplyAdds = 0x1p36, kMaxParcels = 0x1p22;
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const Geometry& g = c.geometry;
  const double ranks = c.target.mesh().size(), tp = c.target.tp_degree();
  const double cp = c.target.degree("cp"), ep = c.target.degree("ep");
  const double shared =
      number(g.d_model) * (number(g.positions) + 2.0 * number(g.vocab) + 8.0 * number(g.n_layers));
  const auto refuse_target = [&](std::string_view what, double value, double limit) {
    throw InvalidCase(fmt::format("target={}: {} {:.4e}, allowed are at most {:.4e}", to_string(c.target),
                                  what, value, limit));
  };
  if (ranks * shared > kMaxElements)
    refuse_target("the ranks hold shared elements:", ranks * shared, kMaxElements);
  const double work = work_of(c).multiply_adds * ep * std::max(1.0, tp / 16.0);
  if (work > kMaxMultiplyAdds) refuse_target("its ranks take multiply-adds:", work, kMaxMultiplyAdds);
  // Every context rank sends every other a parcel for each of its runs of queries.
  const double parcels = cp * cp * number(token_count(c)) * number(g.n_layers);
  if (cp > 1 && parcels > kMaxParcels)
    refuse_target("its context ranks exchange rows:", parcels, kMaxParcels);
}

std::vector<std::int64_t> lengths_of(const Case& c) {
  return c.lengths.empty() ? std::vector<std::int64_t>(static_cast<std::size_t>(c.batch), c.length)
                           : c.lengths;
}

Case parse_case(std::string_view line) {
  require_line_length(line.size(), "the case line");
  LineReader reader(line);
  Case c;
  if (reader.at_end()) throw InvalidCase("an empty line: the first word of a case is its law");
  const std::string_view law = reader.word();
  if (!is_name(law))
    throw InvalidCase(
        fmt::format("'{}': the first word of a case is its law, a name in lower-case words", shown(law)));
  c.law = law;
  std::set<std::string, std::less<>> seen;
  while (!reader.at_end()) {
    const std::string_view key = reader.key();
    const Field& field = field_named(key);
    const std::string value = reader.value(key);
    if (!seen.insert(field.key).second)
      throw InvalidCase(fmt::format("{}={}: the key is given twice", key, shown(value)));
    field.set(c, value);
  }
  require_consistent(c);
  // Escapes may make the canonical spelling longer than the line that was read.
  require_line_length(print_case(c).size(), "the canonical case line");
  return c;
}

std::string print_case(const Case& c) {
  static const Case defaults;
  std::string line = c.law;
  for (const Field& field : fields()) {
    const std::string value = field.get(c);
    if (value != field.get(defaults)) line += fmt::format(" {}={}", field.key, spelled(value));
  }
  return line;
}

Contract contract_of(const Case& c) {
  try {
    return contract_for(c.geometry, {.shape = c.tree_shape,
                                     .degrees = c.degrees,
                                     .leaf = c.leaf,
                                     .key_block = c.key_block,
                                     .storage = c.dtype});
  } catch (const std::invalid_argument& refusal) {
    throw InvalidCase(refusal.what());
  }
}

std::string_view to_string(EffectiveKind kind) noexcept {
  switch (kind) {
    case EffectiveKind::none:
      return "none";
    case EffectiveKind::quantized:
      return "quantized";
    case EffectiveKind::adapter:
      return "adapter";
    case EffectiveKind::state_space:
      return "state_space";
    case EffectiveKind::latent:
      return "latent";
    case EffectiveKind::gradient:
      return "gradient";
    case EffectiveKind::optimizer:
      return "optimizer";
    case EffectiveKind::container:
      return "container";
  }
  return "unknown";
}

const std::vector<CaseKey>& case_keys() {
  static const std::vector<CaseKey> keys = [] {
    std::vector<CaseKey> list;
    for (const Field& field : fields()) list.push_back({field.key, field.allowed, field.get(Case{})});
    return list;
  }();
  return keys;
}

void set_case_key(Case& c, std::string_view key, std::string_view value) { field_named(key).set(c, value); }

std::string get_case_key(const Case& c, std::string_view key) { return field_named(key).get(c); }

}  // namespace shardcheck
