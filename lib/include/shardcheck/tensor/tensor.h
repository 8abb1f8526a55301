// A row-major tensor over owned or mapped bytes. A Tensor is a value: copies share the bytes, and the
// first write through a copy that shares them clones them first, so a change never shows in another copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

/// Extents, outermost first. An empty shape is a scalar (one element); an extent of 0 is legal.
using Shape = std::vector<std::int64_t>;

/// "[2, 3]"; "[]" for a scalar.
std::string to_string(const Shape& shape);
/// "[2, 5]": coordinates of flat index `flat`, which is below the element count.
std::string coordinates(const Shape& shape, std::int64_t flat);

/// Product of the extents. Throws std::invalid_argument on a negative extent, std::overflow_error
/// when the product leaves int64.
std::int64_t element_count(const Shape& shape);

class Tensor {
 public:
  /// An empty f32 tensor of shape [0].
  Tensor();

  /// All bits zero. Owned bytes are aligned to 64. Throws std::invalid_argument when the bits of a
  /// sub-byte dtype do not fill whole bytes, std::runtime_error when the bytes exceed what can be had.
  static Tensor zeros(DType dtype, Shape shape);

  /// Uninitialised owned bytes: every element must be written before it is read.
  static Tensor uninitialized(DType dtype, Shape shape);

  /// Every bit one, a NaN in every floating type: an element nobody wrote shows as one.
  static Tensor poisoned(DType dtype, Shape shape);

  /// A copy of `values` as f32. Throws std::invalid_argument when the count does not fit the shape.
  static Tensor from(Shape shape, std::span<const float> values);

  /// A view of bytes somebody else owns (a mapped file); `owner` is kept alive. Never written:
  /// `mutable_bytes` clones first. Bytes that are not aligned for the dtype are copied instead.
  static Tensor borrowed(DType dtype, Shape shape, std::shared_ptr<const void> owner, const std::byte* data);

  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  /// Extent of dimension `d`. Throws std::out_of_range.
  std::int64_t dim(int d) const { return shape_.at(static_cast<std::size_t>(d)); }
  int rank() const noexcept { return static_cast<int>(shape_.size()); }
  std::int64_t elements() const noexcept { return elements_; }

  std::span<const std::byte> bytes() const noexcept { return {data_, size_bytes_}; }
  /// Unshares first: the bytes then belong to this tensor alone.
  std::span<std::byte> mutable_bytes();

  /// Elements as T, the type `is_stored_as` names for the dtype. Throws std::invalid_argument for any other:
  /// bits of another type are read by `bits`.
  template <typename T>
  std::span<const T> as() const {
    require_stored_as(is_stored_as<T>(dtype_), sizeof(T));
    return {reinterpret_cast<const T*>(data_), static_cast<std::size_t>(elements_)};
  }
  template <typename T>
  std::span<T> mutable_as() {
    require_stored_as(is_stored_as<T>(dtype_), sizeof(T));
    auto writable = mutable_bytes();
    return {reinterpret_cast<T*>(writable.data()), static_cast<std::size_t>(elements_)};
  }
  std::span<const float> f32() const { return as<float>(); }
  std::span<float> mutable_f32() { return mutable_as<float>(); }

  /// Bits of the element at a flat index, zero-extended. Throws std::out_of_range; std::invalid_argument for
  /// a sub-byte dtype.
  std::uint64_t bits(std::int64_t index) const;
  /// Replaces them by the low bits of `bits`. Throws as `bits` does.
  void set_bits(std::int64_t index, std::uint64_t bits);

  /// Zero-copy view of rows [first, first+count) of dimension 0. Throws std::out_of_range; and
  /// std::invalid_argument when a sub-byte dtype puts a cut inside a byte.
  Tensor rows(std::int64_t first, std::int64_t count) const;

  /// Same bytes under another shape of equal element count. Throws std::invalid_argument.
  Tensor reshaped(Shape shape) const;

  /// Conversion among f32, bf16 and f16; the tensor itself when the dtype is the same. Throws
  /// std::invalid_argument for any other pair.
  Tensor to(DType dtype) const;

  /// dtype, shape and every byte equal. NaN payloads and signed zeros count.
  bool same_bytes(const Tensor& other) const noexcept;

  /// Flat index of the first element whose bits differ, -1 when none does. Throws std::invalid_argument
  /// unless dtype and shape agree.
  std::int64_t first_difference(const Tensor& other) const;

 private:
  void require_stored_as(bool right, std::size_t size) const;
  std::size_t byte_of(std::int64_t index) const;

  DType dtype_ = DType::f32;
  Shape shape_;
  std::int64_t elements_ = 0;
  std::size_t size_bytes_ = 0;
  std::shared_ptr<const void> owner_;  // owned buffer, or the owner of borrowed bytes
  const std::byte* data_ = nullptr;
  bool owned_ = true;
};

/// Tensors by name, in name order.
using TensorMap = std::map<std::string, Tensor, std::less<>>;

}  // namespace shardcheck
