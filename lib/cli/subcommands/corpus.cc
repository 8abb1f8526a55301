// shardcheck corpus: cases worth keeping, added, verified, minimised and promoted.
#include "corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>

#include "exit_code.h"
#include "options.h"
#include "promotion.h"
#include "replaying.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/properties/generator.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

namespace fs = std::filesystem;

constexpr int kMostWords = 100000;
const std::vector<std::string> kActions = {"add", "verify", "minimize", "promote"};

/// Which actions take an option; the others refuse it.
const std::vector<std::pair<const char*, std::vector<std::string>>> kOptionOwners = {
    {"to", {"add", "promote"}},       {"name", {"add", "promote"}}, {"why", {"add", "promote"}},
    {"found-by", {"add", "promote"}}, {"law", {"promote"}},         {"shrink", {"promote"}},
    {"write", {"minimize"}}};

CommandLine command_line() {
  CommandLine line(
      "corpus", "add CASE|FILE | verify [DIR] | minimize PATH... | promote FILE",
      "Cases worth keeping. add keeps a case with the verdict it has; verify says whether every file is\n"
      "complete, canonical, no repetition and still true; minimize names the cases that say nothing new;\n"
      "promote makes the smallest case of what a fuzzer or a run left behind and exits 3 when it shows no "
      "bug.",
      "corpus add 'sharded_equals_reference heads=6 kv_heads=2 target=vllm-llama:tp2' --why='six heads' "
      "--found-by='a user'");
  return line.positional(kMostWords, "word")
      .value("corpus", "DIR", "the corpus in which no case may stand twice (default corpus)")
      .value("to", "DIR", "where the file is written (default regressions of the corpus)")
      .value("name", "NAME", "of the file, without .case (default: the law and keys of the case)")
      .value("why", "TEXT", "why the case is kept; add needs it, promote takes what the law says")
      .value("found-by", "TEXT", "what found the case")
      .value("law", "NAME,...", "promote: laws to judge it by (default: its own)")
      .value("shrink", "TIME", "promote: time for making it smaller (default 30s)")
      .flag("write", "minimize: drop the cases instead of naming them")
      .data_dir();
}

fs::path corpus_folder(const Arguments& arguments) { return arguments.text("corpus").value_or("corpus"); }

std::string needed(const Arguments& arguments, const char* option) {
  const std::string text = arguments.text(option).value_or("");
  if (text.empty())
    throw InvalidInput(fmt::format("corpus {} needs --{}=TEXT", arguments.positional()[0], option));
  return text;
}

std::vector<std::string> words_after_action(const Arguments& arguments) {
  return {arguments.positional().begin() + 1, arguments.positional().end()};
}

/// The case of a line or of a file with one.
Case given_case(const Arguments& arguments) {
  const std::vector<std::string> words = words_after_action(arguments);
  const std::string& action = arguments.positional()[0];
  if (words.empty()) throw InvalidInput(fmt::format("corpus {} needs a case line or a case file", action));
  if (!names_a_file(words[0])) return parse_case(join(words, " "));
  if (words.size() > 1)
    throw InvalidInput(fmt::format("corpus {} takes one file, not also '{}'", action, words[1]));
  return parse_case_file(read_text(words[0], kLongestCaseFileBytes), words[0]).value;
}

/// Writes the case where and under which name the options say, unless the corpus has it.
void keep(const Arguments& arguments, const CaseFile& file) {
  const fs::path corpus = corpus_folder(arguments);
  const fs::path folder = arguments.text("to").value_or((corpus / "regressions").string());
  for (const fs::path& searched : {corpus, folder}) {
    std::error_code error;
    if (!fs::is_directory(searched, error)) continue;
    const std::string known = index_of(searched).find(file.value);
    if (!known.empty()) throw InvalidInput(fmt::format("{}: the corpus has this case already", known));
  }
  const fs::path written =
      write_case_file(folder, arguments.text("name").value_or(name_of(file.value)), file);
  print_line(fmt::format("written to {}\n  {}", written.string(), replay_command(written.string())));
}

int add(const Arguments& arguments) {
  const std::string why = needed(arguments, "why");
  const std::string found_by = needed(arguments, "found-by");
  const Case c = given_case(arguments);
  const Law& law = law_named(c.law);
  const Outcome outcome = replay_case(c).outcome;
  if (outcome.verdict != Verdict::passed && outcome.verdict != Verdict::failed)
    throw InvalidInput(fmt::format("the case is {}: a case of the corpus passes or fails; {}",
                                   to_string(outcome.verdict), outcome.message));
  if (c.fault.empty() && outcome.verdict == Verdict::failed)
    throw InvalidInput("the case fails without a fault: keep it with `shardcheck corpus promote`");
  const CaseRecord record{std::string(law.name), outcome.verdict, found_by, build_commit(), why};
  keep(arguments, record.file_of(c));
  return kPassed;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

int promote_artifact(const Arguments& arguments) {
  PromotionRequest request;
  request.artifact = given_case(arguments);
  request.found_by = needed(arguments, "found-by");
  request.why = arguments.text("why").value_or("");
  request.shrink_seconds = arguments.seconds("shrink").value_or(request.shrink_seconds);
  for (const std::string& name : split(arguments.text("law").value_or(request.artifact.law), ','))
    request.laws.push_back(&law_named(name));
  Promotion promotion;
  {
    Progress progress(arguments.common().quiet);
    request.progress = progress.sink("promote  ");
    promotion = promote(request);
  }
  if (!promotion.refusal.empty()) {
    print_line(fmt::format("{}  {}", paint(Tone::doubtful, "NOT KEPT"), promotion.refusal));
    return kInconclusive;
  }
  print_line(fmt::format("minimal after {}: {}\n  {}", format_noun(promotion.shrink_steps, "case"),
                         print_case(promotion.file.value), promotion.observed));
  keep(arguments, promotion.file);
  return kPassed;
}

/// Prints the problems of one file; whether there are none.
bool verify_file(const fs::path& file, CaseIndex& index) {
  std::vector<std::string> problems;
  try {
    problems = form_problems(file);
    for (const CorpusCase& one : cases_of(file)) {
      const std::string known = index.add(one);
      if (!known.empty()) problems.push_back(fmt::format("{} is the same case", known));
    }
  } catch (const InvalidInput&) {
    return true;  // replaying it says so
  }
  for (const std::string& problem : problems)
    print_line(fmt::format("{}  {}: {}", paint(Tone::bad, "WRONG"), file.string(), problem));
  return problems.empty();
}

int verify(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> words = words_after_action(arguments);
  if (words.size() > 1)
    throw InvalidInput(fmt::format("corpus verify takes one folder, not also '{}'", words[1]));
  const fs::path corpus = words.empty() ? corpus_folder(arguments) : fs::path(words[0]);
  const std::vector<fs::path> files = corpus_files(corpus);
  if (files.empty())
    throw InvalidInput(fmt::format("{}: no *.case file is there, and no *.batch", corpus.string()));
  std::size_t wrong = 0;
  CaseIndex index;
  for (const fs::path& file : files) wrong += verify_file(file, index) ? 0 : 1;
  for (const std::string& problem : seed_problems(corpus)) {
    ++wrong;
    print_line(fmt::format("{}  {}", paint(Tone::bad, "WRONG"), problem));
  }
  std::vector<Replay> replays;
  {
    Progress progress(arguments.common().quiet);
    replays = replay_files(files, "corpus", progress);
  }
  for (const Replay& replay : replays) {
    if (replay.exit_code() == kPassed) continue;
    ++wrong;
    print(describe(replay));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print_line(fmt::format("{}  {} in {}, {} wrong   {}",
                         paint(wrong == 0 ? Tone::good : Tone::bad, wrong == 0 ? "PASSED" : "FAILED"),
                         format_noun(static_cast<std::int64_t>(replays.size()), "case"),
                         format_noun(static_cast<std::int64_t>(files.size()), "file"), wrong,
                         format_seconds(seconds.count())));
  return wrong == 0 ? kPassed : kFailed;
}

/// What a case shows: two that show the same are one too many.
std::string shown_by(const Case& c, const Outcome& outcome) {
  std::string text =
      fmt::format("{} {} {} {}", c.law, c.fault, to_string(c.arithmetic), to_string(outcome.verdict));
  for (const std::string& label : outcome.labels) text += " " + label;
  return text;
}

/// Kept for what its header says, whatever it repeats.
bool has_a_reason(const CorpusCase& one) {
  return one.line == 0 &&
         std::ranges::any_of(one.value.header, [](const auto& key) { return key.first == "why"; });
}

/// Cases that show what another one shows, smaller or kept for a reason, each with that one.
std::vector<std::pair<CorpusCase, CorpusCase>> superfluous(std::vector<CorpusCase> cases,
                                                           Progress& progress) {
  std::ranges::stable_sort(cases, {}, [](const CorpusCase& one) {
    return std::pair(!has_a_reason(one), case_size(one.value.value));
  });
  std::map<std::string, const CorpusCase*> first;
  std::vector<std::pair<CorpusCase, CorpusCase>> dropped;
  std::size_t begun = 0;
  for (const CorpusCase& one : cases) {
    progress.step("minimize  " + one.origin(), ++begun, cases.size());
    const auto [at, is_new] =
        first.emplace(shown_by(one.value.value, replay_case(one.value.value).outcome), &one);
    if (!is_new && !has_a_reason(one)) dropped.emplace_back(one, *at->second);
  }
  return dropped;
}

/// The file without the dropped cases, or no file where none is left.
void drop(const fs::path& file, const std::vector<int>& lines) {
  const std::string text = read_text(file, kLongestCaseFileBytes);
  const std::size_t cases = cases_of(file).size();
  if (lines.size() == cases) {
    fs::remove(file);
    return;
  }
  std::string kept;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (std::ranges::find(lines, ++number) == lines.end()) kept += text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  write_text_atomically(file, kept);
}

int minimize(const Arguments& arguments) {
  const std::vector<std::string> words = words_after_action(arguments);
  if (words.empty()) throw InvalidInput("corpus minimize needs folders or files");
  std::vector<CorpusCase> cases;
  for (const std::string& word : words)
    for (const fs::path& file : corpus_files(word))
      std::ranges::move(cases_of(file), std::back_inserter(cases));
  std::vector<std::pair<CorpusCase, CorpusCase>> dropped;
  {
    Progress progress(arguments.common().quiet);
    dropped = superfluous(cases, progress);
  }
  std::map<fs::path, std::vector<int>> lines;
  for (const auto& [one, other] : dropped) {
    print_line(fmt::format("drop {}  shows what {} shows", one.origin(), other.origin()));
    lines[one.file].push_back(one.line);
  }
  if (arguments.flag("write"))
    for (const auto& [file, numbers] : lines) drop(file, numbers);
  print_line(fmt::format("{} of {} {} nothing new", dropped.size(),
                         format_noun(static_cast<std::int64_t>(cases.size()), "case"),
                         dropped.size() == 1 ? "shows" : "show"));
  return kPassed;
}

void require_options_belong(const Arguments& arguments, const std::string& action) {
  for (const auto& [option, owners] : kOptionOwners) {
    const bool given = std::string_view(option) == "write" ? arguments.flag(option) : arguments.has(option);
    if (given && std::ranges::find(owners, action) == owners.end())
      throw InvalidInput(
          fmt::format("--{} belongs to corpus {}, not to corpus {}", option, join(owners, " and "), action));
  }
}

int run(const std::vector<std::string>& words) {
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  if (arguments->positional().empty())
    throw InvalidInput(fmt::format("corpus needs an action; allowed: {}", join(kActions, ", ")));
  const std::string& action = arguments->positional()[0];
  if (std::ranges::find(kActions, action) == kActions.end()) refuse_unknown("action", action, kActions);
  require_options_belong(*arguments, action);
  if (action == "add") return add(*arguments);
  if (action == "promote") return promote_artifact(*arguments);
  return action == "verify" ? verify(*arguments) : minimize(*arguments);
}

}  // namespace

const Subcommand& corpus() {
  static const Subcommand command{"corpus", "add, verify, minimize and promote cases worth keeping", run};
  return command;
}

}  // namespace shardcheck::subcommands
