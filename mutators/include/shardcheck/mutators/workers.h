// Threads that never end the process: where one cannot be started fewer do the work, and what one throws is
// thrown to the caller.
#pragma once

#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace shardcheck {

/// Calls `work` on up to `jobs` threads at once, the caller's among them, and waits for all. Rethrows the
/// first exception of any call, after the others have returned.
template <typename Work>
void run_on_workers(int jobs, const Work& work) {
  std::exception_ptr first;
  std::mutex guard;
  const auto guarded = [&]() noexcept {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(guard);
      if (!first) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;  // joined at the end of the block
    try {
      for (int job = 1; job < jobs; ++job) helpers.emplace_back(guarded);
    } catch (const std::system_error&) {  // no more threads
    } catch (const std::bad_alloc&) {     // no memory for one more
    }
    guarded();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace shardcheck
