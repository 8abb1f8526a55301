#include "replaying.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>

#include "exit_code.h"
#include "shardcheck/checkpoint/folders.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/law.h"
#include "shardcheck/properties/runner.h"
#include "terminal.h"

namespace shardcheck {
namespace {

int exit_code_of_verdict(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return 0;
    case Verdict::failed:
      return 1;
    case Verdict::error:
      return 4;
    case Verdict::vacuous:
    case Verdict::mistrusted:
    case Verdict::skipped:
    case Verdict::timeout:
      break;
  }
  return 3;
}

Tone tone_of(int exit_code) {
  return exit_code == 0 ? Tone::good : exit_code == 3 ? Tone::doubtful : Tone::bad;
}

using Header = std::vector<std::pair<std::string, std::string>>;

std::optional<Verdict> recorded_verdict(const Header& header) {
  for (const auto& [key, value] : header) {
    if (key != "verdict") continue;
    const auto verdict = verdict_from(value);
    if (!verdict) throw InvalidInput(fmt::format("verdict '{}' is unknown; allowed: passed, failed", value));
    return verdict;
  }
  return std::nullopt;
}

Replay invalid_replay(const std::string& origin, const std::string& why) {
  Replay replay;
  replay.origin = origin;
  replay.invalid = why;
  return replay;
}

Replay replay_recorded(const Header& header, const Case& c, const std::string& origin) {
  try {
    const auto recorded = recorded_verdict(header);
    Replay replay = replay_case(c);
    replay.recorded = recorded;
    replay.origin = origin;
    return replay;
  } catch (const InvalidInput& error) {
    return invalid_replay(origin, error.what());
  }
}

}  // namespace

int Replay::exit_code() const {
  if (!invalid.empty()) return 2;
  if (recorded) return outcome.verdict == *recorded ? 0 : outcome.verdict == Verdict::error ? 4 : 3;
  return outcome.refused ? kInvalid : exit_code_of_verdict(outcome.verdict);
}

bool names_a_file(const std::string& word) {
  std::error_code error;
  return word.find('/') != std::string::npos || word.ends_with(".case") || is_batch(word) ||
         std::filesystem::exists(word, error);
}

bool is_batch(const std::filesystem::path& file) { return file.extension() == ".batch"; }

std::vector<std::filesystem::path> case_files(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files = files_under(path);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return files;
  std::erase_if(files, [](const auto& file) { return file.extension() != ".case" && !is_batch(file); });
  return files;
}

Replay replay_case(const Case& c) {
  const Law& law = law_named(c.law);
  if (!c.fault.empty()) parse_fault(c.fault);
  for (const LayoutName* name : {&c.source, &c.target, &c.via}) LayoutTable::built_in(name->table);
  const auto start = std::chrono::steady_clock::now();
  Replay replay;
  replay.case_line = print_case(c);
  replay.outcome = check_case(law, c);
  replay.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return replay;
}

std::vector<Replay> replay_file(const std::filesystem::path& file) {
  try {
    const std::string text = read_text(file, kLongestCaseFileBytes);
    if (!is_batch(file)) {
      const CaseFile parsed = parse_case_file(text, file.string());
      return {replay_recorded(parsed.header, parsed.value, file.string())};
    }
    const CaseBatch batch = parse_case_batch(text, file.string());
    std::vector<Replay> replays;
    for (const auto& [number, value] : batch.lines)
      replays.push_back(replay_recorded(batch.header, value, fmt::format("{}:{}", file.string(), number)));
    return replays;
  } catch (const InvalidInput& error) {
    return {invalid_replay(file.string(), error.what())};
  }
}

int worst_exit_code(const std::vector<Replay>& replays) {
  constexpr std::array kWorstFirst = {2, 4, 1, 3};
  for (const int code : kWorstFirst)
    if (std::any_of(replays.begin(), replays.end(),
                    [&](const Replay& replay) { return replay.exit_code() == code; }))
      return code;
  return 0;
}

std::vector<Replay> replay_files(const std::vector<std::filesystem::path>& files, const std::string& what,
                                 Progress& progress) {
  std::vector<Replay> replays;
  std::size_t begun = 0;
  for (const auto& file : files) {
    progress.step(fmt::format("{}  {}", what, file.string()), ++begun, files.size());
    std::ranges::move(replay_file(file), std::back_inserter(replays));
  }
  return replays;
}

std::string describe(const Replay& replay) {
  const std::string where = replay.origin.empty() ? "" : replay.origin + ": ";
  if (!replay.invalid.empty()) {
    // Messages of case files name their origin already.
    const bool named = replay.invalid.rfind(replay.origin, 0) == 0;
    return fmt::format("{}   {}{}\n", paint(Tone::bad, "INVALID"), named ? "" : where, replay.invalid);
  }
  const int code = replay.exit_code();
  std::string text = fmt::format("{:<9} {}{}", "", where, paint(Tone::faint, replay.case_line));
  const std::string verdict(to_string(replay.outcome.verdict));
  text.replace(0, 9,
               paint(tone_of(code), verdict) + std::string(verdict.size() < 9 ? 9 - verdict.size() : 0, ' '));
  text += fmt::format("  {}\n", paint(Tone::faint, format_seconds(replay.seconds)));
  if (replay.recorded)
    text += fmt::format("    recorded verdict {} {}\n", to_string(*replay.recorded),
                        code == 0 ? "holds" : paint(tone_of(code), "does not hold"));
  const Outcome& outcome = replay.outcome;
  if (!outcome.message.empty()) text += fmt::format("    {}\n", outcome.message);
  if (outcome.difference) return text + describe_difference(*outcome.difference);
  if (outcome.threshold > 0.0 && outcome.deviation > 0.0)
    text += fmt::format(
        "    {:<24}{}, {} of the threshold {}\n", "max abs deviation", format_deviation(outcome.deviation),
        format_share(outcome.deviation / outcome.threshold), format_deviation(outcome.threshold));
  return text;
}

}  // namespace shardcheck
