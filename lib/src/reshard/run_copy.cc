#include "run_copy.h"

#include "shards.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

void copy_bytes(const std::string& name, DType dtype, const Copy& copy, const std::byte* source,
                const Shape& from, std::byte* target, BoxPlace to) {
  const std::size_t dims = at(copy.dims);
  copy_box(name, dtype, std::span(copy.size).first(dims), source,
           {from, std::span(copy.source_origin).first(from.size())}, std::span(copy.source_dim).first(dims),
           target, to);
}

}  // namespace

Tensor read_copy(const std::string& name, DType dtype, const Copy& copy, const std::byte* source,
                 const Shape& from) {
  const Shape size(copy.size.begin(), copy.size.begin() + copy.dims), origin(size.size(), 0);
  Tensor values = allocate_tensor(name, dtype, size);
  copy_bytes(name, dtype, copy, source, from, values.mutable_bytes().data(), {size, origin});
  return shifted(name, values, copy.shift);
}

void run_copy(const std::string& name, DType dtype, const Copy& copy, const std::byte* source,
              const Shape& from, std::byte* target, BoxPlace to) {
  if (copy.shift == 0) return copy_bytes(name, dtype, copy, source, from, target, to);
  const Tensor values = read_copy(name, dtype, copy, source, from);
  const Shape origin(values.shape().size(), 0);
  copy_box(name, dtype, values.shape(), values.bytes().data(), {values.shape(), origin}, target, to);
}

}  // namespace shardcheck
