// What a row of the determinism axes must show, and what each axis's fault is seen by.
#include "shardcheck/properties/axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "shardcheck/mutators/fault.h"

namespace shardcheck {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const DeterminismAxis& axis_named(std::string_view name) {
  for (const DeterminismAxis& axis : determinism_axes())
    if (axis.name == name) return axis;
  throw std::invalid_argument("no such axis");
}

/// A row as it must be.
AxisRow good_row(std::string_view name) {
  AxisRow row;
  row.axis = axis_named(name);
  row.bitwise = {200, 0, 0.0};
  row.native = {40, row.axis.native_must_differ ? 20 : 0, 0.0};
  row.own = {row.axis.fault, row.axis.law, 1, 1, "a case"};
  for (const DeterminismAxis& other : determinism_axes())
    if (other.law != row.axis.law) row.other.push_back({row.axis.fault, other.law, 20, 0, ""});
  return row;
}

AxisKill& against(AxisRow& row, std::string_view axis) {
  return *std::ranges::find(row.other, axis_named(axis).law, &AxisKill::law);
}

TEST(DeterminismAxes, EachHasALawAndAFaultOfFamilyDThatNoOtherHas) {
  std::set<std::string_view> names, laws, faults;
  for (const DeterminismAxis& axis : determinism_axes()) {
    names.insert(axis.name);
    laws.insert(law_named(axis.law).name);
    faults.insert(axis.fault);
    EXPECT_EQ(parse_fault(axis.fault).fault->family, 'D') << axis.fault;
  }
  EXPECT_EQ(names.size(), determinism_axes().size());
  EXPECT_EQ(laws.size(), determinism_axes().size());
  EXPECT_EQ(faults.size(), determinism_axes().size());
}

TEST(AxisRow, AsItMustBeHasNeitherProblemsNorGaps) {
  for (const DeterminismAxis& axis : determinism_axes()) {
    EXPECT_THAT(good_row(axis.name).problems(), IsEmpty()) << axis.name;
    EXPECT_THAT(good_row(axis.name).gaps(), IsEmpty()) << axis.name;
  }
}

TEST(AxisRow, ADifferingBitIsAProblem) {
  AxisRow row = good_row("batch");
  row.bitwise.differing = 1;
  EXPECT_THAT(row.problems(), ElementsAre(HasSubstr("1 of 200 cases differ")));
}

TEST(AxisRow, AFaultThatItsLawDoesNotSeeIsAProblem) {
  AxisRow row = good_row("pipeline parallel");
  row.own.cases = 50;
  row.own.first_kill = 0;
  EXPECT_THAT(row.problems(), ElementsAre("stage_boundary_rounds_residual is not seen in 50 cases"));
}

TEST(AxisRow, NativeMustDifferInHalfTheCasesWhereTheAxisSaysSo) {
  AxisRow free = good_row("TP degree");
  free.native.differing = 19;
  EXPECT_THAT(free.problems(), ElementsAre("native differs in 19 of 40 cases only"));
  AxisRow fixed = good_row("batch");
  fixed.native.differing = 19;
  EXPECT_THAT(fixed.problems(), IsEmpty());
}

TEST(AxisRow, AFaultThatTheLawOfAnotherAxisSeesIsAProblemUnlessThatAxisContainsOthers) {
  AxisRow row = good_row("chunked prefill");
  against(row, "train / rollout").first_kill = 3;
  EXPECT_THAT(row.problems(), IsEmpty());
  against(row, "decoding").first_kill = 3;
  EXPECT_THAT(row.problems(), ElementsAre("blocks_from_chunk_start is also seen by decoding_equals_prefill"));
}

TEST(AxisRow, AColumnWithoutACaseIsAGapAndNoProblem) {
  AxisRow row = good_row("TP degree");
  row.bitwise = {};
  row.native = {};
  row.own.cases = row.own.first_kill = 0;
  EXPECT_THAT(row.problems(), IsEmpty());
  EXPECT_THAT(row.gaps(), ElementsAre("tp_degree_is_invisible decided no case", "native decided no case",
                                      "leaf_from_rank_count acted in no case of tp_degree_is_invisible"));
}

TEST(AxisRow, AProblemFailsASetOfRowsAndAGapLeavesItOpen) {
  AxisRow wrong = good_row("batch"), open = good_row("decoding");
  wrong.bitwise.differing = 1;
  open.native = {};
  EXPECT_EQ(exit_code_of({good_row("batch"), good_row("decoding")}), 0);
  EXPECT_EQ(exit_code_of({good_row("batch"), open}), 3);
  EXPECT_EQ(exit_code_of({open, wrong}), 1);
}

AxisOptions few_cases() {
  AxisOptions options;
  options.seed = 5;
  options.native_cases = 6;
  options.other_cases = 3;
  options.only = {"chunked prefill", "TP degree"};
  return options;
}

/// The law's own column from outside, so that no law runs its smoke cases.
std::vector<LawReport> reports_of(std::int64_t passed, std::int64_t failed) {
  std::vector<LawReport> reports;
  for (const DeterminismAxis& axis : determinism_axes()) {
    LawReport& report = reports.emplace_back();
    report.name = axis.law;
    report.passed = passed;
    report.failed = failed;
    report.worst_deviation = failed > 0 ? 0.5 : 0.0;
  }
  return reports;
}

std::string text_of(const std::vector<AxisRow>& rows) {
  std::string text;
  const auto add = [&](const AxisKill& kill) {
    text += std::string(kill.fault) + " " + std::string(kill.law) + " " + std::to_string(kill.cases) + " " +
            std::to_string(kill.first_kill) + " " + kill.killing_case + "\n";
  };
  for (const AxisRow& row : rows) {
    text += std::string(row.axis.name) + " " + std::to_string(row.native.cases) + " " +
            std::to_string(row.native.differing) + " " + testing::PrintToString(row.native.worst) + "\n";
    add(row.own);
    for (const AxisKill& kill : row.other) add(kill);
  }
  return text;
}

TEST(MeasureAxes, IsDeterminedByTheSeedAndNotByTheJobs) {
  AxisOptions options = few_cases();
  const std::string one = text_of(measure_axes(options, reports_of(9, 0)));
  EXPECT_EQ(text_of(measure_axes(options, reports_of(9, 0))), one);
  options.jobs = 3;
  EXPECT_EQ(text_of(measure_axes(options, reports_of(9, 0))), one);
  options.seed = 6;
  EXPECT_NE(text_of(measure_axes(options, reports_of(9, 0))), one);
}

TEST(MeasureAxes, TakesTheBitwiseColumnFromReportsOfLawsThatRan) {
  AxisOptions options = few_cases();
  options.other_cases = 0;
  std::vector<std::string> told;
  options.progress = [&](const ProgressEvent& event) { told.push_back(event.text); };
  const std::vector<AxisRow> rows = measure_axes(options, reports_of(9, 1));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].axis.name, "chunked prefill");
  EXPECT_EQ(rows[1].axis.name, "TP degree");
  for (const AxisRow& row : rows) {
    EXPECT_EQ(row.bitwise.cases, 10);
    EXPECT_EQ(row.bitwise.differing, 1);
    EXPECT_EQ(row.bitwise.worst, 0.5);
    EXPECT_THAT(row.other, IsEmpty()) << "not asked";
  }
  EXPECT_THAT(told, ElementsAre("axis chunked prefill", "axis TP degree"));
}

TEST(MeasureAxes, TheKillingCaseFailsItsLawAndPassesWithoutTheFault) {
  AxisOptions options = few_cases();
  options.other_cases = 0;
  for (const AxisRow& row : measure_axes(options, reports_of(9, 0))) {
    ASSERT_GT(row.own.first_kill, 0);
    Case c = parse_case(row.own.killing_case);
    EXPECT_EQ(check_case(law_named(row.axis.law), c).verdict, Verdict::failed) << row.own.killing_case;
    c.fault.clear();
    EXPECT_EQ(check_case(law_named(row.axis.law), c).verdict, Verdict::passed) << row.own.killing_case;
  }
}

// Having one axis does not give another.
TEST(MeasureAxes, EveryFaultIsSeenByItsOwnLawAndByNoOther) {
  AxisOptions options;
  options.seed = 20240607;
  options.native_cases = 40;
  options.other_cases = 20;
  options.jobs = 2;
  const std::vector<AxisRow> rows = measure_axes(options, reports_of(1, 0));
  ASSERT_EQ(rows.size(), determinism_axes().size());
  for (const AxisRow& row : rows) {
    EXPECT_THAT(row.problems(), IsEmpty()) << row.axis.name;
    EXPECT_THAT(row.gaps(), IsEmpty()) << row.axis.name;
    EXPECT_EQ(row.other.size(), rows.size() - 1) << row.axis.name;
  }
}

}  // namespace
}  // namespace shardcheck
