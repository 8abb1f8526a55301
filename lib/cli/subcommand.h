// A subcommand of the program: one file each under subcommands/, listed by a registry sorted by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardcheck {

struct Subcommand {
  std::string_view name;
  std::string_view summary;  // one line for `shardcheck --help`
  /// Runs with the words after the subcommand's name; returns the exit code. May throw: main maps
  /// InvalidInput and UnsupportedLayout to 2, IoError and everything else to 4.
  int (*run)(const std::vector<std::string>& words) = nullptr;
};

/// Every subcommand, sorted by name.
const std::vector<const Subcommand*>& all_subcommands();

}  // namespace shardcheck
