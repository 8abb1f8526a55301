// safetensors: a validating reader over a mapped file and an atomic writer. Nothing is trusted: every offset
// is checked with overflow-safe arithmetic before it is used, and every refusal names file, tensor and
// offset.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardcheck/model/geometry.h"
#include "shardcheck/tensor/tensor.h"

namespace shardcheck {

/// A checkpoint file that is refused: malformed, truncated, contradictory. Names file, tensor and offset.
class InvalidCheckpoint : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

/// A file that cannot be opened, read or written (exit code 4 in the program).
class IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One tensor's entry: where it lies in the buffer.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the start of the buffer
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by begin, then end, then name
  std::map<std::string, std::string> metadata;
  std::uint64_t buffer_offset = 0;  // 8 + header length
};

/// Parses and validates a whole file image in the order of the reference reader: at least 8 bytes; header
/// length at most 100 000 000 and inside the file; UTF-8; JSON object; known dtypes; entries dense from 0
/// without hole or overlap; shape product and byte size without overflow; whole bytes; size equal to the
/// range; end of the last entry equal to the end of the file. Duplicate keys are refused, and so are more
/// than 64 extents, an element count beyond int64 and more than 1 000 000 metadata entries. Other fields of a
/// tensor are ignored. `origin` names the file in messages. Throws InvalidCheckpoint.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin);

/// A mapped file, tensors as borrowed views that keep the mapping alive. A tensor that the file does not
/// align to its element size is copied instead. The file must not be shortened while it is mapped.
class SafetensorsFile {
 public:
  /// Throws IoError when it cannot be opened, InvalidCheckpoint when refused.
  explicit SafetensorsFile(const std::filesystem::path& file);
  const SafetensorsHeader& header() const noexcept { return header_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  bool contains(std::string_view name) const;
  /// Throws InvalidCheckpoint naming file and tensor when absent.
  Tensor tensor(std::string_view name) const;
  TensorMap tensors() const;

 private:
  Tensor tensor(const SafetensorsEntry& entry) const;
  const SafetensorsEntry* find(std::string_view name) const;

  std::filesystem::path path_;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;  // indices into the header's entries
  std::shared_ptr<const void> mapping_;
  const std::byte* buffer_ = nullptr;
};

/// Writes a temporary file in the same folder, syncs it and renames it: a reader sees the old file or the
/// whole new one. Tensors sorted by dtype alignment descending then name, header padded with spaces to 8
/// bytes. Throws IoError; no partial file stays under either name. Throws InvalidInput for a name or a
/// metadata text that is not UTF-8, a tensor named "__metadata__" and a header above 100 000 000 bytes.
void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Writes text atomically in the same way.
void write_text_atomically(const std::filesystem::path& file, std::string_view text);

/// Reads a whole text file. Throws IoError, or InvalidCheckpoint when it is longer than `limit_bytes`.
std::string read_text(const std::filesystem::path& file, std::size_t limit_bytes);

}  // namespace shardcheck
