#include "container_editor.h"

#include <cstring>
#include <limits>

#include "shardcheck/tensor/dtype.h"

namespace shardcheck::fuzz {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostBufferBytes = 1 << 16;

/// Bytes of a tensor, nullopt where its entry does not say it.
std::optional<std::uint64_t> bytes_of(const Json& entry) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape")) return std::nullopt;
  const Json &name = entry["dtype"], &shape = entry["shape"];
  if (!name.is_string() || !shape.is_array()) return std::nullopt;
  const auto dtype = dtype_from_safetensors(name.get<std::string>());
  if (!dtype) return std::nullopt;
  std::uint64_t elements = 1;
  for (const Json& extent : shape) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > kMostBufferBytes) return std::nullopt;
    elements *= extent.get<std::uint64_t>();
    if (elements > kMostBufferBytes) return std::nullopt;
  }
  return (elements * static_cast<std::uint64_t>(size_bits(*dtype)) + 7) / 8;
}

/// The `data_offsets` of a random tensor, nullptr where there is none.
Json* pick_offsets(Json& header, Stream& stream) {
  if (!header.is_object() || header.empty()) return nullptr;
  const std::int64_t chosen = stream.integer(0, std::ssize(header) - 1);
  Json& entry = *std::next(header.begin(), chosen);
  if (!entry.is_object() || !entry.contains("data_offsets")) return nullptr;
  Json& offsets = entry["data_offsets"];
  return offsets.is_array() && offsets.size() == 2 ? &offsets : nullptr;
}

void edit_offsets(Json& header, Stream& stream) {
  Json* const offsets = pick_offsets(header, stream);
  if (offsets == nullptr) return;
  Json& bound = (*offsets)[stream.chance(1, 2) ? 1U : 0U];
  const auto value = bound.is_number_unsigned() ? bound.get<std::uint64_t>() : 0;
  bound = stream.pick<std::uint64_t>({value + 1, value - 1, value + 8, value * 2, 0,
                                      std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63,
                                      std::numeric_limits<std::uint64_t>::max() - value});
}

void edit_buffer(std::string& buffer, Stream& stream) {
  switch (stream.integer(0, 2)) {
    case 0:
      buffer.append(static_cast<std::size_t>(stream.integer(1, 16)), '\x7f');
      break;
    case 1:
      buffer.resize(static_cast<std::size_t>(stream.integer(0, std::ssize(buffer))));
      break;
    default:
      if (!buffer.empty())
        buffer[static_cast<std::size_t>(stream.integer(0, std::ssize(buffer) - 1))] ^= '\x81';
      break;
  }
}

}  // namespace

std::optional<Container> parse_container(std::string_view bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  bytes.remove_prefix(kLengthBytes);
  if (length > bytes.size()) return std::nullopt;
  const auto header = static_cast<std::size_t>(length);
  auto parsed = parse_json(bytes.substr(0, header));
  if (!parsed) return std::nullopt;
  return Container{std::move(*parsed), std::string(bytes.substr(header))};
}

std::string print_container(const Container& container) {
  const std::string header = print_json(container.header);
  const std::uint64_t length = header.size() + static_cast<std::uint64_t>(container.length_off_by);
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + header + container.buffer;
}

void make_dense(Container& container) {
  if (!container.header.is_object()) return;
  std::uint64_t end = 0;
  for (const auto& [name, entry] : container.header.items()) {
    const auto bytes = bytes_of(entry);
    if (!bytes || end + *bytes > kMostBufferBytes) continue;
    entry["data_offsets"] = {end, end + *bytes};
    end += *bytes;
  }
  container.buffer.resize(static_cast<std::size_t>(end));
}

void edit_container(Container& container, Stream& stream) {
  switch (stream.integer(0, 7)) {
    case 0:
      container.length_off_by = stream.pick<std::int64_t>(
          {1, -1, 8, 100'000'000, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::min()});
      break;
    case 1:
      edit_buffer(container.buffer, stream);
      break;
    case 2:
    case 3:
      edit_offsets(container.header, stream);
      break;
    default:
      edit_json(container.header, stream);
      if (stream.chance(1, 2)) make_dense(container);
      break;
  }
}

void cross_containers(Container& first, const Container& second, Stream& stream) {
  cross_json(first.header, second.header, stream);
  if (stream.chance(1, 2)) make_dense(first);
}

}  // namespace shardcheck::fuzz
