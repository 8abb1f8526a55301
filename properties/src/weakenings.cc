// The weakenings: what people compare instead, each with where it was seen.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "shardcheck/properties/weakening.h"
#include "shardcheck/text/nearest_name.h"

namespace shardcheck {
namespace {

// What is looked at in place of every byte.

bool same_bytes(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return x.same_bytes(y); });
}

/// Whether a pair of equally named tensors that `differs` is there; a tensor that is missing differs.
template <typename Differs>
bool any_pair(const ShardedTensors& right, const ShardedTensors& held, const Differs& differs) {
  return std::ranges::any_of(right, [&](const auto& entry) {
    const auto found = held.find(entry.first);
    return found == held.end() || found->second.size() != entry.second.size() ||
           differs(entry.second, found->second);
  });
}

bool sees_shapes(const ShardedTensors& right, const ShardedTensors& held, bool) {
  return any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return !std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) {
      return x.shape() == y.shape() && x.dtype() == y.dtype();
    });
  });
}

bool sees_matrices(const ShardedTensors& right, const ShardedTensors& held, bool) {
  return any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return a.front().rank() > 1 && !same_bytes(a, b);
  });
}

bool sees_rank_zero(const ShardedTensors& right, const ShardedTensors& held, bool) {
  return any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return !a.front().same_bytes(b.front());
  });
}

/// Sum and sum of magnitudes over all ranks. Fingerprints are no numbers and are not summed.
std::pair<double, double> sum_of(const std::vector<Tensor>& ranks) {
  double sum = 0.0, magnitude = 0.0;
  for (const Tensor& tensor : ranks) {
    const Tensor values = tensor.to(DType::f32);
    for (const float value : values.f32()) {
      sum += value;
      magnitude += std::fabs(value);
    }
  }
  return {sum, magnitude};
}

bool can_be_summed(const std::vector<Tensor>& ranks) {
  return std::ranges::all_of(ranks, [](const Tensor& tensor) { return is_forward_dtype(tensor.dtype()); });
}

bool sees_sums(const ShardedTensors& right, const ShardedTensors& held, bool fingerprints) {
  constexpr double kRelative = 1e-6;
  return !fingerprints &&
         any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
           if (!can_be_summed(a) || !can_be_summed(b)) return !same_bytes(a, b);
           const auto [expected, magnitude] = sum_of(a);
           return !(std::fabs(sum_of(b).first - expected) <= kRelative * magnitude);
         });
}

/// Rows of dimension 0 of all ranks, sorted.
std::vector<std::string> sorted_rows(const std::vector<Tensor>& ranks) {
  std::vector<std::string> rows;
  for (const Tensor& tensor : ranks) {
    const auto bytes = tensor.bytes();
    const auto count = static_cast<std::size_t>(tensor.rank() == 0 ? 1 : tensor.dim(0));
    const std::size_t size = count == 0 ? 0 : bytes.size() / count;
    for (std::size_t i = 0; i < count; ++i)
      rows.emplace_back(reinterpret_cast<const char*>(bytes.data()) + i * size, size);
  }
  std::ranges::sort(rows);
  return rows;
}

bool sees_rows(const ShardedTensors& right, const ShardedTensors& held, bool) {
  return any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return sorted_rows(a) != sorted_rows(b);
  });
}

/// The distinct elements of all ranks.
std::vector<std::uint64_t> elements_in(const std::vector<Tensor>& ranks) {
  std::vector<std::uint64_t> elements;
  for (const Tensor& tensor : ranks) {
    if (size_bits(tensor.dtype()) < 8) continue;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) elements.push_back(tensor.bits(i));
  }
  std::ranges::sort(elements);
  elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  return elements;
}

/// A gather that inverts the wrong split exists as long as no element is lost.
bool sees_lost_elements(const ShardedTensors& right, const ShardedTensors& held, bool) {
  return any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return elements_in(a) != elements_in(b);
  });
}

bool sees_any_weight(const ShardedTensors& right, const ShardedTensors& held, bool fingerprints) {
  return !fingerprints &&
         any_pair(right, held, [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
           return !same_bytes(a, b);
         });
}

// What is looked at in place of every logit.

std::vector<std::ptrdiff_t> greedy_tokens(const Tensor& logits) {
  std::vector<std::ptrdiff_t> tokens;
  const auto width = static_cast<std::size_t>(logits.dim(1));
  for (std::int64_t row = 0; row < logits.dim(0); ++row) {
    const auto values = logits.f32().subspan(static_cast<std::size_t>(row) * width, width);
    tokens.push_back(std::ranges::max_element(values) - values.begin());
  }
  return tokens;
}

bool sees_greedy_tokens(const Tensor& reference, const std::vector<Tensor>& logits, const Threshold&) {
  return greedy_tokens(reference) != greedy_tokens(logits.front());
}

bool deviates(const Tensor& reference, const std::vector<Tensor>& logits, double threshold) {
  return !(compare_ranks(reference, logits).worst.max_abs < threshold);
}

bool sees_beyond_a_thousand(const Tensor& reference, const std::vector<Tensor>& logits,
                            const Threshold& native) {
  return deviates(reference, logits, 1000.0 * native.value);
}

/// The rule 10^ceil(log10(100 x worst)) at the floor of bf16, whose unit roundoff is 2^16 times that of f32.
bool sees_beyond_power_of_ten(const Tensor& reference, const std::vector<Tensor>& logits,
                              const Threshold& native) {
  const double floor = native.floor * 0x1p16;
  return deviates(reference, logits, std::pow(10.0, std::ceil(std::log10(100.0 * floor))));
}

// The cases and weights that are looked at.

void one_token(Case& c) {
  c.batch = c.length = 1;
  c.lengths.clear();
  c.chunks.clear();
}

void short_prompt(Case& c) {
  one_token(c);
  c.length = 4;
}

void one_rank(Case& c) {
  for (LayoutName* name : {&c.source, &c.target}) *name = {name->table, {}};
  c.context_ends.clear();
  c.sequence_parallel = false;
}

void equal_layouts(Case& c) { c.source = c.target; }

/// One width for everything but the vocabulary, as many KV heads as heads.
void equal_widths(Case& c) {
  Geometry& g = c.geometry;
  g.n_kv_heads = g.n_heads;
  g.d_model = g.ffn = g.attention_width();
  if (g.expert_ffn > 0) g.expert_ffn = g.attention_width();
  if (g.shared_ffn > 0) g.shared_ffn = g.attention_width();
}

void initialise_by_default(const Case&, TensorMap& weights) {
  for (auto& [name, tensor] : weights) {
    const bool is_norm = name.ends_with("norm");
    if (!is_norm && !name.ends_with("bias")) continue;
    Tensor values = Tensor::zeros(DType::f32, tensor.shape());
    std::ranges::fill(values.mutable_f32(), is_norm ? 1.0F : 0.0F);
    tensor = values.to(tensor.dtype());
  }
}

/// The version that faults of synchronisation leave behind is the next seed's.
void keep_the_version_before(const Case& c, TensorMap& weights) {
  weights = make_weights(c.geometry, c.weights, c.seed + 1, c.dtype);
}

/// Hands shards over as they are where nothing has to move.
class PassesThrough final : public SubjectDecorator {
 public:
  using SubjectDecorator::SubjectDecorator;
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    return source.name == target.name ? shards : inner().reshard(shards, source, target);
  }
};

std::shared_ptr<Subject> passing_through(std::shared_ptr<Subject> inner) {
  return std::make_shared<PassesThrough>(std::move(inner));
}

std::vector<Weakening> weakenings_of_shards() {
  return {
      {.name = "shapes_and_dtypes",
       .oracle = Oracle::layout,
       .weakened = "Names, shapes and dtypes of the shards are compared, and no value.",
       .practice = "loaders that accept what fits; key and shape match as the first phase (maxtext PR#1839)",
       .sees_shards = sees_shapes},
      {.name = "skip_norms_and_biases",
       .oracle = Oracle::layout,
       .weakened = "Vectors, that is norm weights, biases and sinks, are not compared.",
       .practice = "Megatron's refit test by its defaults; weight checked, its bias or scale not",
       .sees_shards = sees_matrices},
      {.name = "sums",
       .oracle = Oracle::layout,
       .weakened = "Of each parameter the sum over all ranks is compared, within one part in a million.",
       .practice = "exported against original by shape and sum (verl#3057); additive checksums",
       .sees_shards = sees_sums},
      {.name = "row_multisets",
       .oracle = Oracle::layout,
       .weakened = "Of each parameter the rows of all ranks are compared as a multiset.",
       .practice = "per-row multiset of a fused all-gather (nnsight PR#719)",
       .sees_shards = sees_rows},
      {.name = "round_trip",
       .oracle = Oracle::layout,
       .weakened = "A gather that inverts the split gives every element back.",
       .practice = "split and gather exact inverses of each other, both wrong (nnsight PR#719)",
       .sees_shards = sees_lost_elements},
      {.name = "rank_zero",
       .oracle = Oracle::layout,
       .weakened = "Rank 0 alone is compared.",
       .practice = "a gather that takes replicas from rank 0; checks that log on the first rank",
       .sees_shards = sees_rank_zero},
      {.name = "equal_layouts",
       .oracle = Oracle::layout,
       .weakened = "Source and target layout are the same, so that shards are handed over as they are.",
       .practice = "recipes that never leave the diagonal (Megatron-Bridge PR#5635)",
       .look_at = equal_layouts,
       .run_as = passing_through,
       .judge = Oracle::layout},
      {.name = "target_not_randomised",
       .oracle = Oracle::layout,
       .weakened = "The target holds the version that is sent already.",
       .practice = "an update to the weights the model already has (sglang PR#18306); vllm#52689 has a reset",
       .reweigh = keep_the_version_before,
       .sees_shards = sees_any_weight},
      {.name = "sampled_logits",
       .oracle = Oracle::layout,
       .weakened = "Logits of a prompt of 4 tokens are compared in place of the shards, within the measured "
                   "threshold.",
       .practice =
           "a short prompt as the check of a conversion; zero difference on sampled tokens (SkyRL#2201)",
       .look_at = short_prompt,
       .judge = Oracle::native},
  };
}

std::vector<Weakening> weakenings_of_logits() {
  return {
      {.name = "one_token",
       .oracle = Oracle::tree,
       .weakened = "The input is one token.",
       .practice = "smoke tests of a forward pass; one position has no neighbours to attend to",
       .look_at = one_token,
       .judge = Oracle::tree},
      {.name = "default_initialisation",
       .oracle = Oracle::tree,
       .weakened = "Norm weights are ones and biases zeros.",
       .practice = "tests on freshly initialised models",
       .reweigh = initialise_by_default,
       .judge = Oracle::tree},
      {.name = "equal_widths",
       .oracle = Oracle::tree,
       .weakened = "All widths but the vocabulary are equal and every query head has a KV head of its own.",
       .practice =
           "hidden == inter == 2880 hid a missing transpose (slime#1840, unsloth-zoo PR#913); MHA models "
           "as the only test",
       .look_at = equal_widths,
       .judge = Oracle::tree},
      {.name = "one_rank",
       .oracle = Oracle::tree,
       .weakened = "Source and target have one rank.",
       .practice = "debug checks at tp=1 only (verl#6414)",
       .look_at = one_rank,
       .judge = Oracle::tree},
      {.name = "greedy_tokens",
       .oracle = Oracle::tree,
       .weakened = "The most likely token of each position is compared.",
       .practice = "coherent greedy text (vllm#49122), greedy decode (torchtitan PR#1540), 99.73 % argmax "
                   "agreement (swiss-ai/Megatron-LM PR#52)",
       .sees_logits = sees_greedy_tokens},
      {.name = "tolerance_times_1000",
       .oracle = Oracle::native,
       .weakened = "The threshold is 1000 times as large.",
       .practice = "atol and rtol of 0.5 (maxtext PR#2903); tolerances raised until a test passes",
       .sees_logits = sees_beyond_a_thousand},
      {.name = "power_of_ten_in_bf16",
       .oracle = Oracle::native,
       .weakened = "The threshold is the power of ten above 100 times the floor of bf16.",
       .practice = "a rule for f32 floors carried over to bf16; \"floating point is not associative\" "
                   "(Megatron-DeepSpeed#338)",
       .sees_logits = sees_beyond_power_of_ten},
  };
}

}  // namespace

const std::vector<Weakening>& all_weakenings() {
  static const std::vector<Weakening> all = [] {
    std::vector<Weakening> list = weakenings_of_shards();
    std::ranges::move(weakenings_of_logits(), std::back_inserter(list));
    return list;
  }();
  return all;
}

const Weakening& weakening_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Weakening& weakening : all_weakenings()) {
    if (weakening.name == name) return weakening;
    names.emplace_back(weakening.name);
  }
  const std::string near = nearest_name(name, names);
  std::string allowed;
  for (const std::string& known : names) allowed += (allowed.empty() ? "" : ", ") + known;
  throw InvalidInput("weakening '" + std::string(name) + "' is not known; " +
                     (near.empty() ? "" : "did you mean " + near + "? ") + "allowed: " + allowed);
}

}  // namespace shardcheck
