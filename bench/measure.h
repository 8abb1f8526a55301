// What the programs share that time something: the clock, order statistics, and Google Benchmark's start.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace shardcheck::bench {

/// Processor time of the calling thread, in seconds.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The value that `part` (below 1) of the values lie under; of an even number, the upper median at 0.5.
inline double quantile(std::vector<double> values, double part) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

/// Reads the caller's flags after `defaults`, so that the caller's win. False when one is not known.
inline bool initialize_benchmarks(int argc, char** argv, const std::vector<std::string>& defaults) {
  std::vector<std::string> flags = {argv[0]};
  flags.insert(flags.end(), defaults.begin(), defaults.end());
  flags.insert(flags.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  for (std::string& flag : flags) pointers.push_back(flag.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  return !benchmark::ReportUnrecognizedArguments(count, pointers.data());
}

}  // namespace shardcheck::bench
