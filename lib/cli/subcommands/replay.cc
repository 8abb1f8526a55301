// shardcheck replay: a case line, case files, folders of them.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "exit_code.h"
#include "options.h"
#include "outputs.h"
#include "replaying.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/properties/law.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

constexpr int kMostWords = 100000;

CommandLine command_line() {
  CommandLine line(
      "replay", "'CASE LINE' | FILE... | FOLDER...",
      "Judges cases again: a line, *.case files, *.batch files of many lines. A line exits by its law: 0\n"
      "passed, 1 failed, 2 does not parse or cannot be represented, 3 undecided. A file that records a\n"
      "verdict exits 0 when it holds, 3 when not.",
      "replay 'sharded_equals_reference heads=8 kv_heads=4 arithmetic=tree target=seed:tp4'");
  return line.positional(kMostWords, "word").data_dir().reports();
}

/// Throws UnsupportedLayout when a layout of the case cannot be built, or not run where that is why the case
/// was left undecided: a line a person typed is then wrong.
void require_representable(const Case& c, const std::string& undecided) {
  for (const LayoutName* name : {&c.source, &c.target, &c.via}) {
    const Layout layout = make_layout(*name, c.geometry);
    try {
      require_executable(layout);
    } catch (const UnsupportedLayout& error) {
      if (undecided.find(error.what()) != std::string::npos) throw;
    }
  }
}

Replay replay_line(const std::string& line) {
  const Case c = parse_case(line);
  const Replay replay = replay_case(c);
  if (replay.outcome.verdict == Verdict::skipped || replay.outcome.verdict == Verdict::error)
    require_representable(c, replay.outcome.message);
  return replay;
}

std::vector<Replay> replay_words(const std::vector<std::string>& words, Progress& progress) {
  if (words.empty())
    throw InvalidInput("replay needs a case line, a case file or a folder; see shardcheck replay --help");
  if (!names_a_file(words[0])) return {replay_line(join(words, " "))};
  std::vector<std::filesystem::path> files;
  for (const std::string& word : words) {
    const auto found = case_files(word);
    if (found.empty()) throw InvalidInput(fmt::format("{}: no *.case file is there, and no *.batch", word));
    files.insert(files.end(), found.begin(), found.end());
  }
  return replay_files(files, "replay", progress);
}

void print_replays(const std::vector<Replay>& replays, bool quiet) {
  for (const Replay& replay : replays)
    if (!quiet || replay.exit_code() != kPassed) print(describe(replay));
}

void print_summary(const std::vector<Replay>& replays, int code, double seconds) {
  std::int64_t good = 0;
  for (const Replay& replay : replays) good += replay.exit_code() == kPassed ? 1 : 0;
  print_line(fmt::format(
      "{}  {} of {} as expected   {}",
      paint(code == kPassed ? Tone::good : Tone::bad, code == kPassed ? "PASSED" : "FAILED"), good,
      format_noun(static_cast<std::int64_t>(replays.size()), "case"), format_seconds(seconds)));
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const std::vector<std::string>& given = arguments->positional();
  require_no_input_among("--report", arguments->common().json_reports, {given.begin(), given.end()});
  Report report;
  report.command = "replay";
  report.arguments = words;
  {
    Progress progress(arguments->common().quiet);
    report.replays = replay_words(arguments->positional(), progress);
  }
  report.exit_code = worst_exit_code(report.replays);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_replays(report.replays, arguments->common().quiet);
  if (report.replays.size() > 1) print_summary(report.replays, report.exit_code, report.seconds);
  write_json_reports(report, arguments->common().json_reports);
  if (report.replays.size() == 1 && report.exit_code == kInvalid)
    throw InvalidInput(report.replays[0].invalid);
  return report.exit_code;
}

}  // namespace

const Subcommand& replay() {
  static const Subcommand command{"replay", "judge a case line, a case file or a folder of cases again", run};
  return command;
}

}  // namespace shardcheck::subcommands
