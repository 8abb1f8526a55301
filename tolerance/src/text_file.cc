#include "text_file.h"

#include <fmt/format.h>

#include <fstream>

#include "shardcheck/model/geometry.h"

namespace shardcheck {

std::string read_text_file(const std::filesystem::path& file) {
  constexpr std::size_t kLimit = std::size_t{16} << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    throw InvalidInput(fmt::format("{}: no such file", file.string()));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLimit + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open()) throw InvalidInput(fmt::format("{}: cannot be read", file.string()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLimit) {
    throw InvalidInput(fmt::format("{}: larger than {} bytes, the limit", file.string(), kLimit));
  }
  return text;
}

}  // namespace shardcheck
