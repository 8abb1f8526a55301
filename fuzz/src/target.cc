#include "shardcheck/fuzz/target.h"

#include <fmt/format.h>

namespace shardcheck::fuzz {

std::string_view to_string(InputFormat format) noexcept {
  switch (format) {
    case InputFormat::case_line:
      return "case_line";
    case InputFormat::json:
      return "json";
    case InputFormat::safetensors:
      return "safetensors";
    case InputFormat::text:
      return "text";
  }
  return "unknown";
}

std::string finding_of(const Target& target, std::string_view input) {
  if (input.size() > target.max_bytes) return {};
  try {
    target.check(input);
  } catch (const Finding& finding) {
    return finding.what();
  } catch (const std::exception& error) {
    return fmt::format("an exception that no input may cause: {}", error.what());
  }
  return {};
}

}  // namespace shardcheck::fuzz
