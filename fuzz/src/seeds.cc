#include "shardcheck/fuzz/seeds.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/text/errors.h"

namespace shardcheck::fuzz {
namespace {

constexpr std::size_t kLargestSeedBytes = std::size_t{1} << 22;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Calls `take` with every line, without its end, and its number.
template <typename Take>
void for_each_line(std::string_view text, const Take& take) {
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    take(text.substr(0, end), number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string bytes_of_hex(std::string_view text, const std::string& origin) {
  std::string bytes;
  for_each_line(text, [&](std::string_view line, int number) {
    int high = -1;
    for (const char c : line.substr(0, line.find('#'))) {
      if (c == ' ' && high < 0) continue;
      const int digit = digit_of(c);
      if (digit < 0)
        throw InvalidInput(fmt::format("{}:{}: '{}' is no pair of hexadecimal digits", origin, number, c));
      if (high >= 0) bytes += static_cast<char>(high * 16 + digit);
      high = high >= 0 ? -1 : digit;
    }
    if (high >= 0)
      throw InvalidInput(fmt::format("{}:{}: a hexadecimal digit without its other half", origin, number));
  });
  return bytes;
}

std::string hex_of_bytes(std::string_view bytes) {
  constexpr std::size_t kPerLine = 16;
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(bytes[i]));
    text += (i + 1) % kPerLine == 0 || i + 1 == bytes.size() ? '\n' : ' ';
  }
  return text;
}

std::string read_seed(const std::filesystem::path& file) {
  std::string text = read_text(file, kLargestSeedBytes);
  return file.extension() == ".hex" ? bytes_of_hex(text, file.string()) : text;
}

std::string without_comments(const Target& target, std::string input) {
  if (target.format != InputFormat::case_line && target.format != InputFormat::text) return input;
  std::string kept;
  for_each_line(input, [&](std::string_view line, int) {
    if (line.starts_with('#')) return;
    if (!kept.empty()) kept += '\n';
    kept += line;
  });
  return kept;
}

std::vector<std::filesystem::path> files_under(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) throw IoError(fmt::format("{}: no such file or folder", path.string()));
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error))
    if (entry->is_regular_file(error)) files.push_back(entry->path());
  if (error) throw IoError(fmt::format("{}: {}", path.string(), error.message()));
  std::ranges::sort(files);
  return files;
}

}  // namespace shardcheck::fuzz
