// Apart from target.cc, so that a program of one target does not hold them all.
#include <fmt/format.h>

#include "shardcheck/fuzz/target.h"
#include "shardcheck/text/errors.h"
#include "shardcheck/text/nearest_name.h"

namespace shardcheck::fuzz {

const Target& target_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Target* target : all_targets()) {
    if (target->name == name) return *target;
    names.emplace_back(target->name);
  }
  const std::string nearest = nearest_name(name, names);
  throw InvalidInput(fmt::format("unknown target '{:.80}'{}; known are {}", name,
                                 nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                 fmt::join(names, " ")));
}

}  // namespace shardcheck::fuzz
