#include "shardcheck/mutators/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace shardcheck {
namespace {

TEST(RunOnWorkers, EveryJobCallsTheWorkOnce) {
  for (const int jobs : {1, 2, 5}) {
    std::atomic<int> calls{0};
    run_on_workers(jobs, [&] { ++calls; });
    EXPECT_EQ(calls, jobs);
  }
}

TEST(RunOnWorkers, TheCallerGetsWhatAThreadThrowsAfterAllHaveReturned) {
  std::atomic<int> calls{0};
  const auto third_throws = [&] {
    if (++calls == 3) throw std::runtime_error("the third");
  };
  EXPECT_THROW(run_on_workers(5, third_throws), std::runtime_error);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace shardcheck
