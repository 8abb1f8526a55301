// shardcheck weaken: the faults that would survive if a check were weakened as people weaken it.
#include <fmt/format.h>

#include <chrono>

#include "exit_code.h"
#include "kill_setup.h"
#include "options.h"
#include "outputs.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/text/shell_quote.h"
#include "subcommand.h"
#include "terminal.h"
#include "weakening_report.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::int64_t kDefaultCases = 20;
constexpr std::int64_t kMostCases = 100'000;

CommandLine command_line() {
  CommandLine line(
      "weaken", "[OPTIONS]",
      "Replaces oracles by weaker checks that people rely on and says which faults would survive. "
      "Fails\nwhere none of all faults would: then the check is not needed.",
      "weaken --check=sums --fault='slice_*'");
  return line.value("check", "NAME", "only this weakened check, e.g. sums (default: all)")
      .value("fault", "GLOB", "only these faults, e.g. 'slice_*' or reverse_rank_order:o_proj")
      .value("cases", "N", "cases per fault (default 20)")
      .value("markdown", "FILE", "also writes a page, docs/why-each-check-exists.md of this repository")
      .seed()
      .jobs()
      .data_dir()
      .reports("docs/weaken_report.schema.json");
}

/// What prints the same page: the options that decide it, whatever the words were.
std::string page_command(const WeakeningRun& run, const Arguments& arguments, const std::string& file) {
  std::string command = "shardcheck weaken";
  for (const char* option : {"check", "fault"}) {
    if (const auto value = arguments.text(option))
      command += fmt::format(" --{}={}", option, shell_quote(*value));
  }
  return fmt::format("{} --cases={} --seed={} --markdown={}", command, run.cases, run.seed,
                     shell_quote(file));
}

void print_survivors(const WeakeningRun& run) {
  for (const WeakeningReport& report : run.reports) {
    print_section(std::string(report.weakening->name), std::string(report.weakening->practice));
    for (const WeakenedFault& fault : report.faults) {
      if (fault.survives()) print_line(fmt::format("  {} survives: {}", fault.fault, fault.example));
    }
  }
}

void print_verdict(const WeakeningRun& run, double seconds) {
  for (const std::string& problem : run.problems()) print_line(paint(Tone::bad, problem));
  for (const std::string& gap : run.gaps()) print_line(paint(Tone::doubtful, gap));
  std::int64_t survivors = 0;
  for (const WeakeningReport& report : run.reports) survivors += report.survivors();
  print_line(fmt::format("\n{}  {}, {} under them   {}", painted_verdict(run.exit_code()),
                         format_noun(std::ssize(run.reports), "weakened check"),
                         format_noun(survivors, "survivor"), format_seconds(seconds)));
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const auto page = arguments->text("markdown");
  if (page) require_writable(*page);
  WeakeningOptions options;
  options.seed = arguments->seed();
  options.cases = arguments->integer("cases", 1, kMostCases).value_or(kDefaultCases);
  options.jobs = arguments->jobs();
  if (const auto name = arguments->text("check")) options.weakenings = {&weakening_named(*name)};
  if (const auto glob = arguments->text("fault")) options.faults = faults_matching(*glob);

  WeakeningRun result;
  result.seed = options.seed;
  result.cases = options.cases;
  result.commit = build_commit();
  print_line(fmt::format("seed {}", result.seed));
  const bool quiet = arguments->common().quiet;
  {
    Progress progress(quiet);
    progress.stage("weakened checks");
    options.progress = progress.sink("weakened checks  ");
    result.reports = weaken(options);
  }
  if (!quiet) {
    if (options.weakenings.size() == 1) print_survivors(result);
    print_section("Weakened checks", "faults that the oracle sees, and of them those that would survive");
    print(as_text(weakening_table(result)));
  }
  print_verdict(result, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (page) {
    result.command = page_command(result, *arguments, *page);
    write_text_atomically(*page, weakening_page(result));
  }
  for (const auto& file : arguments->common().json_reports)
    write_text_atomically(file, weakening_json(result));
  return result.exit_code();
}

}  // namespace

const Subcommand& weaken() {
  static const Subcommand command{"weaken", "weaken the checks and say which faults would survive", run};
  return command;
}

}  // namespace shardcheck::subcommands
