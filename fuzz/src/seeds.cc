#include "shardcheck/fuzz/seeds.h"

#include <sstream>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/text/hex.h"

namespace shardcheck::fuzz {
namespace {

constexpr std::size_t kLargestSeedBytes = std::size_t{1} << 22;

}  // namespace

std::string read_seed(const std::filesystem::path& file) {
  std::string text = read_text(file, kLargestSeedBytes);
  return file.extension() == ".hex" ? bytes_of_hex(text, file.string()) : text;
}

std::string without_comments(const Target& target, std::string input) {
  if (target.format != InputFormat::case_line && target.format != InputFormat::text) return input;
  std::string kept;
  std::istringstream lines(input);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    if (!kept.empty()) kept += '\n';
    kept += line;
  }
  return kept;
}

}  // namespace shardcheck::fuzz
