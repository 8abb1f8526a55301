// fuzz_replay: targets without a fuzzer, under any compiler: their seeds and artifacts again, random inputs,
// and what libFuzzer needs of a target.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>

#include "case_input.h"
#include "shardcheck/checkpoint/folders.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/fuzz/seeds.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/text/errors.h"
#include "shardcheck/text/hex.h"

namespace shardcheck::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kFine = 0, kFound = 1, kUsage = 2, kEnvironment = 4;

constexpr std::string_view kHelp =
    "usage: fuzz_replay PATH...                            files, or folders named after their target\n"
    "       fuzz_replay --target=NAME PATH...              the same as inputs of one target\n"
    "       fuzz_replay --list | --faults                  targets; forms of faults, one a line\n"
    "       fuzz_replay --target=NAME --expand=DIR PATH... raw inputs for libFuzzer\n"
    "       fuzz_replay --target=NAME --dictionary         words for libFuzzer's -dict\n"
    "       fuzz_replay --target=NAME --random=N [--seed=S] [--seconds=S]\n"
    "                                                      random inputs, until one is a finding\n"
    "exit: 0 fine, 1 a finding, 2 usage, 4 environment\n";

struct Options {
  bool help = false, list = false, faults = false, dictionary = false;
  std::optional<std::string> target, expand;
  std::optional<std::uint64_t> random;
  std::uint64_t seed = 0;
  std::optional<double> seconds;
  std::vector<fs::path> paths;
};

template <typename Number>
Number number_of(std::string_view flag, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= Number{}))
    throw InvalidInput(fmt::format("{}={}: allowed is a number from 0", flag, text));
  return value;
}

/// The text behind "FLAG=", nullopt for another word.
std::optional<std::string_view> value_of(std::string_view word, std::string_view flag) {
  if (!word.starts_with(flag) || word.substr(flag.size(), 1) != "=") return std::nullopt;
  return word.substr(flag.size() + 1);
}

void parse_word(std::string_view word, Options& options) {
  if (!word.starts_with("--")) {
    options.paths.emplace_back(word);
  } else if (word == "--help") {
    options.help = true;
  } else if (word == "--list") {
    options.list = true;
  } else if (word == "--faults") {
    options.faults = true;
  } else if (word == "--dictionary") {
    options.dictionary = true;
  } else if (const auto target = value_of(word, "--target")) {
    options.target = *target;
  } else if (const auto folder = value_of(word, "--expand")) {
    options.expand = *folder;
  } else if (const auto count = value_of(word, "--random")) {
    options.random = number_of<std::uint64_t>("--random", *count);
  } else if (const auto seed = value_of(word, "--seed")) {
    options.seed = number_of<std::uint64_t>("--seed", *seed);
  } else if (const auto seconds = value_of(word, "--seconds")) {
    options.seconds = number_of<double>("--seconds", *seconds);
  } else {
    throw InvalidInput(fmt::format("unknown option '{}'\n{}", word, kHelp));
  }
}

Options parse_words(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) parse_word(argv[i], options);
  const bool needs_target = options.dictionary || options.expand || options.random;
  if (needs_target && !options.target) throw InvalidInput("--target=NAME is missing");
  const bool needs_path =
      !options.help && !options.list && !options.faults && !options.dictionary && !options.random;
  if (needs_path && options.paths.empty()) throw InvalidInput(std::string(kHelp));
  return options;
}

/// The nearest folder above the file that is named after a target.
const Target& target_of(const fs::path& file) {
  for (fs::path folder = fs::absolute(file).parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    for (const Target* target : all_targets())
      if (folder.filename() == target->name) return *target;
  }
  throw InvalidInput(
      fmt::format("{}: no folder above is named after a target; say --target=NAME", file.string()));
}

bool replay(const Target& target, const fs::path& file) {
  const std::string finding = finding_of(target, read_seed(file));
  if (finding.empty()) return true;
  fmt::print("finding: {}: {}: {}\n", target.name, file.string(), finding);
  return false;
}

int replay_all(const Options& options) {
  std::size_t inputs = 0, findings = 0;
  for (const fs::path& path : options.paths) {
    for (const fs::path& file : files_under(path)) {
      const Target& target = options.target ? target_named(*options.target) : target_of(file);
      ++inputs;
      if (!replay(target, file)) ++findings;
    }
  }
  fmt::print("{} inputs, {} findings\n", inputs, findings);
  return findings > 0 ? kFound : kFine;
}

/// Files keep their names, those of sub-folders behind the names of the folders.
int expand(const Target& target, const Options& options) {
  const fs::path folder(*options.expand);
  std::error_code error;
  fs::create_directories(folder, error);
  for (const fs::path& path : options.paths) {
    for (const fs::path& file : files_under(path)) {
      std::string name = file == path ? file.filename().string() : fs::relative(file, path).string();
      std::replace(name.begin(), name.end(), '/', '-');
      const std::string input = without_comments(target, read_seed(file));
      std::ofstream out(folder / name, std::ios::binary);
      out.write(input.data(), static_cast<std::streamsize>(input.size()));
      if (!out.flush()) throw IoError(fmt::format("{}: cannot be written", (folder / name).string()));
    }
  }
  return kFine;
}

int print_dictionary(const Target& target) {
  for (const std::string& word : dictionary_of(target)) fmt::print("\"{}\"\n", word);
  return kFine;
}

int draw_inputs(const Target& target, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::uint64_t executions = 0;
  std::string finding, input;
  while (finding.empty() && executions < *options.random && elapsed() < options.seconds.value_or(1e9)) {
    Stream stream = Stream(options.seed, target.name).child(std::to_string(executions++));
    input = target.draw(stream);
    finding = finding_of(target, input);
  }
  fmt::print("executions: {}\nseconds: {:.3f}\n", executions, elapsed());
  if (finding.empty()) return kFine;
  fmt::print("finding: {}: {}\ninput: {}\n", target.name, finding,
             target.format == InputFormat::safetensors ? hex_of_bytes(input) : input);
  return kFound;
}

int list_targets() {
  for (const Target* target : all_targets())
    fmt::print("{}\t{}\t{}\t{}\n", target->name, to_string(target->format), target->max_bytes, target->claim);
  return kFine;
}

/// Name, family, level, and who must see it, separated by tabs.
int list_faults() {
  for (const FaultChoice& choice : every_choice()) {
    const Fault& fault = *choice.fault;
    fmt::print("{}\t{}\t{}\t{}\n", choice.text(), fault.family, to_string(fault.level),
               laws_against(fault).front()->name);
  }
  return kFine;
}

int run(const Options& options) {
  if (options.help) {
    fmt::print("{}", kHelp);
    return kFine;
  }
  if (const std::string planted = planted_fault(); !planted.empty()) parse_fault(planted);
  if (options.list) return list_targets();
  if (options.faults) return list_faults();
  if (options.dictionary) return print_dictionary(target_named(*options.target));
  if (options.random) return draw_inputs(target_named(*options.target), options);
  if (options.expand) return expand(target_named(*options.target), options);
  return replay_all(options);
}

}  // namespace
}  // namespace shardcheck::fuzz

int main(int argc, char** argv) {
  using shardcheck::InvalidInput;
  using shardcheck::fuzz::kEnvironment;
  using shardcheck::fuzz::kUsage;
  try {
    return shardcheck::fuzz::run(shardcheck::fuzz::parse_words(argc, argv));
  } catch (const shardcheck::InvalidCheckpoint& error) {  // a seed that is too long
    fmt::print(stderr, "fuzz_replay: {}\n", error.what());
    return kEnvironment;
  } catch (const InvalidInput& error) {
    fmt::print(stderr, "fuzz_replay: {}\n", error.what());
    return kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fuzz_replay: {}\n", error.what());
    return kEnvironment;
  }
}
