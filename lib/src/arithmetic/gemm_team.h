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
  /// all have ended; the first exception of a part is then thrown here, and parts not begun are left out.
  void run(int count, const std::function<void(int)>& part);

 private:
  void work();
  void take_parts() noexcept;
  void stop() noexcept;

  std::vector<std::thread> workers_;
  // Of the running job; written while no worker is at work.
  const std::function<void(int)>* part_ = nullptr;
  int count_ = 0;
  bool stops_ = false;
  std::atomic<int> next_{0};

  std::atomic<std::uint32_t> job_{0};  // counts jobs: a change wakes the workers
  std::atomic<int> at_work_{0};        // workers that have not finished the job
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace shardcheck
