// The hidden folder in a target where a reshard's files wait until all of them are whole. Private to the
// checkpoint folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/reshard_journal.h"
#include "checkpoint/target_files.h"
#include "shardcheck/checkpoint/reshard_folder.h"

namespace shardcheck {

/// A target folder as a reshard finds it. Nothing is written, nothing kept.
struct ReshardTarget {
  std::filesystem::path path;
  const TargetFiles& files;
  ReshardJournal journal;            // of the reshard that wants to begin or go on
  std::vector<std::string> carried;  // names of the further files of its source
  bool restart = false;

  std::filesystem::path workspace() const;
  std::filesystem::path journal_file() const;
  /// Throws unless the target is new, empty or has a workspace: a folder, no link to one.
  void require_place() const;
  /// What a run before left to go on from. Throws InvalidInput when the target holds something else, an
  /// unfinished reshard other than `journal`'s or one whose files are not as it left them, or when the
  /// workspace holds what no reshard writes; IoError.
  std::optional<ReshardJournal> found() const;
  /// Throws what a reshard that begins now would throw about its target.
  void require_usable() const;

 private:
  void require_nothing_else() const;
  void require_own_files() const;
  void require_intact(const ReshardJournal& found) const;
  bool is_whole(const std::filesystem::path& file, std::size_t index) const;
};

class ReshardWorkspace {
 public:
  /// Creates the target folder and takes the workspace in it: one process at a time. Throws as
  /// `ReshardTarget::require_place`.
  ReshardWorkspace(const ReshardTarget& target, const ReshardOptions& options);
  ReshardWorkspace(const ReshardWorkspace&) = delete;
  ReshardWorkspace& operator=(const ReshardWorkspace&) = delete;
  ~ReshardWorkspace();

  /// Takes up what a run before left; else creates the files, their space reserved, and carries the further
  /// files of `source` along.
  /// Throws as `ReshardTarget::found`.
  void begin(const std::filesystem::path& source);

  const std::filesystem::path& path() const { return folder_; }
  const ReshardPosition& position() const { return journal_.position; }
  bool is_complete() const { return journal_.complete; }
  /// Bytes of tensors that are done already.
  std::uint64_t bytes_done(const Layout& layout) const;

  /// Notes how far the files are; now and then has them stored, while the next bytes are written, and then
  /// the position.
  void advance(const ReshardPosition& position, std::uint64_t written, OpenFiles& files,
               const Layout& layout);
  /// Stores the rest.
  void complete(OpenFiles& files, const Layout& layout);
  /// Gives every file its name, the record last, and removes the workspace.
  void publish();

 private:
  void create_files();
  void store(std::vector<std::uint32_t> files);
  void wait();
  void report(const Layout& layout);
  std::uint64_t tensor_bytes(const Layout& layout) const;

  const ReshardTarget& target_;
  std::filesystem::path folder_;
  const TargetFiles& files_;
  ReshardJournal journal_;
  const ReshardOptions& options_;
  Descriptor lock_;
  bool made_target_ = false;
  bool begun_ = false;  // there is a journal, so that what is here is worth keeping
  std::uint64_t since_stored_ = 0, done_bytes_ = 0, all_bytes_ = 0;
  std::future<void> storing_;
};

}  // namespace shardcheck
