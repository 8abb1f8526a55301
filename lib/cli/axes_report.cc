#include "axes_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal.h"

namespace shardcheck {
namespace {

std::string describe_share(const AxisCount& count) {
  return fmt::format("{} of {} differ, worst {}", format_count(count.differing), format_count(count.cases),
                     format_deviation(count.worst));
}

Cell bitwise_cell(const AxisCount& count) {
  const Tone tone = count.differing > 0 ? Tone::bad : count.cases == 0 ? Tone::doubtful : Tone::good;
  return Cell(describe_bitwise(count), tone);
}

Cell kill_cell(const AxisKill& kill) {
  const Tone tone = kill.first_kill > 0 ? Tone::good : kill.cases == 0 ? Tone::doubtful : Tone::bad;
  return Cell(describe_kill(kill), tone);
}

}  // namespace

std::string describe_bitwise(const AxisCount& count) {
  if (count.cases == 0) return "no case decided";
  return count.differing > 0 ? describe_share(count) : "0 differing bits";
}

std::string describe_native(const AxisRow& row) {
  if (row.native.cases == 0) return "no case decided";
  if (row.native.differing > 0 || !row.axis.native_is_fixed) return describe_share(row.native);
  return fmt::format("0 of {}, one fixed order", format_count(row.native.cases));
}

std::string describe_kill(const AxisKill& kill) {
  if (kill.cases == 0) return "acted in no case";
  if (kill.first_kill == 0) return fmt::format("not in {}", format_noun(kill.cases, "case"));
  return fmt::format("case {} by {}", kill.first_kill, kill.law);
}

std::string matrix_cell(const AxisKill& kill) {
  if (kill.first_kill > 0) return format_count(kill.first_kill);
  return kill.cases == 0 ? "n/a" : "-";
}

std::vector<const AxisKill*> matrix_row(const AxisRow& row, const std::vector<AxisRow>& rows) {
  std::vector<const AxisKill*> cells;
  for (const AxisRow& against : rows) {
    const auto found = std::ranges::find(row.other, against.axis.law, &AxisKill::law);
    if (row.own.law == against.axis.law) {
      cells.push_back(&row.own);
    } else {
      cells.push_back(found == row.other.end() ? nullptr : &*found);
    }
  }
  return cells;
}

std::string axes_table(const std::vector<AxisRow>& rows) {
  Table table({{"", Align::right},
               {"axis"},
               {"cases", Align::right},
               {"tree and exact"},
               {"native"},
               {"fault"},
               {"seen in"}});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const AxisRow& row = rows[i];
    table.row({std::to_string(i + 1), std::string(row.axis.name), format_count(row.bitwise.cases),
               bitwise_cell(row.bitwise), describe_native(row), std::string(row.own.fault),
               kill_cell(row.own)});
    for (const std::string& problem : row.problems()) table.note(Cell("    " + problem, Tone::bad));
    for (const std::string& gap : row.gaps()) table.note(Cell("    " + gap, Tone::doubtful));
  }
  return table.text();
}

std::string axes_matrix(const std::vector<AxisRow>& rows) {
  std::vector<Column> columns = {{"fault"}};
  for (std::size_t i = 0; i < rows.size(); ++i) columns.push_back({std::to_string(i + 1), Align::right});
  Table table(std::move(columns));
  for (const AxisRow& row : rows) {
    std::vector<Cell> cells = {std::string(row.own.fault)};
    for (const AxisKill* kill : matrix_row(row, rows)) {
      if (kill == nullptr) {
        cells.emplace_back("");
      } else if (kill == &row.own) {
        cells.emplace_back(matrix_cell(*kill), kill->first_kill > 0 ? Tone::good : Tone::bad);
      } else {
        cells.emplace_back(matrix_cell(*kill), kill->first_kill > 0 ? Tone::doubtful : Tone::faint);
      }
    }
    table.row(std::move(cells));
  }
  return table.text();
}

}  // namespace shardcheck
