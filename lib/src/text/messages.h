// Names and values of strangers inside error messages: short, printable, valid UTF-8. Private to the
// library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardcheck {

/// Bytes of a stranger's text that a message shows.
inline constexpr std::size_t kShownBytes = 80;

/// Position of the first byte that is not part of a valid UTF-8 sequence (RFC 3629).
std::optional<std::size_t> find_invalid_utf8(std::string_view text) noexcept;

/// The text itself, or about `limit` bytes of it and "...", never cut inside a UTF-8 sequence.
std::string shorten(std::string_view text, std::size_t limit);

/// In single quotes, control and non-UTF-8 bytes escaped, cut after about kShownBytes.
std::string quote(std::string_view text);

/// "'a', 'b' and 7 more": the first five names, quoted.
std::string quote_some(const std::vector<std::string>& names);

}  // namespace shardcheck
