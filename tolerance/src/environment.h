// What a recording needs to know about the machine and build it was made on.
#pragma once

#include <map>
#include <string>

namespace shardcheck {

/// Keys of `this_environment()` whose change makes a recording doubtful: they warn, they never fail.
inline constexpr const char* kComparedKeys[] = {"compiler", "flags", "cpu", "simd_target", "mpi"};

}  // namespace shardcheck
