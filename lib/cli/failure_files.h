// Failing random cases as files that `replay` takes and corpus/ can keep.
#pragma once

#include <filesystem>

#include "shardcheck/properties/runner.h"

namespace shardcheck {

/// Writes LAW-HASH.case into `folder` (created when absent), atomically, and returns its path. The hash is of
/// the minimal case, so the same failure is the same file. Throws IoError.
std::filesystem::path write_failure_file(const std::filesystem::path& folder, const Law& law,
                                         const Failure& failure);

}  // namespace shardcheck
