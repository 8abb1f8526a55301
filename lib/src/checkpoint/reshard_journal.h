// What a reshard that was cut off has done. Private to the checkpoint folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/source_folder.h"

namespace shardcheck {

/// Every target entry before `entry`, and the first `offset` bytes of that entry on every rank, are done.
struct ReshardPosition {
  std::uint64_t entry = 0, offset = 0;
  bool operator==(const ReshardPosition&) const = default;
};

struct ReshardJournal {
  std::uint64_t plan_hash = 0;
  std::vector<FileIdentity> sources;
  ReshardPosition position;
  bool complete = false;  // every byte is on the disk: only names are missing
};

/// How a refused journal can be dealt with, for messages.
inline constexpr const char* kJournalWayOut =
    "finish it with the command that began it, or drop what it did with --restart";

/// nullopt when there is no such file. Throws InvalidCheckpoint for a file that is no journal or whose
/// checksum is not that of its fields, IoError.
std::optional<ReshardJournal> read_journal(const std::filesystem::path& file);

/// Replaces the file whole.
void write_journal(const std::filesystem::path& file, const ReshardJournal& journal);

/// Throws InvalidInput saying what changed unless `found` is a journal of `now`.
void require_same_reshard(const ReshardJournal& found, const ReshardJournal& now,
                          const std::filesystem::path& target);

}  // namespace shardcheck
