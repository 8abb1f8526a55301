#include "parallel.h"

#include <algorithm>
#include <atomic>

#include "shardcheck/mutators/workers.h"

namespace shardcheck {

void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  run_on_workers(std::min(jobs, static_cast<int>(count)), [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        throw;
      }
    }
  });
}

}  // namespace shardcheck
