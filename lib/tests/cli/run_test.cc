#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "program.h"

namespace shardcheck::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json schema() { return json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json")); }

std::string problems_of(const json& report) {
  std::string text;
  for (const std::string& problem : SchemaCheck(schema()).problems(report)) text += problem + "\n";
  return text;
}

/// The line after the one that ends in "replay:".
std::string printed_replay_command(const std::string& out) {
  const std::size_t at = out.find("replay:\n");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + 8;
  return out.substr(begin, out.find('\n', begin) - begin);
}

TEST(Run, OneLawPrintsSeedFirstAndVerdictLast) {
  const Result result = shardcheck_program({"run", "--law=gather_inverts_split", "--cases=20", "--seed=7"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.rfind("seed 7\n", 0), 0U) << result.out;
  EXPECT_EQ(result.err, "[1/1] law  gather_inverts_split\n") << "off a terminal: one plain line per section";
  EXPECT_EQ(last_line(result.out).rfind("PASSED  20 random cases over 1 law", 0), 0U) << result.out;
}

TEST(Run, SameSeedSameCasesWhateverTheJobs) {
  const auto labels = [](const char* jobs) {
    const Folder folder;
    const Result result = shardcheck_in(folder.path(), {"run", "--law=gather_inverts_split", "--cases=30",
                                                        "--seed=3", jobs, "--report=json:r.json"});
    EXPECT_EQ(result.code, 0) << result.err;
    return json::parse(read_file(folder / "r.json")).at("laws").at(0).at("labels");
  };
  EXPECT_EQ(labels("--jobs=1"), labels("--jobs=2"));
}

TEST(Run, RandomSeedIsPrintedAndDiffers) {
  const auto seed = [] {
    const Result result =
        shardcheck_program({"run", "--law=printed_case_parses_back", "--cases=1", "--seed=random"});
    return result.out.substr(0, result.out.find('\n'));
  };
  EXPECT_NE(seed(), seed());
}

TEST(Run, TooFewDecidedCasesAreInconclusive) {
  const Folder folder;
  const Result result = shardcheck_in(folder.path(), {"run", "--law=sharded_equals_reference",
                                                      "--cases=100000", "--time=1s", "--report=json:r.json"});
  EXPECT_EQ(result.code, 3) << result.out;
  EXPECT_EQ(json::parse(read_file(folder / "r.json")).at("verdict"), "inconclusive");
}

TEST(Run, AnInjectedFaultFailsWithAMinimalCaseWhosePrintedCommandWorks) {
  const Folder folder;
  const Result result =
      shardcheck_in(folder.path(), {"run", "--law=sharded_equals_reference", "--cases=60",
                                    "--fault=slice_fused_qkv_contiguously", "--report=json:r.json"});
  ASSERT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_EQ(last_line(result.out).rfind("FAILED", 0), 0U) << result.out;

  const std::string command = printed_replay_command(result.out);
  EXPECT_EQ(run_command({"/bin/sh", "-c", command}, folder.path()).code, 1) << command;

  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "shardcheck-failures"))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1U);
  EXPECT_TRUE(contains(result.out, files[0].filename().string())) << result.out;
  EXPECT_EQ(shardcheck_in(folder.path(), {"replay", files[0].string()}).code, 0)
      << "the recorded verdict holds";

  const json report = json::parse(read_file(folder / "r.json"));
  EXPECT_EQ(problems_of(report), "");
  const json failure = report.at("laws").at(0).at("first_failure");
  EXPECT_TRUE(contains(read_file(files[0]), failure.at("minimal_case").get<std::string>()));
  EXPECT_LE(failure.at("minimal_case").get<std::string>().size(),
            failure.at("original_case").get<std::string>().size());
  EXPECT_EQ(run_command({"/bin/sh", "-c", failure.at("replay")}, folder.path()).code, 1);
}

TEST(Run, FailingCasesGoWhereTheUserSays) {
  const Folder folder;
  const Result result = shardcheck_in(folder.path(), {"run", "--law=sharded_equals_reference", "--cases=60",
                                                      "--fault=zero_o_proj_output", "--failures=deep/er"});
  EXPECT_EQ(result.code, 1);
  EXPECT_FALSE(std::filesystem::is_empty(folder / "deep/er"));
  write_file(folder / "file", "in the way");
  const Result blocked = shardcheck_in(folder.path(), {"run", "--law=sharded_equals_reference", "--cases=60",
                                                       "--fault=zero_o_proj_output", "--failures=file"});
  EXPECT_EQ(blocked.code, 1) << "the verdict stands though the file cannot be written";
  EXPECT_TRUE(contains(blocked.out, "not written")) << blocked.out;
}

TEST(Run, ACorpusIsReplayedAndABrokenVerdictIsInconclusive) {
  const Folder folder;
  std::filesystem::create_directory(folder / "corpus");
  write_file(folder / "corpus/a.case", "# verdict: failed\ngather_inverts_split\n");
  const Result result = shardcheck_in(folder.path(), {"run", "--law=printed_case_parses_back", "--cases=5",
                                                      "--corpus=corpus", "--report=json:r.json"});
  EXPECT_EQ(result.code, 3) << result.out << result.err;
  EXPECT_EQ(problems_of(json::parse(read_file(folder / "r.json"))), "");
}

TEST(Run, AReportThatCannotBeWrittenExitsFour) {
  const Result result = shardcheck_program(
      {"run", "--law=printed_case_parses_back", "--cases=5", "--report=json:no/such/folder/r.json"});
  expect_refusal(result, 4, "no/such/folder");
}

// The whole job once: every section, and a report that follows the published schema.
TEST(Run, TheSmokeSuitePassesAndReportsEverySection) {
  const Folder folder;
  const Result result = shardcheck_in(folder.path(), {"run", "--suite=smoke", "--report=json:r.json"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  const json report = json::parse(read_file(folder / "r.json"));
  EXPECT_EQ(problems_of(report), "");
  EXPECT_EQ(report.at("invariants").size(), 13U);
  std::int64_t decided = 0;
  for (const json& law : report.at("laws")) decided += law.at("passed").get<std::int64_t>();
  EXPECT_GE(decided, 500);
  EXPECT_EQ(report.at("kill_matrix").at("score"), 1.0);
  for (const json& cell : report.at("invariants")) {
    if (cell.at("target_degree") == 1) {
      EXPECT_EQ(cell.at("max_deviation"), 0.0);
    }
  }
  for (const char* part :
       {"seed 0\n", "bit-identical", "2.098 - 2.314, 2097 - 2313x", "PASSED  13 invariant cells, "})
    EXPECT_TRUE(contains(result.out, part)) << part;
}

TEST(Run, AFaultThatNothingSeesIsInconclusive) {
  const Folder folder;
  const Result result = shardcheck_in(
      folder.path(), {"run", "--law=gather_inverts_split", "--cases=3", "--fault=missing_all_reduce:o_proj"});
  EXPECT_EQ(result.code, 3) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "missing_all_reduce:o_proj: the fault acted in ")) << result.out;
  EXPECT_TRUE(contains(result.out, " and no law failed\n")) << result.out;
  EXPECT_TRUE(contains(result.out, "kill matrix is left out")) << result.out;
}

TEST(Run, ARecordingThatBreaksItsOwnRuleIsRefused) {
  const Folder folder;
  nlohmann::json floor =
      nlohmann::json::parse(read_file(fs::path(SHARDCHECK_SOURCE_DIR) / "tolerance/in_process.json"));
  floor["threshold"] = 1e9;
  fs::create_directory(folder / "data");
  std::ofstream(folder / "data/in_process.json") << floor.dump();
  const Result result = shardcheck_in(folder.path(), {"run", "--data-dir=data", "--cases=1"});
  expect_refusal(result, 2, "in_process.json");
  expect_refusal(shardcheck_in(folder.path(), {"run", "--data-dir=data", "--law=gather_inverts_split"}), 2,
                 "in_process.json");
}

TEST(Run, FailedCasesAreCountedAmongAll) {
  const Result result = shardcheck_program(
      {"run", "--law=sharded_equals_reference", "--cases=60", "--fault=zero_o_proj_output"});
  EXPECT_EQ(last_line(result.out).rfind("FAILED  1 of ", 0), 0U) << result.out;
}

TEST(Run, ACorpusWithoutACaseIsRefused) {
  const Folder folder;
  fs::create_directory(folder / "corpus");
  expect_refusal(shardcheck_in(folder.path(), {"run", "--corpus=corpus"}), 2, "no *.case file");
}

TEST(Run, OutputsAreCheckedBeforeTheWork) {
  const Folder folder;
  fs::create_directory(folder / "corpus");
  const std::string line = "gather_inverts_split\n";
  write_file(folder / "corpus/a.case", line);
  const auto run = [&](const std::string& report) {
    return shardcheck_in(folder.path(), {"run", "--corpus=corpus", "--report=json:" + report});
  };
  const auto refused = [&](const std::string& report, int code, const char* part) {
    const Result result = run(report);
    expect_refusal(result, code, part);
    EXPECT_EQ(result.out, "") << "nothing ran";
  };
  refused("corpus", 4, "is a folder");
  refused("absent/r.json", 4, "no folder absent");
  write_file(folder / "kept.json", "");
  fs::permissions(folder / "kept.json", fs::perms::owner_read);
  refused("kept.json", 4, "read-only");
  fs::create_hard_link(folder / "corpus/a.case", folder / "alias.json");
  for (const char* input : {"corpus/a.case", "./corpus/../corpus/a.case", "alias.json"}) {
    const Result result = run(input);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_TRUE(contains(result.err, "is an input of this command")) << result.err;
  }
  EXPECT_EQ(read_file(folder / "corpus/a.case"), line);
}

}  // namespace
}  // namespace shardcheck::test
