#include "text_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "shardcheck/mutators/seed_figures.h"
#include "terminal.h"

namespace shardcheck {
namespace {

Tone tone_of(Verdict verdict) {
  if (verdict == Verdict::passed) return Tone::good;
  return verdict == Verdict::failed || verdict == Verdict::error ? Tone::bad : Tone::doubtful;
}

Cell native_cell(const InvariantCell& cell) {
  if (!cell.native_holds) return Cell("FAILS", Tone::bad);
  return cell.mistrusted.empty() ? Cell("holds", Tone::good) : Cell("MISTRUSTED", Tone::doubtful);
}

/// The commonest labels with their shares, as many as fit.
std::string labels_summary(const LawReport& report, std::size_t width) {
  std::vector<std::pair<std::int64_t, std::string>> labels;
  for (const auto& [label, count] : report.labels) labels.emplace_back(count, label);
  std::stable_sort(labels.begin(), labels.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::string text;
  for (const auto& [count, label] : labels) {
    const double share =
        static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(report.cases, 1));
    const std::string item = fmt::format("{}{} {:.0f}%", text.empty() ? "" : ", ", label, share * 100.0);
    if (text.size() + item.size() > width) break;
    text += item;
  }
  return text;
}

/// What became of the cases that neither passed nor failed: "3 skipped, 1 vacuous".
std::string undecided_summary(const LawReport& report) {
  std::vector<std::string> parts;
  const auto add = [&](std::int64_t count, std::string_view what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", format_count(count), what));
  };
  add(report.failed, "failed");
  add(report.errors, "errors");
  add(report.timeouts, "timed out");
  add(report.vacuous, "vacuous");
  add(report.mistrusted, "mistrusted");
  add(report.skipped, "skipped");
  return join(parts, ", ");
}

std::string verdict_text(Verdict verdict) {
  return verdict == Verdict::vacuous ? "inconclusive" : std::string(to_string(verdict));
}

std::string deviation_range(double low, double high) {
  if (high <= 0.0) return "";
  const std::string from = format_deviation(low), to = format_deviation(high);
  return from == to ? from : fmt::format("{} - {}", from, to);
}

std::string multiple_range(double low, double high) {
  if (high <= 0.0) return "";
  const std::string from = format_multiple(low), to = format_multiple(high);
  return from == to ? from : fmt::format("{} - {}", from.substr(0, from.size() - 1), to);
}

std::string published_text(std::string_view fault) {
  for (const SeedFigure& figure : seed_figures())
    if (figure.fault == fault)
      return fmt::format("{:.3f} - {:.3f}, {} - {}x", figure.lowest, figure.highest, figure.lowest_multiple,
                         figure.highest_multiple);
  return "";
}

/// "12 relabelled" under layout, "12 equal" under the oracles of logits; "1 flagged" in red.
Cell relabel_cell(const KillRow& row) {
  const std::int64_t flagged = applicable_of(row) - count_of(row, CellStatus::vacuous);
  if (flagged > 0) return Cell(format_count(flagged) + " flagged", Tone::bad);
  if (recognised_in(row) == 0) return Cell("-", Tone::faint);
  const std::string_view what = row.oracle == Oracle::layout ? " relabelled" : " equal";
  return Cell(format_count(recognised_in(row)) + std::string(what), Tone::good);
}

/// "12/12", "11/12" in red, "(3/12)" when the judge, an oracle or the law, is not required to see the fault.
Cell judge_cell(const FaultSummary& summary, std::optional<Oracle> oracle) {
  for (const KillRow* row : summary.rows) {
    const bool is_asked = oracle ? row->law.empty() && row->oracle == *oracle : !row->law.empty();
    if (!is_asked) continue;
    if (row->relabel_control) return relabel_cell(*row);
    const std::int64_t killed = count_of(*row, CellStatus::killed);
    const std::int64_t applicable = applicable_of(*row);
    const std::string text = fmt::format("{}/{}", format_count(killed), format_count(applicable));
    if (!row->expected) return Cell("(" + text + ")", Tone::faint);
    if (applicable == 0) return Cell("-", Tone::doubtful);
    return Cell(text, killed == applicable ? Tone::good : Tone::bad);
  }
  return Cell("");
}

/// The weakest margin over every killed cell with a threshold: "153x".
std::string weakest_margin_text(const FaultSummary& summary) {
  double weakest = 0.0;
  for (const KillRow* row : summary.rows)
    if (row->weakest_margin > 0.0)
      weakest = weakest == 0.0 ? row->weakest_margin : std::min(weakest, row->weakest_margin);
  return weakest > 0.0 ? format_multiple(weakest) : "";
}

/// The case that killed it first under any oracle.
std::string first_kill_text(const FaultSummary& summary) {
  std::int64_t first = 0;
  for (const KillRow* row : summary.rows)
    if (row->cases_to_first_kill > 0)
      first = first == 0 ? row->cases_to_first_kill : std::min(first, row->cases_to_first_kill);
  return first > 0 && !summary.relabel_control() ? format_count(first) : "";
}

constexpr std::size_t kMaxWitness = 60;

std::string shortened(const std::string& witness) {
  return witness.size() <= kMaxWitness ? witness : witness.substr(0, kMaxWitness) + "...";
}

std::string row_notes(const FaultSummary& summary) {
  for (const KillRow* row : summary.rows) {
    if (!row->witness.empty()) return shortened(row->witness);
  }
  std::map<CellStatus, std::int64_t> total;
  for (const KillRow* row : summary.rows)
    for (const auto& [status, count] : row->counts)
      if (status != CellStatus::survived || row->expected) total[status] += count;
  std::vector<std::string> parts;
  if (!summary.rows.front()->law.empty()) parts.push_back("law " + summary.rows.front()->law);
  for (const CellStatus status : {CellStatus::survived, CellStatus::equivalent, CellStatus::vacuous,
                                  CellStatus::timeout, CellStatus::error})
    if (total[status] > 0)
      parts.push_back(fmt::format("{} {}", format_count(total[status]), to_string(status)));
  return join(parts, ", ");
}

std::vector<Oracle> oracles_of(const KillReport& report) {
  std::vector<Oracle> oracles;
  for (const KillRow& row : report.rows)
    if (row.law.empty() && std::find(oracles.begin(), oracles.end(), row.oracle) == oracles.end())
      oracles.push_back(row.oracle);
  std::sort(oracles.begin(), oracles.end());
  return oracles;
}

}  // namespace

std::int64_t count_of(const KillRow& row, CellStatus status) {
  const auto it = row.counts.find(status);
  return it == row.counts.end() ? 0 : it->second;
}

std::int64_t recognised_in(const KillRow& row) {
  return count_of(row, CellStatus::relabelled) + count_of(row, CellStatus::equivalent);
}

std::int64_t applicable_of(const KillRow& row) {
  std::int64_t count = 0;
  for (const CellStatus status : {CellStatus::killed, CellStatus::survived, CellStatus::vacuous,
                                  CellStatus::timeout, CellStatus::error})
    count += count_of(row, status);
  return count;
}

std::string invariant_table(const InvariantReport& report) {
  Table table({{"config"},
               {"source"},
               {"target"},
               {"max deviation", Align::right},
               {"ULP", Align::right},
               {"of threshold", Align::right},
               {"native"},
               {"tree"}});
  std::map<std::string, std::int64_t> inert;  // cells by reason
  for (const InvariantCell& cell : report.cells) {
    if (!cell.judged()) {
      ++inert[cell.not_applicable];
      table.row({cell.config, fmt::format("tp{}", cell.source_degree),
                 fmt::format("tp{}", cell.target_degree), "-", "-", "-",
                 Cell("not applicable", Tone::doubtful), Cell("not applicable", Tone::doubtful)});
      continue;
    }
    const std::string tree = cell.tree_holds ? "bit-identical"
                             : cell.tree_differing == 0
                                 ? "no result"
                                 : fmt::format("{} differ", format_count(cell.tree_differing));
    const double share = cell.threshold > 0.0 ? cell.max_deviation / cell.threshold : 0.0;
    table.row({cell.config, fmt::format("tp{}", cell.source_degree), fmt::format("tp{}", cell.target_degree),
               format_deviation(cell.max_deviation),
               cell.max_ulp < 1e6 ? fmt::format("{:.1f}", cell.max_ulp) : fmt::format("{:.2e}", cell.max_ulp),
               share < 10.0 ? fmt::format("{:.3f} %", share * 100.0) : format_multiple(share),
               native_cell(cell), Cell(tree, cell.tree_holds ? Tone::good : Tone::bad)});
    if (cell.holds()) continue;
    // Where bytes differ the row has the figures, and only the place is new.
    table.note(cell.difference
                   ? Cell(fmt::format("    first mismatching parameter {} on rank {} of tp{}",
                                      cell.difference->parameter, cell.difference->rank, cell.target_degree))
                   : Cell("    " + cell.message, tone_of(cell.verdict())));
  }
  for (const auto& [reason, count] : inert)
    table.note(Cell(fmt::format("  {} not applicable: {}", format_count(count), reason), Tone::doubtful));
  return table.text();
}

std::string law_table(const std::vector<LawReport>& reports) {
  Table table({{"law"},
               {"cases", Align::right},
               {"passed", Align::right},
               {"verdict"},
               {"of threshold", Align::right},
               {"time", Align::right},
               {"labels"}});
  for (const LawReport& report : reports) {
    const bool has_share = report.worst_share_of_threshold > 0.0;
    table.row({report.name, format_count(report.cases), format_count(report.passed),
               Cell(verdict_text(report.verdict), tone_of(report.verdict)),
               !has_share ? ""
               : report.worst_share_of_threshold < 10.0
                   ? fmt::format("{:.3f} %", report.worst_share_of_threshold * 100.0)
                   : format_multiple(report.worst_share_of_threshold),
               format_seconds(report.seconds), Cell(labels_summary(report, 60), Tone::faint)});
    if (const std::string undecided = undecided_summary(report); !undecided.empty())
      table.note(Cell("    " + undecided,
                      report.verdict == Verdict::passed ? Tone::faint : tone_of(report.verdict)));
    for (const std::string& problem : report.health)
      table.note(Cell("    health: " + problem, Tone::doubtful));
  }
  return table.text();
}

std::vector<FaultSummary> summarize(const KillReport& report) {
  std::vector<FaultSummary> summaries;
  for (const KillRow& row : report.rows) {
    auto it = std::find_if(summaries.begin(), summaries.end(),
                           [&](const FaultSummary& summary) { return summary.fault == row.fault; });
    if (it == summaries.end()) {
      summaries.push_back({row.fault, row.family, {}});
      it = summaries.end() - 1;
    }
    it->rows.push_back(&row);
  }
  for (const KillCell& cell : report.cells) {
    if (!cell.law.empty() || cell.oracle != Oracle::native || cell.status != CellStatus::killed ||
        cell.config == "random")
      continue;
    const auto it = std::find_if(summaries.begin(), summaries.end(),
                                 [&](const FaultSummary& summary) { return summary.fault == cell.fault; });
    if (it == summaries.end()) continue;
    const bool first = it->strongest_deviation == 0.0;
    it->weakest_deviation = first ? cell.deviation : std::min(it->weakest_deviation, cell.deviation);
    it->strongest_deviation = std::max(it->strongest_deviation, cell.deviation);
    it->weakest_margin = first ? cell.margin() : std::min(it->weakest_margin, cell.margin());
    it->strongest_margin = std::max(it->strongest_margin, cell.margin());
  }
  return summaries;
}

std::string kill_table(const KillReport& report) {
  const std::vector<Oracle> oracles = oracles_of(report);
  std::vector<Column> columns = {{"fault"}};
  for (const Oracle oracle : oracles) columns.push_back({std::string(to_string(oracle)), Align::right});
  const bool has_laws = std::ranges::any_of(report.rows, [](const KillRow& row) { return !row.law.empty(); });
  if (has_laws) columns.push_back({"law", Align::right});
  columns.push_back({"deviation", Align::right});
  columns.push_back({"x threshold", Align::right});
  columns.push_back({"published"});
  columns.push_back({"weakest", Align::right});
  columns.push_back({"first kill", Align::right});
  columns.push_back({"not killed"});
  Table table(columns);
  FaultFamily family = '\0';
  for (const FaultSummary& summary : summarize(report)) {
    if (summary.family != family) {
      family = summary.family;
      const auto score = report.score_by_family.find(family);
      table.note(Cell(
          fmt::format(
              "{}  {}{}", family, family_name(family),
              score == report.score_by_family.end() ? "" : "  " + format_share(score->second) + " killed"),
          score != report.score_by_family.end() && score->second < 1.0 ? Tone::bad : Tone::strong));
    }
    std::vector<Cell> cells = {Cell("  " + summary.fault)};
    for (const Oracle oracle : oracles) cells.push_back(judge_cell(summary, oracle));
    if (has_laws) cells.push_back(judge_cell(summary, std::nullopt));
    cells.emplace_back(deviation_range(summary.weakest_deviation, summary.strongest_deviation));
    cells.emplace_back(multiple_range(summary.weakest_margin, summary.strongest_margin));
    cells.emplace_back(published_text(summary.fault), Tone::faint);
    cells.emplace_back(weakest_margin_text(summary));
    cells.emplace_back(first_kill_text(summary));
    cells.emplace_back(row_notes(summary), Tone::faint);
    table.row(std::move(cells));
  }
  std::string text = table.text();
  for (const std::string& failure : report.baseline_failures)
    text += fmt::format("  {} {}\n", paint(Tone::bad, "baseline fails without any fault:"), failure);
  for (const std::string& alarm : report.false_alarms) text += fmt::format("  {}\n", paint(Tone::bad, alarm));
  for (const std::string& survivor : report.survivors)
    text += fmt::format("  {}\n", paint(Tone::bad, survivor));
  return text;
}

}  // namespace shardcheck
