// Collectives over the ranks of one tensor-parallel group. A Collective owns some of the ranks (all of them
// in process, one under MPI); every call takes one buffer per local rank and is made by all ranks in the same
// order, so the forward body is the same for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

class Collective {
 public:
  virtual ~Collective() = default;

  /// Ranks in the group.
  virtual int degree() const = 0;
  /// Ranks held here, ascending. Every list argument below has one entry per local rank, in this order.
  virtual std::span<const int> local_ranks() const = 0;

  /// In place: every buffer becomes the sum over ranks, in f32. In process: the left fold in rank order.
  /// Under MPI: the library's own order. This is the collective of `native`.
  virtual void all_reduce_sum(std::span<const std::span<float>> buffers) = 0;

  /// In place: 32-bit unsigned sum modulo 2^32 over ranks, element by element. With one non-zero addend it
  /// moves bits unchanged (a masked embedding), with two it does not.
  virtual void all_reduce_sum_u32(std::span<const std::span<std::uint32_t>> buffers) = 0;

  /// Every local rank's bytes, concatenated in rank order; `sizes` receives the bytes of each rank. Moves
  /// bytes, adds nothing: what `tree` ships its covers with, and what gathers logits.
  virtual std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                                  std::vector<std::size_t>& sizes) = 0;
};

/// Every rank of a group of `degree` in this process. Throws std::invalid_argument when degree < 1.
std::unique_ptr<Collective> make_in_process_collective(int degree);

}  // namespace shardcheck
