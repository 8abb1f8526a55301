// Small geometries and tensors in which every element has bits of its own, for the tests of this folder.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck::small {

inline Geometry geometry(std::int64_t heads, std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocab) {
  Geometry g;
  g.d_model = 12;
  g.n_layers = 2;
  g.n_heads = heads;
  g.n_kv_heads = kv_heads;
  g.head_dim = 2;
  g.ffn = ffn;
  g.vocab = vocab;
  return g;
}

/// Plain, uneven vocabulary, tied, with biases and q/k norms, many degrees.
inline std::vector<Geometry> geometries() {
  std::vector<Geometry> all = {geometry(4, 2, 8, 12), geometry(4, 4, 12, 13), geometry(6, 6, 12, 12),
                               geometry(12, 12, 24, 15)};
  all[1].tied = all[3].tied = true;
  all[2].qkv_bias = all[3].qkv_bias = true;
  all[2].qk_norm = true;
  return all;
}

/// A tensor whose elements are the numbers first, first + 1, ... as raw bits, last byte last.
inline Tensor counting(DType dtype, const Shape& shape, std::uint64_t first) {
  Tensor tensor = Tensor::uninitialized(dtype, shape);
  const auto bytes = tensor.mutable_bytes();
  const auto width = static_cast<std::size_t>(size_bits(dtype) / 8);
  for (std::size_t i = 0; i * width < bytes.size(); ++i) {
    for (std::size_t b = 0; b < width; ++b) {
      bytes[i * width + b] = b < 8 ? static_cast<std::byte>((first + i) >> (8 * b)) : std::byte{0};
    }
  }
  return tensor;
}

/// Every logical tensor of a geometry; no two elements of the model are equal while 16 bits can tell them
/// apart.
inline TensorMap logical(const Geometry& geometry, DType dtype) {
  TensorMap tensors;
  std::uint64_t first = 1;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    tensors.emplace(tensor.name, counting(dtype, tensor.shape, first));
    first += static_cast<std::uint64_t>(element_count(tensor.shape));
  }
  return tensors;
}

/// Every layout of the tables for Llamas that a forward pass reads that can hold a geometry at a degree
/// of 1..max_degree.
inline std::vector<Layout> layouts(const Geometry& geometry, int max_degree) {
  std::vector<int> candidates(static_cast<std::size_t>(max_degree));
  std::iota(candidates.begin(), candidates.end(), 1);
  std::vector<Layout> all;
  for (const std::string& name : LayoutTable::built_in_names()) {
    const LayoutTable& table = LayoutTable::built_in(name);
    if (table.consumer() == "none" || table.family() != "llama" || name == "sglang-llama")
      continue;  // the latter is vllm-llama's twin
    for (const int degree : supported_degrees(table, geometry, candidates)) {
      all.push_back(table.instantiate(geometry, degree));
    }
  }
  return all;
}

/// A layout with another placement for one entry.
inline Layout with_placement(Layout layout, const std::string& entry_name, const Placement& placement) {
  for (LayoutEntry& entry : layout.entries) {
    if (entry.name == entry_name) {
      entry.placed = PlacedTensor(entry.name, entry.placed.shape(), placement, layout.degree);
    }
  }
  return layout;
}

}  // namespace shardcheck::small
