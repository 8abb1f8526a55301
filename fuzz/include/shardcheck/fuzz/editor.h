// Edits of inputs that keep their structure: of a case, a JSON document, a safetensors file. Every edit is a
// function of the input and of what the stream gives, so that libFuzzer's seed repeats a run.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz {

/// The input with one thing changed: of a valid case another valid case. nullopt leaves the edit to
/// libFuzzer's byte edits: for garbage, and in a share of edits of text that parsers read.
std::optional<std::string> edit(const Target& target, std::string_view input, Stream& stream);

/// `first` with something of `second`. nullopt as above.
std::optional<std::string> cross_over(const Target& target, std::string_view first, std::string_view second,
                                      Stream& stream);

}  // namespace shardcheck::fuzz
