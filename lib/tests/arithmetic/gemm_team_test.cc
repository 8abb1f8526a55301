#include "../../src/arithmetic/gemm_team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../src/arithmetic/even_cut.h"

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

TEST(GemmTeam, GivesEveryThreadTheSamePartInEveryJob) {
  constexpr int kThreads = 4;
  GemmTeam team(kThreads);
  std::vector<std::thread::id> first;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread::id> ids(kThreads);
    std::atomic<int> begun{0};
    team.run(kThreads, [&](int part) {
      ids[static_cast<std::size_t>(part)] = std::this_thread::get_id();
      ++begun;
      while (begun < kThreads) std::this_thread::yield();  // keeps the thread from parts of others
    });
    if (round == 0) first = ids;
    EXPECT_EQ(ids, first);
    EXPECT_EQ(ids.front(), std::this_thread::get_id());
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

TEST(EvenCut, GivesAllThreadsAboutTheSame) {
  for (const std::int64_t threads : {1, 2, 3, 8}) {
    for (const std::int64_t group : {1, 3, 24}) {
      for (std::int64_t count = 1; count < 300; ++count) {
        const EvenCut cut(count, group, threads);
        std::vector<std::int64_t> units(static_cast<std::size_t>(threads));
        std::int64_t largest_share = 0;  // parts of one thread
        for (int part = 0; part < cut.parts(); ++part) {
          ASSERT_LT(cut.begin(part), cut.begin(part + 1)) << count << ' ' << group << ' ' << threads;
          units[static_cast<std::size_t>(part % threads)] += cut.begin(part + 1) - cut.begin(part);
          largest_share = part / threads + 1;
        }
        EXPECT_EQ(cut.begin(0), 0);
        EXPECT_EQ(cut.begin(cut.parts()), count) << group << ' ' << threads;
        const auto [least, most] = std::minmax_element(units.begin(), units.end());
        EXPECT_LE(*most - *least, largest_share) << count << ' ' << group << ' ' << threads;
      }
    }
  }
}

TEST(GemmTeam, ThatNeverRanAnythingEnds) { const GemmTeam team(4); }

}  // namespace
}  // namespace shardcheck
