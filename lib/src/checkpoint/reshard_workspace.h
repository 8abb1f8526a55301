// The hidden folder in a target where a reshard's files wait until all of them are whole. Private to the
// checkpoint folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/reshard_journal.h"
#include "checkpoint/target_files.h"
#include "shardcheck/checkpoint/reshard_folder.h"

namespace shardcheck {

class ReshardWorkspace {
 public:
  /// Creates the target folder and takes the workspace in it: one process at a time. Throws InvalidInput when
  /// the target holds something else or an unfinished reshard other than `journal`'s, IoError.
  ReshardWorkspace(std::filesystem::path target, const TargetFiles& files, ReshardJournal journal,
                   const ReshardOptions& options);
  ReshardWorkspace(const ReshardWorkspace&) = delete;
  ReshardWorkspace& operator=(const ReshardWorkspace&) = delete;
  ~ReshardWorkspace();

  /// Takes up what a run before left; else creates the files, their space reserved, and carries the further
  /// files of `source` along.
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
  std::filesystem::path journal_file() const;
  void require_nothing_else() const;
  void create_files();
  void store(std::vector<std::uint32_t> files);
  void wait();
  void report(const Layout& layout);
  std::uint64_t tensor_bytes(const Layout& layout) const;

  std::filesystem::path target_, folder_;
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
