// Seeds as they lie in corpus/seeds/TARGET/, text all of them, and the words that a target's inputs are made
// of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz {

/// Bytes of a hexadecimal text: pairs of digits, blanks between them, comments from # to the end of the line.
/// Throws InvalidInput naming `origin` and the line.
std::string bytes_of_hex(std::string_view text, const std::string& origin);
/// Such a text, 16 bytes a line.
std::string hex_of_bytes(std::string_view bytes);

/// The input that a seed file stands for: of NAME.hex the bytes, of any other file its text. Throws IoError,
/// and InvalidInput for a file that is no hexadecimal text.
std::string read_seed(const std::filesystem::path& file);

/// The same without what only people read: '#' lines of a case.
std::string without_comments(const Target& target, std::string input);

/// Files under a path, sorted; the path itself when it is a file. Throws IoError.
std::vector<std::filesystem::path> files_under(const std::filesystem::path& path);

/// Words for libFuzzer's -dict, sorted, each once: the keys, choices, laws, faults and tables of case lines,
/// the dtypes of safetensors files, and the words of what the target draws.
std::vector<std::string> dictionary_of(const Target& target);

}  // namespace shardcheck::fuzz
