// Checkpoints of several files with an index: what they hold, how they come to be damaged, and readers that
// look tensors up in them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/mutators/effective.h"

namespace shardcheck::effective {

/// Bytes [begin, end) of a file's buffer.
struct StoredRange {
  std::string name;
  std::size_t begin = 0, end = 0;
};

struct StoredFile {
  std::vector<StoredRange> ranges;  // as its header lists them
  std::vector<std::byte> buffer;
};

/// All tensors have one shape and dtype, so that a wrong one shows in its values alone.
struct StoredFolder {
  DType dtype = DType::f32;
  Shape shape;
  std::map<std::string, StoredFile, std::less<>> files;
  std::map<std::string, std::string, std::less<>> index;  // tensor -> file
};

/// Damage that a reader has to notice.
enum class FolderDamage : std::uint8_t {
  none,
  missing_shard,    // the second file is not there
  truncated_shard,  // the second file ends inside its last tensor
  exchanged_index,  // the index gives a tensor of each file to the other file
  shared_range      // two tensors of the first file name one range of bytes
};
/// The embedding, which is the output head too and stored once, and four layers, in two files. The second one
/// holds another version of a layer that the index gives to the first, and a third one, which the index does
/// not name, another version of everything: neither of them counts.
StoredFolder stored_folder(const Case& c, FolderDamage damage);

/// How a reader comes by a tensor, which may be not in the index at all.
using Lookup = Tensor (*)(const StoredFolder& folder, std::string_view name);
/// The bytes that the header of a file gives for the tensor, zeros beyond the end of the file.
Tensor tensor_in(const StoredFolder& folder, std::string_view file, std::string_view name);
/// The tensor as the header of the file that the index names has it; the embedding for the head.
Tensor indexed_tensor(const StoredFolder& folder, std::string_view name);
/// The copy in the last file that has one, in the order of their names: of all files, or of those that the
/// index names.
enum class FilesRead : std::uint8_t { all, indexed };
Tensor last_copy(const StoredFolder& folder, std::string_view name, FilesRead files);
/// Bytes of a file: length and text of the header, then the buffer.
std::vector<std::byte> image_of(const StoredFolder& folder, const StoredFile& file);
/// A tensor of the folder from its bytes, zeros where they are too few.
Tensor tensor_of(const StoredFolder& folder, std::span<const std::byte> bytes);

/// Every tensor by the lookup, rows dealt out to the ranks.
ShardedTensors read_stored(const Case& c, FolderDamage damage, Lookup lookup);

/// Writes index and files. Throws IoError.
void write_stored(const StoredFolder& folder, const std::filesystem::path& path);

}  // namespace shardcheck::effective
