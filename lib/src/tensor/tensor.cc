#include "shardcheck/tensor/tensor.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace shardcheck {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t checked_size_bytes(DType dtype, const Shape& shape, std::int64_t elements) {
  const auto bits = static_cast<__int128>(elements) * size_bits(dtype);
  if (bits / 8 > std::numeric_limits<std::int64_t>::max())
    throw std::overflow_error("tensor of shape " + to_string(shape) + " and dtype " +
                              std::string(short_name(dtype)) + " has more than 2^63 - 1 bytes");
  if (bits % 8 != 0)
    throw std::invalid_argument("tensor of shape " + to_string(shape) + " and dtype " +
                                std::string(short_name(dtype)) + " does not fill a whole number of bytes");
  return static_cast<std::size_t>(bits / 8);
}

std::size_t physical_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::numeric_limits<std::size_t>::max() / 2;
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes);
}

// Refused by size before the allocator is asked: an overcommitting kernel would grant it and kill later.
std::shared_ptr<std::byte> allocate(std::size_t size_bytes) {
  static const std::size_t limit = physical_memory_bytes();
  if (size_bytes == 0) return nullptr;
  void* block = nullptr;
  if (size_bytes <= limit) {
    const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    block = std::aligned_alloc(kAlignment, rounded);
  }
  if (block == nullptr)
    throw std::runtime_error("cannot allocate " + std::to_string(size_bytes) +
                             " bytes for a tensor (memory of this machine: " + std::to_string(limit) +
                             " bytes)");
  return {static_cast<std::byte*>(block), [](std::byte* bytes) { std::free(bytes); }};
}

std::shared_ptr<std::byte> clone(const std::byte* data, std::size_t size_bytes) {
  auto copy = allocate(size_bytes);
  if (size_bytes > 0) std::memcpy(copy.get(), data, size_bytes);
  return copy;
}

bool is_aligned_for(DType dtype, const std::byte* data) {
  const auto element_bytes = static_cast<std::uintptr_t>((size_bits(dtype) + 7) / 8);
  return reinterpret_cast<std::uintptr_t>(data) % element_bytes == 0;
}

Tensor widened(const Tensor& in) {
  Tensor out = Tensor::uninitialized(DType::f32, in.shape());
  if (in.dtype() == DType::bf16)
    bf16_to_f32(in.as<std::uint16_t>(), out.mutable_f32());
  else
    f16_to_f32(in.as<std::uint16_t>(), out.mutable_f32());
  return out;
}

Tensor narrowed(const Tensor& in, DType dtype) {
  Tensor out = Tensor::uninitialized(dtype, in.shape());
  if (dtype == DType::bf16)
    f32_to_bf16(in.f32(), out.mutable_as<std::uint16_t>());
  else
    f32_to_f16(in.f32(), out.mutable_as<std::uint16_t>());
  return out;
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(shape[d]);
  }
  return text + "]";
}

std::string coordinates(const Shape& shape, std::int64_t flat) {
  Shape index = shape;
  for (std::size_t d = shape.size(); d > 0; --d) {
    index[d - 1] = flat % shape[d - 1];
    flat /= shape[d - 1];
  }
  return to_string(index);
}

std::int64_t element_count(const Shape& shape) {
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw std::invalid_argument("shape " + to_string(shape) + " has a negative extent");
    empty = empty || extent == 0;
  }
  if (empty) return 0;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (count > std::numeric_limits<std::int64_t>::max() / extent)
      throw std::overflow_error("shape " + to_string(shape) + " has more than 2^63 - 1 elements");
    count *= extent;
  }
  return count;
}

Tensor::Tensor() : shape_{0} {}

Tensor Tensor::uninitialized(DType dtype, Shape shape) {
  Tensor tensor;
  tensor.elements_ = element_count(shape);
  tensor.size_bytes_ = checked_size_bytes(dtype, shape, tensor.elements_);
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  auto bytes = allocate(tensor.size_bytes_);
  tensor.data_ = bytes.get();
  tensor.owner_ = std::move(bytes);
  return tensor;
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  Tensor tensor = uninitialized(dtype, std::move(shape));
  std::ranges::fill(tensor.mutable_bytes(), std::byte{0});
  return tensor;
}

Tensor Tensor::poisoned(DType dtype, Shape shape) {
  Tensor tensor = uninitialized(dtype, std::move(shape));
  std::ranges::fill(tensor.mutable_bytes(), std::byte{0xFF});
  return tensor;
}

Tensor Tensor::from(Shape shape, std::span<const float> values) {
  if (static_cast<std::uint64_t>(element_count(shape)) != values.size())
    throw std::invalid_argument("shape " + to_string(shape) + " does not hold " +
                                std::to_string(values.size()) + " values");
  Tensor tensor = uninitialized(DType::f32, std::move(shape));
  if (!values.empty()) std::memcpy(tensor.mutable_bytes().data(), values.data(), values.size_bytes());
  return tensor;
}

Tensor Tensor::borrowed(DType dtype, Shape shape, std::shared_ptr<const void> owner, const std::byte* data) {
  Tensor tensor;
  tensor.elements_ = element_count(shape);
  tensor.size_bytes_ = checked_size_bytes(dtype, shape, tensor.elements_);
  if (data == nullptr && tensor.size_bytes_ > 0)
    throw std::invalid_argument("borrowed tensor of shape " + to_string(shape) + " has no bytes");
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.owned_ = !is_aligned_for(dtype, data);
  if (tensor.owned_) {
    auto copy = clone(data, tensor.size_bytes_);
    tensor.data_ = copy.get();
    tensor.owner_ = std::move(copy);
  } else {
    tensor.data_ = data;
    tensor.owner_ = std::move(owner);
  }
  return tensor;
}

std::span<std::byte> Tensor::mutable_bytes() {
  if (size_bytes_ == 0) return {};
  if (owned_ && owner_.use_count() == 1) {
    // use_count() is a relaxed read. Taking and dropping a reference orders our writes after every read
    // another thread made through a copy it has dropped since.
    std::shared_ptr<const void>(owner_).reset();
  } else {
    auto copy = clone(data_, size_bytes_);
    data_ = copy.get();
    owner_ = std::move(copy);
    owned_ = true;
  }
  return {const_cast<std::byte*>(data_), size_bytes_};
}

Tensor Tensor::rows(std::int64_t first, std::int64_t count) const {
  if (shape_.empty()) throw std::out_of_range("a scalar tensor has no rows");
  const std::int64_t all = shape_.front();
  if (first < 0 || count < 0 || first > all || count > all - first)
    throw std::out_of_range("rows [" + std::to_string(first) + ", +" + std::to_string(count) +
                            ") of a tensor of shape " + to_string(shape_));
  Tensor view = *this;
  view.shape_.front() = count;
  view.elements_ = all == 0 ? 0 : elements_ / all * count;
  view.size_bytes_ = checked_size_bytes(dtype_, view.shape_, view.elements_);
  if (all > 0 && size_bytes_ > 0) {
    Shape skipped = shape_;
    skipped.front() = first;
    view.data_ += checked_size_bytes(dtype_, skipped, elements_ / all * first);
  }
  return view;
}

Tensor Tensor::reshaped(Shape shape) const {
  if (element_count(shape) != elements_)
    throw std::invalid_argument("a tensor of shape " + to_string(shape_) + " cannot take the shape " +
                                to_string(shape));
  Tensor view = *this;
  view.shape_ = std::move(shape);
  return view;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  if (!is_forward_dtype(dtype) || !is_forward_dtype(dtype_))
    throw std::invalid_argument("no conversion from " + std::string(short_name(dtype_)) + " to " +
                                std::string(short_name(dtype)) + " (only among f32, bf16, f16)");
  const Tensor wide = dtype_ == DType::f32 ? *this : widened(*this);
  return dtype == DType::f32 ? wide : narrowed(wide, dtype);
}

bool Tensor::same_bytes(const Tensor& other) const noexcept {
  return dtype_ == other.dtype_ && shape_ == other.shape_ &&
         (size_bytes_ == 0 || std::memcmp(data_, other.data_, size_bytes_) == 0);
}

std::int64_t Tensor::first_difference(const Tensor& other) const {
  if (dtype_ != other.dtype_ || shape_ != other.shape_)
    throw std::invalid_argument("tensors of another dtype or shape are not compared by element");
  const auto mine = bytes();
  const auto [left, right] = std::mismatch(mine.begin(), mine.end(), other.bytes().begin());
  if (left == mine.end()) return -1;
  // To the bit: elements of 4 and 6 bits share bytes.
  const int bit = std::countr_zero(std::to_integer<unsigned>(*left ^ *right));
  return ((left - mine.begin()) * 8 + bit) / size_bits(dtype_);
}

void Tensor::require_stored_as(bool right, std::size_t size) const {
  if (right) return;
  throw std::invalid_argument("elements of dtype " + std::string(short_name(dtype_)) +
                              " are not held as this type of " + std::to_string(size) + " bytes");
}

std::size_t Tensor::byte_of(std::int64_t index) const {
  if (index < 0 || index >= elements_)
    throw std::out_of_range("element " + std::to_string(index) + " of a tensor of shape " +
                            to_string(shape_));
  if (size_bits(dtype_) % 8 != 0)
    throw std::invalid_argument("an element of dtype " + std::string(short_name(dtype_)) +
                                " does not begin at a byte");
  return static_cast<std::size_t>(index) * static_cast<std::size_t>(size_bits(dtype_) / 8);
}

std::uint64_t Tensor::bits(std::int64_t index) const {
  static_assert(std::endian::native == std::endian::little, "bytes of a tensor are little-endian");
  std::uint64_t bits = 0;
  std::memcpy(&bits, data_ + byte_of(index), static_cast<std::size_t>(size_bits(dtype_) / 8));
  return bits;
}

void Tensor::set_bits(std::int64_t index, std::uint64_t bits) {
  const std::size_t at = byte_of(index);
  std::memcpy(mutable_bytes().data() + at, &bits, static_cast<std::size_t>(size_bits(dtype_) / 8));
}

}  // namespace shardcheck
