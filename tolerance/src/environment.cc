#include "environment.h"

#include <fstream>

#include "build_commit.h"
#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/tolerance/floor.h"

namespace shardcheck {
namespace {

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#elif defined(__GNUC__)
  return std::string("gcc ") + __VERSION__;
#else
  return "unknown";
#endif
}

std::string flags() {
#if defined(SHARDCHECK_FLAGS)
  return SHARDCHECK_FLAGS;
#else
  std::string text = "-ffp-contract=off";
#if defined(__OPTIMIZE__)
  text += " optimised";
#else
  text += " unoptimised";
#endif
#if defined(__FAST_MATH__)
  text += " -ffast-math";
#endif
  return text;
#endif
}

std::string cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos && colon + 2 <= line.size()) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string simd_target() {
  const auto targets = simd_targets();
  return targets.empty() ? "scalar" : targets.front();
}

}  // namespace

std::map<std::string, std::string> this_environment() {
  return {{"compiler", compiler()},       {"flags", flags()}, {"cpu", cpu()},
          {"simd_target", simd_target()}, {"mpi", "none"},    {"commit", SHARDCHECK_COMMIT}};
}

}  // namespace shardcheck
