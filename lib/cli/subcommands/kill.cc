// shardcheck kill: the kill matrix alone.
#include <fmt/format.h>

#include <chrono>

#include "exit_code.h"
#include "kill_setup.h"
#include "options.h"
#include "report_json.h"
#include "subcommand.h"
#include "terminal.h"
#include "text_report.h"

namespace shardcheck::subcommands {
namespace {

constexpr std::int64_t kDefaultRandomCases = 10;

CommandLine command_line() {
  CommandLine line(
      "kill", "[OPTIONS]",
      "Injects every fault and says which oracle detects it. A fault counts as killed only where the "
      "same\ncase passes without it; scores are per family and never pooled.",
      "kill --fault='reverse_*' --oracle=native --cases=20");
  return line.value("fault", "GLOB", "only these faults, e.g. 'slice_*' or reverse_rank_order:o_proj")
      .value("oracle", "LIST",
             "only these of layout,exact,tree,native, also where they need not see it (default: those that "
             "must)")
      .value("cases", "N", "random cases per fault beside the recorded configurations (default 10)")
      .value("min-score", "SHARE", "fail below this score of any family (default 1.0)")
      .seed()
      .jobs()
      .data_dir()
      .reports();
}

void print_verdict(const KillReport& report, double minimum, double seconds) {
  const int code = exit_code_of(report, minimum);
  const std::string asked =
      report.score_by_family.empty() ? "" : " (asked for " + format_share(minimum) + ")";
  std::vector<std::string> counts = {
      format_noun(static_cast<std::int64_t>(report.survivors.size()), "survivor")};
  if (!report.baseline_failures.empty())
    counts.push_back(
        format_noun(static_cast<std::int64_t>(report.baseline_failures.size()), "failed baseline"));
  if (!report.false_alarms.empty())
    counts.push_back(format_noun(static_cast<std::int64_t>(report.false_alarms.size()), "false alarm"));
  if (const std::string first = describe_first_kills(report); !first.empty()) counts.push_back(first);
  print_line(fmt::format("\n{}  {}: {}{}, {}   {}", painted_verdict(code), describe_faults(report),
                         describe_score(report), asked, join(counts, ", "), format_seconds(seconds)));
}

int run(const std::vector<std::string>& words) {
  const auto start = std::chrono::steady_clock::now();
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const double minimum = arguments->number("min-score", 0.0, 1.0).value_or(1.0);
  const bool quiet = arguments->common().quiet;
  const std::uint64_t seed = arguments->seed();  // read once: `random` draws anew each time
  KillOptions options = kill_options(
      seed, arguments->integer("cases", 0, 100000).value_or(kDefaultRandomCases), arguments->jobs());
  if (const auto glob = arguments->text("fault")) options.faults = faults_matching(*glob);
  if (const auto oracles = arguments->text("oracle")) judge_under(options, parse_oracles(*oracles));

  Report report;
  report.command = "kill";
  report.arguments = words;
  report.seed = seed;
  print_line(fmt::format("seed {}", report.seed));
  {
    Progress progress(quiet);
    progress.stage("kill matrix");
    options.progress = progress.sink("kill matrix  ");
    report.kill = run_kill_matrix(options);
  }
  if (!quiet) {
    print_section("Kill matrix", kKillTableNote);
    print(kill_table(*report.kill));
  } else {
    for (const std::string& failure : report.kill->baseline_failures) print_line("baseline: " + failure);
    for (const auto* lines : {&report.kill->survivors, &report.kill->false_alarms})
      for (const std::string& line : *lines) print_line(line);
  }
  for (const std::string& line : not_scored(*report.kill)) print_line(paint(Tone::doubtful, line));
  report.exit_code = exit_code_of(*report.kill, minimum);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_verdict(*report.kill, minimum, report.seconds);
  write_json_reports(report, arguments->common().json_reports);
  return report.exit_code;
}

}  // namespace

const Subcommand& kill() {
  static const Subcommand command{"kill", "inject every fault and say which oracle detects it", run};
  return command;
}

}  // namespace shardcheck::subcommands
