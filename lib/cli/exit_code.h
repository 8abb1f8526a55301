// Exit codes of the program.
#pragma once

#include <initializer_list>

namespace shardcheck {

inline constexpr int kPassed = 0;
inline constexpr int kFailed = 1;        // a law failed, a fault survived, a gate was missed
inline constexpr int kInvalid = 2;       // usage or parse error, input that is refused
inline constexpr int kInconclusive = 3;  // too few decided cases, or a recorded verdict that does not hold
inline constexpr int kError = 4;         // environment or internal error

/// The one of two codes a caller must hear of: invalid, then failed, error, inconclusive, passed.
constexpr int worse_exit_code(int x, int y) {
  for (const int code : {kInvalid, kFailed, kError, kInconclusive})
    if (x == code || y == code) return code;
  return kPassed;
}

}  // namespace shardcheck
