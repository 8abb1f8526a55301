// The files that a reshard writes: what each holds, where each tensor lies in it. Private to the checkpoint
// folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/positional_file.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

/// Names, headers and offsets of a target's files.
class TargetFiles {
 public:
  struct File {
    std::string name;
    std::uint64_t start_bytes = 0;  // before the buffer
    std::uint64_t size_bytes = 0;   // of the whole file
  };
  struct Place {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;  // in the file
  };

  /// `dtypes` by entry; files of Hugging Face folders hold at most `max_shard_bytes` of tensors, one tensor
  /// alone apart. Throws InvalidInput for names that no header can hold.
  TargetFiles(const Layout& layout, std::vector<DType> dtypes, std::uint64_t max_shard_bytes);

  const std::vector<File>& files() const { return files_; }
  /// Of a rank that holds the entry.
  Place place(std::size_t entry, int rank) const;
  std::uint64_t tensor_bytes(std::size_t entry, int rank) const;
  DType dtype(std::size_t entry) const { return dtypes_[entry]; }
  std::size_t entry_count() const { return dtypes_.size(); }
  /// Bytes of an entry on the rank that holds most of it.
  std::uint64_t longest_tensor_bytes(std::size_t entry) const;
  /// Header and length of a file.
  std::string start_of(std::size_t file) const;
  std::uint64_t total_bytes() const;

  /// The file that makes the folder whole, and its text: shardcheck.json or the index; no name where a
  /// Hugging Face folder needs none.
  struct Record {
    std::string name, text;
  };
  Record record() const;

 private:
  struct Member {
    std::uint32_t entry = 0, file = 0;
    std::uint64_t offset = 0;
  };

  void plan_ranks();
  void plan_hugging_face(std::uint64_t max_shard_bytes);
  void add_file(std::string name, int rank, std::vector<std::uint32_t> entries);
  std::string start_with(int rank, const std::vector<std::uint32_t>& entries,
                         std::vector<std::uint64_t>& begins) const;

  const Layout& layout_;
  std::vector<DType> dtypes_;
  std::vector<File> files_;
  std::vector<std::vector<std::uint32_t>> entries_;  // by file, ascending
  std::vector<std::vector<Member>> members_;         // by rank, entries ascending
};

/// Whether a reshard to any layout may write a file of this name: rank_00000-of-00004.safetensors,
/// model.safetensors, model-00001-of-00004.safetensors.
bool is_target_file_name(std::string_view name);

/// Whether a layout is written as a Hugging Face folder: one rank of a table of transformers.
bool is_hugging_face_target(const Layout& layout);

/// Open files of a folder, no more than a number of descriptors at a time.
class OpenFiles {
 public:
  OpenFiles(std::filesystem::path folder, const std::vector<TargetFiles::File>& files);

  void write(const TargetFiles::Place& place, std::span<const std::byte> bytes);
  /// Files written since the last call.
  std::vector<std::uint32_t> take_written();

 private:
  PositionalFile& open(std::uint32_t file);

  std::filesystem::path folder_;
  const std::vector<TargetFiles::File>& files_;
  std::list<std::pair<std::uint32_t, PositionalFile>> open_;  // the one used last in front
  std::unordered_map<std::uint32_t, decltype(open_)::iterator> by_file_;
  std::set<std::uint32_t> written_;
};

}  // namespace shardcheck
