// Fuzz targets: a claim about any input, one file each under fuzz/targets/; the file name is the target's
// name. libFuzzer, the plain main and the tests drive them all through this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/tensor/stream.h"

namespace shardcheck::fuzz {

/// The claim of a target is broken. The message says how.
class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// What an editor takes the input for. `case_line`: a case line or a case file; `text`: lines, the first a
/// case line.
enum class InputFormat : std::uint8_t { case_line, json, safetensors, text };
std::string_view to_string(InputFormat format) noexcept;

struct Target {
  std::string_view name;
  std::string_view claim;  // one present-tense sentence that holds for every input
  InputFormat format = InputFormat::text;
  std::size_t max_bytes = 4096;  // of an input that is looked at
  /// Throws Finding when the claim is broken; returns for input that is refused, or too much work for a
  /// second. Whatever else it throws is a bug too.
  void (*check)(std::string_view input) = nullptr;
  /// A random input, more often right than wrong.
  std::string (*draw)(Stream& stream) = nullptr;
};

/// Every target, sorted by name.
const std::vector<const Target*>& all_targets();
/// Throws InvalidInput naming the nearest target.
const Target& target_named(std::string_view name);

/// The message of what `target` finds wrong with the input, an exception that is no Finding among it; empty
/// for nothing, and for an input above `max_bytes`.
std::string finding_of(const Target& target, std::string_view input);

}  // namespace shardcheck::fuzz
