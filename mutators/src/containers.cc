#include "containers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <span>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::effective {
namespace {

constexpr std::int64_t kRowsPerRank = 2;
constexpr std::int64_t kMaxWidth = 16;
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kStale = "model-before.safetensors";
const std::vector<std::string> kInFirst = {"embed", "layers.0", "layers.1"};
const std::vector<std::string> kInSecond = {"layers.2", "layers.3"};
constexpr std::string_view kTwice = "layers.1";  // in the second file too, of another version

Tensor drawn(const Case& c, const Shape& shape, std::string_view name, std::string_view version) {
  Tensor values = Tensor::uninitialized(DType::f32, shape);
  fill_normal(values.mutable_f32(), stream_key(c.seed, fmt::format("container {} {}", version, name)), 0.0F,
              1.0F);
  return values.to(c.dtype);
}

void append(StoredFile& file, std::string_view name, const Tensor& tensor) {
  const std::size_t begin = file.buffer.size();
  file.buffer.insert(file.buffer.end(), tensor.bytes().begin(), tensor.bytes().end());
  file.ranges.push_back({std::string(name), begin, file.buffer.size()});
}

void damage_folder(StoredFolder& folder, FolderDamage damage) {
  StoredFile& first = folder.files.at(kFirst);
  StoredFile& second = folder.files.at(kSecond);
  const std::size_t size = first.ranges.front().end;  // of every tensor
  switch (damage) {
    case FolderDamage::none:
      return;
    case FolderDamage::missing_shard:
      folder.files.erase(kSecond);
      return;
    case FolderDamage::truncated_shard:
      second.buffer.resize(second.buffer.size() - size / 2);
      return;
    case FolderDamage::exchanged_index:
      std::swap(folder.index.at("layers.0"), folder.index.at("layers.2"));
      return;
    case FolderDamage::shared_range: {
      StoredRange& last = first.ranges.back();
      const StoredRange& before = first.ranges[first.ranges.size() - 2];
      last.begin = before.begin, last.end = before.end;
      first.buffer.resize(before.end);
      return;
    }
  }
}

const StoredRange* range_in(const StoredFile& file, std::string_view name) {
  const auto found = std::ranges::find(file.ranges, name, &StoredRange::name);
  return found == file.ranges.end() ? nullptr : &*found;
}

std::string header_of(const StoredFolder& folder, const StoredFile& file) {
  std::vector<std::string> entries;
  for (const StoredRange& range : file.ranges) {
    entries.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", range.name,
                                  safetensors_name(folder.dtype), fmt::join(folder.shape, ","), range.begin,
                                  range.end));
  }
  std::string text = fmt::format("{{{}}}", fmt::join(entries, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

std::string index_text(const StoredFolder& folder) {
  std::vector<std::string> entries;
  for (const auto& [tensor, file] : folder.index)
    entries.push_back(fmt::format(R"("{}":"{}")", tensor, file));
  return fmt::format(R"({{"metadata":{{}},"weight_map":{{{}}}}})", fmt::join(entries, ","));
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw IoError(fmt::format("{}: cannot be written", path.string()));
}

}  // namespace

StoredFolder stored_folder(const Case& c, FolderDamage damage) {
  StoredFolder folder;
  folder.dtype = c.dtype;
  folder.shape = {kRowsPerRank * c.target.tp_degree(), std::min(c.geometry.d_model, kMaxWidth)};
  StoredFile& second = folder.files[kSecond];
  append(second, kTwice, drawn(c, folder.shape, kTwice, "before"));
  for (const auto& [file, names] : {std::pair(kFirst, kInFirst), std::pair(kSecond, kInSecond)}) {
    for (const std::string& name : names) {
      append(folder.files[file], name, drawn(c, folder.shape, name, "now"));
      append(folder.files[kStale], name, drawn(c, folder.shape, name, "before"));
      folder.index[name] = file;
    }
  }
  damage_folder(folder, damage);
  return folder;
}

Tensor tensor_of(const StoredFolder& folder, std::span<const std::byte> bytes) {
  Tensor tensor = Tensor::zeros(folder.dtype, folder.shape);
  std::ranges::copy(bytes.first(std::min(bytes.size(), tensor.bytes().size())),
                    tensor.mutable_bytes().begin());
  return tensor;
}

Tensor tensor_in(const StoredFolder& folder, std::string_view file, std::string_view name) {
  const StoredFile& stored = folder.files.find(file)->second;
  const StoredRange& range = *range_in(stored, name);
  return tensor_of(folder, std::span(stored.buffer).subspan(std::min(range.begin, stored.buffer.size())));
}

Tensor indexed_tensor(const StoredFolder& folder, std::string_view name) {
  const std::string_view stored = name == "head" ? "embed" : name;
  return tensor_in(folder, folder.index.find(stored)->second, stored);
}

Tensor last_copy(const StoredFolder& folder, std::string_view name, FilesRead files) {
  const std::string_view stored = name == "head" ? "embed" : name;
  std::set<std::string_view> indexed;
  for (const auto& [tensor, file] : folder.index) indexed.insert(file);
  std::string_view last;
  for (const auto& [file, contents] : folder.files) {
    const bool is_read = files == FilesRead::all || indexed.contains(file);
    if (is_read && range_in(contents, stored) != nullptr) last = file;
  }
  return tensor_in(folder, last, stored);
}

std::vector<std::byte> image_of(const StoredFolder& folder, const StoredFile& file) {
  const std::string header = header_of(folder, file);
  std::vector<std::byte> image(8 + header.size() + file.buffer.size());
  for (std::size_t i = 0; i < 8; ++i) image[i] = static_cast<std::byte>(header.size() >> 8 * i);
  std::ranges::copy(std::as_bytes(std::span(header)), image.begin() + 8);
  std::ranges::copy(file.buffer, image.end() - std::ssize(file.buffer));
  return image;
}

ShardedTensors read_stored(const Case& c, FolderDamage damage, Lookup lookup) {
  const StoredFolder folder = stored_folder(c, damage);
  std::vector<std::string> names = {"head"};
  for (const auto& [name, file] : folder.index) names.push_back(name);
  ShardedTensors all;
  for (const std::string& name : names) {
    const Tensor whole = lookup(folder, name);
    for (int rank = 0; rank < c.target.tp_degree(); ++rank)
      all[name].push_back(whole.rows(rank * kRowsPerRank, kRowsPerRank));
  }
  return all;
}

void write_stored(const StoredFolder& folder, const std::filesystem::path& path) {
  write_file(path / "model.safetensors.index.json", index_text(folder));
  for (const auto& [name, file] : folder.files) {
    const std::vector<std::byte> image = image_of(folder, file);
    write_file(path / name, {reinterpret_cast<const char*>(image.data()), image.size()});
  }
}

}  // namespace shardcheck::effective
