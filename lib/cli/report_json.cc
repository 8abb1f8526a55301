#include "report_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "exit_code.h"
#include "options.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/tolerance/floor.h"
#include "terminal.h"
#include "text_report.h"

namespace shardcheck {
namespace {

using nlohmann::ordered_json;

ordered_json difference_json(const std::optional<Difference>& difference) {
  if (!difference) return nullptr;
  const Difference& d = *difference;
  return {{"parameter", d.parameter},
          {"source_degree", d.source_degree},
          {"target_degree", d.target_degree},
          {"rank", d.rank},
          {"max_abs", d.max_abs},
          {"threshold", d.threshold},
          {"worst_index", d.worst_index},
          {"worst_place", d.worst_place},
          {"expected", d.expected},
          {"actual", d.actual}};
}

ordered_json invariants_json(const std::optional<InvariantReport>& report) {
  ordered_json list = ordered_json::array();
  if (!report) return list;
  for (const InvariantCell& cell : report->cells) {
    const auto when_judged = [&](const auto& value) {
      return cell.judged() ? ordered_json(value) : ordered_json(nullptr);
    };
    list.push_back({{"config", cell.config},
                    {"source_degree", cell.source_degree},
                    {"target_degree", cell.target_degree},
                    {"not_applicable", cell.not_applicable},
                    {"max_deviation", when_judged(cell.max_deviation)},
                    {"max_ulp", when_judged(cell.max_ulp)},
                    {"threshold", cell.threshold},
                    {"native_holds", when_judged(cell.native_holds)},
                    {"verdict", to_string(cell.verdict())},
                    {"tree_holds", when_judged(cell.tree_holds)},
                    {"message", cell.message},
                    {"difference", difference_json(cell.difference)},
                    {"replay", replay_command(print_case(cell.value))}});
  }
  return list;
}

ordered_json failure_json(const std::optional<Failure>& failure) {
  if (!failure) return nullptr;
  const std::string minimal = print_case(failure->minimal);
  return {{"original_case", print_case(failure->original)},
          {"minimal_case", minimal},
          {"irrelevant_keys", failure->irrelevant},
          {"shrink_steps", failure->shrink_steps},
          {"nondeterministic", failure->nondeterministic},
          {"message", failure->outcome.message},
          {"difference", difference_json(failure->outcome.difference)},
          {"replay", replay_command(minimal)}};
}

ordered_json law_json(const LawReport& report) {
  return {{"name", report.name},
          {"claim", report.claim},
          {"verdict", report.verdict == Verdict::vacuous ? "inconclusive" : to_string(report.verdict)},
          {"cases", report.cases},
          {"passed", report.passed},
          {"failed", report.failed},
          {"vacuous", report.vacuous},
          {"mistrusted", report.mistrusted},
          {"skipped", report.skipped},
          {"timeouts", report.timeouts},
          {"errors", report.errors},
          {"seconds", report.seconds},
          {"labels", report.labels},
          {"worst_deviation", report.worst_deviation},
          {"worst_share_of_threshold", report.worst_share_of_threshold},
          {"health", report.health},
          {"first_failure", failure_json(report.failure)}};
}

ordered_json axis_count_json(const AxisCount& count) {
  return {{"cases", count.cases}, {"differing", count.differing}, {"worst", count.worst}};
}

ordered_json axis_kill_json(const AxisKill& kill) {
  return {{"law", kill.law},
          {"cases", kill.cases},
          {"cases_to_first_kill", kill.first_kill},
          {"first_killing_case", kill.killing_case}};
}

ordered_json axes_json(const std::vector<AxisRow>& rows) {
  ordered_json list = ordered_json::array();
  for (const AxisRow& row : rows) {
    ordered_json others = ordered_json::array();
    for (const AxisKill& kill : row.other) others.push_back(axis_kill_json(kill));
    list.push_back({{"axis", row.axis.name},
                    {"law", row.axis.law},
                    {"fault", row.axis.fault},
                    {"native_is_fixed", row.axis.native_is_fixed},
                    {"native_must_differ", row.axis.native_must_differ},
                    {"bitwise", axis_count_json(row.bitwise)},
                    {"native", axis_count_json(row.native)},
                    {"own_law", axis_kill_json(row.own)},
                    {"other_laws", others},
                    {"problems", row.problems()},
                    {"gaps", row.gaps()}});
  }
  return list;
}

ordered_json kill_row_json(const KillRow& row) {
  return {{"fault", row.fault},
          {"family", std::string(1, row.family)},
          {"oracle", row.law.empty() ? to_string(row.oracle) : "law"},
          {"law", row.law.empty() ? ordered_json(nullptr) : ordered_json(row.law)},
          {"expected", row.expected},
          {"relabel_control", row.relabel_control},
          {"applicable", applicable_of(row)},
          {"killed", count_of(row, CellStatus::killed)},
          {"survived", count_of(row, CellStatus::survived)},
          {"equivalent", count_of(row, CellStatus::equivalent)},
          {"relabelled", count_of(row, CellStatus::relabelled)},
          {"witness", row.witness},
          {"vacuous", count_of(row, CellStatus::vacuous)},
          {"not_applicable", count_of(row, CellStatus::not_applicable)},
          {"timeouts", count_of(row, CellStatus::timeout)},
          {"errors", count_of(row, CellStatus::error)},
          {"weakest_deviation", row.weakest_deviation},
          {"strongest_deviation", row.strongest_deviation},
          {"weakest_margin", row.weakest_margin},
          {"strongest_margin", row.strongest_margin},
          {"cases_to_first_kill", row.cases_to_first_kill},
          {"first_killing_case", row.first_killing_case}};
}

ordered_json kill_json(const std::optional<KillReport>& report) {
  if (!report) return nullptr;
  ordered_json rows = ordered_json::array(), families = ordered_json::array();
  for (const KillRow& row : report->rows) rows.push_back(kill_row_json(row));
  for (const auto& [family, score] : report->score_by_family)
    families.push_back({{"family", std::string(1, family)}, {"name", family_name(family)}, {"score", score}});
  ordered_json unjudged = ordered_json::array();
  for (const UnjudgedFault& fault : report->without_evidence)
    unjudged.push_back({{"fault", fault.fault}, {"reason", fault.reason}});
  ordered_json by_law = ordered_json::array();
  for (const auto& [fault, law] : report->judged_by_law) by_law.push_back({{"fault", fault}, {"law", law}});
  return {{"score", report->score_by_family.empty() ? ordered_json(nullptr) : ordered_json(report->score())},
          {"score_by_family", families},
          {"rows", rows},
          {"baseline_failures", report->baseline_failures},
          {"survivors", report->survivors},
          {"false_alarms", report->false_alarms},
          {"median_cases_to_first_kill", report->median_cases_to_first_kill()},
          {"without_evidence", unjudged},
          {"judged_by_law", by_law}};
}

ordered_json replays_json(const std::vector<Replay>& replays) {
  ordered_json list = ordered_json::array();
  for (const Replay& replay : replays) {
    ordered_json item = {{"origin", replay.origin}, {"case", replay.case_line}};
    item["verdict"] =
        replay.invalid.empty() ? ordered_json(to_string(replay.outcome.verdict)) : ordered_json(nullptr);
    item["recorded"] = replay.recorded ? ordered_json(to_string(*replay.recorded)) : ordered_json(nullptr);
    item["message"] = replay.invalid.empty() ? replay.outcome.message : replay.invalid;
    item["difference"] = difference_json(replay.outcome.difference);
    item["seconds"] = replay.seconds;
    item["exit_code"] = replay.exit_code();
    list.push_back(std::move(item));
  }
  return list;
}

ordered_json degree_json(const DegreeCheck& check) {
  ordered_json differences = ordered_json::array();
  for (const ShardDifference& d : check.differences)
    differences.push_back({{"parameter", d.parameter}, {"rank", d.rank}, {"detail", d.detail}});
  return {{"degree", check.degree},
          {"deviation", check.deviation},
          {"threshold", check.threshold},
          {"threshold_source", check.threshold_source},
          {"native_holds", check.native_holds},
          {"tree_differing", check.tree_differing},
          {"shards", check.shards.string()},
          {"refused", check.refused},
          {"differences", differences},
          {"verdict", to_string(check.verdict())},
          {"holds", check.holds()}};
}

ordered_json verification_json(const std::optional<Verification>& verification) {
  if (!verification) return nullptr;
  const Verification& v = *verification;
  ordered_json degrees = ordered_json::array();
  for (const DegreeCheck& check : v.degrees) degrees.push_back(degree_json(check));
  ordered_json golden = nullptr;
  if (v.golden)
    golden = {{"max_difference", v.golden->max_difference},
              {"tolerance", kGoldenTolerance},
              {"positions", v.golden->positions},
              {"tokens", v.golden->tokens},
              {"tokens_reproduced", v.golden->tokens_reproduced},
              {"verdict", to_string(v.golden->verdict())},
              {"holds", v.golden->holds()}};
  return {{"folder", v.folder.string()},
          {"model_type", v.model_type},
          {"geometry", to_string(v.geometry)},
          {"dtype", short_name(v.dtype)},
          {"parameters", v.parameters},
          {"layout", v.layout},
          {"contract", v.contract.text()},
          {"contract_hash", fmt::format("{:016x}", v.contract.hash())},
          {"tokens", v.tokens},
          {"golden", golden},
          {"degrees", degrees}};
}

}  // namespace

std::string verdict_word(int exit_code) {
  switch (exit_code) {
    case 0:
      return "passed";
    case 1:
      return "failed";
    case 2:
      return "invalid";
    case 3:
      return "inconclusive";
    default:
      return "error";
  }
}

std::string painted_verdict(int exit_code) {
  std::string word = verdict_word(exit_code);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
  const Tone tone = exit_code == kPassed         ? Tone::good
                    : exit_code == kInconclusive ? Tone::doubtful
                                                 : Tone::bad;
  return paint(tone, word);
}

std::string build_commit() {
  const auto environment = this_environment();
  const auto it = environment.find("commit");
  return it == environment.end() || it->second.empty() ? "unknown" : it->second;
}

std::string to_json(const Report& report) {
  ordered_json laws = ordered_json::array();
  for (const LawReport& law : report.laws) laws.push_back(law_json(law));
  const ordered_json document = {{"format", kReportFormat},
                                 {"command", report.command},
                                 {"arguments", report.arguments},
                                 {"version", SHARDCHECK_VERSION},
                                 {"commit", build_commit()},
                                 {"seed", report.seed},
                                 {"environment", this_environment()},
                                 {"invariants", invariants_json(report.invariants)},
                                 {"laws", laws},
                                 {"axes", axes_json(report.axes)},
                                 {"kill_matrix", kill_json(report.kill)},
                                 {"replays", replays_json(report.replays)},
                                 {"verification", verification_json(report.verification)},
                                 {"seconds", report.seconds},
                                 {"verdict", verdict_word(report.exit_code)},
                                 {"exit_code", report.exit_code}};
  // Arguments and messages may hold bytes that are no UTF-8: replace them rather than fail.
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void write_json_reports(const Report& report, const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& file : files) write_text_atomically(file, to_json(report));
}

}  // namespace shardcheck
