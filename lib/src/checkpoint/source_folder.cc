#include "checkpoint/source_folder.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "checkpoint/files.h"
#include "checkpoint/layout_names.h"
#include "checkpoint/limits.h"
#include "checkpoint/shard_record.h"
#include "checkpoint/system_call.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "tensor/at.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kSingleFile = "model.safetensors";

/// Names under which transformers stores an output head.
constexpr std::array<std::string_view, 2> kHeadNames = {"lm_head.weight", "embed_out.weight"};

/// Buffers of old exports that models recompute.
constexpr std::array<std::string_view, 5> kBufferSuffixes = {
    ".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"};

bool is_buffer(std::string_view name) {
  return std::any_of(kBufferSuffixes.begin(), kBufferSuffixes.end(),
                     [name](std::string_view suffix) { return name.ends_with(suffix); });
}

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

bool has_shard_record(const fs::path& folder) { return is_present(folder / kRecordFile); }

SourceFolder::SourceFolder(fs::path folder, const Layout& layout)
    : layout_(layout),
      folder_(std::move(folder)),
      dtypes_(layout.entries.size()),
      seen_(layout.entries.size()),
      places_(at(layout.degree)) {
  require_folder(folder_);
  const bool is_hugging_face = is_present(folder_ / kIndexFile) || is_present(folder_ / kSingleFile);
  if (has_shard_record(folder_) || !is_hugging_face) {
    open_ranks();
  } else {
    if (layout.degree != 1) {
      throw InvalidCheckpoint(
          fmt::format("{}: is a Hugging Face folder; allowed there: a layout of one rank, not {}",
                      folder_.string(), to_string(layout.name)));
    }
    open_hugging_face();
  }
}

std::vector<FileIdentity> SourceFolder::identities() const {
  std::vector<FileIdentity> identities;
  for (const MappedFile& file : files_) identities.push_back(file.identity);
  return identities;
}

StoredTensor SourceFolder::tensor(std::size_t entry, int rank) const {
  const std::vector<Place>& places = places_[at(rank)];
  const auto found = std::lower_bound(places.begin(), places.end(), entry,
                                      [](const Place& place, std::size_t e) { return place.entry < e; });
  const std::int64_t bits =
      element_count(layout_.entries[entry].placed.local_shape(rank)) * size_bits(dtypes_[entry]);
  return {files_[found->file].buffer + found->begin, static_cast<std::size_t>(bits / 8)};
}

SafetensorsHeader SourceFolder::open(const fs::path& path) {
  const OpenedFile opened = open_for_reading(path);
  if (opened.size_bytes == 0) parse_safetensors({}, path.string());  // an empty file cannot be mapped
  struct stat status {};
  if (::fstat(opened.descriptor.get(), &status) != 0) fail_io(path, "read its time");
  MappedFile file;
  file.path = path;
  file.mapping = map_file(opened, path);
  const auto* bytes = static_cast<const std::byte*>(file.mapping.get());
  SafetensorsHeader header = parse_safetensors({bytes, opened.size_bytes}, path.string());
  file.buffer = bytes + header.buffer_offset;
  file.identity = {path.filename().string(), opened.size_bytes, nanoseconds(status.st_mtim),
                   XXH3_64bits(bytes, header.buffer_offset)};
  ::madvise(const_cast<std::byte*>(bytes), opened.size_bytes, MADV_DONTNEED);
  files_.push_back(std::move(file));
  return header;
}

void SourceFolder::place(std::size_t entry, int rank, std::uint32_t file, const SafetensorsEntry& stored) {
  const LayoutEntry& wanted = layout_.entries[entry];
  const std::string where = files_[file].path.string();
  if (const Shape shape = wanted.placed.local_shape(rank); stored.shape != shape) {
    throw InvalidCheckpoint(fmt::format("{}: tensor {} has shape {}; allowed by layout {}: {}", where,
                                        quote(stored.name), to_string(stored.shape), to_string(layout_.name),
                                        to_string(shape)));
  }
  if (seen_[entry] && dtypes_[entry] != stored.dtype) {
    throw InvalidCheckpoint(fmt::format("{}: tensor {} has dtype {}; allowed: {}, as on the ranks before {}",
                                        where, quote(stored.name), safetensors_name(stored.dtype),
                                        safetensors_name(dtypes_[entry]), rank));
  }
  seen_[entry] = true;
  dtypes_[entry] = stored.dtype;
  places_[at(rank)].push_back({static_cast<std::uint32_t>(entry), file, stored.begin});
}

void SourceFolder::open_ranks() {
  require_shard_folder(folder_, layout_);
  std::vector<std::vector<std::size_t>> held(places_.size());
  for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
    for (const int rank : layout_.entries[e].placed.holders()) held[at(rank)].push_back(e);
  }
  for (int rank = 0; rank < layout_.degree; ++rank) {
    const SafetensorsHeader header = open(folder_ / shard_file_name(rank, layout_.degree));
    std::map<std::string_view, const SafetensorsEntry*> stored;
    for (const SafetensorsEntry& entry : header.entries) stored.emplace(entry.name, &entry);
    std::set<std::string_view> names, expected;
    for (const SafetensorsEntry& entry : header.entries) names.insert(entry.name);
    for (const std::size_t e : held[at(rank)]) expected.insert(layout_.entries[e].file_name());
    require_entry_names(expected, names, files_.back().path.string(),
                        fmt::format("layout {}", quote(to_string(layout_.name))));
    for (const std::size_t e : held[at(rank)]) {
      place(e, rank, static_cast<std::uint32_t>(rank), *stored.at(layout_.entries[e].file_name()));
    }
  }
}

void SourceFolder::open_hugging_face() {
  std::map<std::string, std::string> index;
  std::set<std::string> names = {kSingleFile};
  if (const fs::path file = folder_ / kIndexFile; is_present(file)) {
    index = parse_index(read_text(file, kMaxIndexBytes), file.string());
    names.clear();
    for (const auto& [tensor, name] : index) names.insert(name);
  }
  std::vector<SafetensorsHeader> headers;
  std::map<std::string_view, std::pair<std::uint32_t, const SafetensorsEntry*>> stored;
  headers.reserve(names.size());
  for (const std::string& name : names) {
    const SafetensorsHeader& header = headers.emplace_back(open(folder_ / name));
    for (const SafetensorsEntry& entry : header.entries) {
      if (!index.empty() && !index.contains(entry.name)) {
        throw InvalidCheckpoint(fmt::format("{}: tensor {} is in {} but not in the index", folder_.string(),
                                            quote(entry.name), quote(name)));
      }
      if (index.empty() || index.at(entry.name) == name) {
        stored.emplace(entry.name, std::pair(static_cast<std::uint32_t>(headers.size() - 1), &entry));
      }
    }
  }
  for (const auto& [tensor, name] : index) {
    if (stored.contains(tensor)) continue;
    throw InvalidCheckpoint(fmt::format("{}: tensor {} is not in {}, the file the index names for it",
                                        folder_.string(), quote(tensor), quote(name)));
  }
  auto extra = stored;
  std::set<std::string_view> present;
  for (const LayoutEntry& entry : layout_.entries) extra.erase(entry.file_name());
  for (const auto& [name, place] : stored) {
    const bool is_head = std::find(kHeadNames.begin(), kHeadNames.end(), name) != kHeadNames.end();
    if (!extra.contains(name) || (!is_buffer(name) && !(is_head && layout_.geometry.tied)))
      present.insert(name);
  }
  require_entry_names(names_on_rank(layout_, 0), present, folder_.string(),
                      fmt::format("layout {}", quote(to_string(layout_.name))));
  for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
    const auto& [file, entry] = stored.at(layout_.entries[e].file_name());
    place(e, 0, file, *entry);
  }
  find_tied_head(extra);
}

void SourceFolder::find_tied_head(
    const std::map<std::string_view, std::pair<std::uint32_t, const SafetensorsEntry*>>& extra) {
  for (const std::string_view name : kHeadNames) {
    const auto found = extra.find(name);
    if (found == extra.end() || !layout_.geometry.tied) continue;
    const auto& [file, head] = found->second;
    for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
      const LayoutEntry& entry = layout_.entries[e];
      if (entry.tied || entry.parts.front().name != "embed") continue;
      if (head->shape != entry.placed.shape() || head->dtype != dtypes_[e]) {
        throw InvalidCheckpoint(
            fmt::format("{}: tensor {} is {} {}; allowed in a tied checkpoint: absent, or equal to {}, {} {}",
                        folder_.string(), quote(name), safetensors_name(head->dtype), to_string(head->shape),
                        quote(entry.name), safetensors_name(dtypes_[e]), to_string(entry.placed.shape())));
      }
      tied_head_ = {std::string(name),
                    entry.name,
                    {files_[file].buffer + head->begin, static_cast<std::size_t>(head->end - head->begin)},
                    tensor(e, 0)};
    }
  }
}

}  // namespace shardcheck
