// Golden data of a checkpoint: what an independent implementation computed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shardcheck/case/outcome.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// Reference logits within this of the golden ones: two f32 engines differ by rounding, not by more.
inline constexpr double kGoldenTolerance = 1e-4;

/// Golden data of a checkpoint: n greedily decoded tokens and the logits of the first p positions.
struct Golden {
  std::vector<std::int32_t> tokens;
  Tensor logits;  // f32 [p, vocab]
};
/// Reads a safetensors file with "tokens" i64 [n] and "logits" f32 [p, vocab], p <= n. Throws
/// InvalidCheckpoint naming file and tensor, IoError.
Golden load_golden(const std::filesystem::path& file, const Geometry& geometry);

struct GoldenCheck {
  double max_difference = 0.0;
  std::int64_t worst_position = -1;
  std::int64_t positions = 0;
  std::int64_t tokens = 0;
  std::int64_t tokens_reproduced = 0;  // until the first that differs
  std::string vacuous;                 // why the golden logits decide nothing
  Verdict verdict() const;             // failed, vacuous or passed
  bool holds() const { return verdict() == Verdict::passed; }
};

}  // namespace shardcheck
