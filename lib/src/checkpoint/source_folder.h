// The tensors of a checkpoint folder where they lie: mapped, never loaded. Private to the checkpoint folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// What tells a file from another one that took its place.
struct FileIdentity {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;   // since the epoch
  std::uint64_t header_hash = 0;  // XXH3 of the header
  bool operator==(const FileIdentity&) const = default;
};

/// A mapped safetensors file.
struct MappedFile {
  std::filesystem::path path;
  FileIdentity identity;
  std::shared_ptr<const void> mapping;
  const std::byte* buffer = nullptr;
};

/// The bytes of a rank's tensor.
struct StoredTensor {
  const std::byte* bytes = nullptr;
  std::size_t size_bytes = 0;
};

/// A folder of rank files with their record where it holds one, else a Hugging Face folder (one rank).
class SourceFolder {
 public:
  /// Opens every file and checks that it holds the layout's tensors in their local shapes, one dtype per
  /// entry. Throws InvalidCheckpoint, InvalidShards or IoError.
  SourceFolder(std::filesystem::path folder, const Layout& layout);

  const std::filesystem::path& path() const { return folder_; }
  const std::vector<MappedFile>& files() const { return files_; }
  std::vector<FileIdentity> identities() const;
  DType dtype(std::size_t entry) const { return dtypes_[entry]; }
  /// Of a rank that holds the entry.
  StoredTensor tensor(std::size_t entry, int rank) const;
  /// The head that a tied Hugging Face checkpoint stores besides the embedding, and the embedding.
  struct TiedHead {
    std::string name, embed_name;
    StoredTensor head, embed;
  };
  const std::optional<TiedHead>& tied_head() const { return tied_head_; }

 private:
  struct Place {
    std::uint32_t entry = 0, file = 0;
    std::uint64_t begin = 0;  // in the buffer
  };

  void open_ranks();
  void open_hugging_face();
  /// Maps a file and hands back its header, whose pages are given back.
  SafetensorsHeader open(const std::filesystem::path& file);
  void place(std::size_t entry, int rank, std::uint32_t file, const SafetensorsEntry& stored);
  void find_tied_head(
      const std::map<std::string_view, std::pair<std::uint32_t, const SafetensorsEntry*>>& extra);

  const Layout& layout_;
  std::filesystem::path folder_;
  std::vector<MappedFile> files_;
  std::vector<DType> dtypes_;               // by entry
  std::vector<bool> seen_;                  // whether the entry's dtype is known
  std::vector<std::vector<Place>> places_;  // by rank, entries ascending
  std::optional<TiedHead> tied_head_;
};

}  // namespace shardcheck
