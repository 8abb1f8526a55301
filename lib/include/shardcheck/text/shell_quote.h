// Words for a command that a reader copies into a shell.
#pragma once

#include <string>
#include <string_view>

namespace shardcheck {

/// One word of a POSIX shell that stands for `text`: itself where nothing in it is special, else in single
/// quotes. No byte is lost.
std::string shell_quote(std::string_view text);

}  // namespace shardcheck
