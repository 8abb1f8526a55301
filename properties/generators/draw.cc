#include <algorithm>
#include <array>
#include <numeric>

#include "layout_probe.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

// Lists instead of formulas where the weight of a value matters: a repeated entry is drawn more often.
const std::vector<std::int64_t> kKvHeads = {1, 2, 2, 3, 3, 4, 4, 5, 6, 6, 6, 7, 8};
const std::vector<std::int64_t> kHeadsPerGroup = {1, 2, 2, 3, 3, 4};
const std::vector<std::int64_t> kHeadDims = {4, 4, 6, 8, 8, 10, 12};
const std::vector<std::string> kTables = {"seed", "seed", "hf-llama", "vllm-llama"};
constexpr std::int64_t kMaxHeads = 16;
constexpr std::int64_t kMaxWidth = 96;
constexpr std::int64_t kMaxVocab = 200;
constexpr int kMaxDegree = 8;

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

void draw_heads(Stream& stream, Geometry& g) {
  g.n_kv_heads = stream.pick(kKvHeads);
  const std::int64_t group = stream.pick(kHeadsPerGroup);
  g.n_heads = g.n_kv_heads * std::min(group, kMaxHeads / g.n_kv_heads);
  const std::int64_t head_dim = stream.pick(kHeadDims);
  // Even, so that RoPE can pair, and narrow enough for d_model to match the attention width.
  g.head_dim = std::max<std::int64_t>(2, std::min(head_dim, kMaxWidth / g.n_heads / 2 * 2));
}

/// Widths whose least common unit is the KV head count, so that several degrees divide them; one in eight
/// is free and often admits degree 1 only.
std::int64_t draw_ffn(Stream& stream, const Geometry& g) {
  if (stream.chance(1, 8)) return stream.integer(8, kMaxWidth);
  return g.n_kv_heads * stream.integer((8 + g.n_kv_heads - 1) / g.n_kv_heads, kMaxWidth / g.n_kv_heads);
}

/// Which dimension equals another: a transpose or a wrong dimension is silent only on a square tensor.
enum class Square { none, attention, down };

Square draw_square(Stream& stream) {
  if (!stream.chance(1, 3)) return Square::none;
  return stream.chance(1, 2) ? Square::attention : Square::down;
}

/// Moves d_model until it equals no other extent; at most one step per extent.
void separate_d_model(Geometry& g) {
  const auto taken = [&g](std::int64_t width) {
    return width == g.attention_width() || width == g.kv_width() || width == g.ffn || width == g.vocab;
  };
  while (taken(g.d_model)) ++g.d_model;
}

/// Makes ffn differ from the attention and KV widths without losing the degrees that divide it.
void separate_ffn(Geometry& g) {
  const std::int64_t unit = g.ffn % g.n_kv_heads == 0 ? g.n_kv_heads : 1;
  while (g.ffn == g.attention_width() || g.ffn == g.kv_width()) g.ffn += unit;
}

void draw_widths(Stream& stream, Geometry& g) {
  g.ffn = draw_ffn(stream, g);
  g.vocab = stream.integer(kMaxWidth + 16, kMaxVocab);
  g.d_model = stream.integer(8, kMaxWidth);
  separate_ffn(g);
  switch (draw_square(stream)) {
    case Square::none:
      separate_d_model(g);
      break;
    case Square::attention:
      g.d_model = g.attention_width();
      break;
    case Square::down:
      g.d_model = g.ffn;
      break;
  }
}

void draw_features(Stream& stream, Geometry& g) {
  g.n_layers = stream.pick<std::int64_t>({1, 1, 2, 2, 3});
  if (stream.chance(1, 2)) {
    g.rope = Rope::half;
    g.rope_theta = stream.pick<double>({10000.0, 10000.0, 100.0, 500000.0});
  }
  if (stream.chance(1, 4)) g.norm_eps = 1e-5;
  g.tied = stream.chance(1, 4);
  g.qkv_bias = stream.chance(1, 3);
  g.o_bias = stream.chance(1, 5);
  g.qk_norm = stream.chance(1, 3);
}

/// 1..8 in random order; three times in four with 1, which proves the least, at the end.
std::array<int, kMaxDegree> shuffled_degrees(Stream& stream) {
  std::array<int, kMaxDegree> degrees{};
  std::iota(degrees.rbegin(), degrees.rend(), 1);
  stream.shuffle(std::span(degrees).first(stream.chance(3, 4) ? kMaxDegree - 1 : kMaxDegree));
  return degrees;
}

/// The table at a degree it supports, found by probing; half of the draws ignore that when unrepresentable
/// layouts are wanted.
LayoutName draw_layout(Stream& stream, const std::string& table, const Geometry& g,
                       const DrawOptions& options) {
  if (options.allow_unrepresentable && stream.chance(1, 2))
    return layout_at(table, static_cast<int>(stream.integer(1, kMaxDegree)));
  const auto allowed = options.forward ? is_runnable : is_representable;
  for (const int degree : shuffled_degrees(stream)) {
    LayoutName name = layout_at(table, degree);
    if (allowed(name, g)) return name;
  }
  return layout_at(table, 1);
}

/// Whether every layout of the case that `before` allowed is still allowed.
bool keeps_layouts(const Case& c, const Geometry& before, bool runnable) {
  const auto allowed = runnable ? is_runnable : is_representable;
  for (const LayoutName* name : {&c.source, &c.target, &c.via}) {
    if (allowed(*name, before) && !allowed(*name, c.geometry)) return false;
  }
  return true;
}

void draw_layouts(Stream& stream, Case& c, const DrawOptions& options) {
  const std::string source = stream.pick(kTables);
  const std::string target = stream.pick(kTables);
  const std::string via = options.three_layouts ? stream.pick(kTables) : "seed";
  // Some tables cut the vocabulary evenly: draw degrees for a vocabulary that divides, then go back to the
  // uneven one where the drawn layouts allow it.
  const std::int64_t uneven = c.geometry.vocab;
  c.geometry.vocab = round_up(uneven, c.geometry.n_kv_heads);
  c.source = draw_layout(stream, source, c.geometry, options);
  c.target = draw_layout(stream, target, c.geometry, options);
  if (options.three_layouts) c.via = draw_layout(stream, via, c.geometry, options);
  const Geometry even = c.geometry;
  c.geometry.vocab = uneven;
  if (!keeps_layouts(c, even, options.forward)) c.geometry = even;
}

Arithmetic draw_arithmetic(Stream& stream, const DrawOptions& options) {
  using enum Arithmetic;
  if (options.axis) return stream.pick<Arithmetic>({tree, tree, tree, tree, exact});
  if (options.any_arithmetic) return stream.pick<Arithmetic>({native, native, tree, tree, exact});
  return options.arithmetic;
}

/// The recorded floors and measured thresholds of native models are those of f32.
void draw_dtype(Stream& stream, Case& c, const DrawOptions& options) {
  const DType dtype = stream.pick<DType>({DType::f32, DType::f32, DType::bf16, DType::f16});
  if (options.any_dtype && !(options.forward && c.arithmetic == Arithmetic::native)) c.dtype = dtype;
}

/// Small leaves and key blocks: the widths of random models would fit into one of the default size.
void draw_contract(Stream& stream, Case& c) {
  c.tree_shape = stream.chance(1, 5) ? TreeShape::linear : TreeShape::halving;
  c.leaf = stream.pick<std::int64_t>({128, 16, 8, 5, 3});
  c.key_block = stream.pick<std::int64_t>({64, 64, 16, 7});
  c.exchange = stream.pick<CoverExchange>(
      {CoverExchange::automatic, CoverExchange::automatic, CoverExchange::two_shot});
}

}  // namespace

Case draw_case(Stream& stream, const DrawOptions& options) {
  if (options.meshes) return draw_mesh_case(stream, options);
  Case c;
  draw_heads(stream, c.geometry);
  draw_widths(stream, c.geometry);
  draw_features(stream, c.geometry);
  draw_layouts(stream, c, options);
  c.arithmetic = draw_arithmetic(stream, options);
  draw_dtype(stream, c, options);
  if (options.any_contract) draw_contract(stream, c);
  if (options.forward) {
    c.batch = stream.pick<std::int64_t>({1, 1, 2});
    c.length = stream.integer(32, 40);
  }
  c.seed = static_cast<std::uint64_t>(stream.integer(0, 999'999));
  return c;
}

}  // namespace shardcheck
