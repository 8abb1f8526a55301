// One table for the terminal and for a page.
#pragma once

#include <string>
#include <vector>

#include "terminal.h"

namespace shardcheck {

struct TwoWayTable {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // fewer cells than columns leave the rest empty
};

std::string as_text(const TwoWayTable& table);
/// Cells may hold Markdown; a "|" in them is escaped.
std::string as_markdown(const TwoWayTable& table);

/// "`word`".
std::string as_code(std::string_view word);

}  // namespace shardcheck
