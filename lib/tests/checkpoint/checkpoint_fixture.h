// What the checkpoint tests share: temporary folders, hand-made files, small models.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/checkpoint/folders.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/model/weights.h"

namespace shardcheck::testing {

namespace fs = std::filesystem;

/// Names in the folder, sorted.
inline std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(folder.path()))
    names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Writes a new file under the name: truncating an old one makes some file systems flush it.
inline void write_file(const fs::path& file, std::string_view bytes) {
  fs::remove(file);
  std::ofstream out(file, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

inline std::string read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string u64_le(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> 8 * i & 0xFF);
  return bytes;
}

/// A safetensors image: the header's length, the header, then `buffer_bytes` bytes 0, 1, 2, ...
inline std::string image(std::string_view header, std::size_t buffer_bytes) {
  std::string bytes = u64_le(header.size());
  bytes += header;
  for (std::size_t i = 0; i < buffer_bytes; ++i) bytes += static_cast<char>(i & 0xFF);
  return bytes;
}

inline SafetensorsHeader parse(std::string_view bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "x.safetensors");
}

/// The message of the exception of type `Error` that `action` throws; a test failure when it throws none.
template <typename Error, typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

/// A small untied model with every extent distinct.
inline Geometry small_geometry() {
  Geometry g;
  g.d_model = 24;
  g.n_layers = 2;
  g.n_heads = 4;
  g.n_kv_heads = 2;
  g.head_dim = 6;
  g.ffn = 20;
  g.vocab = 36;
  g.norm_eps = 1e-5;
  g.rope = Rope::half;
  return g;
}

inline fs::path stories_folder() {
  return fs::path(SHARDCHECK_SOURCE_DIR) / ".." / "shared" / "checkpoints" / "stories260K";
}

}  // namespace shardcheck::testing
