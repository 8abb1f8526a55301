// The composable digest of weights: a sum over elements, each weighted by its tensor and its logical index,
// so that the digest of any sharding is the sum of the digests of its parts. What follows is a contract, like
// a file format: a digest that was printed once must be printed again by every later version.
//
// A digest is a pair of sums modulo 2^64, printed as 32 lower-case hex digits, half 0 first. All sums and
// products below are modulo 2^64; h is 0 or 1.
//
//   units    The bytes of a tensor, elements in row-major order of the logical tensor, are read as units of 1
//            byte (sub-byte and 8-bit dtypes), 2 bytes (16-bit) or 4 bytes (32- and 64-bit), little-endian.
//            Unit u has the value b(u).
//   keys     key_h = XXH3_64bits_withSeed("DTYPE NAME", h): the dtype as a safetensors header names it, one
//            space, the logical name of the tensor.
//   factor   S_h(B) = mix(key_h + (B + 1) * 0x9e3779b97f4a7c15) | 1 for block B of 1024 units, where
//            mix(z):  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) * 0x94d049bb133111eb;
//            z ^ z >> 31, the output function of SplitMix64 (Steele, Lea, Flood 2014).
//   weight   C_h(k) = mix((1024 * h + k + 1) * 0x9e3779b97f4a7c15) >> 32 for k in 0..1023. Within a half they
//            are distinct and none is zero.
//   element  Unit u adds S_h(u / 1024) * C_h(u % 1024) * (b(u) + 1) to half h.
//   header   A tensor, even one without elements, adds XXH3_64bits_withSeed("DTYPE SHAPE NAME", 2 + h), SHAPE
//            printed as to_string prints it. Whoever owns the tensor adds this once (`digest_of_header`).
//
// Why so. The sum is linear: any partition into runs, in any order, gives one digest, and within a block the
// factor is applied once per run. b + 1 lies in 1..2^32, so that a lost or a repeated unit shows even when it
// is zero. Weights have 32 bits and factors are odd, so that a weight, or a difference of two, times a
// difference of two units never reaches 2^64 and never vanishes: a change of one unit, a lost or repeated
// unit and an exchange of two unequal units of a block are seen with certainty. Any other accident goes
// unseen with a probability of about 2^-64 over the choice of weights and keys. 64-bit elements are two units
// because 2^63 times any odd number is 2^63: their sign bits would cancel wherever they went. This protects
// against accidents. It is no defence against somebody who constructs a collision.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A digest of elements of any number of tensors; the default one is of nothing.
class WeightDigest {
 public:
  WeightDigest() = default;
  explicit WeightDigest(std::array<std::uint64_t, 2> halves) noexcept : halves_(halves) {}

  /// The digest of what either was of; elements in both count twice.
  WeightDigest& operator+=(const WeightDigest& other) noexcept;
  friend WeightDigest operator+(WeightDigest a, const WeightDigest& b) noexcept { return a += b; }
  friend bool operator==(const WeightDigest&, const WeightDigest&) = default;

  /// 32 lower-case hex digits.
  std::string hex() const;
  /// Inverse of `hex`; nullopt for any other text, upper case included.
  static std::optional<WeightDigest> parse(std::string_view hex);

 private:
  std::array<std::uint64_t, 2> halves_{};
};

/// What one tensor adds to a digest besides its elements: sees a missing empty tensor and a reshape. Throws
/// as `element_count` does.
WeightDigest digest_of_header(std::string_view logical_name, DType dtype, const Shape& shape);

/// Adds up the elements of one logical tensor, in whatever parts they come. Indices are flat, row-major, in
/// the logical tensor. Runs of f4 must start and end at even indices, of f6 at multiples of 4: at whole
/// bytes.
class TensorDigest {
 public:
  /// Throws as `element_count` does, std::overflow_error when the bits leave int64, UnsupportedLayout when
  /// the elements of a sub-byte dtype do not fill whole bytes.
  TensorDigest(std::string_view logical_name, DType dtype, const Shape& shape);

  /// Adds elements first .. first+count-1 from consecutive memory of any alignment. Throws std::out_of_range
  /// when one lies outside the tensor, UnsupportedLayout when an end of the run lies inside a byte.
  void add_run(std::int64_t first, const std::byte* bits, std::int64_t count);

  /// Adds elements first, first+step, ... (step >= 1) from consecutive memory: a column. Throws
  /// std::invalid_argument on another step, UnsupportedLayout for a sub-byte dtype, otherwise as `add_run`.
  void add_strided(std::int64_t first, std::int64_t step, const std::byte* bits, std::int64_t count);

  /// Of what was added so far.
  WeightDigest sum() const noexcept { return sum_; }

 private:
  void require_inside(std::int64_t first, std::int64_t step, std::int64_t count) const;
  void require_whole_bytes(std::int64_t first, std::int64_t count) const;

  std::string name_;
  DType dtype_;
  std::int64_t elements_;
  std::array<std::uint64_t, 2> keys_;
  WeightDigest sum_;
};

}  // namespace shardcheck
