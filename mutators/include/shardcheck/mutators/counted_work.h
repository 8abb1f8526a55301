// Numbered pieces of work on several threads, with progress.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include "shardcheck/mutators/workers.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

/// Calls `work(i)` for 0 <= i < count, each once, on up to `jobs` threads; `what` names the pieces
/// ("faults").
template <typename Work>
void do_counted(std::size_t count, int jobs, const ProgressSink& progress, std::string_view what,
                const Work& work) {
  std::atomic<std::size_t> next{0};
  std::size_t done = 0;
  std::mutex reporting;
  run_on_workers(jobs, [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      work(i);
      const std::scoped_lock lock(reporting);
      ++done;
      if (!progress) continue;
      std::string text = std::to_string(done);
      text.append(" of ").append(std::to_string(count)).append(" ").append(what);
      progress({ProgressEvent::Kind::step, text, static_cast<double>(done) / static_cast<double>(count)});
    }
  });
}

}  // namespace shardcheck
