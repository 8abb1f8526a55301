#include "layout/quant_format.h"

#include <fmt/format.h>

#include "arithmetic/ceil_div.h"
#include "layout/overloaded.h"
#include "layout/packed_words.h"

namespace shardcheck {
namespace {

std::vector<Stored> stored_as(const QuantizedMatrix& m, const Gptq& format, const Refuser& refuser) {
  refuser.require(is_packable(format.bits), "qweight", "bits", format.bits, "2, 3, 4 or 8");
  refuser.require(format.group == -1 || (format.group >= 1 && format.group <= m.in), "scales", "group",
                  format.group, fmt::format("-1 or 1..{}", m.in));
  const PackUnit pack = pack_unit_of(format.bits);
  refuser.require_multiple("qweight", "in", m.in, pack.values, "word");
  refuser.require_multiple("qzeros", "out", m.out, pack.values, "word");
  const std::int64_t groups = format.group == -1 ? 1 : ceil_div(m.in, format.group);
  // With act_order any input channel may need any group; one group of all channels is needed everywhere.
  const bool whole = format.act_order || format.group == -1;
  const StoredAxis group = whole ? StoredAxis{} : StoredAxis{0, format.group, 1, "group"};
  const auto word = [&pack](int dim) { return StoredAxis{dim, pack.values, pack.words, "word"}; };
  const auto words = [&pack](std::int64_t values) { return values / pack.values * pack.words; };
  return {{"qweight", DType::i32, {words(m.in), m.out}, {1}, word(0)},
          {"qzeros", DType::i32, {groups, words(m.out)}, word(1), group},
          {"scales", DType::f16, {groups, m.out}, {1}, group},
          {"g_idx", DType::i32, {m.in}, {}, {0}}};
}

std::vector<Stored> stored_as(const QuantizedMatrix& m, const Awq& format, const Refuser& refuser) {
  refuser.require_range("scales", "group", format.group, m.in);
  refuser.require_multiple("qweight", "out", m.out, kAwqColumns, "word");
  refuser.require_multiple("scales", "in", m.in, format.group, "group");
  const std::int64_t groups = m.in / format.group, words = m.out / kAwqColumns;
  const StoredAxis word{1, kAwqColumns, 1, "word"}, group{0, format.group, 1, "group"};
  return {{"qweight", DType::i32, {m.in, words}, word, {0}},
          {"qzeros", DType::i32, {groups, words}, word, group},
          {"scales", DType::f16, {groups, m.out}, {1}, group}};
}

Stored float8_weight(const QuantizedMatrix& m, DType dtype, const Refuser& refuser) {
  refuser.require_float8(dtype);
  return {"weight", dtype, {m.out, m.in}, {0}, {1}};
}

std::vector<Stored> stored_as(const QuantizedMatrix& m, const Fp8PerTensor& format, const Refuser& refuser) {
  const std::int64_t scales = format.fused_scale ? 1 : std::ssize(m.stacked());
  return {float8_weight(m, format.dtype, refuser), {"weight_scale", DType::f32, {scales}, {}, {}}};
}

std::vector<Stored> stored_as(const QuantizedMatrix& m, const Fp8PerChannel& format, const Refuser& refuser) {
  const Shape shape = format.keep_dim ? Shape{m.out, 1} : Shape{m.out};
  return {float8_weight(m, format.dtype, refuser), {"weight_scale", DType::f32, shape, {0}, {}}};
}

std::vector<Stored> stored_as(const QuantizedMatrix& m, const Fp8Block& format, const Refuser& refuser) {
  refuser.require_range("weight_scale_inv", "block_out", format.block_out, kMaxQuantizedExtent);
  refuser.require_range("weight_scale_inv", "block_in", format.block_in, kMaxQuantizedExtent);
  return {float8_weight(m, format.dtype, refuser),
          {"weight_scale_inv",
           DType::f32,
           {ceil_div(m.out, format.block_out), ceil_div(m.in, format.block_in)},
           {0, format.block_out, 1, "block"},
           {1, format.block_in, 1, "block"}}};
}

std::vector<Stored> stored_as(const QuantizedMatrix& m, const Mxfp8& format, const Refuser& refuser) {
  refuser.require_multiple("weight_scale", "in", m.in, kMxBlock, "block");
  const std::int64_t blocks = m.in / kMxBlock;
  Stored scale{"weight_scale", DType::f8_e8m0, {m.out, blocks}, {0}, {1, kMxBlock, 1, "block"}};
  if (format.swizzled) scale = {"weight_scale", DType::f8_e8m0, {swizzled_size(m.out, blocks)}, {}, {}};
  return {float8_weight(m, format.dtype, refuser), scale};
}

}  // namespace

void Refuser::refuse(std::string_view tensor, std::string_view field, std::int64_t value,
                     std::string_view why) const {
  throw UnsupportedLayout(fmt::format("{}{}{}: {}={} at TP degree {}: {}", name_, tensor.empty() ? "" : ".",
                                      tensor, field, value, degree_, why));
}

void Refuser::require(bool holds, std::string_view tensor, std::string_view field, std::int64_t value,
                      std::string_view allowed) const {
  if (!holds) refuse(tensor, field, value, fmt::format("allowed is {}", allowed));
}

void Refuser::require_range(std::string_view tensor, std::string_view field, std::int64_t value,
                            std::int64_t largest) const {
  require(value >= 1 && value <= largest, tensor, field, value, fmt::format("1..{}", largest));
}

void Refuser::require_multiple(std::string_view tensor, std::string_view field, std::int64_t value,
                               std::int64_t unit, std::string_view noun) const {
  if (value % unit != 0)
    refuse(tensor, field, value, fmt::format("allowed are multiples of {}, whole {}s", unit, noun));
}

void Refuser::require_float8(DType dtype) const {
  if (dtype != DType::f8_e4m3 && dtype != DType::f8_e5m2)
    throw UnsupportedLayout(fmt::format("{}.weight: dtype={} at TP degree {}: allowed are f8_e4m3, f8_e5m2",
                                        name_, short_name(dtype), degree_));
}

std::vector<Stored> stored_tensors(const QuantizedMatrix& matrix, const Refuser& refuser) {
  return std::visit([&](const auto& format) { return stored_as(matrix, format, refuser); }, matrix.format);
}

std::string to_string(const QuantFormat& format) {
  return std::visit(
      Overloaded{[](const Gptq& f) {
                   return fmt::format("gptq(bits={}, group={}{})", f.bits, f.group,
                                      f.act_order ? ", act_order" : "");
                 },
                 [](const Awq& f) { return fmt::format("awq(group={})", f.group); },
                 [](const Fp8PerTensor& f) {
                   return fmt::format("fp8_per_tensor({}{})", short_name(f.dtype),
                                      f.fused_scale ? ", fused_scale" : "");
                 },
                 [](const Fp8PerChannel& f) {
                   return fmt::format("fp8_per_channel({}{})", short_name(f.dtype),
                                      f.keep_dim ? ", keep_dim" : "");
                 },
                 [](const Fp8Block& f) {
                   return fmt::format("fp8_block({}, {}x{})", short_name(f.dtype), f.block_out, f.block_in);
                 },
                 [](const Mxfp8& f) {
                   return fmt::format("mxfp8({}{})", short_name(f.dtype), f.swizzled ? ", swizzled" : "");
                 }},
      format);
}

}  // namespace shardcheck
