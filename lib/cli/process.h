// What the program owes the system around it: three open streams and a clean terminal when it is interrupted.
#pragma once

namespace shardcheck {

/// To be called first. A standard stream that the caller closed is put on a descriptor that cannot be
/// written, so that no file opened later is taken for it and lost output is noticed. SIGINT, SIGTERM and
/// SIGHUP, unless ignored, take the progress line away and end the process as they would have (a shell sees
/// 128 + signal).
void prepare_process();

}  // namespace shardcheck
