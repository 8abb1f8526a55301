// docs/axes.md: the determinism axes as one run measured them, beside what other systems claim.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardcheck/properties/axes.h"

namespace shardcheck {

/// Another system, from its own text: nothing here was measured.
struct KnownSystem {
  std::string_view name, source, reach, cost;
  /// Name of an axis and how far the system claims it; what it does not name it does not claim.
  std::vector<std::pair<std::string_view, std::string_view>> claims;
};

const std::vector<KnownSystem>& known_systems();

struct AxesRun {
  std::vector<AxisRow> rows;
  std::string command;  // that prints the page again
  std::string commit;
};

/// The page as Markdown.
std::string axes_page(const AxesRun& run);

}  // namespace shardcheck
