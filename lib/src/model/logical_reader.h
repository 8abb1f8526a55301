// A rank's views of logical tensors, cut as an extent says: no layout takes part.
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

/// Whether a tensor is the weights of a product, with rows as outputs.
bool is_linear(const LogicalTensor& tensor);

class LogicalReader final : public RankSource {
 public:
  /// Reads rank `rank` of a tensor-parallel group. Linear layers are views of `packed`, or packed from
  /// `tensors` when it is null. All must outlive the reader.
  LogicalReader(const Geometry& geometry, const TensorMap& tensors, const PackedModel::State* packed,
                const LocalExtent& extent, int rank, Arithmetic arithmetic)
      : geometry_(geometry),
        tensors_(tensors),
        packed_(packed),
        extent_(extent),
        rank_(rank),
        arithmetic_(arithmetic) {}

  Tensor rows(TensorRole role) const override;
  std::vector<float> values(TensorRole role) const override;
  LinearWeights linear(TensorRole role, std::span<const std::int32_t> tops) const override;

 private:
  /// The rank's part of a tensor: `count` indices of dimension `dim` from `first` on.
  struct Cut {
    int dim = 0;
    std::int64_t first = 0, count = 0;
  };
  Cut cut_of(std::string_view role, std::int64_t whole_rows) const;
  const Tensor* find(TensorRole role) const;

  const Geometry& geometry_;
  const TensorMap& tensors_;
  const PackedModel::State* packed_;
  LocalExtent extent_;
  int rank_;
  Arithmetic arithmetic_;
};

}  // namespace shardcheck
