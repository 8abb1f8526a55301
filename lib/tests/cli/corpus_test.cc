#include <gtest/gtest.h>

#include "program.h"

namespace shardcheck::test {
namespace {

constexpr const char* kGood = "gather_inverts_split heads=4 kv_heads=4 target=seed:tp2";
constexpr const char* kDetected =
    "sharded_equals_reference heads=2 kv_heads=2 arithmetic=tree target=seed:tp2 "
    "fault=reverse_rank_order:down";
/// Eight layers, of which the canary law minds all but one.
constexpr const char* kCanary = "canary layers=4 heads=6 kv_heads=3 vocab=37 target=seed:tp3 seed=5";

std::string header(const std::string& law, const std::string& verdict) {
  return "# law: " + law + "\n# verdict: " + verdict +
         "\n# found_by: a test\n# commit: 0123456789ab\n# why: it is a test\n";
}

std::string good_file() { return header("gather_inverts_split", "passed") + kGood + "\n"; }

Result corpus_in(const Folder& folder, std::vector<std::string> words) {
  words.insert(words.begin(), "corpus");
  return shardcheck_in(folder.path(), std::move(words));
}

Result verify(const Folder& folder) { return corpus_in(folder, {"verify"}); }

Folder& with_regressions(Folder& folder) {
  std::filesystem::create_directories(folder / "corpus/regressions");
  return folder;
}

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

TEST(CorpusAdd, WritesACompleteFileThatVerifies) {
  const Folder folder;
  const Result added = corpus_in(folder, {"add", kGood, "--why=four heads", "--found-by=a user"});
  EXPECT_EQ(added.code, 0) << added.err;
  const auto file =
      folder / "corpus/regressions/gather_inverts_split_heads_4_kv_heads_4_target_seed_tp2.case";
  const std::string text = read_file(file);
  EXPECT_EQ(text.rfind("# law: gather_inverts_split\n# verdict: passed\n# found_by: a user\n# commit: ", 0),
            0U)
      << text;
  EXPECT_TRUE(contains(text, std::string("\n# why: four heads\n") + kGood + "\n")) << text;
  const Result verified = verify(folder);
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_TRUE(contains(verified.out, "PASSED  1 case in 1 file, 0 wrong")) << verified.out;
}

TEST(CorpusAdd, RecordsThatAFaultIsDetected) {
  const Folder folder;
  const Result added = corpus_in(
      folder, {"add", kDetected, "--why=ranks", "--found-by=a user", "--to=elsewhere", "--name=ranks"});
  EXPECT_EQ(added.code, 0) << added.err;
  EXPECT_TRUE(contains(read_file(folder / "elsewhere/ranks.case"), "# verdict: failed\n"));
}

TEST(CorpusAdd, RefusesACaseThatStandsInTheCorpusAndNamesTheFile) {
  Folder folder;
  write_file(with_regressions(folder) / "corpus/regressions/there.case", good_file());
  const std::string other_spelling = "gather_inverts_split target=seed:tp2 kv_heads=4 heads=4 seed=0";
  expect_refusal(corpus_in(folder, {"add", other_spelling, "--why=a", "--found-by=b"}), 2,
                 "corpus/regressions/there.case: the corpus has this case already");
  std::filesystem::remove(folder / "corpus/regressions/there.case");
  std::filesystem::create_directories(folder / "corpus/batches");
  write_file(folder / "corpus/batches/many.batch", std::string("# verdict: passed\ncanary\n") + kGood + "\n");
  expect_refusal(corpus_in(folder, {"add", kGood, "--why=a", "--found-by=b"}), 2,
                 "corpus/batches/many.batch:3: the corpus has this case already");
}

TEST(CorpusAdd, RefusesWhatIsNoCaseToKeep) {
  const Folder folder;
  expect_refusal(corpus_in(folder, {"add", kGood, "--found-by=b"}), 2, "--why=TEXT");
  expect_refusal(corpus_in(folder, {"add", kGood, "--why=b"}), 2, "--found-by=TEXT");
  expect_refusal(corpus_in(folder, {"add", "--why=a", "--found-by=b"}), 2, "case line");
  expect_refusal(corpus_in(folder, {"add", kCanary, "--why=a", "--found-by=b"}), 2, "promote");
  expect_refusal(corpus_in(folder, {"add", kGood, "--why=a", "--found-by=b", "--name=../up"}), 2,
                 "--name=../up");
  expect_refusal(corpus_in(folder, {"add", "gather_inverts_split heads=3 kv_heads=3 target=seed:tp2",
                                    "--why=a", "--found-by=b"}),
                 2, "skipped");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CorpusVerify, FailsForEveryWayInWhichAFileCanBeWrong) {
  const std::string line = std::string(kGood) + "\n";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"# law: gather_inverts_split\n# verdict: passed\n" + line, "the header has the keys 'law verdict'"},
      {header("ranks_agree", "passed") + line, "law 'ranks_agree' in the header"},
      {header("gather_inverts_split", "failed") + line, "recorded verdict failed does not hold"},
      {header("gather_inverts_split", "timeout") + line, "verdict 'timeout': allowed is"},
      {header("gather_inverts_split", "passed") + "gather_inverts_split kv_heads=4 heads=4 target=seed:tp2\n",
       "not canonical, which is: gather_inverts_split heads=4"},
      {header("gather_inverts_split", "passed") + "gather_inverts_split haeds=4\n", "heads"},
      {good_file() + line, "second case line"},
      {"# law:\n" + good_file(), "says nothing of its law"},
  };
  for (const auto& [text, part] : wrong) {
    Folder folder;
    write_file(with_regressions(folder) / "corpus/regressions/a.case", text);
    const Result result = verify(folder);
    EXPECT_EQ(result.code, 1) << text << result.out << result.err;
    EXPECT_TRUE(contains(result.out, part)) << result.out;
    EXPECT_TRUE(contains(result.out, "corpus/regressions/a.case")) << result.out;
  }
  Folder folder;
  expect_refusal(verify(with_regressions(folder)), 2, "no *.case file");
}

TEST(CorpusVerify, RefusesACaseInTwoFilesUnlessBothAreReports) {
  Folder folder;
  write_file(with_regressions(folder) / "corpus/regressions/a.case", good_file());
  write_file(folder / "corpus/regressions/b.case", good_file());
  const Result twice = verify(folder);
  EXPECT_EQ(twice.code, 1);
  EXPECT_TRUE(contains(twice.out, "b.case: corpus/regressions/a.case is the same case")) << twice.out;
  std::filesystem::rename(folder / "corpus/regressions", folder / "corpus/reports");
  EXPECT_EQ(verify(folder).code, 0);
}

TEST(CorpusVerify, LooksIntoBatchesAndSeeds) {
  Folder folder;
  write_file(with_regressions(folder) / "corpus/regressions/a.case", good_file());
  std::filesystem::create_directories(folder / "corpus/batches");
  std::filesystem::create_directories(folder / "corpus/seeds/safetensors");
  const std::string batch =
      "# verdict: passed\n# found_by: a test\n# commit: unknown\n# why: it is a "
      "test\ncanary\ndegree_one_is_identity\n";
  write_file(folder / "corpus/batches/b.batch", batch);
  write_file(folder / "corpus/seeds/safetensors/one.hex",
             "# empty header\n08 00 00 00 00 00 00 00 # length\n");
  const Result good = verify(folder);
  EXPECT_EQ(good.code, 0) << good.out;
  EXPECT_TRUE(contains(good.out, "3 cases in 2 files")) << good.out;
  const auto wrong_with = [&](const std::string& name, const std::string& text, const std::string& part) {
    write_file(folder / name, text);
    const Result result = verify(folder);
    EXPECT_EQ(result.code, 1) << name << result.out;
    EXPECT_TRUE(contains(result.out, part)) << result.out;
    std::filesystem::remove(folder / name);
  };
  wrong_with("corpus/batches/c.batch", batch, "is the same case");
  wrong_with("corpus/batches/c.batch", "# verdict: passed\ncanary layers=2\n",
             "recorded verdict passed does not");
  wrong_with("corpus/seeds/safetensors/two.hex", "0800000000000000\n",
             "repeats corpus/seeds/safetensors/one.hex");
  wrong_with("corpus/seeds/safetensors/two.hex", "0x08\n", "no hexadecimal");
  wrong_with("corpus/seeds/safetensors/two", std::string("a\0b", 3), "no text");
  wrong_with("corpus/seeds/safetensors/two", "", "is empty");
  wrong_with("corpus/seeds/two", "text\n", "named after their target");
}

TEST(CorpusPromote, WritesTheMinimalCaseWithTheVerdictThatMustHold) {
  const Folder folder;
  write_file(folder / "artifact", std::string("# from a fuzzer\n") + kCanary + "\n");
  const Result promoted = corpus_in(folder, {"promote", "./artifact", "--found-by=the target canary"});
  EXPECT_EQ(promoted.code, 0) << promoted.out << promoted.err;
  const std::string text = read_file(folder / "corpus/regressions/canary_layers_2.case");
  EXPECT_EQ(text.rfind("# law: canary\n# verdict: passed\n# found_by: the target canary\n# commit: ", 0), 0U)
      << text;
  EXPECT_TRUE(contains(text, "\n# why: the model has more than one layer\ncanary layers=2\n")) << text;
  // Until the bug is gone the file says so.
  EXPECT_EQ(shardcheck_in(folder.path(), {"replay", "corpus"}).code, 3);
  expect_refusal(corpus_in(folder, {"promote", "./artifact", "--found-by=again", "--quiet"}), 2,
                 "has this case already");
}

TEST(CorpusPromote, TriesTheLawsItIsGivenAndExitsThreeWhenNoneIsBroken) {
  const Folder folder;
  write_file(folder / "artifact", "gather_inverts_split layers=3\n");
  const Result none = corpus_in(folder, {"promote", "./artifact", "--found-by=a test"});
  EXPECT_EQ(none.code, 3) << none.out;
  EXPECT_TRUE(contains(none.out, "the case shows no bug (gather_inverts_split: passed)")) << none.out;
  EXPECT_EQ(files_below(folder.path()).size(), 1U);
  const Result second =
      corpus_in(folder, {"promote", "./artifact", "--found-by=a test", "--law=ranks_agree,canary"});
  EXPECT_EQ(second.code, 0) << second.out << second.err;
  EXPECT_TRUE(contains(second.out, "canary layers=2")) << second.out;
  expect_refusal(corpus_in(folder, {"promote", "./artifact", "--found-by=a", "--law=canarie"}), 2, "canarie");
}

TEST(CorpusPromote, AFaultThatIsDetectedIsNoBug) {
  const Folder folder;
  const Result result = corpus_in(folder, {"promote", kDetected, "--found-by=a test"});
  EXPECT_EQ(result.code, 3) << result.out << result.err;
}

TEST(CorpusMinimize, NamesAndDropsWhatShowsNothingNew) {
  Folder folder;
  std::filesystem::create_directories(folder / "corpus/batches");
  const std::string batch =
      "# verdict: passed\n# prose\ngather_inverts_split seed=3\ngather_inverts_split\ngather_inverts_split "
      "heads=6 "
      "kv_heads=3\n";
  write_file(folder / "corpus/batches/b.batch", batch);
  const Result named = corpus_in(folder, {"minimize", "corpus/batches"});
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_TRUE(contains(named.out, "drop corpus/batches/b.batch:3  shows what corpus/batches/b.batch:4 shows"))
      << named.out;
  EXPECT_TRUE(contains(named.out, "1 of 3 cases shows nothing new")) << named.out;
  EXPECT_EQ(read_file(folder / "corpus/batches/b.batch"), batch);
  EXPECT_EQ(corpus_in(folder, {"minimize", "corpus/batches", "--write"}).code, 0);
  EXPECT_EQ(read_file(folder / "corpus/batches/b.batch"),
            "# verdict: passed\n# prose\ngather_inverts_split\ngather_inverts_split heads=6 kv_heads=3\n");
}

TEST(CorpusMinimize, KeepsACaseThatSaysWhyItIsKept) {
  Folder folder;
  write_file(with_regressions(folder) / "corpus/regressions/a.case", good_file());
  write_file(folder / "corpus/regressions/plain.case", std::string(kGood) + " seed=1\n");
  const Result result = corpus_in(folder, {"minimize", "corpus", "--write"});
  EXPECT_TRUE(contains(result.out, "drop corpus/regressions/plain.case")) << result.out;
  ASSERT_EQ(files_below(folder.path()).size(), 1U);
  EXPECT_EQ(files_below(folder.path())[0].filename(), "a.case");
}

TEST(CorpusUsage, IsRefusedInOneLine) {
  const Folder folder;
  expect_refusal(corpus_in(folder, {}), 2, "add, verify, minimize, promote");
  expect_refusal(corpus_in(folder, {"ad"}), 2, "did you mean 'add'");
  expect_refusal(corpus_in(folder, {"verify", "--why=x"}), 2, "--why belongs to corpus add and promote");
  expect_refusal(corpus_in(folder, {"add", kGood, "--write"}), 2, "--write belongs to corpus minimize");
  expect_refusal(corpus_in(folder, {"verify", "no/such"}), 4, "no/such");
  expect_refusal(corpus_in(folder, {"promote", "no/such", "--found-by=a"}), 4, "no/such");
  expect_refusal(corpus_in(folder, {"minimize"}), 2, "folders or files");
}

}  // namespace
}  // namespace shardcheck::test
