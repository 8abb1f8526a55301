// Characters and words of the case line, and how its refusals are worded.
#pragma once

#include <string>
#include <string_view>

namespace shardcheck {

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
inline bool is_printable(char c) { return c > ' ' && c <= '~'; }

/// A name in lower-case words: a law, a key, a fault.
bool is_name(std::string_view text);
/// NAME or NAME:ARGUMENT.
bool is_fault(std::string_view text);

/// Text for messages: printable, at most 60 bytes.
std::string shown(std::string_view text);

/// Throws InvalidCase "KEY=VALUE: allowed is ...".
[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view allowed);

}  // namespace shardcheck
