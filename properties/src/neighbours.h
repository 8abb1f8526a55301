// Cases beside a case: what tells whether a value of its line matters.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/case/case.h"

namespace shardcheck {

/// The case with other values of one key, near and far, none simpler than what shrinking has already tried.
/// Values that no case may have are left out; a key without neighbours gives none.
std::vector<Case> neighbours(const Case& c, const std::string& key);

}  // namespace shardcheck
