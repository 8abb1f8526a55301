// Cases about determinism axes: small models of every family that has a forward pass, run over several mesh
// axes at once, on batches of a few short sequences. Narrow leaves and key blocks, so that every sum has a
// tree.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "layout_probe.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

constexpr int kMaxRanks = 8;
constexpr std::int64_t kMaxLength = 20;

void draw_llama(Stream& stream, Geometry& g) {
  g.rope = stream.chance(3, 4) ? Rope::half : Rope::none;
  g.qkv_bias = stream.chance(1, 3);
  g.o_bias = stream.chance(1, 4);
  g.qk_norm = stream.chance(1, 3);
  g.sinks = stream.chance(1, 5);
  g.tied = stream.chance(1, 4);
}

void draw_gpt(Stream& stream, Geometry& g) {
  g.norm = Norm::layer;
  g.gated = stream.chance(1, 5);
  g.activation = stream.pick<Activation>({Activation::gelu, Activation::gelu_tanh});
  g.mlp_bias = stream.chance(3, 4);
  g.qkv_bias = g.o_bias = stream.chance(3, 4);
  g.tied = stream.chance(1, 3);
  g.parallel_residual = stream.chance(1, 3);
  switch (stream.integer(0, 2)) {
    case 0:
      g.positions = kMaxLength + stream.integer(0, 5);
      break;
    case 1:
      g.alibi = true;
      break;
    default:
      g.rope = Rope::half;
      if (stream.chance(1, 2)) g.rotary_dim = 2 * stream.integer(1, g.head_dim / 2);
  }
}

void draw_experts(Stream& stream, Geometry& g) {
  g.n_experts = stream.pick<std::int64_t>({2, 4, 4, 6, 8});
  g.experts_per_token = std::min(g.n_experts, stream.pick<std::int64_t>({1, 2, 2, 3, 4}));
  g.expert_ffn = g.n_kv_heads * stream.integer(2, 6);
  g.shared_ffn = stream.chance(1, 2) ? g.n_kv_heads * stream.integer(2, 6) : 0;
  g.dense_layers = stream.chance(1, 3) ? stream.integer(0, g.n_layers - 1) : 0;
  g.router_bias = stream.chance(1, 3);
}

void draw_model(Stream& stream, const AxisWish& wish, Geometry& g) {
  g.n_kv_heads = stream.pick<std::int64_t>(wish.tp || wish.sequence_parallel
                                               ? std::vector<std::int64_t>{2, 2, 3, 4, 4, 6}
                                               : std::vector<std::int64_t>{1, 2, 2, 3, 4});
  g.n_heads = g.n_kv_heads * stream.pick<std::int64_t>({1, 1, 2, 2, 3});
  g.head_dim = 2 * stream.integer(1, 4);
  g.d_model = stream.integer(9, 40);
  g.n_layers = stream.integer(wish.pp ? 2 : 1, wish.pp ? 5 : 3);
  g.ffn = g.n_kv_heads * stream.integer(3, 12);
  g.vocab = stream.integer(30, 90);
  if (stream.chance(1, 4)) g.norm_eps = 1e-5;
  stream.chance(2, 3) ? draw_llama(stream, g) : draw_gpt(stream, g);
  if (wish.ep || stream.chance(1, 4)) draw_experts(stream, g);
}

/// Degrees above 1 that divide, or 1.
int draw_divisor(Stream& stream, std::int64_t of, int most) {
  std::vector<int> degrees;
  for (int degree = 2; degree <= std::min<std::int64_t>(of, most); ++degree) {
    if (of % degree == 0) degrees.push_back(degree);
  }
  return degrees.empty() ? 1 : stream.pick(degrees);
}

/// Ends of all but the last context rank, between blocks: inside the longest sequence as far as it has
/// blocks, beyond it from there on.
std::vector<std::int64_t> draw_context_ends(Stream& stream, const Case& c, int degree) {
  const std::int64_t inside = std::max<std::int64_t>(1, (std::ranges::max(lengths_of(c)) - 1) / c.key_block);
  std::vector<std::int64_t> ends(static_cast<std::size_t>(inside));
  std::iota(ends.begin(), ends.end(), 1);
  stream.shuffle(std::span(ends));
  for (std::int64_t beyond = inside + 1; std::ssize(ends) < degree - 1; ++beyond) ends.push_back(beyond);
  ends.resize(static_cast<std::size_t>(degree - 1));
  std::ranges::sort(ends);
  for (std::int64_t& end : ends) end *= c.key_block;
  return ends;
}

void draw_pipeline(Stream& stream, Case& c, int stages) {
  const std::int64_t layers = c.geometry.n_layers;
  for (int attempt = 0; attempt < 8; ++attempt) {
    c.target.first_stage_layers = static_cast<int>(stream.integer(0, layers - 1));
    c.target.last_stage_layers = static_cast<int>(stream.integer(0, layers - 1));
    try {
      stage_bounds(layers, c.target);
      return;
    } catch (const UnsupportedLayout&) {
      continue;
    }
  }
  c.target.last_stage_layers = 0;
  c.target.first_stage_layers = static_cast<int>(layers - (stages - 1));
}

void draw_target(Stream& stream, const AxisWish& wish, Case& c) {
  const Geometry& g = c.geometry;
  struct Wanted {
    const char* axis;
    bool must;
    std::int64_t of;
  };
  std::vector<Wanted> axes = {{"tp", wish.tp || wish.sequence_parallel, contract_of(c).degrees.back()},
                              {"pp", wish.pp, 0},
                              {"cp", wish.cp, 0},
                              {"ep", wish.ep, g.n_experts}};
  // What the law is about first, so that the ranks suffice for it.
  std::ranges::stable_sort(axes, [](const Wanted& a, const Wanted& b) { return a.must && !b.must; });
  int ranks = 1;
  for (const Wanted& wanted : axes) {
    if (!wanted.must && !stream.chance(1, 4)) continue;
    const std::string_view axis = wanted.axis;
    const int most = kMaxRanks / ranks;
    int degree = 1;
    if (axis == "pp") degree = static_cast<int>(stream.integer(1, std::min<std::int64_t>(most, g.n_layers)));
    if (axis == "cp") degree = static_cast<int>(stream.integer(1, std::min(most, 4)));
    if (axis == "tp" || axis == "ep") degree = draw_divisor(stream, wanted.of, most);
    if (wanted.must && degree == 1 && most >= 2 && axis != "tp" && axis != "ep") degree = 2;
    if (degree == 1) continue;
    c.target.axes.emplace_back(axis, degree);
    ranks *= degree;
  }
  stream.shuffle(std::span(c.target.axes));
  if (const int stages = c.target.degree("pp"); stages > 1) draw_pipeline(stream, c, stages);
  if (const int ranks_cp = c.target.degree("cp"); ranks_cp > 1)
    c.context_ends = draw_context_ends(stream, c, ranks_cp);
  const bool has_group = c.target.tp_degree() > 1;
  c.sequence_parallel = has_group && (wish.sequence_parallel || stream.chance(1, 3));
}

/// At least two tokens a chunk.
std::vector<std::int64_t> draw_chunks(Stream& stream, std::int64_t length) {
  std::vector<std::int64_t> starts;
  for (std::int64_t at = stream.integer(2, 8); at + 2 <= length; at += stream.integer(2, 8))
    starts.push_back(at);
  return starts;
}

}  // namespace

Case draw_axis_case(Stream& stream, const AxisWish& wish) {
  Case c;
  draw_model(stream, wish, c.geometry);
  c.arithmetic = stream.chance(1, 6) ? Arithmetic::exact : Arithmetic::tree;
  c.dtype = stream.pick<DType>({DType::f32, DType::f32, DType::bf16, DType::f16});
  c.tree_shape = stream.chance(1, 5) ? TreeShape::linear : TreeShape::halving;
  c.leaf = stream.pick<std::int64_t>({128, 16, 8, 5, 3});
  c.key_block = stream.integer(2, 6);
  c.exchange = stream.pick<CoverExchange>(
      {CoverExchange::automatic, CoverExchange::automatic, CoverExchange::two_shot});
  if (wish.ragged) {
    for (std::int64_t i = stream.integer(2, 5); i > 0; --i)
      c.lengths.push_back(stream.integer(1, kMaxLength));
  } else {
    c.batch = stream.pick<std::int64_t>({1, 2, 3});
    c.length = stream.integer(wish.cp ? 12 : 7, kMaxLength);
  }
  if (wish.chunks) {
    c.chunks = draw_chunks(stream, std::ranges::max(lengths_of(c)));
    if (c.chunks.empty()) c.chunks = {2};
  }
  draw_target(stream, wish, c);
  c.seed = static_cast<std::uint64_t>(stream.integer(0, 999'999));
  return c;
}

}  // namespace shardcheck
