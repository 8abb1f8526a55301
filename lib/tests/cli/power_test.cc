#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "program.h"
#include "shardcheck/properties/weakening.h"

namespace shardcheck::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> schema_problems(const std::string& schema, const json& report) {
  return SchemaCheck(json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/" + schema))).problems(report);
}

TEST(Power, TextReportAndPageHoldTheSameRows) {
  const Folder folder;
  const Result result =
      shardcheck_in(folder.path(), {"power", "--fault=norm_entry*", "--cases=1", "--trials=1", "--seed=4",
                                    "--report=json:r.json", "--markdown=page.md"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.rfind("seed 4\n", 0), 0U);
  EXPECT_EQ(last_line(result.out).rfind("PASSED  1 form of a fault", 0), 0U) << result.out;
  const json report = json::parse(read_file(folder / "r.json"));
  EXPECT_THAT(schema_problems("power_report.schema.json", report), IsEmpty());
  const std::string page = read_file(folder / "page.md");
  EXPECT_THAT(page, HasSubstr("shardcheck power --fault='norm_entry*' --cases=1 --trials=1 --seed=4 "
                              "--markdown=page.md\n"));
  EXPECT_THAT(page, HasSubstr("| `norm_entry_off_by_one_percent` |"));
  ASSERT_EQ(report.at("faults").size(), 1U);
  for (const json& place : report.at("hard_places")) {
    EXPECT_THAT(page, HasSubstr("| " + place.at("name").get<std::string>() + " |"));
    EXPECT_THAT(result.out, HasSubstr(place.at("name").get<std::string>()));
  }
  for (const json& role : report.at("roles"))
    EXPECT_THAT(page, HasSubstr("| " + role.at("family").get<std::string>() + " | " +
                                role.at("role").get<std::string>() + " |"));
}

TEST(Power, RefusesWhatItCannotMeasureBeforeTheWork) {
  const Folder folder;
  expect_refusal(shardcheck_in(folder.path(), {"power", "--fault=absent"}), 2, "fault 'absent' is unknown");
  expect_refusal(shardcheck_in(folder.path(), {"power", "--trials=0"}), 2, "--trials='0'");
  expect_refusal(shardcheck_in(folder.path(), {"power", "--markdown=absent/page.md"}), 4, "no folder absent");
}

TEST(Weaken, TextReportAndPageHoldEveryWeakenedCheck) {
  const Folder folder;
  const Result result =
      shardcheck_in(folder.path(), {"weaken", "--fault=rotate_norm*", "--cases=1", "--seed=4",
                                    "--report=json:r.json", "--markdown=page.md"});
  EXPECT_EQ(result.code, 3) << "that one fault does not survive every weakened check proves nothing";
  const json report = json::parse(read_file(folder / "r.json"));
  EXPECT_THAT(schema_problems("weaken_report.schema.json", report), IsEmpty());
  const std::string page = read_file(folder / "page.md");
  EXPECT_THAT(page,
              HasSubstr("shardcheck weaken --fault='rotate_norm*' --cases=1 --seed=4 --markdown=page.md\n"));
  ASSERT_EQ(report.at("weakenings").size(), all_weakenings().size());
  for (const Weakening& weakening : all_weakenings()) {
    EXPECT_THAT(page, HasSubstr("### " + std::string(weakening.name) + "\n"));
    EXPECT_THAT(page, HasSubstr(std::string(weakening.practice)));
    EXPECT_THAT(result.out, HasSubstr(std::string(weakening.name)));
  }
}

TEST(Weaken, OneCheckAloneListsItsSurvivors) {
  const Folder folder;
  const Result result = shardcheck_in(
      folder.path(), {"weaken", "--check=skip_norms_and_biases", "--fault=rotate_norm*", "--cases=2"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("rotate_norm_by_rank survives: sharded_equals_reference "));
  expect_refusal(shardcheck_in(folder.path(), {"weaken", "--check=sum"}), 2, "did you mean sums?");
  const Result blind =
      shardcheck_in(folder.path(), {"weaken", "--check=sums", "--fault=missing_all_reduce:down"});
  EXPECT_EQ(blind.code, 3) << blind.out;
  EXPECT_THAT(blind.out, HasSubstr("sums: layout sees none of the faults\n"));
}

}  // namespace
}  // namespace shardcheck::test
