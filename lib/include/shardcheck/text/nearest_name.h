// The hint "did you mean": the known name nearest to a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardcheck {

/// The known name nearest to `word` by edit distance, empty when none is near (distance > 1/2 of its length).
std::string nearest_name(std::string_view word, const std::vector<std::string>& known);

}  // namespace shardcheck
