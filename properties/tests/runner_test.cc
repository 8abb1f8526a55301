#include "shardcheck/properties/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/generator.h"

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Case draw_plain(Stream& stream) {
  Case c = draw_case(stream, {.forward = false});
  c.law = "plain";
  return c;
}

/// A law made of a check alone. The checks below never touch the subject.
Law law_of(Outcome (*check)(const Case&, Subject&), std::vector<LabelShare> shares = {},
           int smoke_cases = 20) {
  return {.name = "plain",
          .claim = "Plain.",
          .check = check,
          .draw = draw_plain,
          .shares = std::move(shares),
          .smoke_cases = smoke_cases};
}

RunOptions options_with(std::uint64_t seed = 1) {
  RunOptions options;
  options.seed = seed;
  options.subject = [](const Case&) { return std::make_shared<Subject>(); };
  return options;
}

Outcome passes(const Case& c, Subject&) {
  Outcome outcome = Outcome::pass();
  outcome.digest = c.seed;
  return outcome;
}

/// Fails on sharded targets.
Outcome fails_when_sharded(const Case& c, Subject&) {
  if (c.target.tp_degree() == 1) return Outcome::pass();
  Difference d;
  d.parameter = "layers.0.qkv";
  d.source_degree = c.source.tp_degree();
  d.target_degree = c.target.tp_degree();
  d.rank = 1;
  d.max_abs = 2.5;
  d.threshold = 1e-3;
  d.worst_index = 7;
  d.worst_place = "logits[3, 1]";
  d.expected = "q[3]";
  d.actual = "q[9]";
  return Outcome::fail("shards are wrong", d);
}

/// Everything of a report but the times.
std::string text_of(const LawReport& report) {
  std::string text = report.name + " " + std::string(to_string(report.verdict));
  for (const std::int64_t n : {report.cases, report.passed, report.failed, report.vacuous, report.mistrusted,
                               report.skipped, report.timeouts, report.errors})
    text += " " + std::to_string(n);
  for (const auto& [label, count] : report.labels) text += " " + label + "=" + std::to_string(count);
  for (const std::string& line : report.health) text += "\n" + line;
  if (report.failure)
    text += "\n" + print_case(report.failure->original) + "\n" + print_case(report.failure->minimal) + "\n" +
            report.failure->outcome.message;
  return text;
}

TEST(RunnerTest, RunsTheMinimumOfDecidedCases) {
  const LawReport report = run_law(law_of(passes), options_with());
  EXPECT_EQ(report.verdict, Verdict::passed);
  EXPECT_EQ(report.cases, 20);
  EXPECT_EQ(report.passed, 20);
  EXPECT_THAT(report.health, IsEmpty());
  EXPECT_FALSE(report.failure.has_value());
  EXPECT_EQ(report.claim, "Plain.");
}

TEST(RunnerTest, CasesAndMultiplierReplaceTheMinimum) {
  RunOptions options = options_with();
  options.multiplier = 10;
  EXPECT_EQ(run_law(law_of(passes), options).cases, 200);
  options.cases = 7;
  EXPECT_EQ(run_law(law_of(passes), options).cases, 7);
}

TEST(RunnerTest, TheSeedAndTheLawDecideTheCases) {
  static std::vector<std::string>* lines = nullptr;
  const auto record = [](const Case& c, Subject&) {
    lines->push_back(print_case(c));
    return Outcome::pass();
  };
  const auto lines_of = [&](std::uint64_t seed, std::string_view name) {
    std::vector<std::string> collected;
    lines = &collected;
    Law law = law_of(record);
    law.name = name;
    (void)run_law(law, options_with(seed));
    return collected;
  };
  EXPECT_EQ(lines_of(1, "plain"), lines_of(1, "plain"));
  EXPECT_NE(lines_of(1, "plain"), lines_of(2, "plain"));
  EXPECT_NE(lines_of(1, "plain"), lines_of(1, "other"));
}

TEST(RunnerTest, FaultAndArithmeticAreForcedOnEveryCase) {
  const auto expects_them = [](const Case& c, Subject&) {
    return c.fault == "some_fault" && c.arithmetic == Arithmetic::tree ? Outcome::pass()
                                                                       : Outcome::fail("not set");
  };
  RunOptions options = options_with();
  options.fault = "some_fault";
  options.arithmetic = Arithmetic::tree;
  EXPECT_EQ(run_law(law_of(expects_them), options).verdict, Verdict::passed);
}

RunOptions options_with_fault(std::string fault) {
  RunOptions options;
  options.seed = 1;
  options.fault = std::move(fault);
  options.shrink_steps = 0;
  return options;
}

TEST(RunnerFaultTest, AFaultThatActsNowhereIsInconclusive) {
  // The law has targets of one rank alone, where an order of ranks cannot be wrong.
  const LawReport report =
      run_law(law_named("degree_one_is_identity"), options_with_fault("reverse_rank_order:down"));
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  EXPECT_EQ(report.passed, 0);
  EXPECT_EQ(report.skipped, report.cases);
  EXPECT_THAT(report.health, Contains("the fault acted in 0 of " + std::to_string(report.cases) + " cases"));
}

TEST(RunnerFaultTest, SkippedDrawsAreMadeUpForAndAreNoPass) {
  const LawReport report =
      run_law(law_of(passes, {{"no_such_label", 0.9}}), options_with_fault("drop_remainder"));
  EXPECT_EQ(report.passed, 20) << "the fault acted in each of them";
  EXPECT_GT(report.skipped, 10);
  EXPECT_EQ(report.cases, report.passed + report.skipped);
  EXPECT_LE(report.skipped, 20 * 20);
  EXPECT_EQ(report.verdict, Verdict::passed);
}

TEST(RunnerFaultTest, OtherUndecidedCasesStayUndecided) {
  const auto vacuous = [](const Case&, Subject&) { return Outcome::of(Verdict::vacuous, "all zeros"); };
  const LawReport report = run_law(law_of(vacuous), options_with_fault("drop_remainder"));
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  EXPECT_THAT(report.health, Contains(HasSubstr("were not decided")));
  EXPECT_THAT(report.health, ::testing::Not(Contains(HasSubstr("acted in 0"))));
}

TEST(RunnerFaultTest, EveryFaultIsFoundByItsLawAndTheCaseReplaysFromItsText) {
  for (const FaultChoice& choice : every_choice()) {
    if (choice.fault->is_relabel_control()) continue;
    const Law& law = *laws_against(*choice.fault).front();
    RunOptions options = options_with_fault(choice.text());
    options.cases = 5;
    const LawReport report = run_law(law, options);
    ASSERT_EQ(report.verdict, Verdict::failed) << choice.text() << " under " << law.name;
    const Case replayed = parse_case(print_case(report.failure->minimal));
    EXPECT_EQ(check_case(law_named(replayed.law), replayed).verdict, Verdict::failed) << print_case(replayed);
  }
}

TEST(RunnerFaultTest, NoLawFlagsARelabelControl) {
  for (const FaultChoice& choice : every_choice()) {
    if (!choice.fault->is_relabel_control()) continue;
    RunOptions options = options_with_fault(choice.text());
    options.cases = 20;
    const LawReport report = run_law(*laws_against(*choice.fault).front(), options);
    EXPECT_EQ(report.verdict, Verdict::passed) << choice.text();
    EXPECT_EQ(report.passed, 20) << choice.text();
  }
}

TEST(RunnerTest, AFailureIsCountedShrunkAndEndsTheLaw) {
  const LawReport report = run_law(law_of(fails_when_sharded), options_with());
  EXPECT_EQ(report.verdict, Verdict::failed);
  EXPECT_EQ(report.failed, 1);
  ASSERT_TRUE(report.failure.has_value());
  EXPECT_EQ(print_case(report.failure->minimal), "plain heads=2 kv_heads=2 target=seed:tp2");
  EXPECT_GT(report.failure->original.target.tp_degree(), 1);
  EXPECT_EQ(report.failure->outcome.verdict, Verdict::failed);
  EXPECT_THAT(report.failure->irrelevant, Contains("target"));
  EXPECT_GT(report.failure->shrink_steps, 0);
}

TEST(RunnerTest, TheReportDoesNotDependOnTheJobs) {
  const auto sometimes_vacuous = [](const Case& c, Subject&) {
    return c.seed % 20 == 0 ? Outcome::of(Verdict::vacuous, "nothing to see") : Outcome::pass();
  };
  for (const Law& law :
       {law_of(passes, {}, 60), law_of(fails_when_sharded), law_of(sometimes_vacuous, {}, 60)}) {
    RunOptions one = options_with(5);
    RunOptions two = options_with(5);
    two.jobs = 2;
    RunOptions seven = options_with(5);
    seven.jobs = 7;
    EXPECT_EQ(text_of(run_law(law, one)), text_of(run_law(law, two)));
    EXPECT_EQ(text_of(run_law(law, one)), text_of(run_law(law, seven)));
  }
}

TEST(RunnerTest, ADigestThatChangesIsNondeterministic) {
  static std::atomic<std::uint64_t> calls{0};
  const auto drifts = [](const Case&, Subject&) {
    Outcome outcome = Outcome::pass();
    outcome.digest = ++calls;
    return outcome;
  };
  const LawReport report = run_law(law_of(drifts), options_with());
  EXPECT_EQ(report.verdict, Verdict::failed);
  ASSERT_TRUE(report.failure.has_value());
  EXPECT_TRUE(report.failure->nondeterministic);
  EXPECT_EQ(print_case(report.failure->minimal), "plain");
  EXPECT_THAT(describe_failure(law_of(drifts), *report.failure, "shardcheck"), HasSubstr("nondeterministic"));
}

TEST(RunnerTest, OneCaseInTwentyRunsTwice) {
  static std::atomic<int> calls{0};
  calls = 0;
  const auto count = [](const Case&, Subject&) {
    ++calls;
    return Outcome::pass();
  };
  (void)run_law(law_of(count, {}, 100), options_with());
  EXPECT_EQ(calls, 105);
}

TEST(RunnerTest, UndecidedCasesAboveTenPercentAreInconclusive) {
  const auto vacuous = [](const Case& c, Subject&) {
    return c.seed % 4 == 0 ? Outcome::of(Verdict::vacuous, "all zeros") : Outcome::pass();
  };
  const LawReport report = run_law(law_of(vacuous, {}, 100), options_with());
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  EXPECT_GT(report.vacuous, 0);
  EXPECT_THAT(report.health, Contains(HasSubstr("vacuous")));
}

TEST(RunnerTest, FewUndecidedCasesAreMadeUpFor) {
  const auto rarely = [](const Case& c, Subject&) {
    return c.seed % 50 == 0 ? Outcome::of(Verdict::skipped, "no") : Outcome::pass();
  };
  const LawReport report = run_law(law_of(rarely, {}, 200), options_with());
  EXPECT_EQ(report.verdict, Verdict::passed);
  EXPECT_EQ(report.passed, 200);
  EXPECT_GT(report.skipped, 0);
  EXPECT_EQ(report.cases, report.passed + report.skipped);
}

TEST(RunnerTest, ALawThatDecidesNothingEndsBelowItsMinimum) {
  const auto skips = [](const Case&, Subject&) -> Outcome { throw UnsupportedLayout("degree 3"); };
  const LawReport report = run_law(law_of(skips), options_with());
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  EXPECT_EQ(report.passed, 0);
  EXPECT_EQ(report.skipped, report.cases);
  EXPECT_LE(report.cases, 40);
  EXPECT_THAT(report.health, Contains(HasSubstr("0 cases were decided: at least 20")));
}

TEST(RunnerTest, TimeThatEndsBeforeTheMinimumIsInconclusive) {
  RunOptions options = options_with();
  options.seconds = 0.0;
  const LawReport report = run_law(law_of(passes), options);
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  EXPECT_THAT(report.health, Contains(HasSubstr("at least 20")));
}

TEST(RunnerTest, TimeAloneRunsOnPastTheMinimum) {
  RunOptions options = options_with();
  options.seconds = 0.5;
  const LawReport report = run_law(law_of(passes, {}, 1), options);
  EXPECT_EQ(report.verdict, Verdict::passed);
  EXPECT_GT(report.cases, 1);
}

TEST(RunnerTest, AMissingLabelFailsTheHealthCheck) {
  const Law law = law_of(passes, {{"no_such_label", 0.3}, {"groups>=2x2", 0.3}}, 50);
  const LawReport report = run_law(law, options_with());
  EXPECT_EQ(report.verdict, Verdict::vacuous);
  ASSERT_THAT(report.health, SizeIs(1));
  EXPECT_THAT(report.health[0], AllOf(HasSubstr("no_such_label"), HasSubstr("30 %")));
  RunOptions few = options_with();
  few.cases = 199;
  EXPECT_EQ(run_law(law, few).verdict, Verdict::passed);
  few.cases = 200;
  EXPECT_EQ(run_law(law, few).verdict, Verdict::vacuous);
}

TEST(RunnerTest, ASlowCaseIsATimeoutAndNeverAPass) {
  RunOptions options = options_with();
  options.case_timeout_seconds = -1.0;  // every case is slower
  const LawReport report = run_law(law_of(passes), options);
  EXPECT_EQ(report.passed, 0);
  EXPECT_EQ(report.timeouts, report.cases);
  EXPECT_EQ(report.verdict, Verdict::vacuous);
}

TEST(RunnerTest, ASlowFailureStaysAFailure) {
  RunOptions options = options_with();
  options.case_timeout_seconds = -1.0;
  EXPECT_EQ(run_law(law_of(fails_when_sharded), options).verdict, Verdict::failed);
}

TEST(RunnerTest, AnExceptionIsAnErrorWithItsCase) {
  const auto throws = [](const Case&, Subject&) -> Outcome { throw std::runtime_error("broke"); };
  const LawReport report = run_law(law_of(throws), options_with());
  EXPECT_EQ(report.verdict, Verdict::error);
  EXPECT_EQ(report.errors, 1);
  ASSERT_TRUE(report.failure.has_value());
  EXPECT_EQ(report.failure->outcome.message, "broke");
  EXPECT_EQ(print_case(report.failure->minimal), "plain");
}

TEST(RunnerTest, ShardsTheLibraryRefusesAreAFailure) {
  const auto refuses = [](const Case&, Subject&) -> Outcome { throw InvalidShards("rank 1 is missing"); };
  EXPECT_EQ(run_law(law_of(refuses), options_with()).verdict, Verdict::failed);
}

TEST(RunnerTest, ADrawThatThrowsIsAnError) {
  Law law = law_of(passes);
  law.draw = [](Stream&) -> Case { throw std::runtime_error("cannot draw"); };
  const LawReport report = run_law(law, options_with());
  EXPECT_EQ(report.verdict, Verdict::error);
  EXPECT_THAT(report.failure->outcome.message, HasSubstr("cannot draw"));
}

TEST(ShrinkFailureTest, TheStepBudgetIsKept) {
  static std::atomic<int> calls{0};
  calls = 0;
  const auto fails = [](const Case&, Subject&) {
    ++calls;
    return Outcome::fail("always");
  };
  const Law law = law_of(fails);
  Stream stream(3, "case");
  RunOptions options = options_with();
  options.shrink_steps = 5;
  const Failure failure = shrink_failure(law, draw_plain(stream), options);
  EXPECT_LE(failure.shrink_steps, 5);
  EXPECT_LE(calls, 6);  // the case itself and five tries
}

TEST(ShrinkFailureTest, WithoutTimeTheOriginalIsReturned) {
  Stream stream(3, "case");
  const Case c = draw_plain(stream);
  RunOptions options = options_with();
  options.shrink_seconds = 0.0;
  const auto fails = [](const Case&, Subject&) { return Outcome::fail("always"); };
  const Failure failure = shrink_failure(law_of(fails), c, options);
  EXPECT_EQ(failure.minimal, c);
  EXPECT_EQ(failure.original, c);
}

TEST(ShrinkFailureTest, EachImprovementIsReportedAndSmaller) {
  Stream stream(3, "case");
  const Case c = draw_plain(stream);
  const auto fails = [](const Case&, Subject&) { return Outcome::fail("always"); };
  std::vector<double> sizes = {case_size(c)};
  const Failure failure =
      shrink_failure(law_of(fails), c, options_with(), [&](const Case& s) { sizes.push_back(case_size(s)); });
  EXPECT_GT(sizes.size(), 1U);
  EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
  EXPECT_EQ(sizes.back(), case_size(failure.minimal));
  EXPECT_EQ(print_case(failure.minimal), "plain");
}

TEST(ShrinkFailureTest, TheKindOfFailureIsKept) {
  const auto check = [](const Case& c, Subject&) -> Outcome {
    if (c.target.tp_degree() > 1) return Outcome::fail("sharded");
    throw std::runtime_error("an error is no failure");
  };
  const Case c = parse_case("plain heads=4 kv_heads=4 target=seed:tp4 seed=5");
  const Failure failure = shrink_failure(law_of(check), c, options_with());
  EXPECT_EQ(print_case(failure.minimal), "plain heads=2 kv_heads=2 target=seed:tp2");
  EXPECT_EQ(failure.outcome.message, "sharded");
}

TEST(ShrinkFailureTest, OnlyFieldsThatDoNotMatterAreIrrelevant) {
  const auto check = [](const Case& c, Subject&) {
    return c.seed != 0 && c.geometry.n_layers == 2 ? Outcome::fail("two layers") : Outcome::pass();
  };
  const Failure failure =
      shrink_failure(law_of(check), parse_case("plain layers=2 seed=1234"), options_with());
  EXPECT_EQ(print_case(failure.minimal), "plain layers=2 seed=1");
  EXPECT_THAT(failure.irrelevant, ::testing::ElementsAre("seed"));
}

TEST(ShrinkFailureTest, ACaseThatPassesIsReturnedAsItIs) {
  const Case c = parse_case("plain layers=2 seed=1234");
  const Failure failure = shrink_failure(law_of(passes), c, options_with());
  EXPECT_EQ(failure.minimal, c);
  EXPECT_EQ(failure.outcome.verdict, Verdict::passed);
}

TEST(ProgressTest, TheOriginalIsPrintedBeforeShrinkingAndTheBestAfter) {
  RunOptions options = options_with();
  std::vector<std::string> lines, notices;
  options.progress = [&](const ProgressEvent& event) {
    lines.push_back(event.text);
    if (event.kind == ProgressEvent::Kind::notice) notices.push_back(event.text);
  };
  const LawReport report = run_law(law_of(fails_when_sharded), options);
  const std::string original = print_case(report.failure->original);
  const std::string minimal = print_case(report.failure->minimal);
  const auto first = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(original) != std::string::npos;
  });
  const auto smaller = std::find_if(lines.begin(), lines.end(),
                                    [](const std::string& line) { return line.starts_with("smaller: "); });
  EXPECT_LT(first, smaller);
  EXPECT_THAT(notices, ::testing::ElementsAre("failed: " + original)) << "what must outlive a killed run";
  EXPECT_NE(smaller, lines.end());
  EXPECT_EQ(lines.back(), "minimal: " + minimal);
}

TEST(ProgressTest, StepsSayWhichShareOfTheMinimumIsDecided) {
  RunOptions options = options_with();
  std::vector<double> shares;
  options.progress = [&](const ProgressEvent& event) { shares.push_back(event.share.value()); };
  (void)run_law(law_of(passes), options);
  ASSERT_THAT(shares, SizeIs(20));
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1.0);
}

TEST(FailureReportTest, TheSectionsComeInOrder) {
  const Law law = law_of(fails_when_sharded);
  const Failure failure = shrink_failure(
      law, parse_case("plain layers=3 heads=4 kv_heads=4 target=seed:tp4 seed=9"), options_with());
  const std::string text = describe_failure(law, failure, "build/shardcheck");
  std::size_t at = 0;
  for (const char* part :
       {"Plain.", "plain layers=3 heads=4 kv_heads=4 target=seed:tp4 seed=9",
        "plain heads=2 kv_heads=2 target=seed:tp2",
        "target=seed:tp2 does not matter: every other value tried fails too", "shards are wrong",
        "layers.0.qkv", "source degree", "target degree", "2.5, 2.5e+03 times the threshold 0.001",
        "logits[3, 1]  (token, vocabulary id)", "q[3]", "q[9]", "rank",
        "build/shardcheck replay 'plain heads=2 kv_heads=2 target=seed:tp2'", "# law: plain",
        "# verdict: failed", "# why: shards are wrong"}) {
    const std::size_t found = text.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << " is missing or out of order in\n" << text;
    at = found;
  }
}

TEST(FailureReportTest, TheReplayCommandIsOneShellWord) {
  const Law law = law_of(passes);
  Failure failure;
  failure.original = failure.minimal = parse_case("plain input=\"it's $HOME\"");
  failure.outcome = Outcome::fail("x");
  EXPECT_THAT(describe_failure(law, failure, "shardcheck"),
              HasSubstr("shardcheck replay 'plain input=\"it'\\''s $HOME\"'\n"));
}

TEST(FailureReportTest, TheRegressionFileReadsBack) {
  const Law law = law_of(fails_when_sharded);
  const Failure failure =
      shrink_failure(law, parse_case("plain heads=2 kv_heads=2 target=seed:tp2"), options_with());
  const CaseFile file = parse_case_file(regression_file(law, failure), "regression");
  EXPECT_EQ(file.value, failure.minimal);
  EXPECT_THAT(file.header, Contains(std::pair<std::string, std::string>("verdict", "failed")));
  EXPECT_THAT(file.header, Contains(std::pair<std::string, std::string>("why", "shards are wrong")));
}

TEST(ExitCodeTest, TheWorstVerdictDecides) {
  const auto code = [](std::vector<Verdict> verdicts) {
    std::vector<LawReport> reports(verdicts.size());
    for (std::size_t i = 0; i < verdicts.size(); ++i) reports[i].verdict = verdicts[i];
    return exit_code_of(reports);
  };
  EXPECT_EQ(code({}), 0);
  EXPECT_EQ(code({Verdict::passed, Verdict::passed}), 0);
  EXPECT_EQ(code({Verdict::passed, Verdict::vacuous}), 3);
  EXPECT_EQ(code({Verdict::vacuous, Verdict::error}), 4);
  EXPECT_EQ(code({Verdict::error, Verdict::failed, Verdict::vacuous}), 1);
}

TEST(RunnerCanary, FailsInEveryRunAndShrinksToItsOneCause) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    RunOptions options;
    options.seed = seed;
    options.cases = 200;
    const LawReport report = run_law(canary_law(), options);
    ASSERT_EQ(report.verdict, Verdict::failed);
    EXPECT_EQ(print_case(report.failure->minimal), "canary layers=2");
    EXPECT_EQ(check_case(canary_law(), parse_case("canary")).verdict, Verdict::passed);
  }
}

}  // namespace
}  // namespace shardcheck
