#include "shardcheck/model/consumer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/convention.h"
#include "shardcheck/text/errors.h"

namespace shardcheck {
namespace {

/// Columns [first, last) of a matrix as rows.
Tensor transposed_columns(const Tensor& matrix, std::int64_t first, std::int64_t last) {
  const std::int64_t rows = matrix.dim(0), columns = matrix.dim(1);
  if (first < 0 || last > columns) {
    throw std::out_of_range(
        fmt::format("columns [{}, {}) of a tensor of shape {}", first, last, to_string(matrix.shape())));
  }
  Tensor turned = Tensor::uninitialized(matrix.dtype(), {last - first, rows});
  const auto width = static_cast<std::size_t>(size_bits(matrix.dtype()) / 8);
  const std::byte* from = matrix.bytes().data();
  std::byte* to = turned.mutable_bytes().data();
  for (std::int64_t column = first; column < last; ++column) {
    for (std::int64_t row = 0; row < rows; ++row, to += width) {
      std::memcpy(to, from + static_cast<std::size_t>(row * columns + column) * width, width);
    }
  }
  return turned;
}

/// Blocks one after the other, in the order of halves where rotary pairs lie side by side.
Tensor ordered_rows(const Tensor& local, const LocalRows& where, std::int64_t head_dim) {
  const std::int64_t block = where.block == 0 ? where.count : where.block;
  Shape shape = local.shape();
  shape.at(0) = where.count;
  Tensor rows = Tensor::uninitialized(local.dtype(), shape);
  std::byte* out = rows.mutable_bytes().data();
  for (std::int64_t begin = 0; begin < where.count; begin += block) {
    const Tensor piece = local.rows(where.first + begin / block * where.stride, block);
    const std::size_t row_bytes = piece.bytes().size() / static_cast<std::size_t>(block);
    for (std::int64_t row = 0; row < block; ++row) {
      std::int64_t to = begin + row;
      if (where.interleaved_rotary) {
        const std::int64_t inside = to % head_dim;
        to = to - inside + inside % 2 * (head_dim / 2) + inside / 2;
      }
      std::memcpy(out + static_cast<std::size_t>(to) * row_bytes,
                  piece.bytes().data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    }
  }
  return rows;
}

/// One tensor of a stack.
Tensor unstacked(const Tensor& stack, std::int64_t which) {
  const Shape& shape = stack.shape();
  if (shape.size() < 2) throw std::out_of_range("a tensor of one dimension is not a stack");
  return stack.rows(which, 1).reshaped(Shape(shape.begin() + 1, shape.end()));
}

}  // namespace

Shape LocalRows::shape() const {
  Shape shape = stack > 0 ? Shape{stack} : Shape{};
  const std::int64_t rows = std::max(end(), padded_to);
  if (columns == 0) {
    shape.push_back(rows);
  } else {
    shape.push_back(transposed ? columns : rows);
    shape.push_back(transposed ? rows : columns);
  }
  return shape;
}

Tensor read_rows(const Tensor& local, const LocalRows& where, std::int64_t head_dim) {
  LocalRows inside = where;
  Tensor whole = where.stack > 0 ? unstacked(local, where.in_stack) : local;
  if (where.transposed) {
    whole = transposed_columns(whole, where.first, where.end());
    inside.first = 0;
  }
  if (inside.block == 0 && !inside.interleaved_rotary) return whole.rows(inside.first, inside.count);
  return ordered_rows(whole, inside, head_dim);
}

std::int64_t Consumer::kv_head_of(const LocalExtent& extent, std::int64_t head) const {
  return head / (extent.heads / extent.kv_heads);
}

std::pair<std::int64_t, std::int64_t> Consumer::local_experts(const Geometry& geometry, int ep_degree,
                                                              int ep_rank) const {
  if (geometry.n_experts % ep_degree != 0) {
    throw UnsupportedLayout(fmt::format(
        "n_experts={} is not divisible by EP degree {}: the forward pass cannot run at this degree",
        geometry.n_experts, ep_degree));
  }
  const std::int64_t share = geometry.n_experts / ep_degree;
  return {share * ep_rank, share * (ep_rank + 1)};
}

std::vector<std::string> Consumer::required_tensors(const Geometry& geometry, int degree, int rank) const {
  std::vector<std::string> names;
  for (const auto& tensor : logical_tensors(geometry)) {
    names.push_back(locate(geometry, degree, rank, tensor.role, tensor.layer, tensor.expert).tensor);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void require_executable(const Consumer& consumer, const Geometry& geometry, const LayoutName& name) {
  for (const auto& [axis_name, degree] : name.axes) {
    // An etp of one rank keeps experts whole that every convention cuts over tp.
    const Axis axis = axis_from_name(axis_name).value();
    if (consumer.runs_over(axis) || (degree == 1 && axis != Axis::etp)) continue;
    std::vector<std::string_view> allowed;
    for (const Axis known : {Axis::tp, Axis::pp, Axis::cp, Axis::ep}) {
      if (consumer.runs_over(known)) allowed.push_back(to_string(known));
    }
    throw UnsupportedLayout(
        fmt::format("layout {}: no forward pass of the consumer {} runs over the axis {}; allowed: {}",
                    to_string(name), consumer.name(), axis_name, fmt::join(allowed, ", ")));
  }
  (void)consumer.local_experts(geometry, name.degree("ep"), 0);
  consumer.require_supported(geometry, name.tp_degree());
}

void require_executable(const Layout& layout) {
  if (layout.consumer == "none") {
    throw UnsupportedLayout(
        fmt::format("layout {}: no forward pass here reads it; allowed: a table that is "
                    "executed as one of {}",
                    to_string(layout.name), fmt::join(consumer_names(), ", ")));
  }
  require_executable(consumer_named(layout.consumer), layout.geometry, layout.name);
}

bool has_running_consumer(const LayoutName& name, const Geometry& geometry) {
  try {
    const LayoutTable& table = LayoutTable::built_in(name.table);
    require_executable(consumer_named(table.consumer()), geometry, name);
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  } catch (const InvalidInput&) {
    return false;
  }
}

const Consumer& consumer_named(std::string_view name) {
  for (const auto& consumer : convention_consumers()) {
    if (consumer.name() == name) return consumer;
  }
  throw InvalidInput(
      fmt::format("consumer '{}' is not known: allowed {}", name, fmt::join(consumer_names(), ", ")));
}

std::vector<std::string> consumer_names() {
  std::vector<std::string> names;
  for (const auto& consumer : convention_consumers()) names.emplace_back(consumer.name());
  return names;
}

}  // namespace shardcheck
