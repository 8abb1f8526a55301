// Floor figures the seed document publishes for the original harness (another machine and library): printed
// beside ours, never used to judge anything.
#pragma once

#include <array>
#include <string_view>

namespace shardcheck::published {

struct FloorFigure {
  std::string_view config;
  int target_degree;
  double worst_ulp, median_ulp, mean_ulp;
};

inline constexpr std::array<FloorFigure, 3> kFloors = {{
    {"kv2", 2, 14, 1.15, 1.39},
    {"kv4", 2, 13, 1.14, 1.38},
    {"kv4", 4, 13, 1.14, 1.38},
}};

inline constexpr double kWorstUlp = 14;
inline constexpr double kWorstDeviation = 1.669e-06;
inline constexpr double kMedianUlp = 1.15, kMeanUlp = 1.38;
inline constexpr double kThreshold = 1e-3;

}  // namespace shardcheck::published
