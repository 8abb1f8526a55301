// Tensors read back from a checkpoint of several files, with files and copies in it that do not count.
#include <array>

#include "containers.h"
#include "shardcheck/checkpoint/folders.h"
#include "shardcheck/checkpoint/hugging_face.h"

namespace shardcheck::effective {
namespace {

std::optional<std::string> why_not(const Case&) { return std::nullopt; }

ShardedTensors expected(const Case& c) { return read_stored(c, FolderDamage::none, indexed_tensor); }

TensorMap read_by_library(const StoredFolder& folder) {
  const TemporaryFolder place;
  write_stored(folder, place.path());
  return load_tensors(place.path());
}

bool is_refused(const StoredFolder& folder) {
  try {
    read_by_library(folder);
    return false;
  } catch (const InvalidCheckpoint&) {
    return true;
  }
}

/// Rows of every rank, of the head those of the embedding. A damaged folder that is read instead of refused
/// is one tensor more.
ShardedTensors delivered(const Case& c) {
  constexpr std::array kDamages = {FolderDamage::missing_shard, FolderDamage::truncated_shard,
                                   FolderDamage::exchanged_index, FolderDamage::shared_range};
  TensorMap tensors = read_by_library(stored_folder(c, FolderDamage::none));
  tensors.emplace("head", tensors.at("embed"));
  if (!is_refused(stored_folder(c, kDamages[c.seed % kDamages.size()])))
    tensors.emplace("damaged", tensors.at("embed"));
  ShardedTensors all;
  for (const auto& [name, whole] : tensors) {
    const std::int64_t rows = whole.dim(0) / c.target.tp_degree();
    for (int rank = 0; rank < c.target.tp_degree(); ++rank)
      all[name].push_back(whole.rows(rank * rows, rows));
  }
  return all;
}

}  // namespace

const EffectiveModel& container() {
  static const EffectiveModel model{.kind = EffectiveKind::container,
                                    .claim =
                                        "Tensors read back from several files are those that the index "
                                        "means, whatever else is in the folder; "
                                        "files that are missing, truncated or contradictory are refused.",
                                    .why_not = why_not,
                                    .expected = expected,
                                    .delivered = delivered};
  return model;
}

}  // namespace shardcheck::effective
