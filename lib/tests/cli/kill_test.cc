#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "program.h"

namespace shardcheck::test {
namespace {

using nlohmann::json;

TEST(Kill, AGlobChoosesFaultsAndTheReportFollowsTheSchema) {
  const Folder folder;
  const Result result = shardcheck_in(
      folder.path(),
      {"kill", "--fault=reverse_rank_order:*", "--oracle=layout", "--cases=2", "--report=json:r.json"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  const json report = json::parse(read_file(folder / "r.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  ASSERT_FALSE(report.at("kill_matrix").at("rows").empty());
  for (const json& row : report.at("kill_matrix").at("rows")) {
    EXPECT_EQ(row.at("fault").get<std::string>().rfind("reverse_rank_order:", 0), 0U);
    EXPECT_EQ(row.at("oracle"), "layout");
    EXPECT_EQ(row.at("killed"), row.at("applicable"));
    EXPECT_GE(row.at("killed").get<int>(), 3) << "the recorded configurations at degrees 2, 2 and 4";
  }
}

TEST(Kill, AFaultThatTheOnlyOracleCannotSeeIsNoPass) {
  // The layout oracle sees bytes; a missing all-reduce moves none.
  const Result result =
      shardcheck_program({"kill", "--fault=missing_all_reduce:o_proj", "--oracle=layout", "--cases=1"});
  EXPECT_EQ(result.code, 3) << result.out;
  EXPECT_TRUE(contains(result.out, "not scored: layout need not see missing_all_reduce:o_proj\n"))
      << result.out;
  EXPECT_EQ(last_line(result.out).rfind("INCONCLUSIVE  1 fault: nothing scored", 0), 0U) << result.out;
}

}  // namespace
}  // namespace shardcheck::test
