#include "layout/geometry_guess.h"

#include <algorithm>
#include <array>

#include "layout/rank_classes.h"

namespace shardcheck {
namespace {

constexpr std::array<std::int64_t, 16> kHeadDims = {128, 64, 96, 80, 256, 112, 192, 32,
                                                    48,  16, 8,  4,  2,   6,   3,   1};

/// A geometry that has every extent, to ask a placement which dimension it cuts.
Geometry probe() {
  Geometry g;
  g.d_model = g.n_heads = g.n_kv_heads = g.head_dim = g.ffn = g.vocab = g.positions = 1;
  g.n_experts = g.expert_ffn = g.shared_ffn = 1;
  g.q_lora = g.kv_lora = g.nope_dim = g.rope_dim = g.v_dim = 1;
  return g;
}

/// Numbers in all; stages that count from 0 have their own.
std::int64_t total(const std::map<int, std::set<std::int64_t>>& by_stage) {
  std::int64_t all = 0;
  for (const auto& [stage, numbers] : by_stage) all += std::ssize(numbers);
  return all;
}

/// A file may claim any extent: what no model has is no geometry either, and nothing below overflows.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;
std::int64_t bounded_sum(std::int64_t a, std::int64_t b) {
  return std::min(a + std::min(b, kMaxExtent), kMaxExtent);
}

int dim_cut_by(const PlacementRule& rule, const Mesh& mesh) {
  try {
    return cut_dim(rule.evaluate(probe(), mesh));
  } catch (const std::exception&) {
    return -1;  // an expression that the probe does not suit
  }
}

}  // namespace

GeometryGuess::GeometryGuess(const LayoutTable& table, const std::vector<FileTensors>& ranks,
                             const LayoutName& layout)
    : table_(table), ranks_(ranks), name_(layout), mesh_(layout.mesh()) {
  std::set<const TableRule*> read_rules;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [name, shape] : ranks[rank].shapes) {
      bool known = false;
      for (const TableRule& rule : table.rules()) {
        const auto place = rule.match(name);
        if (!place || rule.tied()) continue;
        known = true;
        count(rule, *place, static_cast<int>(rank));
        if (read_rules.insert(&rule).second) read(rule, {name, rank, *place});
        break;
      }
      ++(known ? known_ : unknown_);
      if (!known && first_unknown_.empty()) first_unknown_ = name;
    }
  }
}

void GeometryGuess::count(const TableRule& rule, const RulePlace& place, int rank) {
  if (place.layer < 0) return;
  const bool local = table_.local_numbers();
  const int stage = local ? mesh_.coordinate(rank, Axis::pp) : 0;
  layers_[stage].insert(place.layer);
  if (rule.scope() == RoleScope::expert) expert_layers_[stage].insert(place.layer);
  if (place.expert < 0) return;
  experts_[local ? mesh_.coordinate(rank, table_.expert_axis()) : 0].insert(place.expert);
}

/// Extents summed over the ranks that differ on the axes that cut them.
Shape GeometryGuess::whole_shape(const TableRule& rule, const Seen& seen) const {
  Shape shape = ranks_[seen.rank].shapes.find(seen.name)->second;
  std::map<std::size_t, std::set<Axis>> cut;
  for (const PlacementRule& placement : rule.placements()) {
    const int dim = dim_cut_by(placement, mesh_);
    if (dim >= 0 && dim < std::ssize(shape))
      cut[static_cast<std::size_t>(dim)].insert(table_.axis_in(name_, placement.axis()));
  }
  for (const auto& [dim, axes] : cut) {
    Coordinates others;
    for (const auto& [axis, degree] : mesh_.axes()) {
      if (!axes.contains(axis))
        others.emplace_back(axis, mesh_.coordinate(static_cast<int>(seen.rank), axis));
    }
    shape[dim] = 0;
    for (const int rank : mesh_.ranks_at(others)) {
      const auto& shapes = ranks_[static_cast<std::size_t>(rank)].shapes;
      const auto found = shapes.find(seen.name);
      if (found != shapes.end() && dim < found->second.size())
        shape[dim] = bounded_sum(shape[dim], found->second[dim]);
    }
  }
  return shape;
}

void GeometryGuess::read(const TableRule& rule, const Seen& seen) {
  Shape shape = whole_shape(rule, seen);
  for (std::int64_t& size : shape) size = std::min(size, kMaxExtent);
  if (rule.stacks_experts() && !shape.empty()) {
    stacked_ = shape.front();
    shape.erase(shape.begin());
  }
  if (rule.transposed()) std::reverse(shape.begin(), shape.end());
  if (rule.roles().size() > 1 && !shape.empty()) fused_[rule.roles().front()] = shape.front();
  for (const std::string& role : rule.roles()) {
    pads_vocab_ |= role == "embed" && rule.pads();
    Shape& known = shapes_[role] = shape;
    if (rule.roles().size() > 1 && !known.empty()) known.front() /= std::ssize(rule.roles());
  }
}

std::int64_t GeometryGuess::extent(std::string_view role, std::size_t dim) const {
  const auto found = shapes_.find(role);
  return found == shapes_.end() || dim >= found->second.size() ? 0 : found->second[dim];
}

std::int64_t GeometryGuess::experts() const {
  if (stacked_ > 0) return stacked_;
  return total(experts_);
}

void GeometryGuess::add_experts(Geometry& g) const {
  g.n_experts = experts();
  if (g.n_experts == 0) return;
  g.expert_ffn = extent("expert_down", 1);
  g.shared_ffn = extent("shared_down", 1);
  g.dense_layers = g.n_layers - total(expert_layers_);
  g.router_bias = has("router_bias");
}

/// Query rows are heads*(nope+rope), rows of the latent's projection heads*(nope+value), columns of the
/// output heads*value: three equations with the width of the rotary key give the number of heads.
bool GeometryGuess::add_latent_attention(Geometry& g) const {
  if (!has("kv_lora_norm")) return false;
  g.kv_lora = extent("kv_lora_norm", 0);
  g.q_lora = extent("q_lora_norm", 0);
  const auto fused = fused_.find("q_down");  // with kv_down, as engines that serve such models keep them
  g.rope_dim = (fused == fused_.end() ? extent("kv_down", 0) : fused->second - g.q_lora) - g.kv_lora;
  const std::int64_t query = g.q_lora > 0 ? extent("q_up", 0) : extent("q", 0);
  const std::int64_t latent = extent("kv_up", 0), output = extent("o_proj", 1);
  g.n_heads = g.rope_dim > 0 ? (query - latent + output) / g.rope_dim : 0;
  if (g.n_heads < 1) return true;
  g.n_kv_heads = g.n_heads;
  g.v_dim = output / g.n_heads;
  g.nope_dim = latent / g.n_heads - g.v_dim;
  g.head_dim = g.nope_dim + g.rope_dim;
  return true;
}

Geometry GeometryGuess::base() const {
  Geometry g;
  g.d_model = std::max(extent("attn_norm", 0), extent("final_norm", 0));
  g.n_layers = total(layers_);
  g.gated = has("gate") || has("expert_gate");
  g.ffn = std::max({extent("down", 1), extent("expert_down", 1), std::int64_t{1}});
  g.vocab = extent("embed", 0);
  g.positions = extent("positions", 0);
  g.tied = !has("lm_head");
  g.qkv_bias = has("q_bias"), g.o_bias = has("o_bias"), g.qk_norm = has("q_norm");
  g.mlp_bias = has("up_bias"), g.sinks = has("sinks");
  if (has("attn_norm_bias")) g.norm = Norm::layer;
  add_experts(g);
  return g;
}

std::vector<Geometry> GeometryGuess::with_heads(const Geometry& g) const {
  const std::int64_t query = extent("o_proj", 1);
  const std::int64_t normed = extent("q_norm", 0);
  const auto fused = fused_.find("q");
  const std::int64_t kv = fused == fused_.end() ? extent("k", 0) : (fused->second - query) / 2;
  std::vector<Geometry> all;
  for (const std::int64_t head_dim : kHeadDims) {
    if (normed > 0 && head_dim != normed) continue;
    if (has("sinks") && head_dim * extent("sinks", 0) != query) continue;
    if (query < 1 || kv < 1 || query % head_dim != 0 || kv % head_dim != 0) continue;
    all.push_back(g);
    all.back().head_dim = head_dim;
    all.back().n_heads = query / head_dim;
    all.back().n_kv_heads = kv / head_dim;
  }
  return all;
}

std::vector<std::string> GeometryGuess::guessed() const {
  std::vector<std::string> keys;
  // Shapes know products of heads and their width; ranks may hold copies of the same key heads.
  const bool latent = has("kv_lora_norm");
  const bool known_width = latent || has("q_norm") || has("sinks");
  if (!known_width) keys.emplace_back("heads");
  if (!latent && (!known_width || ranks_.size() > 1)) keys.emplace_back("kv_heads");
  if (!known_width) keys.emplace_back("head_dim");
  if (!has("down")) keys.emplace_back("ffn");
  if (pads_vocab_) keys.emplace_back("vocab");
  keys.insert(keys.end(), {"norm_eps", "rope", "rope_theta"});
  // A head that is stored may be the embedding once more.
  if (has("lm_head")) keys.emplace_back("tied");
  return keys;
}

std::vector<Geometry> GeometryGuess::geometries() const {
  Geometry g = base();
  std::vector<Geometry> all = {g};
  if (!add_latent_attention(all.front())) all = with_heads(g);
  std::erase_if(all, [](const Geometry& geometry) {
    try {
      validate(geometry);
      return false;
    } catch (const InvalidInput&) {
      return true;
    }
  });
  return all;
}

}  // namespace shardcheck
