// Mistakes where they are hardest to see: near-equal weights, one of many, the end of what is long.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "shardcheck/mutators/counted_work.h"
#include "shardcheck/properties/detection_power.h"

namespace shardcheck {
namespace {

using Edit = void (*)(const Geometry& geometry, TensorMap& weights);

/// What a hard place is made of: the weights as drawn, `prepare`d, are the right ones; `damage` is the
/// mistake, and acts on fingerprints too.
struct Place {
  std::string_view name;
  std::string_view mistake;
  Case (*value)() = nullptr;
  Edit prepare = nullptr;
  Edit damage = nullptr;
  bool reaches_logits = true;
};

void nudge(float& value) { value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + 1U); }

std::span<float> rows_of(Tensor& tensor, std::int64_t first, std::int64_t count) {
  const auto width = static_cast<std::size_t>(tensor.elements() / tensor.dim(0));
  return tensor.mutable_f32().subspan(static_cast<std::size_t>(first) * width,
                                      static_cast<std::size_t>(count) * width);
}

void copy_rows(Tensor& tensor, std::int64_t from, std::int64_t to, std::int64_t count) {
  std::ranges::copy(rows_of(tensor, from, count), rows_of(tensor, to, count).begin());
}

void exchange_rows(Tensor& tensor, std::int64_t a, std::int64_t b, std::int64_t count) {
  std::ranges::swap_ranges(rows_of(tensor, a, count), rows_of(tensor, b, count));
}

Tensor& of(TensorMap& weights, std::string_view role, std::int64_t layer = -1, std::int64_t expert = -1) {
  return weights.find(logical_name(role, layer, expert))->second;
}

constexpr std::array<std::string_view, 3> kExpertRoles = {"expert_gate", "expert_up", "expert_down"};

// The cases.

Case small_llama() {
  Case c;
  c.law = "sharded_equals_reference";
  c.geometry = {
      .d_model = 40, .n_layers = 2, .n_heads = 12, .n_kv_heads = 4, .head_dim = 6, .ffn = 56, .vocab = 101};
  c.geometry.rope = Rope::half;
  c.source.axes = {{"tp", 4}};
  c.target.axes = {{"tp", 2}};
  c.length = 36;
  c.seed = 11;
  return c;
}

Case deep_llama() {
  Case c = small_llama();
  c.geometry.n_layers = 24;
  return c;
}

Case many_heads() {
  Case c = small_llama();
  c.geometry.n_heads = 64;
  c.geometry.n_kv_heads = 8;
  c.geometry.head_dim = 4;
  return c;
}

Case few_experts() {
  Case c = small_llama();
  c.geometry.n_experts = 4;
  c.geometry.expert_ffn = 24;
  return c;
}

Case many_experts() {
  Case c = few_experts();
  c.geometry.n_layers = 1;
  c.geometry.n_experts = 64;
  c.batch = 2;
  c.length = 128;
  return c;
}

Case long_text() {
  Case c = small_llama();
  c.geometry.n_layers = 1;
  c.geometry.n_heads = c.geometry.n_kv_heads = 2;
  c.geometry.positions = 640;
  c.source.axes.clear();
  c.length = 640;
  return c;
}

Case short_text() {
  Case c = long_text();
  c.length = 64;
  return c;
}

// The weights that are right, and the mistakes.

void twin_heads(const Geometry& g, TensorMap& weights) {
  Tensor& q = of(weights, "q", 0);
  copy_rows(q, 0, g.head_dim, g.head_dim);
  for (float& value : rows_of(q, g.head_dim, g.head_dim)) nudge(value);
}

void exchange_first_heads(const Geometry& g, TensorMap& weights) {
  exchange_rows(of(weights, "q", 0), 0, g.head_dim, g.head_dim);
}

void twin_experts(const Geometry&, TensorMap& weights) {
  for (const std::string_view role : kExpertRoles) {
    Tensor& second = of(weights, role, 0, 1);
    second = of(weights, role, 0, 0);
    for (float& value : second.mutable_f32()) nudge(value);
  }
}

void exchange_first_experts(const Geometry&, TensorMap& weights) {
  for (const std::string_view role : kExpertRoles)
    std::swap(of(weights, role, 0, 0), of(weights, role, 0, 1));
}

void nudge_o_proj(const Geometry&, TensorMap& weights) { nudge(of(weights, "o_proj", 0).mutable_f32()[7]); }

void exchange_gate_and_up_of_last_layer(const Geometry& g, TensorMap& weights) {
  std::swap(of(weights, "gate", g.n_layers - 1), of(weights, "up", g.n_layers - 1));
}

void nudge_down_of_last_layer(const Geometry& g, TensorMap& weights) {
  nudge(of(weights, "down", g.n_layers - 1).mutable_f32()[7]);
}

void repeat_a_head(const Geometry& g, TensorMap& weights) {
  copy_rows(of(weights, "q", 0), 62 * g.head_dim, 63 * g.head_dim, g.head_dim);
}

void repeat_an_expert(const Geometry&, TensorMap& weights) {
  for (const std::string_view role : kExpertRoles) of(weights, role, 0, 63) = of(weights, role, 0, 62);
}

void repeat_last_head_row(const Geometry& g, TensorMap& weights) {
  copy_rows(of(weights, "lm_head"), g.vocab - 2, g.vocab - 1, 1);
}

void nudge_last_head_row(const Geometry& g, TensorMap& weights) {
  for (float& value : rows_of(of(weights, "lm_head"), g.vocab - 1, 1)) nudge(value);
}

void shift_late_positions(const Geometry& g, TensorMap& weights) {
  Tensor& table = of(weights, "positions");
  for (std::int64_t row = 512; row + 1 < g.positions; ++row) copy_rows(table, row + 1, row, 1);
}

const std::vector<Place>& places() {
  static const std::vector<Place> all = {
      {"two near-equal heads", "Two query heads that differ by 1 ULP in each weight are exchanged.",
       small_llama, twin_heads, exchange_first_heads},
      {"two near-equal experts", "Two of 4 experts that differ by 1 ULP in each weight are exchanged.",
       few_experts, twin_experts, exchange_first_experts},
      {"one element", "One weight of the first output projection is off by 1 ULP.", small_llama, nullptr,
       nudge_o_proj},
      {"last layer of 24", "Gate and up are exchanged in the last of 24 layers.", deep_llama, nullptr,
       exchange_gate_and_up_of_last_layer},
      {"one element of the last layer of 24", "One weight of the last down projection is off by 1 ULP.",
       deep_llama, nullptr, nudge_down_of_last_layer},
      {"one head of 64", "Head 63 holds the query rows of head 62.", many_heads, nullptr, repeat_a_head},
      {"one expert of 64", "Expert 63 holds the weights of expert 62; 256 tokens, 2 experts each.",
       many_experts, nullptr, repeat_an_expert},
      {"last vocabulary row", "The last row of the head repeats the one before.", small_llama, nullptr,
       repeat_last_head_row},
      {"last vocabulary row by 1 ULP", "Each weight of the last row of the head is off by 1 ULP.",
       small_llama, nullptr, nudge_last_head_row},
      {"positions beyond 512", "Position embeddings from row 512 on are one row late; a text of 640 tokens.",
       long_text, nullptr, shift_late_positions},
      {"positions beyond 512, short text", "The same; a text of 64 tokens.", short_text, nullptr,
       shift_late_positions, false},
  };
  return all;
}

/// Splits damaged weights, whatever they are.
class DamagedWeights final : public Subject {
 public:
  DamagedWeights(const Geometry& geometry, Edit damage) : geometry_(geometry), damage_(damage) {}
  ShardedTensors split(const TensorMap& full, const Layout& target) override {
    TensorMap wrong = full;
    damage_(geometry_, wrong);
    return Subject::split(wrong, target);
  }

 private:
  const Geometry& geometry_;
  Edit damage_;
};

HardPlace measure(const Place& place) {
  const Case c = place.value();
  TensorMap weights = make_weights(c.geometry, c.weights, c.seed, c.dtype);
  if (place.prepare != nullptr) place.prepare(c.geometry, weights);
  Workbench bench(c, std::move(weights), make_tokens(c.geometry, c.batch, c.length, 10000 + c.seed));
  DamagedWeights subject(c.geometry, place.damage);
  return {.name = place.name,
          .mistake = place.mistake,
          .case_line = print_case(c),
          .reaches_logits = place.reaches_logits,
          .layout = bench.judge(Oracle::layout, subject),
          .exact = bench.judge(Oracle::exact, subject),
          .native = bench.judge(Oracle::native, subject)};
}

}  // namespace

std::vector<std::string> HardPlace::problems() const {
  std::vector<std::string> found;
  if (layout.verdict != Verdict::failed)
    found.push_back(fmt::format("{}: layout says {}", name, to_string(layout.verdict)));
  if (!reaches_logits && (exact.verdict == Verdict::failed || native.verdict == Verdict::failed))
    found.push_back(fmt::format("{}: logits differ that cannot", name));
  return found;
}

std::vector<HardPlace> measure_hard_places(const PowerOptions& options) {
  std::vector<HardPlace> results(places().size());
  do_counted(results.size(), options.jobs, options.progress, "hard places",
             [&](std::size_t i) { results[i] = measure(places()[i]); });
  return results;
}

}  // namespace shardcheck
