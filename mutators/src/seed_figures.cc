#include "shardcheck/mutators/seed_figures.h"

#include <array>

namespace shardcheck {

std::span<const SeedFigure> seed_figures() {
  static constexpr std::array<SeedFigure, 4> kFigures = {{
      {"slice_fused_qkv_contiguously", 2.098, 2.314, 2097, 2313},
      {"reverse_rank_order:o_proj", 2.053, 2.535, 2052, 2535},
      {"reverse_rank_order:down", 1.143, 1.305, 1142, 1304},
      {"rotate_norm_by_rank", 0.338, 0.413, 338, 412},
  }};
  return kFigures;
}

}  // namespace shardcheck
