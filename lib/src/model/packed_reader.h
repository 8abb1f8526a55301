// A rank's views of a model that is packed once.
#pragma once

#include <map>
#include <string>

#include "model/rank_source.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/model/packed_model.h"

namespace shardcheck {

struct PackedModel::State {
  Geometry geometry;
  Arithmetic arithmetic;
  TensorMap tensors;  // everything that is not a linear layer, and the embedding
  std::map<std::string, PackedWeights, std::less<>> linears;
};

/// Reads rank `rank` of `degree`, cut as the consumer's extents say.
class PackedReader final : public RankSource {
 public:
  PackedReader(const PackedModel::State& model, const LocalExtent& extent, int rank)
      : model_(model), extent_(extent), rank_(rank) {}

  Tensor rows(std::string_view role, std::int64_t layer) const override;
  std::vector<float> values(std::string_view role, std::int64_t layer) const override;
  /// Throws std::logic_error when given tops: a packed model is not exact.
  LinearWeights linear(std::string_view role, std::int64_t layer,
                       std::span<const std::int32_t> tops) const override;

 private:
  struct Range {
    std::int64_t first = 0, count = 0;
  };
  /// Rows of dimension 0 of the logical tensor that belong to the rank.
  Range rows_of(std::string_view role, std::int64_t whole) const;

  const PackedModel::State& model_;
  LocalExtent extent_;
  int rank_;
};

}  // namespace shardcheck
