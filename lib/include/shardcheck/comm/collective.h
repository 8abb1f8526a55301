// Collectives over the ranks of one tensor-parallel group. A Collective owns some of the ranks (all of them
// in process, one under MPI); every call takes one buffer per local rank and is made by all ranks in the same
// order, so the forward body is the same for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

/// Ranks bring buffers of different sizes to one call. On a cluster they would hang or crash.
class CollectiveMismatch : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// What one rank sent, summed over the local ranks: bytes that leave a rank once for every receiver, as a
/// direct exchange would send them.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};

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

  /// In place: the largest value over ranks, element by element.
  virtual void all_reduce_max_i32(std::span<const std::span<std::int32_t>> buffers) = 0;

  /// In place: the sum over ranks, element by element; the sums of all ranks must fit 64 bits. Order cannot
  /// matter: what `exact` merges its accumulators with.
  virtual void all_reduce_sum_i64(std::span<const std::span<std::int64_t>> buffers) = 0;

  /// Every local rank's bytes, concatenated in rank order; `sizes` receives the bytes of each rank. Moves
  /// bytes, adds nothing: what `tree` ships its covers with, and what gathers logits.
  virtual std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                                  std::vector<std::size_t>& sizes) = 0;

  /// sends[slot][rank] goes from local rank `slot` to rank `rank`; the result has, per local rank, what it
  /// was sent, concatenated in rank order of the senders. Moves bytes, adds nothing: the first step of a
  /// two-shot reduction.
  virtual std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::span<const std::byte>>> sends) = 0;

  /// Everything sent through all_gather_bytes and all_to_all_bytes since construction.
  virtual Traffic traffic() const = 0;
};

/// A collective that passes every call on to another: the base of faults and of counters.
class CollectiveDecorator : public Collective {
 public:
  explicit CollectiveDecorator(std::unique_ptr<Collective> inner) : inner_(std::move(inner)) {}
  int degree() const override { return inner_->degree(); }
  std::span<const int> local_ranks() const override { return inner_->local_ranks(); }
  void all_reduce_sum(std::span<const std::span<float>> buffers) override { inner_->all_reduce_sum(buffers); }
  void all_reduce_sum_u32(std::span<const std::span<std::uint32_t>> buffers) override {
    inner_->all_reduce_sum_u32(buffers);
  }
  void all_reduce_max_i32(std::span<const std::span<std::int32_t>> buffers) override {
    inner_->all_reduce_max_i32(buffers);
  }
  void all_reduce_sum_i64(std::span<const std::span<std::int64_t>> buffers) override {
    inner_->all_reduce_sum_i64(buffers);
  }
  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                          std::vector<std::size_t>& sizes) override {
    return inner_->all_gather_bytes(sends, sizes);
  }
  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::span<const std::byte>>> sends) override {
    return inner_->all_to_all_bytes(sends);
  }
  Traffic traffic() const override { return inner_->traffic(); }

 protected:
  Collective& inner() { return *inner_; }

 private:
  std::unique_ptr<Collective> inner_;
};

/// Every rank of a group of `degree` in this process. Throws std::invalid_argument when degree < 1.
std::unique_ptr<Collective> make_in_process_collective(int degree);

}  // namespace shardcheck
