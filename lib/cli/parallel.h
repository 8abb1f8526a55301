// Runs independent jobs on a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace shardcheck {

/// Calls work(0) ... work(count - 1), each once, on at most `jobs` threads. The first exception is rethrown
/// after all threads have ended; jobs not yet started are then dropped.
void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& work);

}  // namespace shardcheck
