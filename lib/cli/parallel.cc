#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace shardcheck {

void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::jthread> threads;
  const std::size_t extra = std::min(count, static_cast<std::size_t>(std::max(jobs, 1)));
  for (std::size_t i = 1; i < extra; ++i) threads.emplace_back(loop);
  loop();
  threads.clear();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace shardcheck
