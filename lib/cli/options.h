// Command lines: the options every subcommand shares, and a thin layer over Boost.Program_options that
// refuses what it does not know and says what is allowed.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/model/geometry.h"
#include "terminal.h"

namespace shardcheck {

/// How the user called the program, quoted for a shell. Set once by main.
void set_program_name(std::string_view argv0);
const std::string& program_name();
/// "PROGRAM replay 'CASE LINE'", with this run's --data-dir if it has one.
std::string replay_command(std::string_view case_line_or_file);

struct CommonOptions {
  bool quiet = false;
  std::vector<std::filesystem::path> json_reports;
};

/// Values of a parsed command line.
class Arguments {
 public:
  Arguments(boost::program_options::variables_map values, std::vector<std::string> positional,
            CommonOptions common)
      : values_(std::move(values)), positional_(std::move(positional)), common_(std::move(common)) {}

  const CommonOptions& common() const noexcept { return common_; }
  const std::vector<std::string>& positional() const noexcept { return positional_; }
  bool has(const char* option) const { return values_.count(option) > 0; }
  bool flag(const char* option) const { return has(option) && values_[option].as<bool>(); }
  std::optional<std::string> text(const char* option) const;
  /// Throws InvalidInput naming the option, its value and the range.
  std::optional<std::int64_t> integer(const char* option, std::int64_t low, std::int64_t high) const;
  std::optional<double> number(const char* option, double low, double high) const;
  /// "90", "90s", "5m", "1h" in seconds.
  std::optional<double> seconds(const char* option) const;
  /// A 64-bit number or "random"; 0 when absent.
  std::uint64_t seed() const;
  /// --jobs, or the hardware's threads.
  int jobs() const;
  /// "1,2,4".
  std::vector<int> degrees(const char* option) const;
  /// One of `allowed`; throws InvalidInput listing them, the nearest first.
  std::optional<std::string> choice(const char* option, const std::vector<std::string>& allowed) const;

 private:
  boost::program_options::variables_map values_;
  std::vector<std::string> positional_;
  CommonOptions common_;
};

/// The command line of one subcommand.
class CommandLine {
 public:
  /// `usage` after "shardcheck NAME ", `example` a complete command without "shardcheck ".
  CommandLine(std::string name, std::string usage, std::string about, std::string example);

  /// An option with a value, `--name=VALUE`.
  CommandLine& value(const char* name, const char* placeholder, const char* help);
  /// An option whose value may be left out.
  CommandLine& optional_value(const char* name, const char* help);
  CommandLine& flag(const char* name, const char* help);
  /// --seed and --jobs.
  CommandLine& seed();
  CommandLine& jobs();
  /// --data-dir=DIR: parsing makes it the floor of the process.
  CommandLine& data_dir();
  /// --report=json:FILE; `schema` describes the file.
  CommandLine& reports(std::string_view schema = "docs/report.schema.json");
  /// Positional arguments allowed, at most `count`; `what` is what one is called in messages.
  CommandLine& positional(int count, std::string what);

  /// nullopt after --help, which has been printed. Throws InvalidInput for an unknown option (the nearest
  /// known one named), a value that is missing or unwanted, or an argument too many.
  std::optional<Arguments> parse(const std::vector<std::string>& words) const;

 private:
  void print_help() const;
  std::vector<std::string> option_names() const;

  std::string name_, usage_, about_, example_;
  boost::program_options::options_description options_;
  int positional_count_ = 0;
  std::string positional_what_ = "argument";
  bool reports_ = false;
  bool has_data_dir_ = false;
};

/// Throws InvalidInput "WHAT 'WORD' is unknown; did you mean ...; allowed: ...".
[[noreturn]] void refuse_unknown(std::string_view what, std::string_view word,
                                 const std::vector<std::string>& allowed);

std::int64_t parse_integer(std::string_view what, std::string_view text, std::int64_t low, std::int64_t high);

}  // namespace shardcheck
