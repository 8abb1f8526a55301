#include "layout/rank_classes.h"

#include <fmt/format.h>

#include <map>

#include "layout/overloaded.h"

namespace shardcheck {

int cut_dim(const Placement& placement) {
  return std::visit(Overloaded{[](const Replicate&) { return -1; }, [](const Partial&) { return -1; },
                               [](const auto& cut) { return cut.dim; }},
                    placement);
}

std::vector<std::vector<int>> ranks_by_class(const LayoutEntry& entry) {
  std::map<int, std::vector<int>> classes;
  for (const int rank : entry.placed.holders()) classes[entry.placed.class_of(rank)].push_back(rank);
  std::vector<std::vector<int>> all;
  for (auto& [index, ranks] : classes) all.push_back(std::move(ranks));
  return all;
}

std::string class_label(const LayoutEntry& entry, int rank, int dim) {
  const Mesh& mesh = entry.placed.mesh();
  if (mesh.axes().size() <= 1) return fmt::format("rank {}", rank);
  std::string label;
  for (const auto& [axis, placement] : entry.placed.placements()) {
    const int cut = cut_dim(placement);
    if (cut < 0 || (dim >= 0 && cut != dim) || mesh.degree(axis) == 1) continue;
    label += fmt::format("{}{} {}", label.empty() ? "" : ", ", to_string(axis), mesh.coordinate(rank, axis));
  }
  return label;
}

}  // namespace shardcheck
