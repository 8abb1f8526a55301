#include "law_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

namespace shardcheck {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Where a fingerprint element came from, or its bits.
std::string origin_of(const Geometry& geometry, const Tensor& tensor, std::int64_t index) {
  const auto bits = static_cast<std::uint32_t>(tensor.bits(index));
  if (tensor.dtype() != DType::f32) return fmt::format("bits 0x{:04x}", bits);
  if (const auto origin = decode_fingerprint(geometry, bits))
    return fmt::format("{}[{}]", origin->tensor, origin->index);
  return fmt::format("bits 0x{:08x}", bits);
}

std::string kind_of(const Tensor& tensor) {
  return fmt::format("{} {}", short_name(tensor.dtype()), to_string(tensor.shape()));
}

Difference difference_at(const Layout& layout, const std::string& name) {
  Difference d;
  d.parameter = name;
  d.target_degree = layout.degree;
  return d;
}

/// Fills in what stands at the first differing element, or that the kinds differ.
void compare_elements(const Geometry& geometry, const Tensor& expected, const Tensor& actual, Difference& d) {
  if (expected.shape() != actual.shape() || expected.dtype() != actual.dtype()) {
    d.expected = kind_of(expected);
    d.actual = kind_of(actual);
    return;
  }
  d.worst_index = expected.first_difference(actual);
  d.worst_place = d.parameter + coordinates(expected.shape(), d.worst_index);
  d.expected = origin_of(geometry, expected, d.worst_index);
  d.actual = origin_of(geometry, actual, d.worst_index);
}

std::optional<Difference> first_tensor_difference(const Layout& layout, const TensorMap& expected,
                                                  const TensorMap& actual) {
  for (const auto& [name, tensor] : expected) {
    Difference d = difference_at(layout, name);
    const auto found = actual.find(name);
    if (found == actual.end()) {
      d.expected = kind_of(tensor);
      d.actual = "nothing";
      return d;
    }
    if (tensor.same_bytes(found->second)) continue;
    compare_elements(layout.geometry, tensor, found->second, d);
    return d;
  }
  for (const auto& [name, tensor] : actual) {
    if (expected.contains(name)) continue;
    Difference d = difference_at(layout, name);
    d.expected = "nothing";
    d.actual = kind_of(tensor);
    return d;
  }
  return std::nullopt;
}

Outcome failure(std::string_view claim, const Difference& d) {
  const std::string rank = d.rank < 0 ? "" : fmt::format(" on rank {} of {}", d.rank, d.target_degree);
  const std::string place = d.worst_place.empty() ? "" : fmt::format(" at {}", d.worst_place);
  return Outcome::fail(
      fmt::format("{}: {}{} holds {}{}, expected {}", claim, d.parameter, rank, d.actual, place, d.expected),
      d);
}

}  // namespace

Digest& Digest::add(std::string_view bytes) {
  value_ = stream_key(value_ + bytes.size(), bytes);
  return *this;
}

Digest& Digest::add(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  return add(text_of(std::as_bytes(std::span(&bits, 1))));
}

Digest& Digest::add(const Tensor& tensor) { return add(kind_of(tensor)).add(text_of(tensor.bytes())); }

Digest& Digest::add(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) add(name).add(tensor);
  return *this;
}

Digest& Digest::add(const ShardedTensors& shards) {
  for (const auto& [name, ranks] : shards) {
    add(name);
    for (const Tensor& tensor : ranks) add(tensor);
  }
  return *this;
}

Outcome with_digest(Outcome outcome, const Digest& digest) {
  outcome.digest = digest.value();
  return outcome;
}

TensorMap fingerprints_of(const Case& c) {
  return make_weights(c.geometry, WeightStyle::fingerprint, c.seed, c.dtype);
}

Outcome same_shards(std::string_view claim, const Layout& layout, const ShardedTensors& expected,
                    const ShardedTensors& actual) {
  std::optional<Difference> d = Workbench::first_difference(layout, expected, actual);
  if (!d) return Outcome::pass();
  if (d->worst_index >= 0) {
    const auto rank = static_cast<std::size_t>(d->rank);
    compare_elements(layout.geometry, expected.find(d->parameter)->second.at(rank),
                     actual.find(d->parameter)->second.at(rank), *d);
  }
  return failure(claim, *d);
}

Outcome same_tensors(std::string_view claim, const Layout& layout, const TensorMap& expected,
                     const TensorMap& actual) {
  const std::optional<Difference> d = first_tensor_difference(layout, expected, actual);
  return d ? failure(claim, *d) : Outcome::pass();
}

std::vector<std::int64_t> count_codes(const Geometry& geometry, const ShardedTensors& shards) {
  std::size_t codes = 1;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    codes += static_cast<std::size_t>(element_count(tensor.shape));
  }
  std::vector<std::int64_t> counts(codes);
  for (const auto& [name, ranks] : shards) {
    for (const Tensor& tensor : ranks) {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const std::uint64_t code = tensor.bits(i);
        ++counts[code < codes ? code : 0];
      }
    }
  }
  return counts;
}

Outcome reshard_equals_detour(std::string_view claim, const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const ShardedTensors shards = subject.split(fingerprints_of(c), source);
  const ShardedTensors direct = subject.reshard(shards, source, target);
  const ShardedTensors detour = subject.split(subject.gather(shards, source), target);
  Outcome outcome = same_shards(claim, target, detour, direct);
  if (outcome.difference) outcome.difference->source_degree = source.degree;
  return with_digest(std::move(outcome), Digest().add(direct).add(detour));
}

Outcome same_logits(std::string_view claim, const Case& c, const Tensor& expected, const Tensor& actual) {
  const Comparison comparison = compare_logits(expected, actual);
  if (!comparison.vacuous.empty()) return Outcome::of(Verdict::vacuous, comparison.vacuous);
  if (comparison.differing_bits == 0) return Outcome::pass();
  Difference d;
  d.source_degree = c.source.tp_degree();
  d.target_degree = c.target.tp_degree();
  d.max_abs = comparison.max_abs;
  d.worst_index = comparison.worst_index;
  d.worst_place = "logits" + coordinates(expected.shape(), d.worst_index);
  d.expected = fmt::format("{:.9g}", comparison.expected);
  d.actual = fmt::format("{:.9g}", comparison.actual);
  return Outcome::fail(fmt::format("{}: {} of {} logits differ in their bits, the worst by {:.4g}", claim,
                                   comparison.differing_bits, expected.elements(), comparison.max_abs),
                       d);
}

namespace {

/// First tensor of a layout that is stored as equal shares; empty when there is none, or no such layout: what
/// that means is for the law to say.
std::string equal_shares_in(const LayoutName& name, const Geometry& geometry) {
  try {
    for (const LayoutEntry& entry : make_layout(name, geometry).entries) {
      const auto* partial = std::get_if<Partial>(&entry.placed.placement());
      if (partial != nullptr && partial->encoding == Partial::Encoding::equal_share) return entry.name;
    }
  } catch (const UnsupportedLayout&) {
    return {};
  }
  return {};
}

}  // namespace

std::optional<std::string> why_shares_are_inexact(const Case& c, bool fingerprints) {
  if (!fingerprints && c.arithmetic == Arithmetic::native && c.dtype == DType::f32) return std::nullopt;
  for (const LayoutName* name : {&c.source, &c.via, &c.target}) {
    const auto degree = static_cast<unsigned>(name->tp_degree());
    if (degree == 1 || (std::has_single_bit(degree) && !fingerprints)) continue;
    const std::string tensor = equal_shares_in(*name, c.geometry);
    if (tensor.empty()) continue;
    return fmt::format("{} divides {} by {}, which rounds{}", to_string(*name), tensor, degree,
                       fingerprints ? " the bits that say where an element belongs" : ": bits cannot agree");
  }
  return std::nullopt;
}

Oracle oracle_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::native:
      return Oracle::native;
    case Arithmetic::tree:
      return Oracle::tree;
    case Arithmetic::exact:
      return Oracle::exact;
  }
  return Oracle::native;
}

Case draw_for(std::string_view law, Stream& stream, const DrawOptions& options) {
  Case c = draw_case(stream, options);
  c.law = law;
  return c;
}

Case draw_where(std::string_view law, Stream& stream, const DrawOptions& options,
                bool (*wanted)(const Case&)) {
  constexpr int kAttempts = 16;
  Case c;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    c = draw_for(law, stream, options);
    if (wanted(c)) break;
  }
  return c;
}

std::vector<std::int64_t> shuffled(Stream& stream, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  stream.shuffle(std::span(order));
  return order;
}

bool target_is_sharded(const Case& c) { return c.target.tp_degree() > 1; }

namespace {

/// Values of all parameters whose name ends so.
std::vector<float> values_of(const TensorMap& weights, std::string_view suffix) {
  std::vector<float> values;
  for (const auto& [name, tensor] : weights) {
    if (!name.ends_with(suffix)) continue;
    const Tensor wide = tensor.to(DType::f32);
    values.insert(values.end(), wide.f32().begin(), wide.f32().end());
  }
  return values;
}

double standard_deviation(const std::vector<float>& values) {
  double sum = 0.0, squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto n = static_cast<double>(values.size());
  return values.empty() ? 0.0 : std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
}

}  // namespace

void label_weights(const TensorMap& weights, std::vector<std::string>& labels) {
  constexpr double kSpread = 0.25;  // half of what powered weights have
  if (standard_deviation(values_of(weights, "norm")) >= kSpread) labels.emplace_back("norms_spread");
  const std::vector<float> biases = values_of(weights, "bias");
  const bool any_zero = std::ranges::find(biases, 0.0F) != biases.end();
  if (!biases.empty() && !any_zero) labels.emplace_back("nonzero_biases");
}

std::vector<LabelShare> byte_shares() {
  return {{"target_degree>1", 0.4}, {"source!=target", 0.4}, {"groups>=2x2", 0.3},
          {"uneven", 0.05},         {"two_tables", 0.2},     {"square", 0.1}};
}

std::vector<LabelShare> forward_shares() {
  return {{"target_degree>1", 0.4},
          {"source!=target", 0.4},
          {"groups>=2x2", 0.3},
          {"uneven", 0.05},
          {"two_tables", 0.2},
          {"square", 0.1},
          {"rope", 0.2},
          {"bias", 0.1},
          {"qk_norm", 0.1},
          {"tied", 0.08},
          {"fused", 0.3},
          {"heads_not_power_of_two", 0.2},
          {"distinct_widths", 0.4},
          {"powered_weights", 1.0},
          {"tokens>=32", 1.0}};
}

Outcome text_round_trips(const Case& c, const PrintCase& print, const ParseCase& parse) {
  Digest digest;
  const auto check = [&](const Case& value, std::string_view what) -> std::optional<Outcome> {
    const std::string line = print(value);
    digest.add(line);
    try {
      const Case back = parse(line);
      if (back == value && print(back) == line) return std::nullopt;
      return Outcome::fail(fmt::format("{} reads back as another case: {}", what, print(back)));
    } catch (const InvalidCase& refusal) {
      return Outcome::fail(fmt::format("{} is refused: {}", what, refusal.what()));
    }
  };
  if (auto wrong = check(c, "the printed case")) return *wrong;
  Outcome outcome;
  if (!c.input.empty()) {
    try {
      const Case parsed = parse(c.input);
      outcome.labels.emplace_back("text_is_a_case");
      if (auto wrong = check(parsed, "the case that the text spells")) return *wrong;
    } catch (const InvalidCase&) {
      outcome.labels.emplace_back("text_is_refused");
    }
  }
  return with_digest(std::move(outcome), digest);
}

}  // namespace shardcheck
