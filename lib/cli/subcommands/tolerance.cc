// shardcheck tolerance: measure, check and show the recorded floor.
#include <fmt/format.h>

#include "exit_code.h"
#include "options.h"
#include "outputs.h"
#include "published.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/tolerance/comparator.h"
#include "shardcheck/tolerance/floor.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

constexpr int kRecordedRepetitions = 20;

CommandLine command_line() {
  CommandLine line(
      "tolerance", "measure | check | show [OPTIONS]",
      "The recorded floor of native arithmetic. measure runs the seed's rule; check compares the recording "
      "with\nthe rule, the configurations and this machine; show prints it beside the original's figures.",
      "tolerance measure --out=tolerance/in_process.json");
  return line.positional(1, "action")
      .value("repetitions", "N", "repetitions of measure (default 20)")
      .value("out", "FILE", "where measure writes the recording")
      .value("remeasure", "N", "check also measures N repetitions against the recording")
      .value("data-dir", "DIR", "the recording DIR/in_process.json instead of the built-in one");
}

std::string published_ulp(const FloorCell& cell) {
  for (const auto& figure : published::kFloors)
    if (figure.config == cell.config && figure.target_degree == cell.target_degree)
      return fmt::format("{:.0f} / {:.2f} / {:.2f}", figure.worst_ulp, figure.median_ulp, figure.mean_ulp);
  return cell.target_degree == 1 ? "0" : "";
}

void print_floor(const RecordedFloor& floor) {
  print_section("Recorded floor", fmt::format("{}, {}, {}, tokens {} x {}", floor.phase,
                                              format_noun(floor.repetitions, "repetition"), floor.dtype,
                                              floor.batch, floor.length));
  Table table({{"config"},
               {"source"},
               {"target"},
               {"max deviation", Align::right},
               {"max ULP", Align::right},
               {"median ULP", Align::right},
               {"mean ULP", Align::right},
               {"original max / median / mean ULP", Align::right}});
  for (const FloorCell& cell : floor.cells)
    table.row({cell.config, fmt::format("tp{}", cell.source_degree), fmt::format("tp{}", cell.target_degree),
               format_deviation(cell.max_deviation), fmt::format("{:.1f}", cell.max_ulp),
               fmt::format("{:.2f}", cell.median_ulp), fmt::format("{:.2f}", cell.mean_ulp),
               Cell(published_ulp(cell), Tone::faint)});
  print(table.text());
  Table summary({{""}, {"here", Align::right}, {"original", Align::right}});
  summary.row({"worst deviation", format_deviation(floor.max_deviation),
               format_deviation(published::kWorstDeviation)});
  summary.row({"worst ULP", fmt::format("{:.1f}", floor.max_deviation / kUlp),
               fmt::format("{:.0f}", published::kWorstUlp)});
  summary.row(
      {"threshold", fmt::format("{:.0e}", floor.threshold), fmt::format("{:.0e}", published::kThreshold)});
  summary.row({"threshold / worst", format_multiple(floor.threshold / floor.max_deviation),
               format_multiple(published::kThreshold / published::kWorstDeviation)});
  print(summary.text());
}

int measure(const Arguments& arguments) {
  const auto repetitions =
      static_cast<int>(arguments.integer("repetitions", 1, 10000).value_or(kRecordedRepetitions));
  const auto out = arguments.text("out");
  if (out) require_writable(*out);
  RecordedFloor floor;
  {
    Progress progress(arguments.common().quiet);
    floor = measure_floor(repetitions, progress.sink());
  }
  if (!arguments.common().quiet) print_floor(floor);
  if (out) {
    write_text_atomically(*out, to_json(floor));
    print_line(fmt::format("written to {}", *out));
  }
  return kPassed;
}

/// Measures again and returns why the recording does not hold here, empty when it does.
std::string remeasured_failure(const RecordedFloor& floor, int repetitions, bool quiet) {
  Progress progress(quiet);
  const RecordedFloor fresh = measure_floor(repetitions, progress.sink());
  print_line(fmt::format("  measured again ({}): worst {} ({:.1f} ULP), recorded {} ({:.1f} ULP)",
                         format_noun(repetitions, "repetition"), format_deviation(fresh.max_deviation),
                         fresh.max_deviation / kUlp, format_deviation(floor.max_deviation),
                         floor.max_deviation / kUlp));
  if (seed_threshold(fresh.max_deviation) <= floor.threshold) return "";
  return fmt::format(
      "measured again, the worst deviation {} asks for a threshold of {:.0e}, recorded is {:.0e}",
      format_deviation(fresh.max_deviation), seed_threshold(fresh.max_deviation), floor.threshold);
}

int check(const Arguments& arguments, const RecordedFloor& floor) {
  FloorCheck result = check_floor(floor);
  if (const auto repetitions = arguments.integer("remeasure", 1, 10000)) {
    const std::string failure =
        remeasured_failure(floor, static_cast<int>(*repetitions), arguments.common().quiet);
    if (!failure.empty()) result.failures.push_back(failure);
  }
  for (const std::string& warning : result.warnings)
    print_line(fmt::format("  {}  {}", paint(Tone::doubtful, "warning"), warning));
  for (const std::string& failure : result.failures)
    print_line(fmt::format("  {}  {}", paint(Tone::bad, "failure"), failure));
  if (!result.mistrusted.empty())
    print_line(fmt::format("  {}  {}", paint(Tone::doubtful, "mistrusted"), result.mistrusted));
  const int code = !result.failures.empty() ? kFailed : result.mistrusted.empty() ? kPassed : kInconclusive;
  const std::string verdict = code == kPassed   ? paint(Tone::good, "PASSED")
                              : code == kFailed ? paint(Tone::bad, "FAILED")
                                                : paint(Tone::doubtful, "MISTRUSTED");
  print_line(fmt::format("{}  recorded floor, threshold {:.0e}, {}", verdict, floor.threshold,
                         format_noun(static_cast<std::int64_t>(result.warnings.size()), "warning")));
  return code;
}

void require_option_belongs(const Arguments& arguments, const std::string& action) {
  const auto refuse = [&](const char* option, const char* owner) {
    if (arguments.has(option) && action != owner)
      throw InvalidInput(
          fmt::format("--{} belongs to tolerance {}, not to tolerance {}", option, owner, action));
  };
  refuse("repetitions", "measure");
  refuse("out", "measure");
  refuse("remeasure", "check");
}

int run(const std::vector<std::string>& words) {
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  if (arguments->positional().empty())
    throw InvalidInput("tolerance needs an action; allowed: measure, check, show");
  const std::string& action = arguments->positional()[0];
  if (action != "measure" && action != "check" && action != "show")
    refuse_unknown("action", action, {"measure", "check", "show"});
  require_option_belongs(*arguments, action);
  if (action == "measure") return measure(*arguments);
  const RecordedFloor floor = load_recorded_floor("in_process", arguments->text("data-dir").value_or(""));
  if (action == "check") return check(*arguments, floor);
  print_floor(floor);
  return kPassed;
}

}  // namespace

const Subcommand& tolerance() {
  static const Subcommand command{"tolerance", "measure, check and show the recorded floor", run};
  return command;
}

}  // namespace shardcheck::subcommands
