#include "steering.h"

#include <string>

#include "shardcheck/model/consumer.h"

namespace shardcheck::faults {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

bool is_admitted(const LayoutName& name, const Geometry& geometry, bool must_run) {
  try {
    const Layout layout = make_layout(name, geometry);
    if (must_run && layout.consumer != "none") require_executable(layout);
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

void fall_back(LayoutName& name, const Geometry& geometry, bool must_run) {
  if (is_admitted(name, geometry, must_run)) return;
  name = over_ranks(name.table, 1);
  if (!is_admitted(name, geometry, must_run)) name = over_ranks("seed", 1);
}

}  // namespace

LayoutName over_ranks(std::string_view table, int degree) {
  LayoutName name{std::string(table), {}};
  if (degree > 1) name.axes = {{"tp", degree}};
  return name;
}

void fit_ranks(Geometry& geometry, int ranks) {
  const std::int64_t group = geometry.n_heads / geometry.n_kv_heads;
  geometry.n_kv_heads = round_up(geometry.n_kv_heads, ranks);
  geometry.n_heads = geometry.n_kv_heads * group;
  geometry.ffn = round_up(geometry.ffn, ranks);
  geometry.vocab = round_up(geometry.vocab, ranks);
}

void settle(Case& c) {
  fall_back(c.source, c.geometry, false);
  fall_back(c.target, c.geometry, true);
}

void steer_to_kv_replicas(Case& c, Stream& stream, LayoutName Case::*side) {
  Geometry& g = c.geometry;
  g.n_kv_heads = stream.pick<std::int64_t>({1, 2, 2, 4});
  const int ranks =
      static_cast<int>(g.n_kv_heads * stream.pick<std::int64_t>({2, 2, g.n_kv_heads < 4 ? 4 : 2}));
  g.n_heads = ranks * stream.integer(1, 2);
  g.ffn = round_up(g.ffn, ranks);
  c.*side = over_ranks(stream.pick<std::string>({"vllm-llama", "sglang-llama"}), ranks);
  LayoutName& other = side == &Case::source ? c.target : c.source;
  fall_back(other, g, side == &Case::source);
}

}  // namespace shardcheck::faults
