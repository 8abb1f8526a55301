// Quantised linear weights over a tensor-parallel group: the tensors a format stores beside each other
// (packed words, zeros, scales, group ids), how each of them lies over the ranks, and where a cut would part
// values that one word, group or block holds together. A weight is [out, in] and computes y = x W^T whatever
// orientation its format stores. What cannot be cut is refused by the constructor of PlacedQuantized, never
// rounded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shardcheck/layout/placement.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// GPTQ (source: AutoGPTQ qlinear_cuda_old.py): qweight i32 [in*bits/32, out] packed along in, qzeros i32
/// [ceil(in/group), out*bits/32] packed along out and holding zero - 1, scales f16 [ceil(in/group), out],
/// g_idx i32 [in]. w[o, i] = (q - zero) * scale of group g_idx[i] with act_order, else of group i / group:
/// engines ignore g_idx then, and a rank of a row-parallel layer holds its groups alone.
struct Gptq {
  int bits = 4;              // 2, 3, 4 or 8
  std::int64_t group = 128;  // input channels per scale; -1: all of them
  bool act_order = false;    // g_idx is any map of channels to groups
  bool operator==(const Gptq&) const = default;
};

/// AWQ GEMM (source: AutoAWQ modules/linear/gemm.py), 4 bits: qweight i32 [in, out/8], nibble k of a word is
/// column 0, 2, 4, 6, 1, 3, 5, 7 of its eight; qzeros i32 [in/group, out/8] likewise; scales f16 [in/group,
/// out]. w = (q - zero) * scale.
struct Awq {
  std::int64_t group = 128;
  bool operator==(const Awq&) const = default;
};

/// weight f8 [out, in] and weight_scale f32 [parts], one scale per logical matrix; [1] with `fused_scale`,
/// after requantize_to_max_scale.
struct Fp8PerTensor {
  DType dtype = DType::f8_e4m3;
  bool fused_scale = false;
  bool operator==(const Fp8PerTensor&) const = default;
};

/// weight f8 [out, in] and weight_scale f32 [out], or [out, 1] with `keep_dim`.
struct Fp8PerChannel {
  DType dtype = DType::f8_e4m3;
  bool keep_dim = false;
  bool operator==(const Fp8PerChannel&) const = default;
};

/// weight f8 [out, in] and weight_scale_inv f32 [ceil(out/block_out), ceil(in/block_in)], which multiplies. A
/// block never belongs to two logical matrices: all parts but the last are whole blocks.
struct Fp8Block {
  DType dtype = DType::f8_e4m3;
  std::int64_t block_out = 128;
  std::int64_t block_in = 128;
  bool operator==(const Fp8Block&) const = default;
};

/// weight f8 [out, in] and weight_scale e8m0 [out, in/32]; with `swizzled` the scales are one dimension of
/// 128x4 tiles as cuBLAS reads them, padded, and cannot be sliced: requantise, or split before swizzling.
struct Mxfp8 {
  DType dtype = DType::f8_e4m3;
  bool swizzled = false;
  bool operator==(const Mxfp8&) const = default;
};

using QuantFormat = std::variant<Gptq, Awq, Fp8PerTensor, Fp8PerChannel, Fp8Block, Mxfp8>;

/// "gptq(bits=4, group=128, act_order)", "awq(group=128)", "fp8_block(e4m3, 128x128)", ...
std::string to_string(const QuantFormat& format);

/// column: every rank holds some outputs; row: every rank holds some inputs.
enum class ParallelStyle : std::uint8_t { column, row };
std::string_view to_string(ParallelStyle style) noexcept;

/// A quantised weight as data, without its bytes.
struct QuantizedMatrix {
  std::string name;  // "layers.0.qkv"
  QuantFormat format;
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<std::int64_t> parts = {};  // outputs of the logical matrices stacked in it; empty: it is one

  /// `parts`, or `out` alone.
  std::vector<std::int64_t> stacked() const;
  bool operator==(const QuantizedMatrix&) const = default;
};

/// One stored tensor over the ranks.
struct PlacedCompanion {
  std::string name;  // "qweight"
  DType dtype = DType::f32;
  Shape shape;                           // of the whole tensor
  std::optional<Shard> shard = {};       // nullopt: every rank holds all of it
  std::vector<std::int64_t> parts = {};  // lengths along shard->dim that are each cut on their own

  Shape local_shape(int degree) const;
  /// Ranges [begin, end) of shard->dim that a rank holds, in local order; empty when replicated. Throws
  /// std::invalid_argument unless 0 <= rank < degree.
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges(int degree, int rank) const;
};

/// A quantised weight with a style and a degree: what cannot be represented cannot be constructed.
class PlacedQuantized {
 public:
  /// Throws UnsupportedLayout naming the stored tensor, the field, its value, the degree and what is allowed:
  /// degree < 1, extents outside 1..2^31, parts that are not positive or do not add up to `out`, unknown
  /// bits, group or dtype; a matrix whose own extents cut a word, a group of AWQ, or a block between two
  /// parts; and, above degree 1, a rank that would hold a part of a word, group or block of any stored
  /// tensor.
  PlacedQuantized(QuantizedMatrix matrix, ParallelStyle style, int degree);

  const QuantizedMatrix& matrix() const noexcept { return matrix_; }
  ParallelStyle style() const noexcept { return style_; }
  int degree() const noexcept { return degree_; }
  /// Stored tensors, the packed or 8-bit weight first.
  const std::vector<PlacedCompanion>& companions() const noexcept { return companions_; }

  /// What every rank holds: [local_out, local_in], and its outputs of each stacked part.
  std::int64_t local_out() const;
  std::int64_t local_in() const;
  std::vector<std::int64_t> local_parts() const;

 private:
  QuantizedMatrix matrix_;
  ParallelStyle style_;
  int degree_;
  std::vector<PlacedCompanion> companions_;
};

/// Whether PlacedQuantized(matrix, style, degree) can be constructed.
bool is_aligned(const QuantizedMatrix& matrix, ParallelStyle style, int degree);

/// Stored tensors of every rank, copied; `full` holds the whole ones by companion name. g_idx keeps the ids
/// of the whole matrix. Throws InvalidInput naming the tensor when one is missing, unknown or of another
/// dtype or shape.
std::vector<TensorMap> split_quantized(const PlacedQuantized& placed, const TensorMap& full);

/// Inverse of split_quantized. Throws InvalidInput naming tensor and rank as above, and when replicas differ
/// in a bit or there are not `degree` ranks.
TensorMap gather_quantized(const PlacedQuantized& placed, const std::vector<TensorMap>& shards);

/// f32 [local_out, local_in] of one rank's tensors, in the orientation of the logical weight. Every element
/// is one rounded product; a NaN is the same quiet NaN everywhere. Throws InvalidInput as split_quantized
/// does, and for a group id that names no group or, without act_order, is out of order.
Tensor dequantize(const PlacedQuantized& placed, const TensorMap& shard);
/// The whole matrix: degree 1.
Tensor dequantize(const QuantizedMatrix& matrix, const TensorMap& full);

/// A quantised weight with its bytes.
struct QuantizedWeight {
  QuantizedMatrix matrix;
  TensorMap tensors;
};

/// Stacks weights of one format and input along their outputs, changing no value: dequantize of the stack is
/// the stack of dequantize. Per-tensor scales stay one per part. Throws UnsupportedLayout naming the part:
/// none given, another format or `in`, a g_idx that differs, scales that are swizzled or already fused, and
/// what PlacedQuantized refuses (a part that ends inside a block or word).
QuantizedWeight stack_quantized(std::string name, const std::vector<QuantizedWeight>& parts);

/// One scale, the largest, for all parts of an Fp8PerTensor weight: w' = round(w * s_i / s_max). This step
/// CHANGES VALUES: a finite element moves by up to half a unit in the last place of its new 8-bit form, an
/// infinity of E5M2 becomes the largest finite value. Parts whose scale is the largest keep their bytes.
/// Throws UnsupportedLayout for any other format or a fused scale, InvalidInput for a scale that is not
/// finite and positive.
QuantizedWeight requantize_to_max_scale(const QuantizedWeight& weight);

/// Values below 2^bits, u8 [rows, cols], as i32 words along `dim`: bits LSB first, and across words for 3
/// bits, whose unit is 32 values in 3 words. Throws InvalidInput: bits not 2, 3, 4 or 8, not u8 [rows, cols],
/// an extent that is no whole number of units, a value that does not fit.
Tensor gptq_pack(const Tensor& values, int bits, int dim);
/// Its inverse, u8. Throws InvalidInput likewise.
Tensor gptq_unpack(const Tensor& words, int bits, int dim);

/// Values below 16, u8 [rows, cols], as i32 [rows, cols/8] in AWQ's order of columns; and back.
Tensor awq_pack(const Tensor& values);
Tensor awq_unpack(const Tensor& words);

}  // namespace shardcheck
