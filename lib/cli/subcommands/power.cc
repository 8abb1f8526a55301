// shardcheck power: how small a model, a deviation and a change the oracles still see.
#include <fmt/format.h>

#include <chrono>

#include "exit_code.h"
#include "kill_setup.h"
#include "options.h"
#include "outputs.h"
#include "power_report.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/text/shell_quote.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::int64_t kDefaultCases = 5;
constexpr std::int64_t kDefaultTrials = 100;
constexpr std::int64_t kMostCases = 100'000;

CommandLine command_line() {
  CommandLine line(
      "power", "[OPTIONS]",
      "Measures what the oracles still see: per fault the smallest model and the smallest share of "
      "its\ndeviation, mistakes in places where they are hard to see, and per parameter role one "
      "ULP, one row\nand one shard.",
      "power --fault='slice_*' --cases=3 --trials=20 --markdown=power.md");
  return line.value("fault", "GLOB", "only these faults, e.g. 'slice_*' or reverse_rank_order:o_proj")
      .value("cases", "N", "cases per fault (default 5)")
      .value("trials", "N", "random models per family of parameters (default 100)")
      .value("markdown", "FILE",
             "also writes the tables as a page, docs/detection-power.md of this repository")
      .seed()
      .jobs()
      .data_dir()
      .reports("docs/power_report.schema.json");
}

/// What prints the same page: the options that decide it, whatever the words were.
std::string page_command(const PowerReport& report, const Arguments& arguments, const std::string& file) {
  const auto glob = arguments.text("fault");
  return fmt::format("shardcheck power{} --cases={} --trials={} --seed={} --markdown={}",
                     glob ? " --fault=" + shell_quote(*glob) : "", report.cases, report.trials, report.seed,
                     shell_quote(file));
}

void measure(PowerOptions options, bool quiet, PowerReport& report) {
  Progress progress(quiet);
  const auto stage = [&](const char* name) {
    progress.stage(name);
    options.progress = progress.sink(fmt::format("{}  ", name));
  };
  stage("faults");
  report.faults = measure_faults(options);
  stage("hard places");
  report.places = measure_hard_places(options);
  stage("parameters");
  report.roles = measure_roles(options);
}

void print_tables(const PowerReport& report) {
  print_section("Faults",
                "parameters of the smallest model it is seen in, and k: seen at 2^-k of its deviation");
  print(as_text(fault_table(report)));
  print_section("Hard places", "what each oracle says; deviation / threshold under native");
  print(as_text(place_table(report)));
  print_section("Parameters", "share of changes seen, with 95 % Wilson intervals");
  print(as_text(role_table(report)));
}

void print_verdict(const PowerReport& report, double seconds) {
  for (const std::string& line : report.problems()) print_line(paint(Tone::bad, line));
  for (const std::string& line : report.gaps()) print_line(paint(Tone::doubtful, line));
  print_line(fmt::format("\n{}  {}, {}, {}   {}", painted_verdict(report.exit_code()),
                         format_noun(std::ssize(report.faults), "form of a fault", "forms of faults"),
                         format_noun(std::ssize(report.places), "hard place"),
                         format_noun(std::ssize(report.roles), "role"), format_seconds(seconds)));
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const auto page = arguments->text("markdown");
  if (page) require_writable(*page);
  PowerOptions options;
  options.seed = arguments->seed();
  options.cases = arguments->integer("cases", 1, kMostCases).value_or(kDefaultCases);
  options.trials = arguments->integer("trials", 1, kMostCases).value_or(kDefaultTrials);
  options.jobs = arguments->jobs();
  if (const auto glob = arguments->text("fault")) options.faults = faults_matching(*glob);

  PowerReport report;
  report.seed = options.seed;
  report.cases = options.cases;
  report.trials = options.trials;
  report.commit = build_commit();
  print_line(fmt::format("seed {}", report.seed));
  const bool quiet = arguments->common().quiet;
  measure(options, quiet, report);
  if (!quiet) print_tables(report);
  print_verdict(report, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (page) {
    report.command = page_command(report, *arguments, *page);
    write_text_atomically(*page, power_page(report));
  }
  for (const auto& file : arguments->common().json_reports) write_text_atomically(file, power_json(report));
  return report.exit_code();
}

}  // namespace

const Subcommand& power() {
  static const Subcommand command{"power", "measure how small a fault the oracles still see", run};
  return command;
}

}  // namespace shardcheck::subcommands
