#include <gtest/gtest.h>

#include "program.h"

namespace shardcheck::test {
namespace {

constexpr const char* kGood = "sharded_equals_reference heads=8 kv_heads=4 arithmetic=tree target=seed:tp2";
constexpr const char* kBad =
    "sharded_equals_reference heads=8 kv_heads=4 arithmetic=tree target=seed:tp2 "
    "fault=slice_fused_qkv_contiguously";

std::string case_file(const std::string& verdict, const std::string& line) {
  return "# verdict: " + verdict + "\n" + line + "\n";
}

TEST(Replay, ACaseLineExitsByItsLaw) {
  const Result good = shardcheck_program({"replay", kGood});
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_EQ(good.out.rfind("passed", 0), 0U) << good.out;
  const Result bad = shardcheck_program({"replay", kBad});
  EXPECT_EQ(bad.code, 1) << bad.out << bad.err;
  EXPECT_EQ(bad.out.rfind("failed", 0), 0U) << bad.out;
}

TEST(Replay, TheWordsOfALineMayBeSeparateArguments) {
  const Result result = shardcheck_program(
      {"replay", "sharded_equals_reference", "heads=8", "kv_heads=4", "arithmetic=tree", "target=seed:tp2"});
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Replay, ALineThatDoesNotParseExitsTwoAndNamesKeyAndNearest) {
  expect_refusal(shardcheck_program({"replay", "sharded_equals_reference haeds=8"}), 2, "heads");
  expect_refusal(shardcheck_program({"replay", "sharded_equals_reference heads=8 heads=8"}), 2, "heads");
  expect_refusal(shardcheck_program({"replay", "sharded_equals_reference heads=99999999999"}), 2, "heads");
  expect_refusal(shardcheck_program({"replay", "sharded_equal_reference"}), 2, "sharded_equals_reference");
  expect_refusal(shardcheck_program({"replay", "sharded_equals_reference target=sede:tp2"}), 2, "seed");
  expect_refusal(shardcheck_program({"replay", "sharded_equals_reference fault=reverse_rank_ordr"}), 2,
                 "reverse_rank_order");
  expect_refusal(shardcheck_program({"replay"}), 2, "case line");
  expect_refusal(shardcheck_program({"replay", ""}), 2, "law");
}

TEST(Replay, DegreeThreeForEightHeadsExitsTwo) {
  expect_refusal(
      shardcheck_program({"replay", "sharded_equals_reference heads=8 kv_heads=8 target=seed:tp3"}), 2, "3");
}

TEST(Replay, ARecordedVerdictThatHoldsExitsZeroElseThree) {
  const Folder folder;
  write_file(folder / "holds.case", case_file("failed", kBad));
  write_file(folder / "broken.case", case_file("failed", kGood));
  EXPECT_EQ(shardcheck_in(folder.path(), {"replay", "holds.case"}).code, 0);
  const Result broken = shardcheck_in(folder.path(), {"replay", "broken.case"});
  EXPECT_EQ(broken.code, 3);
  EXPECT_TRUE(contains(broken.out, "recorded verdict failed does not hold")) << broken.out;
}

TEST(Replay, AFolderIsReplayedRecursivelyAndTheWorstVerdictCounts) {
  const Folder folder;
  std::filesystem::create_directories(folder / "deep/er");
  write_file(folder / "a.case", case_file("passed", kGood));
  write_file(folder / "deep/er/b.case", case_file("failed", kBad));
  write_file(folder / "deep/ignored.txt", "not a case");
  const Result good = shardcheck_in(folder.path(), {"replay", "."});
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_TRUE(contains(good.out, "2 of 2 cases as expected")) << good.out;
  write_file(folder / "c.case", "no such law at all\n");
  const Result bad = shardcheck_in(folder.path(), {"replay", "."});
  EXPECT_EQ(bad.code, 2) << bad.out;
  EXPECT_TRUE(contains(bad.out, "c.case")) << bad.out;
}

TEST(Replay, FilesThatAreNoCaseFilesExitTwo) {
  const Folder folder;
  write_file(folder / "empty.case", "");
  write_file(folder / "binary.case", std::string("\0\xff\xfe\x01", 4));
  write_file(folder / "verdict.case", case_file("perfect", kGood));
  write_file(folder / "two.case", std::string(kGood) + "\n" + kGood + "\n");
  for (const char* name : {"empty.case", "binary.case", "verdict.case", "two.case"})
    expect_refusal(shardcheck_in(folder.path(), {"replay", name}), 2, "");
  std::filesystem::create_directory(folder / "nothing");
  expect_refusal(shardcheck_in(folder.path(), {"replay", "./nothing"}), 2, "no *.case file");
}

}  // namespace
}  // namespace shardcheck::test
