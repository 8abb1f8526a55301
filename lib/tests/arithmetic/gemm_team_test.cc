#include "../../src/arithmetic/gemm_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace shardcheck {
namespace {

TEST(GemmTeam, RunsEveryPartOnceInEveryJob) {
  for (const int threads : {1, 2, 5}) {
    GemmTeam team(threads);
    EXPECT_EQ(team.threads(), threads);
    for (int count = 0; count < 40; ++count) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      team.run(count, [&](int part) { ++calls.at(static_cast<std::size_t>(part)); });
      for (const auto& times : calls) ASSERT_EQ(times, 1) << threads << " threads, " << count << " parts";
    }
  }
}

TEST(GemmTeam, CarriesAnExceptionToTheCallerAndGoesOn) {
  GemmTeam team(3);
  for (int round = 0; round < 20; ++round) {
    try {
      team.run(10, [round](int part) {
        if (part == round % 10) throw std::runtime_error(std::to_string(part));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(round % 10));
    }
    std::atomic<int> calls{0};
    team.run(10, [&](int) { ++calls; });
    EXPECT_EQ(calls, 10);
  }
}

TEST(GemmTeam, ThatNeverRanAnythingEnds) { const GemmTeam team(4); }

}  // namespace
}  // namespace shardcheck
