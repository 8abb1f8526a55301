#include "layout_probe.h"

#include "shardcheck/model/consumer.h"

namespace shardcheck {
namespace {

/// Placements are the same in every layer, so one layer answers for all of them where layers are not dealt
/// out.
Geometry one_layer_of(const LayoutName& name, Geometry geometry) {
  if (name.degree("pp") == 1 && geometry.n_experts == 0) geometry.n_layers = 1;
  return geometry;
}

}  // namespace

LayoutName layout_at(const std::string& table, int degree) {
  LayoutName name;
  name.table = table;
  if (degree > 1) name.axes.emplace_back("tp", degree);
  return name;
}

bool is_representable(const LayoutName& name, const Geometry& geometry) {
  try {
    (void)make_layout(name, one_layer_of(name, geometry));
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  } catch (const InvalidInput&) {
    return false;
  }
}

bool is_runnable(const LayoutName& name, const Geometry& geometry) {
  return has_running_consumer(name, geometry) && is_representable(name, geometry);
}

}  // namespace shardcheck
