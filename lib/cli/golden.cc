#include "golden.h"

#include <fmt/format.h>

#include <cmath>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {

Golden load_golden(const std::filesystem::path& file, const Geometry& geometry) {
  const SafetensorsFile data(file);
  const Tensor tokens = data.tensor("tokens");
  Golden golden;
  golden.logits = data.tensor("logits");
  const std::string name = file.string();
  if (tokens.dtype() != DType::i64 || tokens.rank() != 1 || tokens.elements() == 0)
    throw InvalidCheckpoint(fmt::format("{}: tokens must be I64 [n], n >= 1, not {} {}", name,
                                        safetensors_name(tokens.dtype()), to_string(tokens.shape())));
  if (golden.logits.dtype() != DType::f32 || golden.logits.rank() != 2 ||
      golden.logits.dim(1) != geometry.vocab || golden.logits.dim(0) < 1 ||
      golden.logits.dim(0) > tokens.elements())
    throw InvalidCheckpoint(fmt::format(
        "{}: logits must be F32 [p, {}], 1 <= p <= {}, not {} {}", name, geometry.vocab, tokens.elements(),
        safetensors_name(golden.logits.dtype()), to_string(golden.logits.shape())));
  for (const float logit : golden.logits.f32())
    if (!std::isfinite(logit))
      throw InvalidCheckpoint(fmt::format("{}: logits hold {}; allowed: finite numbers", name, logit));
  for (const std::int64_t id : tokens.as<std::int64_t>()) {
    if (id < 0 || id >= geometry.vocab)
      throw InvalidCheckpoint(
          fmt::format("{}: token {} is outside the vocabulary of {}", name, id, geometry.vocab));
    golden.tokens.push_back(static_cast<std::int32_t>(id));
  }
  return golden;
}

Verdict GoldenCheck::verdict() const {
  if (max_difference > kGoldenTolerance || tokens_reproduced != tokens) return Verdict::failed;
  return vacuous.empty() ? Verdict::passed : Verdict::vacuous;
}

}  // namespace shardcheck
