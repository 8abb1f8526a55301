// shardcheck axes: the determinism axes measured, and every fault of theirs against every law of theirs.
#include "shardcheck/properties/axes.h"

#include <fmt/format.h>

#include <chrono>

#include "axes_page.h"
#include "axes_report.h"
#include "exit_code.h"
#include "options.h"
#include "outputs.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/text/shell_quote.h"
#include "subcommand.h"
#include "terminal.h"
#include "text_report.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::int64_t kDefaultCases = 200;
constexpr std::int64_t kMostCases = 1'000'000;

CommandLine command_line() {
  CommandLine line("axes", "[OPTIONS]",
                   "Measures every determinism axis: its law under tree and exact, the same cases under "
                   "native, and the\nfault that this law sees and the laws of the other axes do not.",
                   "axes --cases=50 --markdown=axes.md");
  return line.value("cases", "N", "cases per law, and per fault and law of another axis (default 200)")
      .value("native-cases", "N", "cases per axis under native (default 200)")
      .value("markdown", "FILE", "also writes the tables as a page, docs/axes.md of this repository")
      .seed()
      .jobs()
      .data_dir()
      .reports();
}

std::vector<LawReport> run_axis_laws(const RunOptions& options, Progress& progress) {
  std::vector<LawReport> reports;
  for (const DeterminismAxis& axis : determinism_axes()) {
    RunOptions here = options;
    const std::string place = fmt::format("[{}/{}] ", reports.size() + 1, determinism_axes().size());
    here.progress = progress.sink(place);
    progress.stage(fmt::format("{}law  {}", place, axis.law));
    reports.push_back(run_law(law_named(axis.law), here));
  }
  return reports;
}

void print_laws(const std::vector<LawReport>& laws) {
  print_section("Laws that did not pass");
  print(law_table(laws));
  for (const LawReport& report : laws) {
    if (!report.failure) continue;
    print_section(fmt::format("Failure of {}", report.name));
    print(describe_failure(law_named(report.name), *report.failure, program_name()));
  }
}

void print_verdict(const Report& report) {
  const char* word = report.exit_code == kPassed         ? "PASSED"
                     : report.exit_code == kInconclusive ? "INCONCLUSIVE"
                                                         : "FAILED";
  const Tone tone = report.exit_code == kPassed         ? Tone::good
                    : report.exit_code == kInconclusive ? Tone::doubtful
                                                        : Tone::bad;
  std::int64_t wrong = 0;
  for (const AxisRow& row : report.axes) wrong += row.problems().empty() ? 0 : 1;
  const std::string axes = format_noun(static_cast<std::int64_t>(report.axes.size()), "axis", "axes");
  print_line(fmt::format("\n{}  {}{}   {}", paint(tone, word), axes,
                         wrong > 0 ? fmt::format(", {} not as it must be", format_count(wrong)) : "",
                         format_seconds(report.seconds)));
}

void print_tables(const std::vector<AxisRow>& rows, bool quiet) {
  if (quiet && exit_code_of(rows) == kPassed) return;
  print_section("Axes", "what may change without changing a bit, and the fault that each law alone sees");
  print(axes_table(rows));
  print_section("Every fault against every law",
                "columns are axes by number; the first case that showed the fault, - where none did, n/a "
                "where it could "
                "act in none");
  print(axes_matrix(rows));
}

/// What prints the same page: the options that decide it, whatever the words were.
std::string page_command(const AxisOptions& options, const std::string& file) {
  return fmt::format("shardcheck axes --cases={} --native-cases={} --seed={} --markdown={}",
                     options.other_cases, options.native_cases, options.seed, shell_quote(file));
}

/// Options of both halves; the bitwise column and the laws of the other axes get `cases` each.
AxisOptions read_options(const Arguments& arguments) {
  AxisOptions options;
  options.seed = arguments.seed();
  options.other_cases = arguments.integer("cases", 1, kMostCases).value_or(kDefaultCases);
  options.native_cases = arguments.integer("native-cases", 1, kMostCases).value_or(kDefaultCases);
  options.jobs = arguments.jobs();
  return options;
}

void measure(AxisOptions options, bool quiet, Report& report) {
  Progress progress(quiet);
  RunOptions laws;
  laws.seed = options.seed;
  laws.cases = options.other_cases;
  laws.jobs = options.jobs;
  report.laws = run_axis_laws(laws, progress);
  options.progress = progress.sink();
  report.axes = measure_axes(options, report.laws);
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const auto page = arguments->text("markdown");
  if (page) require_writable(*page);
  const AxisOptions options = read_options(*arguments);
  const bool quiet = arguments->common().quiet;

  Report report;
  report.command = "axes";
  report.arguments = words;
  report.seed = options.seed;
  print_line(fmt::format("seed {}", report.seed));
  measure(options, quiet, report);
  const int law_code = exit_code_of(report.laws);
  if (law_code != kPassed) print_laws(report.laws);
  print_tables(report.axes, quiet);
  report.exit_code = worse_exit_code(law_code, exit_code_of(report.axes));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_verdict(report);
  if (page)
    write_text_atomically(*page, axes_page({report.axes, page_command(options, *page), build_commit()}));
  write_json_reports(report, arguments->common().json_reports);
  return report.exit_code;
}

}  // namespace

const Subcommand& axes() {
  static const Subcommand command{"axes", "measure every determinism axis and the fault that breaks it", run};
  return command;
}

}  // namespace shardcheck::subcommands
