// A checkpoint on disk from one layout to another, and its digest, in bounded memory whatever its size:
// sources are mapped and given back page by page, targets written a chunk at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/digest.h"
#include "shardcheck/reshard/reshard.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

struct ReshardOptions {
  std::uint64_t buffer_bytes = std::uint64_t{8} << 20;        // chunk assembled in memory; 4 KiB to 1 GiB
  std::uint64_t max_shard_bytes = 5'000'000'000;              // of tensors in a file of a Hugging Face target
  std::uint64_t checkpoint_bytes = std::uint64_t{256} << 20;  // written between points where it can go on
  bool restart = false;                                       // forget what a run before left unfinished
  ProgressSink progress = {};
};

/// Replicas, or tied copies, that should hold the same bytes and do not: a finding about the data.
class DivergentCopies : public InvalidShards {
 public:
  using InvalidShards::InvalidShards;
};

/// What a reshard reads, writes and needs.
struct ReshardSummary {
  struct Side {
    std::string layout;
    std::int64_t ranks = 0, files = 0, tensors = 0;
    std::uint64_t bytes = 0;  // of the files
  };
  Side source, target;
  std::int64_t copies = 0;
  std::uint64_t bytes_copied = 0;     // by the plan, padding apart
  std::int64_t elements_copied = 0;   // the same in elements
  std::int64_t elements_bound = 0;    // that the target ranks want (`plan_bound`): no plan copies fewer
  std::uint64_t bytes_resumed = 0;    // of the target's tensors, by a run before
  std::uint64_t memory_bytes = 0;     // buffer, mapped pages and plan at most
  std::vector<std::string> warnings;  // what the target may not be good for, a sentence each
};

/// What `reshard_folder` would do, from headers alone; nothing is written.
ReshardSummary describe_reshard(const std::filesystem::path& source, const Layout& source_layout,
                                const Layout& target_layout, const ReshardOptions& options = {});

/// The same, and throws what `reshard_folder` would throw about `target`.
ReshardSummary describe_reshard(const std::filesystem::path& source, const Layout& source_layout,
                                const std::filesystem::path& target, const Layout& target_layout,
                                const ReshardOptions& options = {});

/// Reads a folder of rank files with shardcheck.json, or a Hugging Face folder (source layout of one rank),
/// and writes the target layout: rank files with shardcheck.json, or a Hugging Face folder for one rank of a
/// table whose name starts with "hf-". Every tensor keeps its dtype; config.json, the tokenizer's files and
/// generation_config.json are carried along; a config.json of a supported family must agree with a Hugging
/// Face target's geometry. `target` is created; it must hold nothing else. Files get their names when all of
/// them are complete and on the disk, shardcheck.json or the index last. A run that ends early, however it
/// ends, is continued by the same call; the journal in the target is refused when the source's files or the
/// plan have changed. Throws InvalidInput (InvalidCheckpoint, InvalidShards, InvalidLayout) for what is
/// refused: shards that do not fit their layout, replicas or tied copies that differ (DivergentCopies),
/// dtypes that cannot share a tensor, a target that holds something else; UnsupportedLayout; IoError.
ReshardSummary reshard_folder(const std::filesystem::path& source, const Layout& source_layout,
                              const std::filesystem::path& target, const Layout& target_layout,
                              const ReshardOptions& options = {});

struct FolderDigest {
  WeightDigest digest;                            // the sum of by_tensor
  std::map<std::string, WeightDigest> by_tensor;  // under logical names
  std::int64_t tensors = 0;                       // logical ones
  std::uint64_t bytes = 0;                        // of logical elements
  std::vector<std::string>
      disagreements;  // replicas or tied copies that differ (DivergentCopies), padding that is not zero
};

/// The digest of a folder's logical tensors, each element counted once from the lowest rank that holds it.
/// The disagreements name tensor and ranks. Where the layout shifts values (zero-centred norms), logical ones
/// are the stored ones shifted back and rounded: they need not be those that were written. Throws as
/// `reshard_folder` for folders that do not fit the layout.
FolderDigest digest_folder(const std::filesystem::path& folder, const Layout& layout,
                           const ProgressSink& progress = {});

/// Whether the folder is read as rank files: it has a shardcheck.json.
bool has_shard_record(const std::filesystem::path& folder);

}  // namespace shardcheck
