// shardcheck explain: where the elements of given shards came from, and which known fault leaves them so.
#include <fmt/format.h>

#include <chrono>

#include "exit_code.h"
#include "explained_shards.h"
#include "options.h"
#include "outputs.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

CommandLine command_line() {
  CommandLine line(
      "explain", "SHARDS [OPTIONS]",
      "Where the elements of shards came from: what every rank holds in place of what it should, and the "
      "known "
      "faults,\nalone or two of them, that leave exactly these bytes. SHARDS holds "
      "rank_00000-of-00002.safetensors "
      "... and\nshardcheck.json. Without --source its weights must be fingerprints, as shardcheck mutate "
      "--fingerprint writes\nthem or another tool makes them of such a checkpoint; with --source, rows are "
      "found "
      "again by their hash.\nExits with 1 when anything is misplaced.",
      "explain shards --source=checkpoints/stories260K");
  line.positional(1, "folder of shards")
      .value("source", "DIR", "the checkpoint that the shards were made of: a Hugging Face folder or shards")
      .value("from", "NAME[:AXES]",
             "layout that the weights were moved from, which some faults depend on (default: one rank, then "
             "several)")
      .value("layout", "NAME[:AXES]|FILE[:AXES]", "layout of SHARDS (default: what its shardcheck.json says)")
      .value("tp", "N", "its degree, where --layout names no axes")
      .value("geometry", "KEY=VALUE,...", "the model, where neither shardcheck.json nor --source says it")
      .seed()
      .jobs()
      .reports("docs/explain_report.schema.json");
  return line;
}

ExplainRequest request_of(const Arguments& arguments) {
  if (arguments.positional().empty())
    throw InvalidInput("explain needs a folder of shards; see shardcheck explain --help");
  ExplainRequest request;
  request.folder = arguments.positional().front();
  if (const auto source = arguments.text("source")) request.source = *source;
  if (const auto from = arguments.text("from")) request.options.source = parse_layout_name(*from);
  request.layout = arguments.text("layout");
  if (const auto tp = arguments.integer("tp", 1, Mesh::kMaxDegree)) request.tp = static_cast<int>(*tp);
  request.geometry = arguments.text("geometry");
  request.options.seed = arguments.seed();
  request.options.jobs = arguments.jobs();
  return request;
}

void print_facts(const ExplainRequest& request, const ExplainedShards& explained) {
  Table table({{"shards"}, {request.folder.string()}});
  table.row({"layout", fmt::format("{}, {}", to_string(explained.layout.name),
                                   format_noun(explained.layout.degree, "rank"))});
  table.row({"model", to_string(explained.layout.geometry)});
  table.row({"source", request.source ? request.source->string() + ", by hashes of rows and columns"
                                      : "fingerprints, element by element"});
  print(table.text());
}

void print_verdict(const Explanation& explanation, double seconds) {
  if (explanation.misplaced.empty()) {
    print_line(fmt::format("\n{}  {} where they belong   {}", paint(Tone::good, "PASSED"),
                           format_noun(explanation.places, "shard"), format_seconds(seconds)));
    return;
  }
  std::string cause = "no known fault leaves them so";
  if (!explanation.causes.empty()) cause = "as by " + explanation.causes.front().text();
  if (explanation.causes.size() > 1) cause += fmt::format(" and {} more", explanation.causes.size() - 1);
  print_line(fmt::format("\n{}  {} of {}, {}   {}", paint(Tone::bad, "MISPLACED"),
                         explanation.misplaced.size(), format_noun(explanation.places, "shard"), cause,
                         format_seconds(seconds)));
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const ExplainRequest request = request_of(*arguments);
  std::vector<std::filesystem::path> inputs = {request.folder};
  if (request.source) inputs.push_back(*request.source);
  require_no_input_among("--report", arguments->common().json_reports, inputs);
  const ExplainedShards explained = explain_folder(request);
  const Explanation& explanation = explained.explanation;
  if (!arguments->common().quiet) print_facts(request, explained);
  print_explanation(explained);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  print_verdict(explanation, elapsed.count());
  const int code = explanation.misplaced.empty() ? kPassed : kFailed;
  for (const auto& file : arguments->common().json_reports)
    write_text_atomically(file, explanation_json(request, explained, words, code));
  return code;
}

}  // namespace

const Subcommand& explain() {
  static const Subcommand command{
      "explain", "where each element of shards came from, and which known fault did it", run};
  return command;
}

}  // namespace shardcheck::subcommands
