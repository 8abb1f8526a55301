// Replaying cases: a line, a file, a folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "terminal.h"

namespace shardcheck {

/// One replayed case. A case that does not parse has `invalid` set and no outcome.
struct Replay {
  std::string origin;  // file, or empty for a line
  std::string case_line;
  Outcome outcome;
  std::optional<Verdict> recorded;
  std::string invalid;
  double seconds = 0.0;

  /// 0 passed or the recorded verdict holds, 1 failed, 2 does not parse, 3 undecided or the recorded verdict
  /// does not hold, 4 internal error.
  int exit_code() const;
};

/// A case line is at most 4096 bytes; the rest of a file is comments, or more lines of a batch.
inline constexpr std::size_t kLongestCaseFileBytes = std::size_t{1} << 20;

/// Whether a word of a command line is a path and no first word of a case line.
bool names_a_file(const std::string& word);
/// Whether the file holds any number of cases: NAME.batch.
bool is_batch(const std::filesystem::path& file);

/// Every *.case and *.batch below a folder, sorted; the path itself when it is a file. Throws IoError when it
/// does not exist or cannot be read.
std::vector<std::filesystem::path> case_files(const std::filesystem::path& path);

/// Judges a case by its law, with its own fault. Throws InvalidInput for an unknown law, fault or layout.
Replay replay_case(const Case& c);
/// Of a case file one replay, of a batch one a line. Never throws InvalidInput: what does not parse is
/// reported in the result. Throws IoError.
std::vector<Replay> replay_file(const std::filesystem::path& file);

/// replay_file of each, a step of progress a file: "WHAT  FILE".
std::vector<Replay> replay_files(const std::vector<std::filesystem::path>& files, const std::string& what,
                                 Progress& progress);

/// The worst of several exit codes: 2, 4, 1, 3, 0.
int worst_exit_code(const std::vector<Replay>& replays);

/// A line per replay: verdict, what was recorded, case; the difference below it when it failed.
std::string describe(const Replay& replay);

}  // namespace shardcheck
