// docs/blind-spots.md: whatever it names exists and notices what it is named for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "shardcheck/mutators/fault.h"
#include "shardcheck/properties/law.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {
namespace {

struct Row {
  std::string mistake, fault;
  std::vector<Oracle> oracles;
  std::vector<std::string> laws, tests;
};

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, '|');) cells.push_back(cell);
  return cells;
}

/// What stands between backticks.
std::vector<std::string> quoted(const std::string& cell) {
  static const std::regex kQuoted("`([^`]+)`");
  std::vector<std::string> names;
  for (std::sregex_iterator found(cell.begin(), cell.end(), kQuoted), end; found != end; ++found)
    names.push_back((*found)[1]);
  return names;
}

Row row_of(const std::vector<std::string>& cells) {
  Row row;
  row.mistake = cells[1];
  for (const std::string& name : quoted(cells[3])) row.fault = name;
  for (const std::string& name : quoted(cells[4])) {
    const auto oracle = oracle_from(name);
    if (oracle) {
      row.oracles.push_back(*oracle);
    } else {
      (name.find('.') == std::string::npos ? row.laws : row.tests).push_back(name);
    }
  }
  return row;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> found;
    std::istringstream page(text_of_file(SHARDCHECK_SOURCE_DIR "/docs/blind-spots.md"));
    for (std::string line; std::getline(page, line);) {
      const auto cells = cells_of(line);
      if (cells.size() >= 5 && !line.starts_with("|---") && cells[1] != " mistake ")
        found.push_back(row_of(cells));
    }
    return found;
  }();
  return all;
}

/// The first drawn case of a law that the fault acts on.
Case case_of(const FaultChoice& choice, std::string_view law) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Stream stream(seed, "blind spots");
    Case c = law_named(law).draw(stream);
    if (choice.fault->steer != nullptr) choice.fault->steer(c, stream);
    c.fault = choice.text();
    if (!why_fault_is_inert(c)) return c;
  }
  ADD_FAILURE() << "no drawn case of " << law << " for " << choice.text();
  return {};
}

TEST(BlindSpots, ThePageHasARowForEachAndEachNamesWhoNotices) {
  EXPECT_GE(rows().size(), 15U);
  for (const Row& row : rows())
    EXPECT_FALSE(row.oracles.empty() && row.laws.empty() && row.tests.empty()) << row.mistake;
}

TEST(BlindSpots, EveryOracleThatIsNamedNoticesTheFaultAndPassesWithoutIt) {
  for (const Row& row : rows()) {
    if (row.oracles.empty()) continue;
    const FaultChoice choice = parse_fault(row.fault);
    const Case c = case_of(choice, "sharded_equals_reference");
    Workbench bench(c);
    for (const Oracle oracle : row.oracles) {
      EXPECT_TRUE(choice.fault->expects(oracle)) << row.fault;
      EXPECT_EQ(bench.judge(oracle, *subject_of(c)).verdict, Verdict::failed)
          << print_case(c) << " under " << to_string(oracle);
      Subject right;
      EXPECT_EQ(bench.judge(oracle, right).verdict, Verdict::passed) << print_case(c);
    }
  }
}

TEST(BlindSpots, EveryLawThatIsNamedExistsAndNoticesItsFault) {
  for (const Row& row : rows()) {
    for (const std::string& name : row.laws) {
      const Law& law = law_named(name);
      if (row.fault.empty() || parse_fault(row.fault).fault->law != name) continue;
      EXPECT_EQ(check_case(law, case_of(parse_fault(row.fault), name)).verdict, Verdict::failed) << name;
    }
  }
}

TEST(BlindSpots, EveryTestThatIsNamedExists) {
  for (const Row& row : rows()) {
    for (const std::string& name : row.tests) {
      const std::string declared = "(" + std::regex_replace(name, std::regex("\\."), ", ") + ")";
      EXPECT_THAT(text_of_file(SHARDCHECK_SOURCE_DIR "/lib/tests/model/golden_test.cc"),
                  testing::HasSubstr(declared));
    }
  }
}

}  // namespace
}  // namespace shardcheck
