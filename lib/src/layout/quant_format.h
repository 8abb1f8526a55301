// Which tensors a quantised format stores and how the two extents of a weight appear in each. Private to the
// library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/layout/quantized.h"

namespace shardcheck {

inline constexpr std::int64_t kMaxQuantizedExtent = std::int64_t{1} << 31;

/// How one logical extent appears in a stored tensor: along `dim`, `stored` indices for every `unit` logical
/// ones, which no cut may separate. dim is -1 when it does not appear, and the tensor is then replicated.
struct StoredAxis {
  int dim = -1;
  std::int64_t unit = 1;
  std::int64_t stored = 1;
  std::string_view noun = "index";
};

struct Stored {
  std::string name;
  DType dtype;
  Shape shape;
  StoredAxis out, in;

  const StoredAxis& cut(ParallelStyle style) const { return style == ParallelStyle::column ? out : in; }
};

/// Refusals of one matrix at one degree: UnsupportedLayout, each of them.
class Refuser {
 public:
  Refuser(const std::string& name, int degree) : name_(name), degree_(degree) {}

  [[noreturn]] void refuse(std::string_view tensor, std::string_view field, std::int64_t value,
                           std::string_view why) const;
  void require(bool holds, std::string_view tensor, std::string_view field, std::int64_t value,
               std::string_view allowed) const;
  void require_range(std::string_view tensor, std::string_view field, std::int64_t value,
                     std::int64_t largest) const;
  void require_multiple(std::string_view tensor, std::string_view field, std::int64_t value,
                        std::int64_t unit, std::string_view noun) const;
  void require_float8(DType dtype) const;

 private:
  const std::string& name_;
  int degree_;
};

/// Stored tensors of a matrix whose extents are in range, the weight first. Refuses what the format cannot
/// store.
std::vector<Stored> stored_tensors(const QuantizedMatrix& matrix, const Refuser& refuser);

}  // namespace shardcheck
