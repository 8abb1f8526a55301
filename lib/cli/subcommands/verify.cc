// shardcheck verify: a real checkpoint, and shards another tool made of it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>

#include "exit_code.h"
#include "folder_layout.h"
#include "options.h"
#include "outputs.h"
#include "report_json.h"
#include "subcommand.h"
#include "terminal.h"
#include "tokenizer.h"
#include "verification.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::int64_t kLongestStory = 256;
constexpr std::size_t kDifferencesShown = 6;

CommandLine command_line() {
  CommandLine line(
      "verify", "FOLDER [OPTIONS]",
      "Verifies a Hugging Face checkpoint folder: the reference against golden logits and tokens, the "
      "sharded\nmodel at every degree against the reference, and optionally shards another tool made.",
      "verify checkpoints/stories260K --tp=1,2,4 --golden=golden.safetensors --prompt");
  return line.positional(1, "folder")
      .value("from", "NAME[:AXES]|FILE[:AXES]",
             "layout of FOLDER when it is not a Hugging Face folder (default: what its shardcheck.json says)")
      .value("to", "NAME[:tpN]|FILE[:tpN]", "short for --layout=NAME --tp=N")
      .value("tp", "LIST", "degrees, e.g. 1,2,4 (default: every supported one up to 8)")
      .value("layout", "NAME|FILE",
             "layout table (default vllm-llama); a file when it has a '/' or ends in .json")
      .value("golden", "FILE", "safetensors with tokens I64 [n] and logits F32 [p, vocab]")
      .value("tokens", "N", "tokens of the forward comparison (default: the golden logits' positions, or 64)")
      .optional_value("prompt",
                      "decode greedily after this text (--prompt=TEXT, or --prompt for the beginning of a "
                      "story) and print it")
      .value("shards", "DIR", "verify these shards (DIR/tpN when several degrees are given)")
      .value("write-shards", "DIR", "write our shards (DIR/tpN when several degrees are given)")
      .seed()
      .reports();
}

/// --to=NAME:tpN says what --layout and --tp say. Throws InvalidInput for both, and for other axes.
void set_target(VerifyOptions& options, const Arguments& arguments, const std::string& to) {
  if (arguments.text("layout") || arguments.text("tp"))
    throw InvalidInput(fmt::format("--to={}: allowed without --layout and --tp", to));
  const auto [name, axes] = split_layout(to);
  const LayoutName mesh = parse_layout_name("target" + axes);
  if (mesh.mesh().size() != mesh.tp_degree())
    throw InvalidInput(fmt::format("--to={}: forward passes run over tp alone; allowed: NAME:tpN", to));
  options.layout = name;
  options.degrees = {mesh.tp_degree()};
}

VerifyOptions read_options(const Arguments& arguments) {
  if (arguments.positional().empty())
    throw InvalidInput("verify needs a checkpoint folder; see shardcheck verify --help");
  VerifyOptions options;
  options.folder = arguments.positional()[0];
  options.layout = arguments.text("layout").value_or(options.layout);
  options.from = arguments.text("from");
  options.degrees = arguments.degrees("tp");
  if (const auto to = arguments.text("to")) set_target(options, arguments, *to);
  options.golden = arguments.text("golden").value_or("");
  options.shards = arguments.text("shards").value_or("");
  options.write_shards = arguments.text("write-shards").value_or("");
  options.tokens = arguments.integer("tokens", 1, 1 << 16);
  options.seed = arguments.seed();
  return options;
}

std::vector<std::filesystem::path> inputs_of(const VerifyOptions& options) {
  return {options.folder, options.golden, options.shards, options.layout};
}

void print_facts(const Verification& v) {
  Table table({{"checkpoint"}, {v.folder.string()}});
  table.row({"model", fmt::format("{}, {} parameters, {}", v.model_type, format_count(v.parameters),
                                  short_name(v.dtype))});
  table.row({"geometry", to_string(v.geometry)});
  table.row({"layout", v.layout});
  table.row({"contract", v.contract.text()});
  table.row({"contract hash", format_hash(v.contract.hash())});
  print(table.text());
}

Tone tone_of(Verdict verdict) {
  if (verdict == Verdict::passed) return Tone::good;
  return verdict == Verdict::failed ? Tone::bad : Tone::doubtful;
}

std::string word_of(Verdict verdict) {
  std::string word(to_string(verdict));
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::toupper(c); });
  return word;
}

Cell verdict_cell(Verdict verdict) {
  const std::string word = verdict == Verdict::passed   ? "holds"
                           : verdict == Verdict::failed ? "FAILS"
                                                        : word_of(verdict);
  return Cell(word, tone_of(verdict));
}

void print_doubt(const std::string& what, const std::string& vacuous, const std::string& mistrusted) {
  for (const std::string& why : {vacuous, mistrusted})
    if (!why.empty()) print_line(fmt::format("    {}  {}", paint(Tone::doubtful, what), why));
}

void print_golden(const GoldenCheck& golden) {
  print_section("Golden", "the reference against an independent implementation");
  const bool logits = golden.max_difference <= kGoldenTolerance;
  const bool tokens = golden.tokens_reproduced == golden.tokens;
  Table table({{"check"}, {"result"}, {"allowed"}, {"verdict"}});
  table.row({fmt::format("logits of {}", format_noun(golden.positions, "position")),
             fmt::format("max difference {} at position {}", format_deviation(golden.max_difference),
                         golden.worst_position),
             format_deviation(kGoldenTolerance),
             Cell(logits ? "holds" : "FAILS", logits ? Tone::good : Tone::bad)});
  table.row({"greedy tokens", fmt::format("{} of {} reproduced", golden.tokens_reproduced, golden.tokens),
             "all", Cell(tokens ? "holds" : "FAILS", tokens ? Tone::good : Tone::bad)});
  print(table.text());
  print_doubt("golden logits", golden.vacuous, "");
}

std::string margin_of(const DegreeCheck& check) {
  if (check.deviation == 0.0) return "exact";
  return fmt::format("{} below", format_multiple(check.threshold / check.deviation));
}

void print_differences(const DegreeCheck& check) {
  if (!check.refused.empty()) print_line(fmt::format("    {}", paint(Tone::bad, check.refused)));
  const std::size_t shown = std::min(check.differences.size(), kDifferencesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const ShardDifference& d = check.differences[i];
    print_line(fmt::format("    {}  parameter {}, rank {} of {}: {}", paint(Tone::bad, "differs"),
                           d.parameter, d.rank, check.degree, d.detail));
  }
  if (check.differences.size() > shown)
    print_line(fmt::format("    and {} more (parameter, rank) pairs of tp{} differ",
                           check.differences.size() - shown, check.degree));
}

void print_degrees(const Verification& v) {
  print_section("Sharded against unsharded", fmt::format("{}, {}", format_noun(v.tokens, "token"), v.layout));
  Table table({{"degree"},
               {"shards"},
               {"tree"},
               {"native deviation", Align::right},
               {"threshold", Align::right},
               {"margin", Align::right},
               {"verdict"}});
  for (const DegreeCheck& check : v.degrees) {
    const bool judged = check.refused.empty();
    const std::string shards =
        check.shards.empty() ? "ours"
        : !judged            ? "refused"
        : check.differences.empty()
            ? "same bytes"
            : format_noun(static_cast<std::int64_t>(check.differences.size()), "differs", "differ");
    table.row({fmt::format("tp{}", check.degree), shards,
               !judged                     ? Cell("-")
               : check.tree_differing == 0 ? Cell("bit-identical", Tone::good)
                                           : Cell(format_count(check.tree_differing) + " differ", Tone::bad),
               judged ? format_deviation(check.deviation) : "-",
               judged ? format_deviation(check.threshold) : "-",
               !judged ? Cell("-")
               : check.native_holds
                   ? Cell(margin_of(check))
                   : Cell(format_multiple(check.threshold > 0.0 ? check.deviation / check.threshold : 0.0) +
                              " above",
                          Tone::bad),
               verdict_cell(check.verdict())});
  }
  print(table.text());
  if (!v.degrees.empty() && !v.degrees.back().threshold_source.empty())
    print_line(paint(Tone::faint, fmt::format("  threshold: {}", v.degrees.back().threshold_source)));
  for (const DegreeCheck& check : v.degrees) {
    print_differences(check);
    print_doubt(fmt::format("tp{}", check.degree), check.vacuous, check.mistrusted);
    if (!check.written.empty())
      print_line(fmt::format("  shards of tp{} written to {}", check.degree, check.written.string()));
  }
}

/// Text that cannot move the cursor or change the terminal.
std::string harmless(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F) c = '?';
  return text;
}

std::int64_t story_length(const Verifier& verifier) {
  const std::int64_t positions = verifier.max_positions();
  return positions > 0 ? std::min(kLongestStory, positions) : kLongestStory;
}

/// The prompt's tokens. Throws InvalidInput when they leave no room for a story.
std::vector<std::int32_t> encode_prompt(const Verifier& verifier, const Tokenizer& tokenizer,
                                        const std::string& prompt) {
  std::vector<std::int32_t> ids = tokenizer.encode(prompt);
  const std::int64_t count = story_length(verifier);
  if (static_cast<std::int64_t>(ids.size()) >= count)
    throw InvalidInput(fmt::format("--prompt has {}; allowed: at most {}",
                                   format_noun(static_cast<std::int64_t>(ids.size()), "token"), count - 1));
  return ids;
}

void print_story(const Verifier& verifier, const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  const std::int64_t count = story_length(verifier);
  print_section("Story", fmt::format("{}, greedy", format_noun(count, "token")));
  print_line(harmless(tokenizer.decode(verifier.decode(ids, count))));
}

void print_verdict(const Verification& v, double seconds) {
  print_line(fmt::format("\n{}  {}{}   {}", paint(tone_of(v.verdict()), word_of(v.verdict())),
                         format_noun(static_cast<std::int64_t>(v.degrees.size()), "degree"),
                         v.golden ? ", golden logits and tokens" : "", format_seconds(seconds)));
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const bool quiet = arguments->common().quiet;
  Progress progress(quiet);
  VerifyOptions options = read_options(*arguments);
  require_no_input_among("--report", arguments->common().json_reports, inputs_of(options));
  options.progress = progress.sink();
  Verifier verifier(options);
  std::optional<Tokenizer> tokenizer;
  std::vector<std::int32_t> prompt;
  if (arguments->has("prompt")) {
    tokenizer = Tokenizer::load(options.folder / "tokenizer.bin", verifier.result().geometry.vocab);
    prompt = encode_prompt(verifier, *tokenizer, *arguments->text("prompt"));
  }

  if (!quiet) print_facts(verifier.result());
  verifier.check_golden();
  const Verification& v = verifier.result();
  if (v.golden && (!quiet || !v.golden->holds())) print_golden(*v.golden);
  verifier.check_degrees();
  if (!quiet || !v.holds()) print_degrees(v);
  if (tokenizer) print_story(verifier, *tokenizer, prompt);

  Report report;
  report.command = "verify";
  report.arguments = words;
  report.seed = options.seed;
  report.verification = v;
  report.exit_code = v.holds() ? kPassed : v.verdict() == Verdict::failed ? kFailed : kInconclusive;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_verdict(v, report.seconds);
  write_json_reports(report, arguments->common().json_reports);
  return report.exit_code;
}

}  // namespace

const Subcommand& verify() {
  static const Subcommand command{"verify", "a checkpoint folder, and shards another tool made of it", run};
  return command;
}

}  // namespace shardcheck::subcommands
