#include "two_way_table.h"

#include <fmt/format.h>

namespace shardcheck {
namespace {

std::string escaped(const std::string& cell) {
  std::string text;
  for (const char c : cell) {
    if (c == '|') text += '\\';
    text += c;
  }
  return text;
}

std::string line_of(const std::vector<std::string>& cells, std::size_t columns) {
  std::string line = "|";
  for (std::size_t i = 0; i < columns; ++i)
    line += fmt::format(" {} |", i < cells.size() ? escaped(cells[i]) : "");
  return line + "\n";
}

/// Backquotes are Markdown's.
std::string plain(const std::string& cell) {
  std::string text;
  for (const char c : cell) {
    if (c != '`') text += c;
  }
  return text;
}

}  // namespace

std::string as_text(const TwoWayTable& table) {
  Table text(table.columns);
  for (const auto& row : table.rows) {
    std::vector<Cell> cells;
    for (const std::string& cell : row) cells.emplace_back(plain(cell));
    text.row(std::move(cells));
  }
  return text.text();
}

std::string as_markdown(const TwoWayTable& table) {
  std::vector<std::string> header;
  std::string rule = "|";
  for (const Column& column : table.columns) {
    header.push_back(column.header);
    rule += column.align == Align::right ? "---:|" : "---|";
  }
  std::string text = line_of(header, table.columns.size()) + rule + "\n";
  for (const auto& row : table.rows) text += line_of(row, table.columns.size());
  return text + "\n";
}

std::string as_code(std::string_view word) { return fmt::format("`{}`", word); }

}  // namespace shardcheck
