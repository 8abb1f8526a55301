// A group of processes, one per rank, that exchange bytes through shared memory: what a collective over MPI
// is, without MPI. Sums are the left fold in rank order, as in process.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "shardcheck/comm/collective.h"

namespace shardcheck::test {

/// Memory that a process and its children share: a barrier, and one slot of bytes per rank.
class SharedSlots {
 public:
  explicit SharedSlots(int degree) : degree_(degree) {
    void* memory = mmap(nullptr, kHeaderBytes + static_cast<std::size_t>(degree) * kSlotBytes,
                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier(), &shared, static_cast<unsigned>(degree));
  }
  ~SharedSlots() { munmap(memory_, kHeaderBytes + static_cast<std::size_t>(degree_) * kSlotBytes); }
  SharedSlots(const SharedSlots&) = delete;
  SharedSlots& operator=(const SharedSlots&) = delete;

  void wait_for_all() { pthread_barrier_wait(barrier()); }
  void put(int rank, std::span<const std::byte> bytes) {
    if (bytes.size() > kSlotBytes - sizeof(std::size_t)) throw std::length_error("larger than a slot");
    const std::size_t size = bytes.size();
    std::memcpy(slot(rank), &size, sizeof size);
    std::memcpy(slot(rank) + sizeof size, bytes.data(), size);
  }
  std::span<const std::byte> get(int rank) const {
    std::size_t size = 0;
    std::memcpy(&size, slot(rank), sizeof size);
    return {slot(rank) + sizeof size, size};
  }

 private:
  static constexpr std::size_t kHeaderBytes = 4096, kSlotBytes = std::size_t{1} << 26;
  pthread_barrier_t* barrier() { return reinterpret_cast<pthread_barrier_t*>(memory_); }
  std::byte* slot(int rank) const {
    return memory_ + kHeaderBytes + static_cast<std::size_t>(rank) * kSlotBytes;
  }

  int degree_;
  std::byte* memory_ = nullptr;
};

/// One rank of the group; the others are other processes.
class ProcessCollective final : public Collective {
 public:
  ProcessCollective(SharedSlots& slots, int degree, int rank) : slots_(slots), degree_(degree), rank_(rank) {}

  int degree() const override { return degree_; }
  std::span<const int> local_ranks() const override { return {&rank_, 1}; }
  void all_reduce_sum(std::span<const std::span<float>> buffers) override { fold(buffers, std::plus<>()); }
  void all_reduce_sum_u32(std::span<const std::span<std::uint32_t>> buffers) override {
    fold(buffers, std::plus<>());
  }
  void all_reduce_sum_i64(std::span<const std::span<std::int64_t>> buffers) override {
    fold(buffers, std::plus<>());
  }
  void all_reduce_max_i32(std::span<const std::span<std::int32_t>> buffers) override {
    fold(buffers, [](std::int32_t x, std::int32_t y) { return std::max(x, y); });
  }

  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                          std::vector<std::size_t>& sizes) override {
    ++traffic_.calls;
    traffic_.bytes += static_cast<std::int64_t>(sends[0].size()) * (degree_ - 1);
    return gather(sends[0], sizes);
  }

  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::span<const std::byte>>> sends) override {
    ++traffic_.calls;
    std::vector<std::byte> received;
    for (int receiver = 0; receiver < degree_; ++receiver) {
      const auto sent = sends[0].at(static_cast<std::size_t>(receiver));
      std::vector<std::size_t> sizes;
      auto all = gather(sent, sizes);
      if (receiver == rank_)
        received = std::move(all);
      else
        traffic_.bytes += static_cast<std::int64_t>(sent.size());
    }
    return {received};
  }

  Traffic traffic() const override { return traffic_; }

 private:
  std::vector<std::byte> gather(std::span<const std::byte> mine, std::vector<std::size_t>& sizes) {
    slots_.put(rank_, mine);
    slots_.wait_for_all();
    std::vector<std::byte> all;
    sizes.clear();
    for (int rank = 0; rank < degree_; ++rank) {
      const auto part = slots_.get(rank);
      sizes.push_back(part.size());
      all.insert(all.end(), part.begin(), part.end());
    }
    slots_.wait_for_all();  // nobody writes its slot again before everybody has read it
    return all;
  }

  template <typename T, typename Combine>
  void fold(std::span<const std::span<T>> buffers, Combine combine) {
    const std::span<T> total = buffers[0];
    std::vector<std::size_t> sizes;
    const auto all = gather(std::as_bytes(total), sizes);
    std::vector<T> next(total.size());
    std::memcpy(total.data(), all.data(), total.size_bytes());
    for (int rank = 1; rank < degree_; ++rank) {
      const auto offset = static_cast<std::size_t>(rank) * total.size_bytes();
      std::memcpy(next.data(), all.data() + offset, total.size_bytes());
      for (std::size_t i = 0; i < total.size(); ++i) total[i] = combine(total[i], next[i]);
    }
  }

  Traffic traffic_;
  SharedSlots& slots_;
  int degree_, rank_;
};

/// Runs `body` in one process per rank and returns what each returned. A process that throws, dies or takes a
/// minute ends the others and fails the test.
inline std::vector<std::vector<std::byte>> on_processes(
    int degree, const std::function<std::vector<std::byte>(Collective&)>& body) {
  SharedSlots slots(degree);
  std::vector<pid_t> children;
  for (int rank = 0; rank < degree; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      try {
        ProcessCollective collective(slots, degree, rank);
        slots.put(rank, body(collective));
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    if (child > 0) children.push_back(child);
  }
  bool good = static_cast<int>(children.size()) == degree;
  for (std::size_t ended = 0; ended < children.size(); ++ended) {
    if (!good) {
      for (const pid_t child : children) kill(child, SIGKILL);
    }
    int status = 0;
    good = waitpid(children[ended], &status, 0) == children[ended] && status == 0 && good;
  }
  EXPECT_TRUE(good) << "a rank's process failed";
  std::vector<std::vector<std::byte>> results;
  for (int rank = 0; good && rank < degree; ++rank) {
    const auto bytes = slots.get(rank);
    results.emplace_back(bytes.begin(), bytes.end());
  }
  return results;
}

}  // namespace shardcheck::test
