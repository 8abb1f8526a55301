// Edits of a safetensors file as what it is made of: a length, a header, a buffer. Private to the room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "json_editor.h"

namespace shardcheck::fuzz {

struct Container {
  Json header;
  std::string buffer;
  std::int64_t length_off_by = 0;  // from the header's right length
};

/// nullopt where the header's length leaves the file or the header is no JSON.
std::optional<Container> parse_container(std::string_view bytes);
std::string print_container(const Container& container);

void edit_container(Container& container, Stream& stream);
void cross_containers(Container& first, const Container& second, Stream& stream);

/// Offsets in order without holes, as dtypes and shapes say, and a buffer of that many bytes, as far as those
/// are right and the buffer stays below 64 KiB.
void make_dense(Container& container);

}  // namespace shardcheck::fuzz
