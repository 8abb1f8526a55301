// The threads that share one product: a caller and workers that live until the caller's thread ends or asks
// for another number. Every caller has its own team, so callers never wait for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shardcheck {

class GemmTeam {
 public:
  /// Starts `threads` - 1 workers. Throws std::system_error when the system has no more threads.
  explicit GemmTeam(int threads);
  ~GemmTeam();
  GemmTeam(const GemmTeam&) = delete;
  GemmTeam& operator=(const GemmTeam&) = delete;

  int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Calls part(0), ..., part(count - 1) once each, in any order, on the caller and the workers. Returns when
  /// all have ended; the first exception of a part is then thrown here, and parts not begun are left out. A
  /// thread begins with parts that are its own, the same in every run, whose data its caches may still hold,
  /// and then takes what others have not begun.
  void run(int count, const std::function<void(int)>& part);

 private:
  // Counts the parts of one thread that somebody has begun; alone on its cache line.
  struct alignas(64) Begun {
    std::atomic<int> count{0};
  };

  void work(int thread);
  void take_parts(int thread) noexcept;
  void leave_out_the_rest() noexcept;
  void stop() noexcept;

  std::vector<std::thread> workers_;
  // Of the running job; written while no worker is at work.
  const std::function<void(int)>* part_ = nullptr;
  int count_ = 0;
  int processor_ = -1;  // that the caller runs on, -1: unknown
  bool stops_ = false;
  std::vector<Begun> begun_;  // of parts i, i + threads(), i + 2 threads(), ... of thread i

  std::atomic<std::uint32_t> job_{0};  // counts jobs: a change wakes the workers
  std::atomic<int> at_work_{0};        // workers that have not finished the job
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace shardcheck
