#include "shardcheck/properties/axes.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "json_schema.h"
#include "program.h"

namespace shardcheck::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

/// Lines of `text` that hold `part`.
std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (contains(line, part)) found.push_back(line);
  return found;
}

std::vector<std::string> schema_problems(const json& report) {
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  return SchemaCheck(schema).problems(report);
}

std::string tables_of(const std::string& page) {
  std::string tables;
  for (const std::string& line : lines_with(page, "|"))
    if (line.starts_with("|")) tables += line + "\n";
  return tables;
}

TEST(Axes, TextReportAndPageHoldEveryAxisAndEveryPairOnce) {
  const Folder folder;
  const Result result = shardcheck_in(folder.path(), {"axes", "--cases=3", "--native-cases=12", "--seed=4",
                                                      "--report=json:r.json", "--markdown=page.md"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.rfind("seed 4\n", 0), 0U);
  EXPECT_EQ(last_line(result.out).rfind("PASSED  11 axes", 0), 0U) << result.out;
  const json report = json::parse(read_file(folder / "r.json"));
  EXPECT_THAT(schema_problems(report), IsEmpty());
  const std::string page = read_file(folder / "page.md");
  EXPECT_THAT(page, HasSubstr("shardcheck axes --cases=3 --native-cases=12 --seed=4 --markdown=page.md\n"));
  ASSERT_EQ(report.at("axes").size(), determinism_axes().size());
  for (std::size_t i = 0; i < determinism_axes().size(); ++i) {
    const DeterminismAxis& axis = determinism_axes()[i];
    const json& row = report.at("axes").at(i);
    EXPECT_EQ(row.at("axis"), axis.name);
    EXPECT_EQ(row.at("law"), axis.law);
    EXPECT_EQ(row.at("fault"), axis.fault);
    EXPECT_EQ(row.at("bitwise").at("differing"), 0);
    EXPECT_EQ(row.at("other_laws").size(), determinism_axes().size() - 1);
    EXPECT_EQ(lines_with(result.out, std::string(axis.fault)).size(), 2U) << "table and matrix";
    EXPECT_EQ(lines_with(page, "`" + std::string(axis.fault) + "`").size(), 2U) << "table and matrix";
  }
}

TEST(Axes, TheKillingCaseOfTheReportReplays) {
  const Folder folder;
  shardcheck_in(folder.path(), {"axes", "--cases=1", "--native-cases=1", "--report=json:r.json", "--quiet"});
  const json row = json::parse(read_file(folder / "r.json")).at("axes").at(0);
  const Result replay = shardcheck_in(folder.path(), {"replay", row.at("own_law").at("first_killing_case")});
  EXPECT_EQ(replay.code, 1) << replay.out << replay.err;
}

TEST(Axes, OutputsAndNumbersAreCheckedBeforeTheWork) {
  const Folder folder;
  expect_refusal(shardcheck_in(folder.path(), {"axes", "--markdown=absent/page.md"}), 4, "no folder absent");
  expect_refusal(shardcheck_in(folder.path(), {"axes", "--cases=0"}), 2, "--cases='0'");
  expect_refusal(shardcheck_in(folder.path(), {"axes", "--native-cases=0"}), 2, "--native-cases='0'");
  expect_refusal(shardcheck_in(folder.path(), {"axes", "batch"}), 2, "'batch' is one too many");
}

TEST(AxesPage, HoldsTheAxesLawsAndFaultsOfTheProgramAndEveryKnownSystem) {
  const std::string page = read_file(SHARDCHECK_SOURCE_DIR "/docs/axes.md");
  const std::string tables = tables_of(page);
  for (std::size_t i = 0; i < determinism_axes().size(); ++i) {
    const DeterminismAxis& axis = determinism_axes()[i];
    const std::string row = "| " + std::to_string(i + 1) + " | " + std::string(axis.name) + " | `" +
                            std::string(axis.law) + "` |";
    ASSERT_EQ(lines_with(tables, row).size(), 1U) << row;
    EXPECT_THAT(lines_with(tables, row)[0], HasSubstr("| 0 differing bits |"));
    EXPECT_THAT(lines_with(tables, row)[0], HasSubstr("| `" + std::string(axis.fault) + "` | case "));
    std::size_t claims = 0;
    for (const std::string& line : lines_with(tables, "| " + std::string(axis.name) + " |"))
      claims += line.starts_with("| " + std::string(axis.name) + " | 0 differing bits in ") ? 1U : 0U;
    EXPECT_EQ(claims, 1U) << axis.name << " beside the other systems";
  }
  for (const char* system :
       {"TBIK", "IsoExec", "vLLM batch invariance", "SGLang deterministic", "Megatron #4740", "ReproBLAS"}) {
    std::size_t rows = 0;
    for (const std::string& line : lines_with(tables, system))
      rows += line.starts_with(std::string("| ") + system + " |") ? 1U : 0U;
    EXPECT_EQ(rows, 1U) << system;
    EXPECT_THAT(lines_with(tables, "| axis | ShardCheck, this run |").at(0), HasSubstr(system));
  }
}

}  // namespace
}  // namespace shardcheck::test
