#include "shardcheck/layout/mesh.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {
namespace {

constexpr std::array<std::string_view, kAxes> kNames = {"tp", "ep", "etp", "pp", "dp", "cp"};

}  // namespace

std::string_view to_string(Axis axis) noexcept { return kNames[static_cast<std::size_t>(axis)]; }

std::optional<Axis> axis_from_name(std::string_view name) noexcept {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Axis>(found - kNames.begin());
}

Mesh::Mesh(std::vector<std::pair<Axis, int>> axes) : axes_(std::move(axes)) {
  degree_.fill(1);
  stride_.fill(1);
  std::array<bool, kAxes> seen{};
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    const auto& [name, degree] = *axis;
    if (std::exchange(seen[index(name)], true)) {
      throw InvalidLayout(fmt::format("mesh: axis {} appears twice", to_string(name)));
    }
    if (degree < 1 || degree > kMaxDegree) {
      throw InvalidLayout(fmt::format("mesh: axis {} has the degree {}; allowed: 1..{}", to_string(name),
                                      degree, kMaxDegree));
    }
    if (degree > kMaxRanks / size_) {
      throw InvalidLayout(
          fmt::format("mesh: axis {} of degree {} over {} ranks; allowed: at most {} ranks in all",
                      to_string(name), degree, size_, kMaxRanks));
    }
    degree_[index(name)] = degree;
    stride_[index(name)] = size_;
    size_ *= degree;
  }
  std::erase_if(axes_, [](const auto& axis) { return axis.second == 1; });
  // Where an axis of degree 1 stood changes no rank's coordinates, so equal meshes compare equal.
  for (std::size_t a = 0; a < kAxes; ++a) {
    if (degree_[a] == 1) stride_[a] = 1;
  }
}

std::vector<int> Mesh::ranks_at(const Coordinates& fixed) const {
  std::vector<int> ranks = {0};
  for (const auto& [axis, degree] : axes_) {
    const auto held = std::find_if(fixed.begin(), fixed.end(), [axis = axis](const auto& coordinate) {
      return coordinate.first == axis;
    });
    const int begin = held == fixed.end() ? 0 : held->second;
    const int end = held == fixed.end() ? degree : held->second + 1;
    std::vector<int> finer;
    for (const int rank : ranks) {
      for (int c = begin; c < end; ++c) finer.push_back(rank + c * stride(axis));
    }
    ranks = std::move(finer);
  }
  return ranks;
}

}  // namespace shardcheck
