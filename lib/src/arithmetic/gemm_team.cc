#include "arithmetic/gemm_team.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <chrono>
#include <utility>

#include "hwy/cache_control.h"

namespace shardcheck {
namespace {

// Returns once `value` differs from `old`. Products follow each other closely in a forward pass, and waking a
// sleeping thread costs more than a small one, so both sides look for a moment before they sleep. Between
// looks they yield: the thread they wait for may be queued behind them, on the same processor.
template <typename T>
void wait_for_change(const std::atomic<T>& value, T old) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLook = std::chrono::microseconds(20);
  constexpr int kLooksPerClock = 32;
  for (const auto end = Clock::now() + kLook; Clock::now() < end;) {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (value.load(std::memory_order_acquire) != old) return;
      hwy::Pause();
    }
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
}

int current_processor() noexcept {
#ifdef __linux__
  return sched_getcpu();
#else
  return -1;
#endif
}

// Moves the calling thread to another processor than `taken`, where it may run on one. Two threads that hand
// work to each other every few microseconds look idle to the scheduler in turn, and it may leave both on one
// processor for good.
void keep_off([[maybe_unused]] int taken) noexcept {
#ifdef __linux__
  if (taken < 0 || taken >= CPU_SETSIZE || sched_getcpu() != taken) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(taken), &others);
  // Moved at once by the first call; the second gives the thread its freedom back.
  if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(allowed), &allowed);
#endif
}

}  // namespace

GemmTeam::GemmTeam(int threads) : begun_(static_cast<std::size_t>(threads)) {
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {
    stop();
    throw;
  }
}

GemmTeam::~GemmTeam() { stop(); }

void GemmTeam::stop() noexcept {
  stops_ = true;
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void GemmTeam::work(int thread) {
  for (std::uint32_t seen = 0;; ++seen) {
    wait_for_change(job_, seen);
    if (stops_) return;
    // Not in every job: where all processors are taken, moving is work for nothing.
    constexpr std::uint32_t kJobsPerMove = 16;
    if (seen % kJobsPerMove == 0) keep_off(processor_);
    take_parts(thread);
    if (at_work_.fetch_sub(1, std::memory_order_acq_rel) == 1) at_work_.notify_one();
  }
}

void GemmTeam::leave_out_the_rest() noexcept {
  for (Begun& begun : begun_) begun.count.store(count_, std::memory_order_relaxed);
}

void GemmTeam::take_parts(int thread) noexcept {
  for (int i = 0; i < threads(); ++i) {
    const int owner = (thread + i) % threads();
    const int parts = (count_ - owner + threads() - 1) / threads();
    std::atomic<int>& begun = begun_[static_cast<std::size_t>(owner)].count;
    for (int part = 0; (part = begun.fetch_add(1, std::memory_order_relaxed)) < parts;) {
      try {
        (*part_)(owner + part * threads());
      } catch (...) {
        leave_out_the_rest();
        const std::scoped_lock lock(failure_mutex_);
        if (failure_ == nullptr) failure_ = std::current_exception();
      }
    }
  }
}

void GemmTeam::run(int count, const std::function<void(int)>& part) {
  part_ = &part;
  count_ = count;
  for (Begun& begun : begun_) begun.count.store(0, std::memory_order_relaxed);
  processor_ = current_processor();
  at_work_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  take_parts(0);
  for (int left = 0; (left = at_work_.load(std::memory_order_acquire)) != 0;) wait_for_change(at_work_, left);
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace shardcheck
