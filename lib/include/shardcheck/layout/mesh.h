// The ranks of a job as a grid: parallelism axes in an order of their own. A rank's number is the row-major
// index of its coordinates, the outermost axis first, as process meshes of Megatron and PyTorch number it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardcheck {

/// Tensor, expert, expert-tensor, pipeline, data (FSDP) and context parallelism.
enum class Axis : std::uint8_t { tp, ep, etp, pp, dp, cp };
inline constexpr std::size_t kAxes = 6;
std::string_view to_string(Axis axis) noexcept;
std::optional<Axis> axis_from_name(std::string_view name) noexcept;

/// Coordinates that are fixed; an axis without one is free.
using Coordinates = std::vector<std::pair<Axis, int>>;

class Mesh {
 public:
  static constexpr int kMaxDegree = 1024;
  static constexpr int kMaxRanks = 1 << 16;

  /// One rank.
  Mesh() : Mesh(std::vector<std::pair<Axis, int>>{}) {}
  /// Axes outermost first; axes of degree 1 may be left out. Throws InvalidLayout: an axis twice, a degree
  /// outside 1..1024, more than 65536 ranks.
  explicit Mesh(std::vector<std::pair<Axis, int>> axes);
  /// `degree` ranks along tp.
  static Mesh tensor_parallel(int degree) { return Mesh({{Axis::tp, degree}}); }

  int size() const noexcept { return size_; }
  const std::vector<std::pair<Axis, int>>& axes() const noexcept { return axes_; }
  /// 1 for an axis the mesh does not have.
  int degree(Axis axis) const noexcept { return degree_[index(axis)]; }
  /// Coordinate of a rank on an axis, 0 for an axis the mesh does not have.
  int coordinate(int rank, Axis axis) const noexcept {
    return rank / stride_[index(axis)] % degree_[index(axis)];
  }
  /// Distance in ranks between neighbours on an axis.
  int stride(Axis axis) const noexcept { return stride_[index(axis)]; }

  /// The ranks with the given coordinates, ascending.
  std::vector<int> ranks_at(const Coordinates& fixed) const;

  bool operator==(const Mesh& other) const = default;

 private:
  static constexpr std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }

  std::vector<std::pair<Axis, int>> axes_;
  std::array<int, kAxes> degree_{};
  std::array<int, kAxes> stride_{};
  int size_ = 1;
};

}  // namespace shardcheck
