// The tables of the folder as text, and what is said of a wrong one.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

inline std::filesystem::path layouts_folder() {
  return std::filesystem::path(SHARDCHECK_SOURCE_DIR) / "lib" / "layouts";
}

inline std::string read_layout_file(const std::string& name) {
  std::ifstream in(layouts_folder() / name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline nlohmann::json seed_json() { return nlohmann::json::parse(read_layout_file("seed.json")); }

/// What an action throws, of whatever kind; "accepted" when nothing.
template <typename Exception = InvalidLayout, typename Action>
std::string refusal_of(Action action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "accepted";
}

inline std::string parse_refusal(const std::string& text) {
  return refusal_of([&] { LayoutTable::parse(text, "mine.json"); });
}

}  // namespace shardcheck
