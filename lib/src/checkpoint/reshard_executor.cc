#include "checkpoint/reshard_executor.h"

#include <algorithm>
#include <cstring>

#include "reshard/run_copy.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

/// Bytes that hold whole elements of every dtype: 8 of 64 bits, 4 of 6 bits.
constexpr std::uint64_t kGrainBytes = 24;

/// Chunks may not be so small that they cut a row of elements smaller than a byte inside one.
std::uint64_t grain_of(std::uint64_t row_bits) { return row_bits % 8 == 0 ? kGrainBytes : row_bits; }

std::span<const Copy> copies_into(const std::vector<Copy>& copies, std::size_t entry, int rank) {
  const auto key = std::pair(static_cast<std::int32_t>(entry), rank);
  const auto [first, last] = std::equal_range(
      copies.begin(), copies.end(), Copy{.target_entry = key.first, .target_rank = key.second},
      [](const Copy& a, const Copy& b) {
        return std::pair(a.target_entry, a.target_rank) < std::pair(b.target_entry, b.target_rank);
      });
  return {first, last};
}

}  // namespace

ReshardExecutor::ReshardExecutor(const Input& input, OpenFiles& files) : in_(input), files_(files) {}

/// Bytes of each rank's tensor that a round writes: rounds go over the ranks, so that what several of them
/// take from the same rows is read while it is held.
std::uint64_t ReshardExecutor::step_of(std::size_t entry) const {
  const PlacedTensor& placed = in_.target_layout.entries[entry].placed;
  const std::vector<int> holders = placed.holders();
  const Shape shape = placed.local_shape(holders.front());
  std::uint64_t row_bits = static_cast<std::uint64_t>(size_bits(in_.targets.dtype(entry)));
  for (std::size_t d = 1; d < shape.size(); ++d) row_bits *= static_cast<std::uint64_t>(shape[d]);
  std::uint64_t step = std::min(in_.buffer_bytes, kWindowBytes / holders.size());
  for (const std::uint64_t unit : {grain_of(row_bits), row_bits / 8}) {
    if (unit > 0 && unit <= step) step = step / unit * unit;
  }
  return std::max(step, grain_of(row_bits));
}

void ReshardExecutor::run(ReshardPosition from,
                          const std::function<void(const ReshardPosition&, std::uint64_t)>& done) {
  for (std::size_t e = from.entry; e < in_.target_layout.entries.size(); ++e) {
    const std::vector<int> holders = in_.target_layout.entries[e].placed.holders();
    const std::uint64_t longest = in_.targets.longest_tensor_bytes(e);
    const std::uint64_t step = step_of(e);
    for (std::uint64_t begin = e == from.entry ? from.offset : 0; begin < longest; begin += step) {
      std::uint64_t written = 0;
      for (const int rank : holders) {
        const std::uint64_t end = std::min(begin + step, in_.targets.tensor_bytes(e, rank));
        if (begin >= end) continue;
        write_chunk(e, rank, begin, end);
        written += end - begin;
      }
      const bool last = begin + step >= longest;
      done(last ? ReshardPosition{e + 1, 0} : ReshardPosition{e, begin + step}, written);
    }
  }
  window_.release();
}

void ReshardExecutor::write_chunk(std::size_t entry, int rank, std::uint64_t begin, std::uint64_t end) {
  const int bits = size_bits(in_.targets.dtype(entry));
  const auto element = [bits](std::uint64_t byte) { return static_cast<std::int64_t>(byte * 8) / bits; };
  const Shape shape = in_.target_layout.entries[entry].placed.local_shape(rank);
  const std::span<const Copy> copies = copies_into(in_.copies, entry, rank);
  buffer_.resize(end - begin);
  std::int64_t copied = 0;
  const std::vector<Box> boxes = boxes_of_range(shape, element(begin), element(end));
  // Padding is written as zeros, never as what the buffer held.
  const auto for_each = [&](const auto& use) {
    for (const Box& box : boxes) {
      for (const Copy& copy : copies) {
        if (const auto part = part_in(copy, box)) use(*part, box);
      }
    }
  };
  for_each([&](const Copy& part, const Box&) { copied += part.elements(); });
  if (copied < element(end) - element(begin)) std::memset(buffer_.data(), 0, buffer_.size());
  for_each([&](const Copy& part, const Box& box) { copy_into_buffer(part, box, element(begin)); });
  TargetFiles::Place place = in_.targets.place(entry, rank);
  place.offset += begin;
  files_.write(place, buffer_);
}

void ReshardExecutor::copy_into_buffer(const Copy& part, const Box& box, std::int64_t first_element) {
  const auto entry = at(part.target_entry), source_entry = at(part.source_entry);
  const DType dtype = in_.targets.dtype(entry);
  const int bits = size_bits(dtype);
  const std::string& name = in_.target_layout.entries[entry].name;
  const Shape from = in_.source_layout.entries[source_entry].placed.local_shape(part.source_rank);
  const StoredTensor stored = in_.source.tensor(source_entry, part.source_rank);
  std::byte* target = buffer_.data() + (box.first - first_element) * bits / 8;
  for_each_part(part, from, static_cast<std::int64_t>(kWindowBytes) / 2 * 8 / bits, [&](const Copy& piece) {
    const auto [first, last] = source_span(piece, from);
    window_.touch(stored.bytes + first * bits / 8, at((last - first) * bits + 7) / 8);
    const auto dims = at(piece.dims);
    Shape origin(dims, 0);
    for (std::size_t d = 0; d < dims; ++d) origin[d] = piece.target_origin[d] - box.origin[d];
    run_copy(name, dtype, piece, stored.bytes, from, target, {box.size, origin});
  });
}

}  // namespace shardcheck
