#include <algorithm>
#include <array>
#include <numeric>

#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

bool is_power_of_two(std::int64_t value) { return (value & (value - 1)) == 0; }

bool is_square(const Geometry& g) {
  return g.d_model == g.attention_width() || g.d_model == g.kv_width() || g.d_model == g.ffn ||
         g.d_model == g.vocab;
}

/// Whether no extent but those of heads equals another one: a mixed-up dimension changes a shape.
bool has_distinct_widths(const Geometry& g) {
  const std::array widths = {g.d_model, g.attention_width(), g.ffn, g.vocab};
  const auto is_alone = [&](std::int64_t width) { return std::ranges::count(widths, width) == 1; };
  const bool is_kv_alone = g.n_kv_heads == g.n_heads || std::ranges::count(widths, g.kv_width()) == 0;
  return is_kv_alone && std::ranges::all_of(widths, is_alone);
}

std::int64_t tokens_in(const Case& c) {
  const std::vector<std::int64_t> lengths = lengths_of(c);
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Whether ranks lie along another axis than tp.
bool has_mesh(const LayoutName& name) {
  return std::any_of(name.axes.begin(), name.axes.end(),
                     [](const auto& axis) { return axis.first != "tp" && axis.second > 1; });
}

/// Determinism axes that differ from one rank running whole sequences alone.
int axes_of(const Case& c) {
  int axes = lengths_of(c).size() > 1 ? 1 : 0;
  if (!c.chunks.empty()) ++axes;
  if (c.sequence_parallel) ++axes;
  for (const char* axis : {"tp", "pp", "cp", "ep"}) axes += c.target.degree(axis) > 1 ? 1 : 0;
  return axes;
}

}  // namespace

std::vector<std::string> labels_of(const Case& c) {
  const Geometry& g = c.geometry;
  std::vector<std::string> labels;
  const auto label_if = [&labels](bool holds, const char* label) {
    if (holds) labels.emplace_back(label);
  };
  const int target = c.target.tp_degree();
  label_if(g.vocab % target != 0, "uneven");
  label_if(g.n_kv_heads < g.n_heads, "kv_heads<heads");
  label_if(g.n_kv_heads >= 2 && g.n_heads >= 2 * g.n_kv_heads, "groups>=2x2");
  label_if(!is_power_of_two(g.n_heads), "heads_not_power_of_two");
  label_if(!is_power_of_two(target), "degree_not_power_of_two");
  label_if(is_square(g), "square");
  label_if(has_distinct_widths(g), "distinct_widths");
  label_if(c.weights == WeightStyle::powered, "powered_weights");
  label_if(tokens_in(c) >= 32, "tokens>=32");
  label_if(c.target.table != "hf-llama", "fused");
  label_if(g.tied, "tied");
  label_if(g.rope != Rope::none, "rope");
  label_if(g.qkv_bias, "bias");
  label_if(g.qk_norm, "qk_norm");
  label_if(c.source != c.target, "source!=target");
  label_if(c.source.table != c.target.table, "two_tables");
  label_if(target > 1, "target_degree>1");
  label_if(c.source.tp_degree() > 1, "source_degree>1");
  label_if(c.dtype != DType::f32, "16_bit");
  label_if(c.arithmetic == Arithmetic::tree, "tree");
  label_if(c.arithmetic == Arithmetic::exact, "exact");
  label_if(c.tree_shape == TreeShape::linear, "linear_tree");
  label_if(c.exchange == CoverExchange::two_shot, "two_shots");
  label_if(g.o_bias, "o_bias");
  label_if(has_mesh(c.source) || has_mesh(c.target), "mesh");
  label_if(c.source.degree("pp") > 1 || c.target.degree("pp") > 1, "pipeline");
  label_if(g.n_experts > 0, "experts");
  label_if(g.norm == Norm::layer, "layer_norm");
  label_if(g.alibi, "alibi");
  label_if(g.sinks, "sinks");
  label_if(c.source.table == "fsdp2-tp", "stored_by_fsdp");
  label_if(c.target.degree("pp") > 1, "target_pp>1");
  label_if(c.target.degree("cp") > 1, "target_cp>1");
  label_if(c.target.degree("ep") > 1, "target_ep>1");
  label_if(c.sequence_parallel, "sequence_parallel");
  label_if(c.lengths.size() > 1, "ragged");
  label_if(axes_of(c) >= 3, "three_axes");
  label_if(g.kv_lora > 0, "latent");
  label_if(target > g.n_kv_heads, "kv_heads<target_degree");
  return labels;
}

}  // namespace shardcheck
