// Weakened checks as text, as docs/why-each-check-exists.md and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/properties/weakening.h"
#include "two_way_table.h"

namespace shardcheck {

struct WeakeningRun {
  std::vector<WeakeningReport> reports;
  std::uint64_t seed = 0;
  std::int64_t cases = 0;
  std::string command;  // that measures it again
  std::string commit;

  std::vector<std::string> problems() const;
  std::vector<std::string> gaps() const;
  /// 1 with a problem, 3 with a gap, else 0.
  int exit_code() const;
};

/// One row per weakening.
TwoWayTable weakening_table(const WeakeningRun& run);
std::string weakening_page(const WeakeningRun& run);
std::string weakening_json(const WeakeningRun& run);

}  // namespace shardcheck
