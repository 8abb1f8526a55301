#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
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

TEST(Run, AxesAreMeasuredInWholeSuitesAlone) {
  const Folder folder;
  for (const char* part : {"--law=gather_inverts_split", "--fault=zero_o_proj_output"}) {
    shardcheck_in(folder.path(), {"run", part, "--cases=3", "--report=json:r.json"});
    EXPECT_TRUE(json::parse(read_file(folder / "r.json")).at("axes").empty()) << part;
  }
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
  EXPECT_EQ(report.at("axes").size(), 11U);
  for (const json& row : report.at("axes")) {
    EXPECT_EQ(row.at("bitwise").at("differing"), 0);
    EXPECT_GE(row.at("bitwise").at("cases"), 100) << "from the laws that ran";
    EXPECT_GT(row.at("own_law").at("cases_to_first_kill"), 0);
  }
  EXPECT_EQ(report.at("kill_matrix").at("score"), 1.0);
  for (const json& cell : report.at("invariants")) {
    if (cell.at("target_degree") == 1) {
      EXPECT_EQ(cell.at("max_deviation"), 0.0);
    }
  }
  for (const char* part : {"seed 0\n", "bit-identical", "2.098 - 2.314, 2097 - 2313x", "\nAxes  ",
                           "PASSED  13 invariant cells, ", ", 11 axes, "})
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

/// A recording in DIR whose deviations, and so its threshold, are ten times the built-in one's.
void write_tenfold_floor(const fs::path& folder) {
  json floor = json::parse(read_file(fs::path(SHARDCHECK_SOURCE_DIR) / "tolerance/in_process.json"));
  const auto tenfold = [](json& value) { value = value.get<double>() * 10.0; };
  for (json& cell : floor.at("results")) {
    for (const char* key : {"max_deviation", "max_ulp", "median_ulp", "mean_ulp"}) tenfold(cell.at(key));
    for (json& deviation : cell.at("per_seed")) tenfold(deviation);
  }
  tenfold(floor.at("max_deviation"));
  floor["threshold"] = 0.01;
  fs::create_directories(folder);
  write_file(folder / "in_process.json", floor.dump());
}

TEST(Run, AFolderOfFloorsDecidesInvariantKillMatrixAndReplayAlike) {
  const Folder folder;
  write_tenfold_floor(folder / "my floors");
  const Result run =
      shardcheck_in(folder.path(), {"run", "--data-dir=my floors", "--cases=1", "--report=json:r.json"});
  const json report = json::parse(read_file(folder / "r.json"));
  for (const json& cell : report.at("invariants")) EXPECT_EQ(cell.at("threshold"), 0.01);
  EXPECT_TRUE(contains(run.out, "my floors/in_process.json")) << run.out;
  const auto weakest_margin = [](const json& with_rows) {
    for (const json& row : with_rows.at("kill_matrix").at("rows"))
      if (row.at("fault") == "reverse_rank_order:down" && row.at("oracle") == "native")
        return row.at("weakest_deviation").get<double>() / row.at("weakest_margin").get<double>();
    return 0.0;
  };
  const std::vector<std::string> kill = {"kill", "--fault=reverse_rank_order:down", "--cases=0",
                                         "--report=json:k.json"};
  ASSERT_EQ(shardcheck_in(folder.path(), kill).code, 0);
  EXPECT_NEAR(weakest_margin(json::parse(read_file(folder / "k.json"))), 1e-3, 1e-9);
  std::vector<std::string> tenfold = kill;
  tenfold.push_back("--data-dir=my floors");
  ASSERT_EQ(shardcheck_in(folder.path(), tenfold).code, 0);
  EXPECT_NEAR(weakest_margin(json::parse(read_file(folder / "k.json"))), 1e-2, 1e-8);
  const std::string replay = report.at("invariants").at(1).at("replay");
  EXPECT_TRUE(contains(replay, "--data-dir='my floors'")) << replay;
  EXPECT_EQ(run_command({"/bin/sh", "-c", replay}, folder.path()).code, 0);
}

TEST(Run, ACellWhereTheFaultCannotActIsNotApplicableAndNotCounted) {
  const Folder folder;
  const Result result = shardcheck_in(
      folder.path(), {"run", "--fault=reverse_rank_order:down", "--cases=20", "--report=json:r.json"});
  EXPECT_EQ(result.code, 1) << result.out;
  const json report = json::parse(read_file(folder / "r.json"));
  EXPECT_EQ(problems_of(report), "");
  for (const json& cell : report.at("invariants")) {
    const bool one_rank = cell.at("target_degree") == 1;
    EXPECT_EQ(!cell.at("not_applicable").get<std::string>().empty(), one_rank) << cell.dump();
    EXPECT_EQ(cell.at("native_holds").is_null(), one_rank) << cell.dump();
    EXPECT_EQ(cell.at("max_deviation").is_null(), one_rank) << cell.dump();
  }
  EXPECT_TRUE(contains(result.out, "5 not applicable: fault reverse_rank_order:down cannot act here"))
      << result.out;
  EXPECT_EQ(last_line(result.out).rfind("FAILED  8 invariant cells (5 not applicable), ", 0), 0U)
      << result.out;
}

TEST(Run, TheFailingCaseIsOnStderrBeforeItIsShrunkAndTheBestSoFarAfterEachStep) {
  const std::vector<std::string> words = {"run", "--law=sharded_equals_reference", "--cases=60",
                                          "--fault=slice_fused_qkv_contiguously"};
  const Folder folder;
  std::vector<std::string> quiet = words;
  quiet.emplace_back("--quiet");
  quiet.emplace_back("--report=json:r.json");
  const Result silent = shardcheck_in(folder.path(), quiet);
  const json failure = json::parse(read_file(folder / "r.json")).at("laws").at(0).at("first_failure");
  const std::string original = failure.at("original_case");
  const std::string notice = "[1/1] failed: " + original + "\n";
  EXPECT_EQ(silent.err, notice) << "a failure is no progress: also --quiet keeps it";
  const Result loud = shardcheck_in(folder.path(), words);
  const std::size_t first = loud.err.find(notice), smaller = loud.err.find("[1/1] smaller: ");
  ASSERT_NE(smaller, std::string::npos) << loud.err;
  EXPECT_LT(first, smaller);
  EXPECT_EQ(last_line(loud.err), "[1/1] minimal: " + failure.at("minimal_case").get<std::string>());
}

TEST(Run, ATerminalShowsABarWithTheShareDoneAndKeepsTheFailingCase) {
  const Folder folder;
  const Result result = run_on_terminal({SHARDCHECK_PROGRAM, "run", "--law=sharded_equals_reference",
                                         "--cases=60", "--jobs=1", "--fault=swap_dims_inside_heads"},
                                        folder.path());
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_TRUE(contains(result.err, "[1/1] failed: sharded_equals_reference ")) << result.err;
  EXPECT_TRUE(contains(result.err, "\r\033[K[1/1] smaller: ")) << result.err;
  const Result passing = run_on_terminal(
      {SHARDCHECK_PROGRAM, "run", "--law=gather_inverts_split", "--cases=50", "--jobs=1"}, folder.path());
  EXPECT_TRUE(contains(passing.err, " %  [1/1] gather_inverts_split: ")) << passing.err;
  EXPECT_TRUE(passing.err.ends_with("\r\033[K")) << "nothing of the bar stays";
}

TEST(Run, TwoRunsAtOnceWriteOneFailureFolder) {
  const Folder folder, output;
  const std::vector<std::string> words = {SHARDCHECK_PROGRAM, "run", "--law=sharded_equals_reference",
                                          "--cases=60", "--fault=zero_o_proj_output"};
  const pid_t first = start(words, folder.path(), output / "1", output / "1e");
  const pid_t second = start(words, folder.path(), output / "2", output / "2e");
  EXPECT_EQ(code_of(first), 1);
  EXPECT_EQ(code_of(second), 1);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder / "shardcheck-failures"))
    files.push_back(entry.path());
  ASSERT_EQ(files.size(), 1U) << "the same failure is the same file, and no temporary stays";
  EXPECT_EQ(shardcheck_in(folder.path(), {"replay", files[0].string()}).code, 0);
}

TEST(Run, PrintedReplaysWorkWhenPastedForEveryKindOfFault) {
  const Folder folder;
  fs::create_directory(folder / "it's $HOME");
  fs::create_symlink(SHARDCHECK_PROGRAM, folder / "it's $HOME/shard check");
  for (const char* fault : {"flip_one_bit", "missing_all_reduce:down", "local_width_norm_statistics",
                            "shift_vocab_boundary", "drop_remainder", "gqa_tile_for_repeat"}) {
    const Result result =
        run_command({folder / "it's $HOME/shard check", "run", "--law=sharded_equals_reference", "--cases=80",
                     std::string("--fault=") + fault, "--failures=bad cases"},
                    folder.path());
    ASSERT_EQ(result.code, 1) << fault << result.out;
    EXPECT_EQ(run_command({"/bin/sh", "-c", printed_replay_command(result.out)}, folder.path()).code, 1)
        << fault;
    const std::size_t at = result.out.find("\nwritten to ");
    const std::size_t begin = result.out.find("\n  ", at + 1) + 3;
    const std::string file_command = result.out.substr(begin, result.out.find('\n', begin) - begin);
    EXPECT_EQ(run_command({"/bin/sh", "-c", file_command}, folder.path()).code, 0) << file_command;
  }
}

TEST(Run, AFaultIsRunUnderTheLawThatDetectsIt) {
  const Folder folder;
  for (const auto& [fault, law] :
       std::map<std::string, std::string>{{"replicated_gradient_not_summed", "effective_weights_are_right"},
                                          {"sequence_chunk_reduces_alone", "sequence_parallel_is_invisible"},
                                          {"poison_unsampled_embedding_rows", "unused_rows_are_compared"}}) {
    const Result result = shardcheck_in(folder.path(), {"run", "--fault=" + fault, "--report=json:r.json"});
    ASSERT_EQ(result.code, 1) << fault << result.out;
    const json laws = json::parse(read_file(folder / "r.json")).at("laws");
    ASSERT_EQ(laws.size(), 1U);
    EXPECT_EQ(laws.at(0).at("name"), law);
    const std::string command = printed_replay_command(result.out);
    EXPECT_EQ(run_command({"/bin/sh", "-c", command}, folder.path()).code, 1) << command;
  }
}

TEST(Run, ARelabelControlIsRightAndPasses) {
  const Folder folder;
  const Result result = shardcheck_in(folder.path(), {"run", "--fault=relabel_kv_groups", "--cases=20"});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_TRUE(contains(result.out, "relabel_kv_groups is right though it looks wrong: no law flags it"))
      << result.out;
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
