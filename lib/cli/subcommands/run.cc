// shardcheck run: the main job. Laws on the recorded configurations and on random cases, then the kill
// matrix.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "axes_report.h"
#include "exit_code.h"
#include "failure_files.h"
#include "invariants.h"
#include "kill_setup.h"
#include "options.h"
#include "outputs.h"
#include "replaying.h"
#include "report_json.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/runner.h"
#include "subcommand.h"
#include "terminal.h"
#include "text_report.h"

namespace shardcheck::subcommands {
namespace {

struct Suite {
  std::string name;
  double multiplier = 1.0;             // of every law's minimum
  std::int64_t kill_random_cases = 0;  // per fault
  std::int64_t axis_native_cases = 0;  // per axis
  bool canary = false;
};

const std::vector<Suite> kSuites = {
    {"smoke", 1.0, 2, 40, false}, {"full", 10.0, 20, 200, false}, {"nightly", 100.0, 100, 1000, true}};

/// A whole suite that decides fewer random cases has shown too little to be called passed.
constexpr std::int64_t kMinimumDecided = 500;

/// The law that the recorded configurations are instances of.
constexpr std::string_view kMainLaw = "sharded_equals_reference";

struct Request {
  Suite suite;
  std::string law_glob;  // empty: all, and the kill matrix
  std::string fault;
  std::string seed_text;
  std::optional<Arithmetic> arithmetic;
  std::filesystem::path corpus, failures;
  RunOptions run;
  CommonOptions common;
};

CommandLine command_line() {
  CommandLine line(
      "run", "[OPTIONS]",
      "Checks the invariant on the recorded configurations, every law on random cases, and that every\n"
      "fault is detected. The first line is the seed; the last the verdict.",
      "run --suite=smoke --seed=random --report=json:report.json");
  return line.value("suite", "NAME", "smoke (default), full or nightly")
      .value("law", "GLOB", "only these laws (default with --fault: those that detect it), no kill matrix")
      .value("cases", "N", "cases per law instead of the suite's")
      .value("time", "TIME", "time for all laws together, e.g. 60s, 5m, 1h")
      .seed()
      .jobs()
      .value("arithmetic", "NAME",
             "native, tree or exact in every case; laws that say nothing of it are left out")
      .value("fault", "NAME[:ARG]", "inject this fault everywhere: the run must then fail")
      .value("comm", "NAME", "in_process")
      .value("corpus", "DIR", "also replay every *.case and *.batch file below DIR")
      .value("failures", "DIR", "where failing cases are written (default shardcheck-failures)")
      .data_dir()
      .reports();
}

Suite suite_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Suite& suite : kSuites) {
    if (suite.name == name) return suite;
    names.push_back(suite.name);
  }
  refuse_unknown("--suite", name, names);
}

void require_in_process(const Arguments& arguments) {
  const auto comm = arguments.text("comm");
  if (comm && *comm == "mpi")
    throw InvalidInput("--comm=mpi: this build has no MPI collective; allowed: in_process");
  if (comm && *comm != "in_process") refuse_unknown("--comm", *comm, {"in_process"});
}

Request read_request(const Arguments& arguments) {
  require_in_process(arguments);
  Request request;
  request.suite = suite_named(arguments.text("suite").value_or("smoke"));
  request.law_glob = arguments.text("law").value_or("");
  request.fault = arguments.text("fault").value_or("");
  if (arguments.text("fault") && request.fault.empty())
    throw InvalidInput(
        "--fault= names no fault: allowed is NAME or NAME:ARGUMENT, see `shardcheck list faults`");
  if (!request.fault.empty()) request.fault = parse_fault(request.fault).text();
  if (const auto name = arguments.choice("arithmetic", {"native", "tree", "exact"}))
    request.arithmetic = *name == "tree"    ? Arithmetic::tree
                         : *name == "exact" ? Arithmetic::exact
                                            : Arithmetic::native;
  request.corpus = arguments.text("corpus").value_or("");
  request.failures = arguments.text("failures").value_or("shardcheck-failures");
  request.common = arguments.common();
  RunOptions& run = request.run;
  run.seed = arguments.seed();
  run.cases = arguments.integer("cases", 1, 100'000'000);
  run.seconds = arguments.seconds("time");
  run.multiplier = request.suite.multiplier;
  run.fault = request.fault;
  run.arithmetic = request.arithmetic;
  run.jobs = arguments.jobs();
  return request;
}

std::vector<const Law*> named_laws(const Request& request) {
  if (!request.law_glob.empty()) return laws_matching(request.law_glob);
  return request.fault.empty() ? all_laws() : laws_against(*parse_fault(request.fault).fault);
}

std::vector<const Law*> chosen_laws(const Request& request) {
  std::vector<const Law*> laws = named_laws(request);
  if (request.arithmetic) {
    std::erase_if(laws, [&](const Law* law) { return !speaks_of(*law, *request.arithmetic); });
    if (laws.empty())
      throw InvalidInput(
          fmt::format("--arithmetic={}: {} says nothing of it", to_string(*request.arithmetic),
                      request.law_glob.empty() ? "no law that detects " + request.fault : request.law_glob));
  }
  return laws;
}

void print_failure(const Request& request, const Law& law, const LawReport& report) {
  print_section(fmt::format("Failure of {}", law.name));
  print(describe_failure(law, *report.failure, program_name()));
  try {
    const auto file = write_failure_file(request.failures, law, *report.failure);
    print_line(fmt::format("\nwritten to {}\n  {}", file.string(), replay_command(file.string())));
  } catch (const IoError& error) {
    print_line(paint(Tone::doubtful, fmt::format("\nthe case file was not written: {}", error.what())));
  }
}

std::vector<LawReport> run_laws(const Request& request, const std::vector<const Law*>& laws,
                                Progress& progress) {
  std::vector<LawReport> reports;
  for (std::size_t i = 0; i < laws.size(); ++i) {
    RunOptions options = request.run;
    if (options.seconds) options.seconds = *options.seconds / static_cast<double>(laws.size());
    const std::string place = fmt::format("[{}/{}] ", i + 1, laws.size());
    options.progress = progress.sink(place);
    progress.stage(fmt::format("{}law  {}", place, laws[i]->name));
    reports.push_back(run_law(*laws[i], options));
  }
  return reports;
}

bool canary_fails(const Request& request) {
  RunOptions options = request.run;
  options.fault.clear();
  options.cases = 200;
  options.seconds.reset();
  return run_law(canary_law(), options).verdict == Verdict::failed;
}

std::int64_t decided(const std::vector<LawReport>& reports) {
  std::int64_t count = 0;
  for (const LawReport& report : reports) count += report.passed + report.failed;
  return count;
}

/// Counts for the verdict line, in the order of the sections.
std::string summary(const Report& report) {
  std::vector<std::string> parts;
  if (report.invariants) {
    const std::int64_t judged = report.invariants->judged();
    const auto others = static_cast<std::int64_t>(report.invariants->cells.size()) - judged;
    parts.push_back(format_noun(judged, "invariant cell") +
                    (others > 0 ? fmt::format(" ({} not applicable)", others) : ""));
  }
  if (!report.replays.empty())
    parts.push_back(format_noun(static_cast<std::int64_t>(report.replays.size()), "corpus case"));
  std::int64_t failed = 0;
  for (const LawReport& law : report.laws) failed += law.failed;
  const std::string cases = format_noun(decided(report.laws), "random case");
  parts.push_back(fmt::format("{} over {}",
                              failed > 0 ? fmt::format("{} of {} failed", failed, cases) : cases,
                              format_noun(static_cast<std::int64_t>(report.laws.size()), "law")));
  if (!report.axes.empty())
    parts.push_back(format_noun(static_cast<std::int64_t>(report.axes.size()), "axis", "axes"));
  if (report.kill)
    parts.push_back(fmt::format("{}: {}", describe_faults(*report.kill), describe_score(*report.kill)));
  return join(parts, ", ");
}

void print_verdict(const Report& report) {
  print_line(fmt::format("\n{}  {}   {}", painted_verdict(report.exit_code), summary(report),
                         format_seconds(report.seconds)));
}

class Run {
 public:
  explicit Run(Request request) : request_(std::move(request)), progress_(request_.common.quiet) {}

  int execute(const std::vector<std::string>& words) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<const Law*> laws = chosen_laws(request_);
    require_sound_inputs();
    report_.command = "run";
    report_.arguments = words;
    report_.seed = request_.run.seed;
    print_line(fmt::format("seed {}", report_.seed));
    if (asks_for_invariants(laws)) invariants();
    if (!request_.corpus.empty()) corpus();
    random_laws(laws);
    if (!request_.fault.empty()) judge_fault_run();
    if (request_.law_glob.empty() && request_.fault.empty()) {
      axes();
      faults();
    }
    if (request_.suite.canary && request_.fault.empty()) canary();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    print_verdict(report_);
    write_json_reports(report_, request_.common.json_reports);
    return report_.exit_code;
  }

 private:
  /// What is wrong with files the user named is said before anything runs.
  void require_sound_inputs() const {
    require_no_input_among("--report", request_.common.json_reports, {request_.corpus});
    if (!request_.corpus.empty() && case_files(request_.corpus).empty())
      throw InvalidInput(
          fmt::format("--corpus={}: no *.case file is there, and no *.batch", request_.corpus.string()));
  }

  bool is_relabel_control() const {
    return !request_.fault.empty() && parse_fault(request_.fault).fault->is_relabel_control();
  }

  /// The recorded configurations are judged by tree too, which is not asked about relabellings.
  bool asks_for_invariants(const std::vector<const Law*>& laws) const {
    const bool has_main = std::ranges::find(laws, &law_named(kMainLaw)) != laws.end();
    return request_.law_glob.empty() && has_main && !is_relabel_control();
  }

  void fold(int code) { report_.exit_code = worse_exit_code(report_.exit_code, code); }

  void section(std::string_view title, std::string_view note, const std::string& table, bool always) {
    if (request_.common.quiet && !always) return;
    print_section(title, note);
    print(table);
  }

  void invariants() {
    progress_.stage("invariant on the recorded configurations");
    report_.invariants = check_invariants({request_.fault, request_.run.jobs, progress_.sink()});
    const InvariantReport& invariants = *report_.invariants;
    const bool holds = invariants.holds();
    section("Invariant  reference(full, x) == sharded(reshard(full, source -> target), x)",
            fmt::format("threshold {:.0e} from {}, {}", invariants.cells.at(0).threshold,
                        invariants.threshold_source, format_seconds(invariants.seconds)),
            invariant_table(invariants), !holds);
    if (!holds) fold(invariants.failed() ? kFailed : kInconclusive);
  }

  void corpus() {
    progress_.stage("corpus");
    report_.replays = replay_files(case_files(request_.corpus), "corpus", progress_);
    std::string text;
    for (const Replay& replay : report_.replays)
      if (replay.exit_code() != kPassed) text += describe(replay);
    const int code = worst_exit_code(report_.replays);
    section("Corpus", format_noun(static_cast<std::int64_t>(report_.replays.size()), "case"), text,
            code != kPassed);
    fold(code);
  }

  void random_laws(const std::vector<const Law*>& laws) {
    report_.laws = run_laws(request_, laws, progress_);
    const int code = exit_code_of(report_.laws);
    section("Laws on random cases",
            request_.fault.empty() ? std::string() : fmt::format("with {} injected", request_.fault),
            law_table(report_.laws), code != kPassed);
    for (std::size_t i = 0; i < report_.laws.size(); ++i)
      if (report_.laws[i].failure) print_failure(request_, *laws[i], report_.laws[i]);
    fold(code);
    const bool whole_suite = request_.law_glob.empty() && request_.fault.empty() && !request_.run.cases;
    if (!whole_suite || decided(report_.laws) >= kMinimumDecided) return;
    print_line(paint(Tone::doubtful,
                     fmt::format("only {} decided; a suite needs {}",
                                 format_noun(decided(report_.laws), "random case"), kMinimumDecided)));
    fold(kInconclusive);
  }

  /// A run with a fault exists to fail: where nothing did, the fault never acted or nothing that ran can see
  /// it. A relabel control exists to pass.
  void judge_fault_run() {
    std::int64_t acted = 0, cases = 0;
    bool failed = report_.invariants && report_.invariants->failed();
    for (const LawReport& law : report_.laws) {
      cases += law.cases;
      acted += law.cases - law.skipped;  // a case is skipped where the fault cannot act
      failed = failed || law.failed > 0;
    }
    if (report_.invariants) {
      acted += report_.invariants->judged();
      cases += static_cast<std::int64_t>(report_.invariants->cells.size());
    }
    if (!failed && is_relabel_control()) {
      print_line(fmt::format("{} is right though it looks wrong: no law flags it", request_.fault));
    } else if (!failed) {
      print_line(paint(Tone::doubtful,
                       fmt::format("{}: the fault acted in {} of {} and no law failed", request_.fault,
                                   format_count(acted), format_noun(cases, "case"))));
      fold(kInconclusive);
    }
    print_line("The kill matrix is left out of a run with a fault.");
  }

  void axes() {
    const auto start = std::chrono::steady_clock::now();
    AxisOptions options;
    options.seed = request_.run.seed;
    options.native_cases = request_.suite.axis_native_cases;
    options.jobs = request_.run.jobs;
    options.progress = progress_.sink();
    report_.axes = measure_axes(options, report_.laws);
    const int code = exit_code_of(report_.axes);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    section("Axes",
            fmt::format("what may change without changing a bit, and the fault that each law alone sees, {}",
                        format_seconds(seconds.count())),
            axes_table(report_.axes), code != kPassed);
    fold(code);
  }

  void faults() {
    KillOptions options =
        kill_options(request_.run.seed, request_.suite.kill_random_cases, request_.run.jobs);
    if (request_.arithmetic)
      judge_under(options, {Oracle::layout, *oracle_from(to_string(*request_.arithmetic))});
    progress_.stage("kill matrix");
    options.progress = progress_.sink("kill matrix  ");
    report_.kill = run_kill_matrix(options);
    const bool passed = report_.kill->passed();
    section("Kill matrix", kKillTableNote, kill_table(*report_.kill), !passed);
    for (const std::string& line : not_scored(*report_.kill)) print_line(paint(Tone::doubtful, line));
    fold(exit_code_of(*report_.kill));
  }

  void canary() {
    if (canary_fails(request_)) return;
    print_line(paint(Tone::bad, "the canary law is false and did not fail"));
    fold(kFailed);
  }

  Request request_;
  Progress progress_;
  Report report_;
};

int run_words(const std::vector<std::string>& words) {
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  return Run(read_request(*arguments)).execute(words);
}

}  // namespace

const Subcommand& run() {
  static const Subcommand command{"run", "the main job: invariant, laws on random cases, kill matrix",
                                  run_words};
  return command;
}

}  // namespace shardcheck::subcommands
