// The safetensors reader over a whole file image.
#include "shardcheck/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <set>

#include "container_editor.h"
#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz::targets {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// What the format promises of a file that is accepted, worked out anew.
void require_dense(const SafetensorsHeader& header, std::size_t file_bytes) {
  std::uint64_t end = 0;
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : header.entries) {
    if (!names.insert(entry.name).second)
      throw Finding(fmt::format("tensor '{}' is accepted twice", entry.name));
    if (entry.begin != end)
      throw Finding(
          fmt::format("tensor '{}' begins at {}, accepted behind {}", entry.name, entry.begin, end));
    const auto bits = static_cast<std::uint64_t>(element_count(entry.shape)) *
                      static_cast<std::uint64_t>(size_bits(entry.dtype));
    if (entry.end < entry.begin || (entry.end - entry.begin) * 8 != bits)
      throw Finding(fmt::format("tensor '{}' of {} bits is accepted in {}..{}", entry.name, bits, entry.begin,
                                entry.end));
    end = entry.end;
  }
  if (header.buffer_offset + end != file_bytes)
    throw Finding(fmt::format("a buffer of {} bytes is accepted in a file of {} behind {}", end, file_bytes,
                              header.buffer_offset));
}

bool same_entry(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin && a.end == b.end;
}

/// The header written anew from what was read.
std::string rewritten(const SafetensorsHeader& header, std::string_view file) {
  Container container;
  container.header = Json::object();
  if (!header.metadata.empty()) container.header["__metadata__"] = header.metadata;
  for (const SafetensorsEntry& entry : header.entries)
    container.header[entry.name] = {{"dtype", safetensors_name(entry.dtype)},
                                    {"shape", entry.shape},
                                    {"data_offsets", {entry.begin, entry.end}}};
  container.buffer = file.substr(static_cast<std::size_t>(header.buffer_offset));
  return print_container(container);
}

void require_reads_back(const SafetensorsHeader& header, std::string_view file) {
  const std::string text = rewritten(header, file);
  const SafetensorsHeader again = parse_safetensors(bytes_of(text), "rewritten");
  if (again.metadata != header.metadata) throw Finding("other metadata comes back from the rewritten file");
  if (!std::ranges::equal(again.entries, header.entries, same_entry))
    throw Finding("other tensors come back from the rewritten file");
}

void check(std::string_view input) {
  SafetensorsHeader header;
  try {
    header = parse_safetensors(bytes_of(input), "input");
  } catch (const InvalidCheckpoint&) {
    return;
  }
  require_dense(header, input.size());
  require_reads_back(header, input);
}

std::string draw(Stream& stream) {
  Container container;
  container.header = Json::object();
  for (std::int64_t tensors = stream.integer(0, 4); tensors > 0; --tensors) {
    Json shape = Json::array();
    for (std::int64_t dims = stream.integer(0, 3); dims > 0; --dims)
      shape.push_back(stream.pick<unsigned>({0, 1, 2, 3, 8}));
    const auto dtype = static_cast<DType>(stream.integer(0, static_cast<int>(DType::u64)));
    container.header["layers." + std::to_string(tensors) + ".q"] = {
        {"dtype", safetensors_name(dtype)}, {"shape", shape}, {"data_offsets", {0U, 0U}}};
  }
  make_dense(container);
  if (stream.chance(1, 2)) container.header["__metadata__"] = {{"format", "pt"}};
  for (std::int64_t edits = stream.integer(0, 3); edits > 0; --edits) edit_container(container, stream);
  return print_container(container);
}

}  // namespace

const Target& safetensors() {
  static const Target target{.name = "safetensors",
                             .claim =
                                 "A file that is accepted holds its tensors densely and reads back when it "
                                 "is written anew; any other bytes are refused.",
                             .format = InputFormat::safetensors,
                             .max_bytes = 16384,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace shardcheck::fuzz::targets
