#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "program.h"

namespace shardcheck::test {
namespace {

using nlohmann::json;

TEST(Kill, AGlobChoosesFaultsAndTheReportFollowsTheSchema) {
  const Folder folder;
  const Result result =
      shardcheck_in(folder.path(), {"kill", "--fault=reverse_rank_order:*", "--oracle=layout,layout",
                                    "--cases=0", "--report=json:r.json"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  const json report = json::parse(read_file(folder / "r.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  ASSERT_FALSE(report.at("kill_matrix").at("rows").empty());
  for (const json& row : report.at("kill_matrix").at("rows")) {
    EXPECT_EQ(row.at("fault").get<std::string>().rfind("reverse_rank_order:", 0), 0U);
    EXPECT_EQ(row.at("oracle"), "layout");
    EXPECT_EQ(row.at("killed"), row.at("applicable"));
    EXPECT_EQ(row.at("killed"), 3) << "the recorded configurations at degrees 2, 2 and 4, each once";
  }
}

TEST(Kill, AFaultThatTheOnlyOracleCannotSeeIsNoPass) {
  // The layout oracle sees bytes; a missing all-reduce moves none.
  const Result result =
      shardcheck_program({"kill", "--fault=missing_all_reduce:o_proj", "--oracle=layout", "--cases=1"});
  EXPECT_EQ(result.code, 3) << result.out;
  EXPECT_TRUE(contains(result.out, "not scored: missing_all_reduce:o_proj: layout need not see it\n"))
      << result.out;
  EXPECT_EQ(last_line(result.out).rfind("INCONCLUSIVE  1 fault: nothing scored", 0), 0U) << result.out;
}

TEST(Kill, AFaultThatCannotActIsNamedWithItsReasonInTextAndReportAndExitsThree) {
  // The recorded vocabularies divide by every recorded degree.
  const Folder folder;
  const Result result = shardcheck_in(
      folder.path(), {"kill", "--fault=drop_remainder", "--cases=0", "--report=json:r.json", "--quiet"});
  EXPECT_EQ(result.code, 3) << result.out;
  const std::string reason = "cannot act on 3 of 3 cases (the ranks divide the vocabulary, or it is not cut)";
  EXPECT_TRUE(contains(result.out, "not scored: drop_remainder: " + reason + "\n")) << result.out;
  const json report = json::parse(read_file(folder / "r.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  const json unjudged = report.at("kill_matrix").at("without_evidence");
  ASSERT_EQ(unjudged.size(), 1U);
  EXPECT_EQ(unjudged[0].at("fault"), "drop_remainder");
  EXPECT_EQ(unjudged[0].at("reason"), reason);
  EXPECT_EQ(report.at("verdict"), "inconclusive");
}

TEST(Kill, AFaultThatOnlyALawDetectsIsNamedWithItsLaw) {
  const Folder folder;
  const Result result = shardcheck_in(folder.path(), {"kill", "--fault=split_by_thread_count", "--cases=0",
                                                      "--report=json:r.json", "--quiet"});
  EXPECT_EQ(result.code, 3) << "no cell was judged\n" << result.out;
  const json report = json::parse(read_file(folder / "r.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  const json judged = report.at("kill_matrix").at("judged_by_law");
  ASSERT_EQ(judged.size(), 1U);
  EXPECT_TRUE(
      contains(result.out, "not in the matrix: split_by_thread_count: no oracle can see it, the law " +
                               judged[0].at("law").get<std::string>() + " does\n"))
      << result.out;
  const Result judged_by_it = shardcheck_in(
      folder.path(), {"kill", "--fault=split_by_thread_count", "--cases=2", "--report=json:law.json"});
  EXPECT_EQ(judged_by_it.code, 0) << judged_by_it.out;
  const json row = json::parse(read_file(folder / "law.json")).at("kill_matrix").at("rows").at(0);
  EXPECT_EQ(row.at("oracle"), "law");
  EXPECT_EQ(row.at("law"), judged[0].at("law"));
  EXPECT_EQ(row.at("killed"), 2);
  EXPECT_TRUE(contains(judged_by_it.out, "2/2")) << judged_by_it.out;
}

TEST(Kill, ByDefaultEachFaultIsJudgedUnderTheOraclesThatMustDetectIt) {
  const Folder folder;
  const Result result = shardcheck_in(
      folder.path(), {"kill", "--fault=missing_all_reduce:o_proj", "--cases=1", "--report=json:r.json"});
  EXPECT_EQ(result.code, 0) << result.out;
  const json matrix = json::parse(read_file(folder / "r.json")).at("kill_matrix");
  std::vector<std::string> oracles;
  for (const json& row : matrix.at("rows")) oracles.push_back(row.at("oracle"));
  EXPECT_THAT(oracles, testing::ElementsAre("exact", "tree", "native"));
  EXPECT_EQ(matrix.at("median_cases_to_first_kill"), 1);
  EXPECT_TRUE(contains(last_line(result.out), "first kill: median case 1")) << result.out;
}

TEST(Kill, ARelabellingIsNamedWithItsPermutationAndNeverFlagged) {
  const Folder folder;
  const Result result =
      shardcheck_in(folder.path(), {"kill", "--fault=relabel_*", "--cases=3", "--report=json:r.json"});
  EXPECT_EQ(result.code, 0) << result.out;
  const json report = json::parse(read_file(folder / "r.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  const json matrix = report.at("kill_matrix");
  EXPECT_TRUE(matrix.at("false_alarms").empty());
  EXPECT_TRUE(matrix.at("score").is_null());
  ASSERT_FALSE(matrix.at("rows").empty());
  for (const json& row : matrix.at("rows")) {
    const bool layout = row.at("oracle") == "layout";
    EXPECT_TRUE(row.at("relabel_control"));
    EXPECT_EQ(row.at("killed"), 0) << row.dump();
    EXPECT_EQ(row.at(layout ? "relabelled" : "equivalent"), 6) << row.dump();
    EXPECT_EQ(row.at("witness").get<std::string>().empty(), !layout);
    EXPECT_NE(row.at("oracle"), "tree");
  }
  EXPECT_TRUE(contains(result.out, "6 relabelled")) << result.out;
  EXPECT_TRUE(contains(result.out, "KV heads 1,0 in rows of k, k_bias, v, v_bias")) << result.out;
}

TEST(Kill, TheControlAloneSaysWhatWasShownAndClaimsNoScore) {
  const Folder folder;
  const Result seen = shardcheck_in(
      folder.path(), {"kill", "--fault=zero_o_proj_output", "--cases=0", "--report=json:r.json"});
  EXPECT_EQ(seen.code, 0) << seen.out;
  const std::string verdict = last_line(seen.out);
  EXPECT_EQ(verdict.rfind("PASSED  the control alone: detected in 9 of 9 cells, and no fault was scored", 0),
            0U)
      << verdict;
  EXPECT_FALSE(contains(verdict, "killed")) << verdict;
  EXPECT_TRUE(json::parse(read_file(folder / "r.json")).at("kill_matrix").at("score").is_null());
  const Result blind =
      shardcheck_program({"kill", "--fault=zero_o_proj_output", "--cases=0", "--oracle=layout"});
  EXPECT_EQ(blind.code, 3) << blind.out;
  EXPECT_TRUE(contains(blind.out, "not scored: zero_o_proj_output: layout need not see it\n")) << blind.out;
}

}  // namespace
}  // namespace shardcheck::test
