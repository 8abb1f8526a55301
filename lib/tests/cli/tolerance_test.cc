#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace shardcheck::test {
namespace {

using nlohmann::json;

TEST(Tolerance, ShowPrintsTheRecordingBesideTheOriginal) {
  const Result result = shardcheck_program({"tolerance", "show"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* part : {"20 repetitions", "14 / 1.15 / 1.39", "1.669e-06", "1e-03"})
    EXPECT_TRUE(contains(result.out, part)) << part << "\n" << result.out;
}

TEST(Tolerance, CheckPassesOnTheRecordingAndAgainstAFreshMeasurement) {
  const Result result = shardcheck_program({"tolerance", "check", "--remeasure=1"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "measured again (1 repetition)")) << result.out;
}

TEST(Tolerance, AMeasurementCanBeRecordedAndAnotherTokenShapeFails) {
  const Folder folder;
  const Result measured =
      shardcheck_in(folder.path(), {"tolerance", "measure", "--repetitions=1", "--out=in_process.json"});
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_EQ(measured.err, "floor of kv2\nfloor of kv4\n") << "off a terminal: one plain line per stage";
  json recording = json::parse(read_file(folder / "in_process.json"));
  const auto check = [&] { return shardcheck_in(folder.path(), {"tolerance", "check", "--data-dir=."}); };
  const std::string text = recording.dump();
  const std::size_t at = text.find("\"length\":16");
  ASSERT_NE(at, std::string::npos) << text.substr(0, 400);
  write_file(folder / "in_process.json", std::string(text).replace(at, 11, "\"length\":32"));
  const Result changed = check();
  EXPECT_EQ(changed.code, 1) << changed.out << changed.err;
  write_file(folder / "in_process.json", "{");
  expect_refusal(check(), 2, "in_process.json");
}

/// A recording that follows the rule, with deviations that any fault would stay below.
std::string inflated_recording(const Folder& folder) {
  const Result measured =
      shardcheck_in(folder.path(), {"tolerance", "measure", "--repetitions=1", "--out=in_process.json"});
  EXPECT_EQ(measured.code, 0) << measured.err;
  json recording = json::parse(read_file(folder / "in_process.json"));
  for (json& cell : recording["results"]) {
    if (cell["target_degree"] == 1) continue;
    cell["max_deviation"] = 1.0;
    cell["per_seed"] = {1.0};
    cell["max_ulp"] = 8388608.0;
    cell["median_ulp"] = cell["mean_ulp"] = 4194304.0;
  }
  recording["max_deviation"] = 1.0;
  recording["threshold"] = 100.0;
  return recording.dump();
}

TEST(Tolerance, AThresholdThatAnyFaultWouldPassIsMistrusted) {
  const Folder folder;
  write_file(folder / "in_process.json", inflated_recording(folder));
  const Result check = shardcheck_in(folder.path(), {"tolerance", "check", "--data-dir=."});
  EXPECT_EQ(check.code, 3) << check.out << check.err;
  EXPECT_TRUE(contains(check.out, "MISTRUSTED")) << check.out;
  EXPECT_FALSE(contains(check.out, "PASSED")) << check.out;
}

TEST(Tolerance, OptionsOfAnotherActionAreRefused) {
  expect_refusal(shardcheck_program({"tolerance", "check", "--out=f"}), 2, "tolerance measure");
  expect_refusal(shardcheck_program({"tolerance", "show", "--remeasure=1"}), 2, "tolerance check");
  expect_refusal(shardcheck_program({"tolerance"}), 2, "measure, check, show");
}

}  // namespace
}  // namespace shardcheck::test
