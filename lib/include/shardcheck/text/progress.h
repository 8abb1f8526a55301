// What a long computation says about itself while it runs. Who listens decides what to show.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace shardcheck {

struct ProgressEvent {
  enum class Kind : std::uint8_t {
    step,   // one of many: a listener may drop it
    stage,  // a part begins, or a finding takes the place of the last
    notice  // must outlive the run, also one that is killed
  };
  Kind kind = Kind::step;
  std::string text;
  std::optional<double> share = {};  // of the stage that is done, 0..1; nullopt: unknown
};

/// May be empty. May be called from several threads, never from two at once.
using ProgressSink = std::function<void(const ProgressEvent&)>;

}  // namespace shardcheck
