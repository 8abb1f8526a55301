#include "shardcheck/checkpoint/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "checkpoint/files.h"
#include "checkpoint/layout_names.h"
#include "checkpoint/limits.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/reshard.h"
#include "text/json_guard.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTable = "hf-llama";

/// One plain name, so that folder / name cannot leave the folder.
bool is_plain_file_name(std::string_view name) {
  constexpr std::string_view kForbidden("/\\\0", 3);
  return !name.empty() && name != "." && name != ".." && name.find_first_of(kForbidden) == name.npos;
}

/// The file behind a name of the index. Names cannot leave the folder; a link in it may, as the snapshots of
/// the Hugging Face cache do (their files are links into ../../blobs).
fs::path require_file(const fs::path& folder, const std::string& name) {
  std::error_code error;
  if (!fs::exists(folder / name, error)) {
    throw InvalidCheckpoint(fmt::format("{}: file {}, named by the index, is missing{}", folder.string(),
                                        quote(name), error ? ": " + error.message() : std::string()));
  }
  return folder / name;
}

/// A sharded checkpoint: the index and the files it names.
class IndexedFiles {
 public:
  IndexedFiles(fs::path folder, std::map<std::string, std::string> index)
      : folder_(std::move(folder)), index_(std::move(index)) {
    for (const auto& [tensor, file] : index_) {
      if (!files_.contains(file)) files_.emplace(file, SafetensorsFile(require_file(folder_, file)));
    }
  }

  TensorMap tensors() const {
    require_indexed_tensors_are_stored();
    require_stored_tensors_are_indexed();
    TensorMap tensors;
    for (const auto& [tensor, file] : index_) tensors.emplace(tensor, files_.at(file).tensor(tensor));
    return tensors;
  }

 private:
  void require_indexed_tensors_are_stored() const {
    std::vector<std::string> missing;
    for (const auto& [tensor, file] : index_) {
      if (!files_.at(file).contains(tensor)) missing.push_back(tensor);
    }
    if (missing.empty()) return;
    throw InvalidCheckpoint(fmt::format(
        "{}: {} tensors are not in the file the index names for them: {} "
        "(the first should be in {})",
        folder_.string(), missing.size(), quote_some(missing), quote(index_.at(missing.front()))));
  }

  void require_stored_tensors_are_indexed() const {
    std::set<std::string> extra;
    for (const auto& [name, file] : files_) {
      for (const SafetensorsEntry& entry : file.header().entries) {
        if (!index_.contains(entry.name)) extra.insert(fmt::format("{} in {}", entry.name, name));
      }
    }
    if (extra.empty()) return;
    throw InvalidCheckpoint(fmt::format("{}: {} tensors are in a file but not in the index: {}",
                                        folder_.string(), extra.size(),
                                        quote_some({extra.begin(), extra.end()})));
  }

  fs::path folder_;
  std::map<std::string, std::string> index_;
  std::map<std::string, SafetensorsFile> files_;
};

Layout hugging_face_layout(const Geometry& geometry) {
  return LayoutTable::built_in(kTable).instantiate(geometry, 1);
}

/// A tied checkpoint may store the head as well; it must then be the embedding.
void drop_tied_head(const Geometry& geometry, const fs::path& folder, TensorMap& tensors) {
  Geometry untied = geometry;
  untied.tied = false;
  const Layout layout = hugging_face_layout(untied);
  const std::string& head_name = layout.entry_of("lm_head").name;
  const std::string& embed_name = layout.entry_of("embed").name;
  const auto head = tensors.find(head_name);
  const auto embed = tensors.find(embed_name);
  if (head == tensors.end()) return;
  if (embed != tensors.end() && !head->second.same_bytes(embed->second)) {
    throw InvalidCheckpoint(
        fmt::format("{}: tensor {} differs from {}; allowed while tie_word_embeddings is true: absent, or "
                    "equal in dtype, shape and every byte",
                    folder.string(), quote(head_name), quote(embed_name)));
  }
  tensors.erase(head);
}

std::set<std::string_view> names_of(const TensorMap& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  return names;
}

void require_shape_and_dtype(const LayoutEntry& entry, const fs::path& folder, const Tensor& tensor) {
  if (tensor.shape() != entry.placed.shape()) {
    throw InvalidCheckpoint(fmt::format("{}: tensor {} has shape {}; allowed by config.json: {}",
                                        folder.string(), quote(entry.name), to_string(tensor.shape()),
                                        to_string(entry.placed.shape())));
  }
  if (!is_forward_dtype(tensor.dtype())) {
    throw InvalidCheckpoint(fmt::format("{}: tensor {} has dtype {}; allowed: F32, BF16 or F16",
                                        folder.string(), quote(entry.name),
                                        safetensors_name(tensor.dtype())));
  }
}

/// Norms and biases may be stored wider than the matrices; the matrices agree.
DType matrix_dtype(const Layout& layout, const fs::path& folder, const TensorMap& tensors) {
  const LayoutEntry& first = layout.entry_of("embed");
  const DType dtype = tensors.at(first.name).dtype();
  for (const LayoutEntry& entry : layout.entries) {
    const Tensor& tensor = tensors.at(entry.name);
    if (tensor.rank() != 2 || tensor.dtype() == dtype) continue;
    throw InvalidCheckpoint(fmt::format("{}: tensor {} has dtype {}; allowed: {}, as {}", folder.string(),
                                        quote(entry.name), safetensors_name(tensor.dtype()),
                                        safetensors_name(dtype), quote(first.name)));
  }
  return dtype;
}

ShardedTensors as_single_rank(const TensorMap& tensors) {
  ShardedTensors shards;
  for (const auto& [name, tensor] : tensors) shards[name].push_back(tensor);
  return shards;
}

/// Writers leave total_size out or count tied copies their own way, so it is read for its type alone.
void require_plausible_metadata(const json& document, const std::string& origin) {
  const auto metadata = document.find("metadata");
  if (metadata == document.end() || metadata->is_null()) return;
  if (!metadata->is_object()) {
    throw InvalidCheckpoint(
        fmt::format("{}: metadata is {}; allowed: an object, null or absent", origin, shown(*metadata)));
  }
  const auto size = metadata->find("total_size");
  if (size == metadata->end() || size->is_number_unsigned()) return;
  throw InvalidCheckpoint(fmt::format("{}: metadata.total_size is {}; allowed: an integer from 0, or absent",
                                      origin, shown(*size)));
}

}  // namespace

std::map<std::string, std::string> parse_index(std::string_view text, const std::string& origin) {
  const json document = parse_json_object<InvalidCheckpoint>(text, origin, kMaxIndexBytes);
  require_plausible_metadata(document, origin);
  const auto map = document.find("weight_map");
  if (map == document.end() || !map->is_object() || map->empty()) {
    throw InvalidCheckpoint(
        fmt::format("{}: weight_map is {}; allowed: an object that maps tensor names to file names", origin,
                    map == document.end() ? "missing"
                    : map->empty()        ? "empty"
                                          : shown(*map)));
  }
  std::map<std::string, std::string> index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      throw InvalidCheckpoint(
          fmt::format("{}: weight_map entry {} is {}; allowed: the name of a file in the "
                      "same folder, without path separators",
                      origin, quote(tensor), shown(file)));
    }
    index.emplace_hint(index.end(), tensor, file.get<std::string>());
  }
  return index;
}

TensorMap load_tensors(const fs::path& folder) {
  require_folder(folder);
  const fs::path index_file = folder / "model.safetensors.index.json";
  const fs::path single_file = folder / "model.safetensors";
  if (is_present(index_file)) {
    const std::string text = read_text(index_file, kMaxIndexBytes);
    return IndexedFiles(folder, parse_index(text, index_file.string())).tensors();
  }
  if (!is_present(single_file)) {
    throw IoError(
        fmt::format("{}: holds neither model.safetensors nor model.safetensors.index.json", folder.string()));
  }
  return SafetensorsFile(single_file).tensors();
}

Checkpoint load_checkpoint(const fs::path& folder) {
  require_folder(folder);
  const fs::path config_file = folder / "config.json";
  Checkpoint checkpoint;
  checkpoint.config = parse_config(read_text(config_file, kMaxConfigBytes), config_file.string());
  const Geometry& geometry = checkpoint.config.geometry;
  TensorMap tensors = load_tensors(folder);
  // Buffers of old exports, recomputed from rope_theta.
  std::erase_if(tensors, [](const auto& item) { return item.first.ends_with(".rotary_emb.inv_freq"); });
  if (geometry.tied) drop_tied_head(geometry, folder, tensors);

  const Layout layout = hugging_face_layout(geometry);
  require_entry_names(names_on_rank(layout, 0), names_of(tensors), folder.string(), "config.json");
  for (const LayoutEntry& entry : layout.entries) {
    require_shape_and_dtype(entry, folder, tensors.at(entry.name));
  }
  checkpoint.dtype = matrix_dtype(layout, folder, tensors);
  checkpoint.logical = gather(as_single_rank(tensors), layout);
  return checkpoint;
}

}  // namespace shardcheck
