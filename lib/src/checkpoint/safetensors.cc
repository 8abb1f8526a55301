#include "shardcheck/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "checkpoint/files.h"
#include "checkpoint/safetensors_header.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

constexpr std::size_t kLengthBytes = 8;  // of the header length in front of the header

std::uint64_t read_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

std::array<std::byte, kLengthBytes> little_endian(std::uint64_t value) {
  std::array<std::byte, kLengthBytes> bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<std::byte>(value >> 8 * i);
  return bytes;
}

[[noreturn]] void refuse_short_file(std::uint64_t size, const std::string& origin) {
  throw InvalidCheckpoint(
      fmt::format("{}: the file has {} bytes; allowed: at least 8, the length of the header", origin, size));
}

std::string_view header_text(std::span<const std::byte> file, const std::string& origin) {
  if (file.size() < kLengthBytes) refuse_short_file(file.size(), origin);
  const std::uint64_t length = read_u64(file);
  if (length > kMaxHeaderBytes) {
    throw InvalidCheckpoint(fmt::format("{}: header: length at offset 0 is {}; allowed: at most {}", origin,
                                        length, kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    throw InvalidCheckpoint(
        fmt::format("{}: header: length at offset 0 is {}; allowed: at most {}, what the file holds "
                    "(the file is truncated or the length is wrong)",
                    origin, length, file.size() - kLengthBytes));
  }
  const auto text = file.subspan(kLengthBytes, static_cast<std::size_t>(length));
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

/// Bits of an entry, the shape folded from the left as the reference reader does: [0, 2^62, 4] is empty,
/// [2^62, 4, 0] overflows.
std::uint64_t checked_bits(const SafetensorsEntry& entry, const std::string& origin) {
  std::int64_t elements = 1;
  std::uint64_t bits = 0;
  bool overflow = false;
  for (const std::int64_t extent : entry.shape)
    overflow |= __builtin_mul_overflow(elements, extent, &elements);
  overflow |= __builtin_mul_overflow(elements, static_cast<std::uint64_t>(size_bits(entry.dtype)), &bits);
  if (overflow) {
    throw InvalidCheckpoint(fmt::format(
        "{}: tensor {}: shape {} of {} overflows; allowed: fewer than 2^63 elements and 2^64 bits", origin,
        quote(entry.name), to_string(entry.shape), safetensors_name(entry.dtype)));
  }
  return bits;
}

void check_range(const SafetensorsEntry& entry, std::uint64_t expected_begin, const std::string& origin) {
  if (entry.begin == expected_begin && entry.end >= entry.begin) return;
  throw InvalidCheckpoint(
      fmt::format("{}: tensor {}: data_offsets are [{}, {}]; allowed: begin {}, where the tensor before it "
                  "ends, and end >= begin (no hole, no overlap)",
                  origin, quote(entry.name), entry.begin, entry.end, expected_begin));
}

void check_size(const SafetensorsEntry& entry, const std::string& origin) {
  const std::uint64_t bits = checked_bits(entry, origin);
  if (bits % 8 != 0) {
    throw InvalidCheckpoint(fmt::format("{}: tensor {}: shape {} of {} takes {} bits; allowed: whole bytes",
                                        origin, quote(entry.name), to_string(entry.shape),
                                        safetensors_name(entry.dtype), bits));
  }
  if (entry.end - entry.begin != bits / 8) {
    throw InvalidCheckpoint(fmt::format(
        "{}: tensor {}: data_offsets [{}, {}] span {} bytes; allowed: {}, the size of shape {} of "
        "{}",
        origin, quote(entry.name), entry.begin, entry.end, entry.end - entry.begin, bits / 8,
        to_string(entry.shape), safetensors_name(entry.dtype)));
  }
}

void check_end(std::uint64_t end, std::uint64_t buffer_bytes, const std::string& origin) {
  if (end == buffer_bytes) return;
  const std::string excess =
      end > buffer_bytes ? fmt::format("{} bytes are missing: the file is truncated", end - buffer_bytes)
                         : fmt::format("{} bytes after it belong to no tensor", buffer_bytes - end);
  throw InvalidCheckpoint(fmt::format(
      "{}: the last tensor ends at byte {} of the buffer, which has {} bytes; allowed: the end of "
      "the file ({})",
      origin, end, buffer_bytes, excess));
}

std::string json_string(std::string_view text) {
  if (const auto bad = find_invalid_utf8(text)) {
    throw InvalidInput(fmt::format("safetensors header: byte {} of {} is not valid UTF-8; allowed: UTF-8",
                                   *bad, quote(text)));
  }
  return nlohmann::json(text).dump();
}

std::string metadata_json(const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> items;
  for (const auto& [key, value] : metadata) {
    items.push_back(fmt::format("{}:{}", json_string(key), json_string(value)));
  }
  return fmt::format("\"{}\":{{{}}}", kMetadataKey, fmt::join(items, ","));
}

std::string entry_json(const SafetensorsEntry& entry) {
  if (entry.name == kMetadataKey) {
    throw InvalidInput(
        fmt::format("tensor name is {}; allowed: any name the format does not reserve", quote(entry.name)));
  }
  return fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json_string(entry.name),
                     safetensors_name(entry.dtype), fmt::join(entry.shape, ","), entry.begin, entry.end);
}

/// Wide elements first, so that every tensor is aligned in a file whose buffer is.
void put_in_file_order(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    const int a_bits = size_bits(a.dtype), b_bits = size_bits(b.dtype);
    return a_bits != b_bits ? a_bits > b_bits : a.name < b.name;
  });
  std::uint64_t begin = 0;
  for (SafetensorsEntry& entry : entries) {
    const std::int64_t bits = element_count(entry.shape) * size_bits(entry.dtype);
    entry.begin = begin;
    entry.end = begin += static_cast<std::uint64_t>(bits) / 8;
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& origin) {
  const std::string_view text = header_text(file, origin);
  SafetensorsHeader header = parse_header_json(text, origin);
  header.buffer_offset = kLengthBytes + text.size();
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    check_range(entry, end, origin);
    check_size(entry, origin);
    end = entry.end;
  }
  check_end(end, file.size() - header.buffer_offset, origin);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : path_(file) {
  const OpenedFile opened = open_for_reading(file);
  // An empty file cannot be mapped.
  if (opened.size_bytes < kLengthBytes) refuse_short_file(opened.size_bytes, file.string());
  mapping_ = map_file(opened, file);
  const auto* bytes = static_cast<const std::byte*>(mapping_.get());
  header_ = parse_safetensors({bytes, opened.size_bytes}, file.string());
  buffer_ = bytes + header_.buffer_offset;
  by_name_.resize(header_.entries.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [this](std::size_t a, std::size_t b) {
    return header_.entries[a].name < header_.entries[b].name;
  });
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [this](std::size_t i, std::string_view wanted) { return header_.entries[i].name < wanted; });
  if (found == by_name_.end() || header_.entries[*found].name != name) return nullptr;
  return &header_.entries[*found];
}

bool SafetensorsFile::contains(std::string_view name) const { return find(name) != nullptr; }

Tensor SafetensorsFile::tensor(const SafetensorsEntry& entry) const {
  // `borrowed` copies what is not aligned to its element size.
  return Tensor::borrowed(entry.dtype, entry.shape, mapping_, buffer_ + entry.begin);
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    throw InvalidCheckpoint(fmt::format("{}: tensor {} is missing; the file holds {} other tensors",
                                        path_.string(), quote(name), header_.entries.size()));
  }
  return tensor(*entry);
}

TensorMap SafetensorsFile::tensors() const {
  TensorMap tensors;
  for (const SafetensorsEntry& entry : header_.entries) tensors.emplace(entry.name, tensor(entry));
  return tensors;
}

std::string file_start(std::vector<SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata) {
  put_in_file_order(entries);
  std::vector<std::string> items;
  if (!metadata.empty()) items.push_back(metadata_json(metadata));
  for (const SafetensorsEntry& entry : entries) items.push_back(entry_json(entry));
  std::string header = fmt::format("{{{}}}", fmt::join(items, ","));
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeaderBytes) {
    throw InvalidInput(fmt::format("safetensors header of {} tensors takes {} bytes; allowed: at most {}",
                                   entries.size(), header.size(), kMaxHeaderBytes));
  }
  const auto length = little_endian(header.size());
  return std::string(reinterpret_cast<const char*>(length.data()), length.size()) + header;
}

void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype(), tensor.shape()});
  const std::string start = file_start(entries, metadata);
  AtomicFile target(file);
  target.write(start);
  for (const SafetensorsEntry& entry : entries) target.write(tensors.at(entry.name).bytes());
  target.commit();
}

}  // namespace shardcheck
