// Write access to an ExactPartial: where a value goes into the words of an element and where into its
// LongAccumulator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arithmetic/exact_rounding.h"
#include "shardcheck/arithmetic/exact.h"

namespace shardcheck {

/// Takes over the sparse part of `partial`; the destructor gives it back, sorted.
class ExactPartialBuilder {
 public:
  explicit ExactPartialBuilder(ExactPartial& partial);
  ~ExactPartialBuilder();
  ExactPartialBuilder(const ExactPartialBuilder&) = delete;
  ExactPartialBuilder& operator=(const ExactPartialBuilder&) = delete;

  /// Gives the partial a shape and zero words.
  static void reset(ExactPartial& partial, std::vector<std::int32_t> row_exponents,
                    std::vector<std::int32_t> column_exponents);

  /// Adds value * 2^exponent to the element with this flat index.
  void add(std::int64_t index, Int128 value, int exponent);
  void add_product(std::int64_t index, float a, float b);
  /// Adds every element of a partial of the same shape.
  void add(const ExactPartial& other);
  /// The accumulator of an element, made when there is none. Valid until the next call.
  LongAccumulator& rest(std::int64_t index);
  /// Moves words that are too large for a sum over ranks.
  void spill_large_words();

  std::int64_t elements() const { return partial_.rows_ * partial_.columns_; }
  std::int64_t* high(std::int64_t index) const { return partial_.words_.data() + index; }
  std::int64_t* low(std::int64_t index) const { return high(index + elements()); }

 private:
  static int exponent_at(const ExactPartial& partial, std::int64_t index);

  ExactPartial& partial_;
  std::vector<std::int32_t> slots_;  // by flat index: 1 + position in rest_, or 0; empty when rest_ is
};

}  // namespace shardcheck
