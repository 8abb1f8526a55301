// Seeds as they lie in corpus/seeds/TARGET/, text all of them, and the words that a target's inputs are made
// of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz {

/// The input that a seed file stands for: of NAME.hex the bytes, of any other file its text. Throws IoError,
/// and InvalidInput for a file that is no hexadecimal text.
std::string read_seed(const std::filesystem::path& file);

/// The same without what only people read: '#' lines of a case.
std::string without_comments(const Target& target, std::string input);

/// Words for libFuzzer's -dict, sorted, each once: the keys, choices, laws, faults and tables of case lines,
/// the dtypes of safetensors files, and the words of what the target draws.
std::vector<std::string> dictionary_of(const Target& target);

}  // namespace shardcheck::fuzz
