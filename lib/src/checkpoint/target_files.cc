#include "checkpoint/target_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>

#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_record.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

constexpr std::size_t kMaxOpen = 256;
constexpr const char* kIndexFile = "model.safetensors.index.json";

const std::map<std::string, std::string>& metadata() {
  static const std::map<std::string, std::string> format = {{"format", "pt"}};
  return format;
}

}  // namespace

bool is_target_file_name(std::string_view name) {
  static const std::regex pattern(
      "(rank_[0-9]{5,}-of-[0-9]{5,}|model(-[0-9]{5,}-of-[0-9]{5,})?)\\.safetensors");
  // Longer than any real one, so that the matching stays shallow.
  return name.size() <= 64 && std::regex_match(name.begin(), name.end(), pattern);
}

bool is_hugging_face_target(const Layout& layout) {
  return layout.degree == 1 && layout.name.table.starts_with("hf-");
}

TargetFiles::TargetFiles(const Layout& layout, std::vector<DType> dtypes, std::uint64_t max_shard_bytes)
    : layout_(layout), dtypes_(std::move(dtypes)), members_(at(layout.degree)) {
  if (is_hugging_face_target(layout)) {
    plan_hugging_face(max_shard_bytes);
  } else {
    plan_ranks();
  }
}

std::uint64_t TargetFiles::tensor_bytes(std::size_t entry, int rank) const {
  const std::int64_t bits =
      element_count(layout_.entries[entry].placed.local_shape(rank)) * size_bits(dtypes_[entry]);
  return static_cast<std::uint64_t>(bits) / 8;
}

std::uint64_t TargetFiles::total_bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const File& file) { return sum + file.size_bytes; });
}

std::uint64_t TargetFiles::longest_tensor_bytes(std::size_t entry) const {
  std::uint64_t longest = 0;
  for (const int rank : layout_.entries[entry].placed.holders()) {
    longest = std::max(longest, tensor_bytes(entry, rank));
  }
  return longest;
}

std::string TargetFiles::start_with(int rank, const std::vector<std::uint32_t>& entries,
                                    std::vector<std::uint64_t>& begins) const {
  std::vector<SafetensorsEntry> stored;
  for (const std::uint32_t e : entries) {
    const LayoutEntry& entry = layout_.entries[e];
    stored.push_back({entry.file_name(), dtypes_[e], entry.placed.local_shape(rank)});
  }
  std::string start = file_start(stored, metadata());
  std::map<std::string_view, std::uint64_t> begin_of;
  for (const SafetensorsEntry& entry : stored) begin_of.emplace(entry.name, entry.begin);
  for (const std::uint32_t e : entries) begins.push_back(begin_of.at(layout_.entries[e].file_name()));
  return start;
}

void TargetFiles::add_file(std::string name, int rank, std::vector<std::uint32_t> entries) {
  std::vector<std::uint64_t> begins;
  const std::uint64_t start_bytes = start_with(rank, entries, begins).size();
  std::uint64_t size = start_bytes;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    members_[at(rank)].push_back(
        {entries[i], static_cast<std::uint32_t>(files_.size()), start_bytes + begins[i]});
    size += tensor_bytes(entries[i], rank);
  }
  files_.push_back({std::move(name), start_bytes, size});
  entries_.push_back(std::move(entries));
}

void TargetFiles::plan_ranks() {
  std::vector<std::vector<std::uint32_t>> held(members_.size());
  for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
    for (const int rank : layout_.entries[e].placed.holders()) {
      held[at(rank)].push_back(static_cast<std::uint32_t>(e));
    }
  }
  for (int rank = 0; rank < layout_.degree; ++rank) {
    add_file(shard_file_name(rank, layout_.degree), rank, std::move(held[at(rank)]));
  }
}

/// As transformers does: tensors in order, a new file when the next one would exceed the limit.
void TargetFiles::plan_hugging_face(std::uint64_t max_shard_bytes) {
  std::vector<std::vector<std::uint32_t>> shards(1);
  std::uint64_t size = 0;
  for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
    const std::uint64_t bytes = tensor_bytes(e, 0);
    if (!shards.back().empty() && size + bytes > max_shard_bytes) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(static_cast<std::uint32_t>(e));
    size += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    add_file(shards.size() == 1 ? "model.safetensors"
                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()),
             0, std::move(shards[i]));
  }
}

TargetFiles::Place TargetFiles::place(std::size_t entry, int rank) const {
  const std::vector<Member>& members = members_[at(rank)];
  const auto found = std::lower_bound(members.begin(), members.end(), entry,
                                      [](const Member& member, std::size_t e) { return member.entry < e; });
  return {found->file, found->offset};
}

std::string TargetFiles::start_of(std::size_t file) const {
  std::vector<std::uint64_t> begins;
  return start_with(is_hugging_face_target(layout_) ? 0 : static_cast<int>(file), entries_[file], begins);
}

TargetFiles::Record TargetFiles::record() const {
  if (!is_hugging_face_target(layout_)) return {kRecordFile, shard_record(layout_)};
  if (files_.size() == 1) return {};
  nlohmann::json map = nlohmann::json::object();
  std::uint64_t total = 0;
  for (const Member& member : members_.front()) {
    map[layout_.entries[member.entry].file_name()] = files_[member.file].name;
    total += tensor_bytes(member.entry, 0);
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  return {kIndexFile, index.dump(2) + "\n"};
}

OpenFiles::OpenFiles(std::filesystem::path folder, const std::vector<TargetFiles::File>& files)
    : folder_(std::move(folder)), files_(files) {}

PositionalFile& OpenFiles::open(std::uint32_t file) {
  if (const auto found = by_file_.find(file); found != by_file_.end()) {
    open_.splice(open_.begin(), open_, found->second);
    return open_.front().second;
  }
  if (open_.size() == kMaxOpen) {
    by_file_.erase(open_.back().first);
    open_.pop_back();
  }
  open_.emplace_front(file, PositionalFile(folder_ / files_[file].name));
  by_file_[file] = open_.begin();
  return open_.front().second;
}

void OpenFiles::write(const TargetFiles::Place& place, std::span<const std::byte> bytes) {
  open(place.file).write(place.offset, bytes);
  written_.insert(place.file);
}

std::vector<std::uint32_t> OpenFiles::take_written() {
  std::vector<std::uint32_t> written(written_.begin(), written_.end());
  written_.clear();
  return written;
}

}  // namespace shardcheck
