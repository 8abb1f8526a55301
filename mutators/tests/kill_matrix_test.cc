#include "shardcheck/mutators/kill_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>

#include "random_cases.h"

namespace shardcheck {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Eq;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using Injection = std::shared_ptr<Subject> (*)(std::shared_ptr<Subject>, const Case&, std::string_view);
using Reason = std::optional<std::string> (*)(const Case&, std::string_view);

std::optional<std::string> never(const Case&, std::string_view) { return std::nullopt; }
std::optional<std::string> always(const Case&, std::string_view) { return "because the test says so"; }

std::shared_ptr<Subject> nothing(std::shared_ptr<Subject> inner, const Case&, std::string_view) {
  return inner;
}

/// Damages what is delivered.
template <void (*damage)(ShardedTensors&)>
std::shared_ptr<Subject> damaged(std::shared_ptr<Subject> inner, const Case&, std::string_view) {
  class Damaged final : public SubjectDecorator {
   public:
    using SubjectDecorator::SubjectDecorator;
    ShardedTensors reshard(const ShardedTensors& shards, const Layout& s, const Layout& t) override {
      ShardedTensors delivered = inner().reshard(shards, s, t);
      damage(delivered);
      return delivered;
    }
  };
  return std::make_shared<Damaged>(std::move(inner));
}

void zero_a_down(ShardedTensors& shards) {
  Tensor& shard = shards.at("layers.0.down").front();
  shard = Tensor::zeros(shard.dtype(), shard.shape());
}
void lose_a_row(ShardedTensors& shards) {
  Tensor& shard = shards.at("embed").front();
  shard = shard.rows(0, shard.dim(0) - 1);
}
void lose_a_tensor(ShardedTensors& shards) { shards.erase("embed"); }

// The signature is that of Fault::inject.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
std::shared_ptr<Subject> raises(std::shared_ptr<Subject>, const Case&, std::string_view) {
  throw std::runtime_error("the fault is broken");
}

Fault made(std::string_view name, FaultFamily family, Injection inject, Reason not_applicable = never,
           Reason equivalent = nullptr) {
  return {.name = name,
          .family = family,
          .level = FaultLevel::value,
          .claim = "Made for a test.",
          .reports = {},
          .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
          .arguments = {},
          .not_applicable = not_applicable,
          .equivalent = equivalent,
          .inject = inject};
}

template <typename Reasoned>
auto unjudged(const char* fault, Reasoned reason) {
  return AllOf(Field(&UnjudgedFault::fault, fault), Field(&UnjudgedFault::reason, reason));
}

const Fault kKilled = made("killed", 'A', damaged<zero_a_down>);
const Fault kSurvivor = made("survivor", 'B', nothing);

KillReport run(const std::vector<const Fault*>& faults,
               std::vector<Case> cases = {hand_picked("seed", "seed:tp2")},
               std::vector<Oracle> oracles = {Oracle::layout, Oracle::tree, Oracle::native}) {
  KillOptions options;
  options.oracles = std::move(oracles);
  for (const Fault* fault : faults) options.faults.push_back({fault, ""});
  options.cases = std::move(cases);
  return run_kill_matrix(options);
}

/// The one status of all cells.
CellStatus status_of(const KillReport& report) {
  EXPECT_EQ(report.cells.size(), 3U);
  for (const KillCell& cell : report.cells)
    EXPECT_EQ(cell.status, report.cells.front().status) << cell.message;
  return report.cells.front().status;
}

TEST(KillMatrixStatus, Killed) {
  const KillReport report = run({&kKilled});
  EXPECT_EQ(status_of(report), CellStatus::killed);
  EXPECT_TRUE(report.passed());
  EXPECT_THAT(report.survivors, IsEmpty());
}

TEST(KillMatrixStatus, Survived) {
  const KillReport report = run({&kSurvivor});
  EXPECT_EQ(status_of(report), CellStatus::survived);
  EXPECT_EQ(report.score(), 0.0);
  EXPECT_FALSE(report.passed());
  ASSERT_EQ(report.survivors.size(), 3U);
  EXPECT_EQ(report.survivors.front(),
            "survivor survives under layout: " + print_case(hand_picked("seed", "seed:tp2")));
}

TEST(KillMatrixStatus, EquivalentNeedsAWitness) {
  const Fault fault = made("relabel", 'A', nothing, never, always);
  const KillReport report = run({&fault});
  EXPECT_EQ(status_of(report), CellStatus::equivalent);
  EXPECT_EQ(report.cells.front().message, "because the test says so");
}

TEST(KillMatrixStatus, AWitnessTheOraclesContradictIsNoEquivalence) {
  const Fault fault = made("false_witness", 'A', damaged<zero_a_down>, never, always);
  EXPECT_EQ(status_of(run({&fault})), CellStatus::killed);
}

TEST(KillMatrixStatus, OneContradictingOracleIsEnough) {
  // No logit depends on an embedding row that is never looked up: only the bytes tell.
  const Fault& poison = *parse_fault("poison_unsampled_embedding_rows").fault;
  const Fault fault = made("half_a_witness", 'A', poison.inject, poison.not_applicable, always);
  const KillReport report = run({&fault});
  ASSERT_EQ(report.cells.size(), 3U);
  EXPECT_EQ(report.cells[0].status, CellStatus::killed);
  EXPECT_EQ(report.cells[1].status, CellStatus::survived);
  EXPECT_EQ(report.cells[2].status, CellStatus::survived);
}

TEST(KillMatrixStatus, AWitnessAboutShardsNeedsEqualBytesWhicheverOracleIsChosen) {
  // Logits cannot see these rows, so no oracle of logits contradicts the false witness.
  const Fault& poison = *parse_fault("poison_unsampled_embedding_rows").fault;
  for (const FaultLevel level : {FaultLevel::value, FaultLevel::plan}) {
    Fault fault = made("unseen", 'A', poison.inject, poison.not_applicable, always);
    fault.level = level;
    for (const Oracle oracle : {Oracle::tree, Oracle::native}) {
      const KillReport report = run({&fault}, {hand_picked("seed", "seed:tp2")}, {oracle});
      ASSERT_EQ(report.cells.size(), 1U);
      EXPECT_EQ(report.cells[0].status, CellStatus::survived) << to_string(oracle);
      EXPECT_FALSE(report.passed());
    }
  }
}

/// One unit in the last place on every norm: far below any threshold.
std::shared_ptr<Subject> nudged(std::shared_ptr<Subject> inner, const Case&, std::string_view) {
  class NudgedNorm final : public ForwardSteps {
    float norm_statistics(const StepSite& site, const float* x, std::int64_t rows, std::int64_t width,
                          float* sums) const override {
      const float divisor = ForwardSteps::norm_statistics(site, x, rows, width, sums);
      return std::nextafter(divisor, 2.0F * divisor);
    }
  };
  class Nudged final : public SubjectDecorator {
   public:
    using SubjectDecorator::SubjectDecorator;
    const ForwardSteps& steps() const override { return steps_; }

   private:
    NudgedNorm steps_;
  };
  return std::make_shared<Nudged>(std::move(inner));
}

TEST(KillMatrixStatus, AWitnessAboutTheForwardPassNeedsEqualTreeLogitsWhicheverOracleIsChosen) {
  for (const FaultLevel level : {FaultLevel::forward, FaultLevel::collective}) {
    Fault wrong = made("nudge", 'A', nudged, never, always);
    Fault right = made("nothing", 'A', nothing, never, always);
    wrong.level = right.level = level;
    const KillReport report = run({&wrong, &right}, {hand_picked("seed", "seed:tp2")}, {Oracle::native});
    ASSERT_EQ(report.cells.size(), 2U);
    for (const KillCell& cell : report.cells) {
      EXPECT_EQ(cell.status, cell.fault == "nudge" ? CellStatus::survived : CellStatus::equivalent)
          << cell.fault;
    }
  }
}

TEST(KillMatrixStatus, NotApplicable) {
  const Fault fault = made("elsewhere", 'A', damaged<zero_a_down>, always);
  const KillReport report = run({&fault});
  EXPECT_EQ(status_of(report), CellStatus::not_applicable);
  EXPECT_THAT(report.score_by_family, IsEmpty());
  EXPECT_EQ(report.score(), 0.0);
  EXPECT_FALSE(report.passed(0.0)) << "nothing was killed, so nothing is proven";
}

TEST(KillMatrixStatus, ACaseThatCannotBeRepresentedIsNotApplicable) {
  const KillReport report = run({&kKilled}, {hand_picked("seed", "seed:tp3")});
  EXPECT_EQ(status_of(report), CellStatus::not_applicable);
  EXPECT_THAT(report.cells.front().message, HasSubstr("3"));
}

TEST(KillMatrixStatus, AFaultThatRaisesIsAnError) {
  const Fault fault = made("broken", 'A', raises);
  const KillReport report = run({&fault});
  EXPECT_EQ(status_of(report), CellStatus::error);
  EXPECT_THAT(report.cells.front().message, HasSubstr("the fault is broken"));
  EXPECT_EQ(report.score(), 0.0);
}

TEST(KillMatrixStatus, AFaultThatChangesAShapeIsAnErrorAndNoKill) {
  const Fault row = made("loses_a_row", 'A', damaged<lose_a_row>);
  EXPECT_EQ(status_of(run({&row})), CellStatus::error);
  const Fault tensor = made("loses_a_tensor", 'A', damaged<lose_a_tensor>);
  EXPECT_EQ(status_of(run({&tensor})), CellStatus::error);
}

TEST(KillMatrixStatus, VacuousOutputsKillNothing) {
  Case c = hand_picked("seed", "seed");
  c.geometry.vocab = 1;
  c.length = 1;
  const KillReport report = run({&kKilled}, {c});
  ASSERT_EQ(report.cells.size(), 3U);
  EXPECT_EQ(report.cells[0].status, CellStatus::killed) << "bytes are never vacuous";
  EXPECT_EQ(report.cells[1].status, CellStatus::vacuous);
  EXPECT_EQ(report.cells[2].status, CellStatus::vacuous);
  EXPECT_NEAR(report.score(), 1.0 / 3, 1e-12);
}

TEST(KillMatrixStatus, ATimeoutIsNoKill) {
  KillOptions options;
  options.oracles = {Oracle::layout, Oracle::tree, Oracle::native};
  options.faults = {{&kKilled, ""}};
  options.cases = {hand_picked("seed", "seed:tp2")};
  options.case_timeout_seconds = 0.0;
  const KillReport report = run_kill_matrix(options);
  EXPECT_EQ(status_of(report), CellStatus::timeout);
  EXPECT_EQ(report.score(), 0.0);
}

TEST(KillMatrixStatus, TheExactOracleJudgesToo) {
  KillOptions options;
  options.faults = {{&kKilled, ""}};
  options.oracles = {Oracle::exact, Oracle::tree};
  options.cases = {hand_picked("seed", "seed:tp2")};
  const KillReport report = run_kill_matrix(options);
  ASSERT_EQ(report.cells.size(), 2U);
  EXPECT_EQ(report.cells[0].status, CellStatus::killed);
  EXPECT_EQ(report.cells[1].status, CellStatus::killed);
}

TEST(KillMatrixStatus, AWitnessAboutTheForwardPassNeedsEqualExactLogitsToo) {
  // exact has no order of sums to change, tree no rounding that exact has: both must agree.
  Fault fault = made("nudge", 'A', nudged, never, always);
  fault.level = FaultLevel::forward;
  const KillReport report = run({&fault}, {hand_picked("seed", "seed:tp2")}, {Oracle::exact, Oracle::layout});
  ASSERT_EQ(report.cells.size(), 2U);
  EXPECT_EQ(report.cells[0].status, CellStatus::killed);
  EXPECT_EQ(report.cells[1].status, CellStatus::survived);
}

TEST(KillMatrixOracles, NativeIsNotAskedAboutModelsOf16Bits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Case c = hand_picked("seed", "seed:tp2");
    c.dtype = dtype;
    const KillReport report = run({&kKilled}, {c}, {Oracle::tree, Oracle::native});
    ASSERT_EQ(report.cells.size(), 2U);
    EXPECT_EQ(report.cells[0].status, CellStatus::killed);
    EXPECT_EQ(report.cells[1].status, CellStatus::not_applicable);
    EXPECT_THAT(report.cells[1].message, HasSubstr("models of f32"));
    EXPECT_TRUE(report.passed());
  }
}

constexpr std::initializer_list<Oracle> kAllOracles = {Oracle::layout, Oracle::exact, Oracle::tree,
                                                       Oracle::native};

/// The one cell of each oracle.
std::map<Oracle, KillCell> by_oracle(const KillReport& report) {
  std::map<Oracle, KillCell> cells;
  for (const KillCell& cell : report.cells) EXPECT_TRUE(cells.emplace(cell.oracle, cell).second);
  return cells;
}

std::optional<Relabelling> no_order_at_all(const Case& c, std::string_view) {
  return in_every_layer(c.geometry, {});
}

/// A control with the injection of one and the witness of another.
Fault control_made_of(std::string_view injection, std::string_view witness) {
  Fault fault = *parse_fault(injection).fault;
  fault.relabels = parse_fault(witness).fault->relabels;
  return fault;
}

TEST(KillMatrixRelabelling, IsNamedByLayoutAndPassesTheOraclesOfLogits) {
  for (const char* name :
       {"relabel_ffn_channels", "relabel_ffn_ranks", "relabel_kv_groups", "relabel_heads_in_group"}) {
    const Fault& control = *parse_fault(name).fault;
    const KillReport report = run({&control}, {hand_picked("seed", "seed:tp2")}, kAllOracles);
    auto cells = by_oracle(report);
    EXPECT_EQ(cells.at(Oracle::layout).status, CellStatus::relabelled) << name;
    EXPECT_EQ(cells.at(Oracle::exact).status, CellStatus::equivalent) << name;
    EXPECT_EQ(cells.at(Oracle::tree).status, CellStatus::not_applicable) << name;
    EXPECT_EQ(cells.at(Oracle::native).status, CellStatus::equivalent) << name;
    const auto witness = control.relabels(hand_picked("seed", "seed:tp2"), "");
    EXPECT_EQ(cells.at(Oracle::layout).message, describe(*witness));
    EXPECT_EQ(report.rows.front().witness, describe(*witness));
    EXPECT_THAT(report.false_alarms, IsEmpty());
    EXPECT_EQ(report.verdict(), Verdict::passed);
    EXPECT_TRUE(report.score_by_family.empty()) << "right is no score";
  }
}

TEST(KillMatrixRelabelling, AWitnessThatTheBytesContradictIsAFalseAlarm) {
  const Fault fault = control_made_of("relabel_ffn_channels", "relabel_ffn_ranks");
  const KillReport report = run({&fault}, {hand_picked("seed", "seed:tp2")}, kAllOracles);
  EXPECT_EQ(by_oracle(report).at(Oracle::layout).status, CellStatus::killed);
  EXPECT_EQ(by_oracle(report).at(Oracle::exact).status, CellStatus::survived);
  EXPECT_EQ(report.false_alarms.size(), 3U);
  EXPECT_EQ(report.verdict(0.0), Verdict::failed);
}

TEST(KillMatrixRelabelling, OneTensorMovedAloneIsNone) {
  const Fault fault = control_made_of("reverse_rank_order", "relabel_ffn_ranks");
  Fault control = fault;
  control.oracles = {};
  control.arguments = {};
  const KillReport report = [&] {
    KillOptions options;
    options.faults = {{&control, "down"}};
    options.cases = {hand_picked("seed", "seed:tp2")};
    return run_kill_matrix(options);
  }();
  for (const Oracle oracle : {Oracle::layout, Oracle::exact, Oracle::native})
    EXPECT_EQ(by_oracle(report).at(oracle).status, CellStatus::killed) << to_string(oracle);
  EXPECT_EQ(report.verdict(), Verdict::failed);
}

TEST(KillMatrixRelabelling, EqualBytesAreEquivalentAndNotRelabelled) {
  Fault fault = made("identity", 'Z', nothing);
  fault.oracles = {};
  fault.relabels = no_order_at_all;
  const KillReport report = run({&fault}, {hand_picked("seed", "seed:tp2")}, {Oracle::layout, Oracle::exact});
  for (const KillCell& cell : report.cells) EXPECT_EQ(cell.status, CellStatus::equivalent);
}

TEST(KillMatrixRelabelling, AFaultThatIsOneOnACaseIsNotScoredThere) {
  Fault fault = *parse_fault("relabel_ffn_ranks").fault;
  fault.family = 'R';
  fault.oracles = {Oracle::layout, Oracle::exact, Oracle::native};
  const KillReport report = run({&kKilled, &fault}, {hand_picked("seed", "seed:tp2")});
  EXPECT_FALSE(report.score_by_family.contains('R'));
  EXPECT_THAT(report.survivors, IsEmpty());
  EXPECT_THAT(report.false_alarms, IsEmpty());
}

TEST(KillMatrixOracles, OnlyDeclaredOnesAreAskedOnRequest) {
  Fault fault = kKilled;
  fault.oracles = {Oracle::tree};
  KillOptions options;
  options.faults = {{&fault, ""}};
  options.cases = {hand_picked("seed", "seed:tp2")};
  options.only_declared = true;
  const KillReport report = run_kill_matrix(options);
  std::vector<Oracle> asked;
  for (const KillRow& row : report.rows) asked.push_back(row.oracle);
  EXPECT_THAT(asked, ElementsAre(Oracle::exact, Oracle::tree));
  EXPECT_EQ(report.cells.size(), 2U);
  EXPECT_TRUE(report.passed());
}

TEST(KillMatrixBaseline, ACaseThatFailsWithoutAFaultIsNotJudged) {
  Case red = hand_picked("seed", "seed:tp2");
  red.geometry.n_kv_heads = 3;  // contradicts the heads
  const KillReport report = run({&kKilled}, {red, hand_picked("seed", "seed:tp2")});
  ASSERT_EQ(report.baseline_failures.size(), 1U);
  EXPECT_THAT(report.baseline_failures.front(), HasSubstr("fails without a fault"));
  EXPECT_THAT(report.baseline_failures.front(), HasSubstr("kv_heads=3"));
  EXPECT_EQ(report.cells.size(), 3U);
  EXPECT_FALSE(report.passed());
}

TEST(KillMatrixScore, IsKilledOverApplicableWithoutEquivalentPerFamily) {
  const Fault also_killed = made("also_killed", 'B', damaged<zero_a_down>);
  const Fault relabel = made("relabel", 'B', nothing, never, always);
  const Fault elsewhere = made("elsewhere", 'B', nothing, always);
  const KillReport report = run({&kKilled, &kSurvivor, &also_killed, &relabel, &elsewhere});
  EXPECT_EQ(report.score_by_family.at('A'), 1.0);
  EXPECT_EQ(report.score_by_family.at('B'), 0.5);
  EXPECT_EQ(report.score(), 0.5) << "the worst family, never the pool";
  EXPECT_FALSE(report.passed(0.5)) << "two faults were judged nowhere";
  const KillReport judged = run({&kKilled, &kSurvivor, &also_killed});
  EXPECT_FALSE(judged.passed());
  EXPECT_TRUE(judged.passed(0.5));
}

TEST(KillMatrixEvidence, AFaultThatWasJudgedNowhereIsNamedAndNeverPassed) {
  const Fault elsewhere = made("elsewhere", 'B', damaged<zero_a_down>, always);
  const Fault relabel = made("relabel", 'B', nothing, never, always);
  const KillReport report = run({&kKilled, &elsewhere, &relabel});
  EXPECT_THAT(report.without_evidence,
              ElementsAre(unjudged("elsewhere", AllOf(HasSubstr("cannot act on 1 of 1 cases"),
                                                      HasSubstr(*always({}, "")))),
                          unjudged("relabel", HasSubstr("changes nothing on 1 of 1 cases"))));
  EXPECT_EQ(report.verdict(), Verdict::vacuous) << "nothing is known, and nothing failed";
  EXPECT_EQ(run({&elsewhere}).verdict(0.0), Verdict::vacuous);
  EXPECT_EQ(run({&kSurvivor, &elsewhere}).verdict(), Verdict::failed) << "a survivor outweighs it";
  EXPECT_FALSE(report.score_by_family.contains('B')) << "no evidence is no score";
  EXPECT_EQ(report.score(), 1.0);
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(run({&kKilled, &kSurvivor}).without_evidence, IsEmpty()) << "a survivor is evidence";
}

TEST(KillMatrixEvidence, OnlyADeclaredOracleGivesIt) {
  Fault fault = kKilled;
  fault.oracles = {Oracle::tree};
  const auto with = [&](Oracle oracle) { return run({&fault}, {hand_picked("seed", "seed:tp2")}, {oracle}); };
  EXPECT_THAT(with(Oracle::layout).without_evidence,
              ElementsAre(unjudged("killed", Eq("layout need not see it"))));
  EXPECT_FALSE(with(Oracle::layout).passed(0.0));
  EXPECT_TRUE(with(Oracle::tree).passed());
}

TEST(KillMatrixEvidence, RecordedCasesAloneLeaveUnevenFaultsWithoutIt) {
  // The recorded vocabularies divide by every recorded degree.
  KillOptions options;
  options.faults = {parse_fault("drop_remainder"), parse_fault("reverse_rank_order:down")};
  options.oracles = {Oracle::layout};
  options.cases = recorded_kill_cases();
  const KillReport report = run_kill_matrix(options);
  EXPECT_THAT(report.without_evidence,
              ElementsAre(unjudged("drop_remainder", HasSubstr("the ranks divide the vocabulary"))));
  EXPECT_FALSE(report.score_by_family.contains('U'));
  EXPECT_FALSE(report.passed());
  options.random_cases = 3;
  options.draw = random_case;
  EXPECT_TRUE(run_kill_matrix(options).passed());
}

TEST(KillMatrixScore, AnOracleThatWasNotDeclaredNeverLowersIt) {
  Fault fault = kSurvivor;
  fault.oracles = {};
  const KillReport report = run({&kKilled, &fault});
  EXPECT_FALSE(report.score_by_family.contains('B'));
  EXPECT_EQ(report.score(), 1.0);
  EXPECT_THAT(report.survivors, IsEmpty());
  for (const KillCell& cell : report.cells) {
    EXPECT_EQ(cell.expected, cell.fault == "killed");
    EXPECT_EQ(cell.status, cell.expected ? CellStatus::killed : CellStatus::survived);
  }
}

TEST(KillMatrixScore, TheControlIsInNoScoreAndMustBeDetected) {
  const Fault seen = made("control", 'Z', damaged<zero_a_down>);
  const KillReport good = run({&kKilled, &seen});
  EXPECT_FALSE(good.score_by_family.contains('Z'));
  EXPECT_TRUE(good.passed());
  EXPECT_TRUE(run({&seen}).passed()) << "a control alone has no score to miss";
  EXPECT_TRUE(run({&seen}).only_controls());
  EXPECT_FALSE(good.only_controls());
  const Fault missed = made("control", 'Z', nothing);
  const KillReport bad = run({&kKilled, &missed});
  EXPECT_EQ(bad.score(), 1.0);
  EXPECT_EQ(bad.verdict(), Verdict::failed);
  EXPECT_EQ(run({&missed}).verdict(0.0), Verdict::failed) << "alone as well";
  const Fault elsewhere = made("elsewhere", 'B', nothing, always);
  EXPECT_EQ(run({&missed, &kKilled, &elsewhere}).verdict(), Verdict::failed);
}

TEST(KillMatrixScore, AControlThatNoOracleJudgedIsNamed) {
  const Fault inert = made("control", 'Z', damaged<zero_a_down>, always);
  EXPECT_THAT(run({&inert}).without_evidence, ElementsAre(unjudged("control", HasSubstr("cannot act"))));
  EXPECT_EQ(run({&inert}).verdict(), Verdict::vacuous);
  EXPECT_EQ(run({&kKilled, &inert}).verdict(), Verdict::vacuous)
      << "it is what shows that faults can be seen";
}

TEST(KillMatrixRows, CountStatusesAndKeepTheWeakestAndStrongestMargin) {
  const KillReport report = run({&kKilled}, {hand_picked("seed", "seed:tp3"), hand_picked("seed", "seed:tp2"),
                                             hand_picked("seed", "seed:tp4")});
  ASSERT_EQ(report.rows.size(), 3U);
  const KillRow& native = report.rows[2];
  EXPECT_EQ(native.oracle, Oracle::native);
  EXPECT_EQ(native.counts.at(CellStatus::killed), 2);
  EXPECT_EQ(native.counts.at(CellStatus::not_applicable), 1);
  EXPECT_EQ(native.cases_to_first_kill, 2) << "the case that it cannot act on was tried";
  EXPECT_EQ(native.first_killing_case, print_case(hand_picked("seed", "seed:tp2")));
  std::vector<double> margins;
  for (const KillCell& cell : report.cells) {
    if (cell.oracle == Oracle::native && cell.status == CellStatus::killed) margins.push_back(cell.margin());
  }
  ASSERT_EQ(margins.size(), 2U);
  EXPECT_EQ(native.weakest_margin, std::ranges::min(margins));
  EXPECT_EQ(native.strongest_margin, std::ranges::max(margins));
  EXPECT_GT(native.weakest_deviation, 0.0);
  EXPECT_EQ(report.rows[0].weakest_margin, 0.0) << "bytes have no threshold";
}

TEST(KillMatrixRows, CountTheCasesUpToTheFirstKill) {
  // Killed at degree 4 alone.
  const auto at_four = [](std::shared_ptr<Subject> inner, const Case& c, std::string_view a) {
    return c.target.tp_degree() == 4 ? damaged<zero_a_down>(std::move(inner), c, a) : inner;
  };
  const Fault fault = made("late", 'A', at_four);
  const KillReport report =
      run({&fault}, {hand_picked("seed", "seed:tp2"), hand_picked("seed:tp2", "seed:tp2"),
                     hand_picked("seed", "seed:tp4")});
  for (const KillRow& row : report.rows) EXPECT_EQ(row.cases_to_first_kill, 3);
  EXPECT_EQ(report.median_cases_to_first_kill(), 3.0);
}

TEST(KillMatrixRows, TheMedianIsOverFaultsAndLeavesOutThoseNeverKilled) {
  KillReport report;
  const auto add = [&](const char* fault, std::int64_t cases) {
    report.rows.emplace_back().fault = fault;
    report.rows.back().cases_to_first_kill = cases;
  };
  EXPECT_EQ(report.median_cases_to_first_kill(), 0.0);
  add("a", 9);
  add("a", 1);
  add("b", 4);
  add("never", 0);
  EXPECT_EQ(report.median_cases_to_first_kill(), 2.5) << "1 under the quicker oracle, and 4";
  add("c", 7);
  EXPECT_EQ(report.median_cases_to_first_kill(), 4.0);
}

TEST(KillMatrixRows, AreOrderedByFamilyFaultAndOracle) {
  KillOptions options;
  options.oracles = {Oracle::layout};
  options.cases = {hand_picked("seed:tp2", "seed:tp4")};
  const KillReport report = run_kill_matrix(options);
  EXPECT_TRUE(
      std::ranges::is_sorted(report.rows, {}, [](const KillRow& r) { return std::pair(r.family, r.fault); }));
  std::size_t choices = 0, by_law = 0;
  for (const Fault* fault : all_faults())
    (fault->law.empty() ? choices : by_law) += std::max<std::size_t>(1, fault->arguments.size());
  EXPECT_EQ(report.rows.size(), choices) << "all faults an oracle can see, with every legal argument";
  EXPECT_EQ(report.judged_by_law.size(), by_law);
}

/// Draws of which no two are alike.
Case numbered_case(std::uint64_t index) {
  Case c = hand_picked("seed", "seed:tp2");
  c.seed = index;
  return c;
}

TEST(KillMatrixRandomCases, AreDrawnUntilEnoughApply) {
  // Applies to every third draw.
  const Fault fault = made("picky", 'A', damaged<zero_a_down>, [](const Case& c, std::string_view) {
    return c.seed % 3 == 0 ? std::nullopt : std::optional<std::string>("not this one");
  });
  KillOptions options;
  options.faults = {{&fault, ""}};
  options.oracles = {Oracle::layout};
  options.random_cases = 4;
  options.draw = numbered_case;
  const KillReport report = run_kill_matrix(options);
  EXPECT_EQ(report.cells.size(), 4U);
  for (const KillCell& cell : report.cells) EXPECT_EQ(cell.config, "random");
}

TEST(KillMatrixRandomCases, FewerThanWereAskedForAreNoPass) {
  const Fault rare = made("rare", 'A', damaged<zero_a_down>, [](const Case& c, std::string_view) {
    return c.seed < 2 ? std::nullopt : std::optional<std::string>("not this one");
  });
  KillOptions options;
  options.faults = {{&rare, ""}};
  options.oracles = {Oracle::layout};
  options.random_cases = 3;
  options.draw = numbered_case;
  const KillReport report = run_kill_matrix(options);
  EXPECT_EQ(report.score(), 1.0);
  EXPECT_THAT(report.without_evidence,
              ElementsAre(unjudged("rare", Eq("acts on 2 random cases, 3 were asked for"))));
  EXPECT_EQ(report.verdict(), Verdict::vacuous);
  options.random_cases = 2;
  EXPECT_TRUE(run_kill_matrix(options).passed());
}

TEST(KillMatrixRandomCases, OfOneFaultAreAllDifferent) {
  // Two forms that are moved alike, and each draw is a new one.
  Fault fault = made("forms", 'A', damaged<zero_a_down>, [](const Case& c, std::string_view) {
    return c.target.tp_degree() == 4 ? std::nullopt : std::optional<std::string>("not at four ranks");
  });
  fault.arguments = {"one", "two"};
  fault.steer = [](Case& c, Stream&) { c.target = parse_layout_name("seed:tp4"); };
  KillOptions options;
  options.faults = choices_of(fault);
  options.oracles = {Oracle::layout};
  options.random_cases = 4;
  options.draw = numbered_case;
  std::map<std::string, std::set<std::string>> lines;
  for (const KillCell& cell : run_kill_matrix(options).cells) lines[cell.fault].insert(cell.case_line);
  EXPECT_EQ(lines.size(), 2U);
  for (const auto& [form, cases] : lines) EXPECT_EQ(cases.size(), 4U) << form;
}

TEST(KillMatrixRandomCases, OfAFaultThatNoOracleSeesAreJudgedByItsLaw) {
  Fault fault = made("unseen", 'D', nothing);
  fault.oracles = {};
  fault.law = "some_law";
  KillOptions options;
  options.faults = {{&kKilled, ""}, {&fault, ""}};
  options.oracles = {Oracle::layout};
  options.random_cases = 2;
  options.draw = numbered_case;
  options.by_law = [](const FaultChoice& choice, std::int64_t cases) {
    LawCells judged;
    for (std::int64_t i = 1; i <= cases; ++i) {
      KillCell& cell = judged.cells.emplace_back();
      cell.fault = choice.text();
      cell.family = choice.fault->family;
      cell.law = choice.fault->law;
      cell.case_line = "case " + std::to_string(i);
      cell.case_number = i;
      cell.status = i == 1 ? CellStatus::killed : CellStatus::survived;
    }
    return judged;
  };
  const KillReport report = run_kill_matrix(options);
  EXPECT_EQ(report.score_by_family.at('D'), 0.5);
  EXPECT_THAT(report.survivors, ElementsAre("unseen survives under some_law: case 2"));
  EXPECT_EQ(report.verdict(), Verdict::failed);
  ASSERT_EQ(report.rows.size(), 2U);
  EXPECT_EQ(report.rows[1].judge(), "some_law");
  EXPECT_EQ(report.rows[1].cases_to_first_kill, 1);
}

TEST(KillMatrixRandomCases, StopAfterTwentyDrawsForEachWantedCaseAndFourHundredAtLeast) {
  const Fault fault = made("nowhere", 'A', damaged<zero_a_down>, always);
  std::uint64_t drawn = 0;
  KillOptions options;
  options.faults = {{&fault, ""}};
  options.draw = [&](std::uint64_t) {
    ++drawn;
    return hand_picked("seed", "seed:tp2");
  };
  for (const auto& [cases, draws] : {std::pair{3, 400U}, {30, 600U}}) {
    drawn = 0;
    options.random_cases = cases;
    EXPECT_THAT(run_kill_matrix(options).cells, IsEmpty());
    EXPECT_EQ(drawn, draws);
  }
}

TEST(KillMatrixRandomCases, AreMovedTowardAFaultThatTheyDoNotSuit) {
  Fault fault = made("rare", 'A', damaged<zero_a_down>, [](const Case& c, std::string_view) {
    return c.target.tp_degree() == 4 ? std::nullopt : std::optional<std::string>("not at four ranks");
  });
  fault.steer = [](Case& c, Stream& stream) {
    if (stream.chance(1, 2)) c.target = parse_layout_name("seed:tp4");
  };
  KillOptions options;
  options.faults = {{&kKilled, ""}, {&fault, ""}};
  options.oracles = {Oracle::layout};
  options.random_cases = 5;
  options.draw = numbered_case;
  const KillReport report = run_kill_matrix(options);
  std::vector<std::string> steered;
  for (const KillCell& cell : report.cells) {
    const bool moved = cell.case_line.find("target=seed:tp4") != std::string::npos;
    EXPECT_EQ(moved, cell.fault == "rare") << "what suits stays as it was drawn";
    if (moved) steered.push_back(cell.case_line);
  }
  EXPECT_EQ(steered.size(), 5U);
  EXPECT_EQ(report.cells.size(), 10U);
  std::vector<std::string> again;
  for (const KillCell& cell : run_kill_matrix(options).cells)
    if (cell.fault == "rare") again.push_back(cell.case_line);
  EXPECT_EQ(again, steered) << "one stream per fault and draw";
}

TEST(KillMatrixRandomCases, OfAFaultThatLogitsAloneShowHaveAForwardPass) {
  Fault fault = made("logits", 'A', damaged<zero_a_down>);
  fault.oracles = {Oracle::tree};
  KillOptions options;
  options.faults = {{&fault, ""}};
  options.oracles = {Oracle::tree};
  options.random_cases = 4;
  options.draw = [](std::uint64_t index) {
    return hand_picked("seed", index % 2 == 0 ? "deepspeed-autotp:tp2" : "seed:tp2");
  };
  const KillReport report = run_kill_matrix(options);
  EXPECT_EQ(report.cells.size(), 4U);
  for (const KillCell& cell : report.cells) EXPECT_EQ(cell.status, CellStatus::killed) << cell.message;
}

TEST(KillMatrixRandomCases, ThatAFaultIsMovedToServeTheOthersToo) {
  const auto at_four = [](const Case& c, std::string_view) {
    return c.target.tp_degree() == 4 ? std::nullopt : std::optional<std::string>("not at four ranks");
  };
  Fault mover = made("mover", 'A', damaged<zero_a_down>, at_four);
  Fault rider = made("rider", 'A', damaged<zero_a_down>, at_four);
  mover.steer = [](Case& c, Stream&) { c.target = parse_layout_name("seed:tp4"); };
  KillOptions options;
  options.faults = {{&mover, ""}, {&rider, ""}};
  options.oracles = {Oracle::layout};
  options.random_cases = 2;
  options.draw = numbered_case;
  EXPECT_TRUE(run_kill_matrix(options).passed());
}

TEST(KillMatrix, TheNumberOfThreadsIsInvisible) {
  const auto cells_with = [](int jobs) {
    KillOptions options;
    options.random_cases = 2;
    options.draw = random_case;
    options.jobs = jobs;
    std::vector<std::string> lines;
    for (const KillCell& cell : run_kill_matrix(options).cells) {
      lines.push_back(cell.fault + "|" + std::string(to_string(cell.oracle)) + "|" + cell.case_line + "|" +
                      std::string(to_string(cell.status)) + "|" + std::to_string(cell.deviation) + "|" +
                      cell.message);
    }
    return lines;
  };
  EXPECT_EQ(cells_with(1), cells_with(3));
}

}  // namespace
}  // namespace shardcheck
