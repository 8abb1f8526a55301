// Tensors that placements cut over a tensor-parallel group: what models of effective weights share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/layout/placement.h"
#include "shardcheck/reshard/reshard.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::effective {

struct CutTensor {
  std::string name;
  Tensor whole;
  Placement placement;
};

/// How an engine loads what its ranks hold; a fault overrides it for the tensors it gets wrong.
class Loader {
 public:
  virtual ~Loader() = default;
  /// One shard per rank.
  virtual std::vector<Tensor> load(const CutTensor& tensor, int degree) const;
};

/// Gives every rank the first rows of tensors whose name ends so.
class FirstRows final : public Loader {
 public:
  explicit FirstRows(std::string_view name_ending) : name_ending_(name_ending) {}
  std::vector<Tensor> load(const CutTensor& tensor, int degree) const override;

 private:
  std::string_view name_ending_;
};

ShardedTensors load_all(const std::vector<CutTensor>& tensors, int degree, const Loader& loader);

/// Why a case has no weights that a few ranks share, or nullopt. More ranks show nothing new, and take long.
std::optional<std::string> needs_few_ranks(const Case& c);

/// f32; element i is first + i: no two are equal.
Tensor numbered(Shape shape, std::int64_t first = 1);
/// f32 whole numbers of magnitude 1..largest.
Tensor whole_numbers(Stream stream, Shape shape, std::int64_t largest);

/// A divisor of the degree below it.
std::int64_t proper_divisor(Stream& stream, int degree);

/// Rows of a tensor in the given order.
using Rows = std::vector<std::int64_t>;
/// Appends count rows from `begin` on.
void append_rows(Rows& rows, std::int64_t begin, std::int64_t count);
/// Columns [begin, begin + count) of a matrix of f32.
Tensor columns_of(const Tensor& matrix, std::int64_t begin, std::int64_t count);

}  // namespace shardcheck::effective
