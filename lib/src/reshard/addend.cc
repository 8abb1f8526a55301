#include "addend.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "box_builder.h"
#include "decoded_shape.h"
#include "partial.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

constexpr int kSmallestShare = 16;  // of those that are tried besides the degree and its square

/// An addend as a part of the tensor: 1/divisor of it, nothing for 0.
using Divisor = std::optional<int>;

std::vector<std::uint64_t> sorted_bits(const Tensor& tensor) {
  std::vector<std::uint64_t> bits(at(tensor.elements()));
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = tensor.bits(static_cast<std::int64_t>(i));
  std::ranges::sort(bits);
  return bits;
}

bool is_zero(const Tensor& tensor) { return sorted_bits(tensor).back() == 0; }

std::string text_of(int divisor) {
  if (divisor == 0) return "zeros";
  return divisor == 1 ? "the whole tensor" : fmt::format("1/{} of the tensor", divisor);
}

class Addends {
 public:
  Addends(const LayoutEntry& entry, Tensor whole, Tensor sum)
      : entry_(entry), whole_(std::move(whole)), sum_(std::move(sum)) {}

  Divisor divisor_of(const Tensor& shard) const {
    if (is_zero(shard)) return 0;
    if (shard.same_bytes(whole_) || shard.same_bytes(sum_)) return 1;
    if (!is_forward_dtype(whole_.dtype()) && whole_.dtype() != DType::f64) return std::nullopt;
    const int degree = entry_.placed.degree();
    const Tensor share = divided(whole_, degree);
    if (shard.same_bytes(share)) return degree;
    // Twice by the degree rounds twice.
    if (shard.same_bytes(divided(share, degree))) return degree * degree;
    for (int divisor = 2; divisor <= kSmallestShare; ++divisor) {
      if (shard.same_bytes(divided(whole_, divisor))) return divisor;
    }
    return std::nullopt;
  }

 private:
  Tensor divided(const Tensor& tensor, int by) const {
    const Partial shares{Partial::Encoding::equal_share};
    const PlacedTensor placed(entry_.name, tensor.shape(), shares, by);
    return by == 1 ? tensor : split_partial(placed, shares, tensor).front();
  }

  const LayoutEntry& entry_;
  Tensor whole_;
  Tensor sum_;  // of the right addends, which are rounded
};

/// Another tensor of which the rank should hold these very bytes.
const LayoutEntry* owner_of(const Layout& layout, const LayoutEntry& own, const ShardedTensors& right,
                            const Tensor& shard, int rank) {
  if (is_zero(shard)) return nullptr;
  for (const LayoutEntry& other : layout.entries) {
    if (&other == &own || !other.placed.is_partial() || !other.placed.held_by(rank)) continue;
    if (shard.same_bytes(right.at(other.name)[at(rank)])) return &other;
  }
  return nullptr;
}

std::int64_t differing(const Tensor& a, const Tensor& b) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) count += a.bits(i) != b.bits(i) ? 1 : 0;
  return count;
}

void look(Misplacement& result, Symptom symptom, std::string holds, std::string looks_like) {
  result.symptom = symptom;
  result.holds = std::move(holds);
  result.looks_like = std::move(looks_like);
}

void compare(Misplacement& result, int found, int wanted) {
  const std::string holds = text_of(found);
  if (found == 0) return look(result, Symptom::never_written, holds, "it was never written");
  const bool more = wanted == 0 || found < wanted;
  look(result, Symptom::other_addend, holds,
       fmt::format("the sum over ranks has {} of it than it should", more ? "more" : "less"));
}

DecodedShard decoded(std::int64_t entry, const Tensor& shard, const Tensor& whole) {
  using Kind = OriginBox::Kind;
  const Kind kind = is_zero(shard) ? Kind::zero : shard.same_bytes(whole) ? Kind::element : Kind::unknown;
  OriginBox box = box_of(shard.shape(), kind);
  if (box.kind == Kind::element) {
    box.entry = entry;
    for (std::size_t d = 0; d < shard.shape().size(); ++d) {
      if (box.size[d] > 1) box.step[d] = static_cast<std::int8_t>(d + 1);
    }
  }
  return {.boxes = {box}};
}

}  // namespace

bool describe_addend(const Layout& layout, const ShardedTensors& right, const Tensor& shard,
                     ShardDecoder& decoder, Misplacement& result) {
  const LayoutEntry& own = layout.entries[at(result.entry)];
  const Tensor& expected = right.at(own.name)[at(result.rank)];
  require_decodable(own, result.rank, shard, expected.dtype());
  if (shard.elements() == 0) return false;
  const Tensor whole = decoder.whole(result.entry);
  const Addends addends(own, whole, gather_tensor(own.placed, right.at(own.name)));
  const Divisor found = addends.divisor_of(shard);
  const int wanted = addends.divisor_of(expected).value_or(own.placed.degree());
  const bool reordered = sorted_bits(shard) == sorted_bits(expected);
  if (reordered && wanted == 1) return false;
  result.expected = text_of(wanted);
  result.found = decoded(result.entry, shard, whole);
  if (const LayoutEntry* owner = owner_of(layout, own, right, shard, result.rank)) {
    look(result, Symptom::other_tensor, "what it should hold of " + owner->name,
         "the shard of " + owner->name);
  } else if (found) {
    compare(result, *found, wanted);
  } else if (reordered) {
    look(result, Symptom::reordered, text_of(wanted) + " in another order",
         "the right values in another order");
  } else {
    const std::int64_t count = differing(shard, expected);
    look(result, Symptom::values_changed, "other values",
         fmt::format("{} of {} values changed on the way", count, shard.elements()));
  }
  return true;
}

}  // namespace shardcheck
