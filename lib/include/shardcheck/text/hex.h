// Bytes as text that people review.
#pragma once

#include <string>
#include <string_view>

namespace shardcheck {

/// Bytes of a hexadecimal text: pairs of digits, blanks between them, comments from # to the end of the line.
/// Throws InvalidInput naming `origin` and the line.
std::string bytes_of_hex(std::string_view text, const std::string& origin);
/// Such a text, 16 bytes a line.
std::string hex_of_bytes(std::string_view bytes);

}  // namespace shardcheck
