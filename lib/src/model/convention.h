// The conventions of the frameworks as values, and the one consumer that follows any of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/consumer_names.h"
#include "shardcheck/model/consumer.h"

namespace shardcheck {

/// How a convention holds the two vocabulary tensors.
enum class VocabularyRule : std::uint8_t {
  chunk,             // both cut by ceil(vocab / t), the last rank may hold less (seed, torch.chunk)
  even,              // both cut evenly (torchtitan)
  padded,            // both padded with zero rows to a multiple of 64, then cut evenly (vLLM)
  padded_by_degree,  // both padded to a multiple of 128 t, then cut (Megatron)
  whole_embedding,   // embedding whole on every rank, untied head cut evenly (Hugging Face's plan)
  whole              // both whole on every rank (GPT-2, which has no plan for its head)
};

/// What tells the conventions apart.
struct Convention {
  std::string_view name;
  const ConsumerNames* names = nullptr;
  VocabularyRule vocabulary = VocabularyRule::even;
  RowBias row_bias = RowBias::after_sum;
  bool per_group = false;           // fused qkv: each KV head's queries, key and value together
  bool head_each = false;           // as many KV heads as query heads, always
  bool interleaved_rotary = false;  // rows of a head's q and k: rotary pairs side by side
  bool transposed = false;          // projections in layers are [in, out] (Conv1D)
  bool pipelined = false;           // every stage holds what lies outside layers
  bool experts_apart = false;       // a tensor for each expert, named by its number in the whole model
};

class ConventionConsumer final : public Consumer {
 public:
  explicit ConventionConsumer(const Convention& convention) : rules_(convention) {}

  std::string_view name() const override { return rules_.name; }
  void require_supported(const Geometry& g, int degree) const override;
  bool runs_over(Axis axis) const override;
  RowBias row_bias() const override { return rules_.row_bias; }
  bool embedding_is_whole(const Geometry& g) const override;
  bool head_is_whole(const Geometry& g) const override;
  LocalExtent extent(const Geometry& g, int degree, int rank) const override;
  LocalRows locate(const Geometry& g, int degree, int rank, std::string_view role, std::int64_t layer,
                   std::int64_t expert) const override;

 private:
  void require_vocabulary(const Geometry& g, int degree) const;
  void require_roles(const Geometry& g) const;
  /// Rows of the vocabulary with their padding.
  std::int64_t padded(const Geometry& g, int degree) const;
  /// Rows before the role in its local tensor: fused roles are stacked.
  std::int64_t first_row(const Geometry& g, const LocalExtent& local, std::string_view role,
                         std::int64_t layer) const;
  void place_in_groups(LocalRows& rows, const Geometry& g, const LocalExtent& local,
                       std::string_view role) const;

  Convention rules_;
};

/// All of them, by name.
const std::vector<ConventionConsumer>& convention_consumers();

}  // namespace shardcheck
