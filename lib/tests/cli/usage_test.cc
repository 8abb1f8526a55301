#include <gtest/gtest.h>

#include "program.h"

namespace shardcheck::test {
namespace {

TEST(Usage, HelpListsEveryCommandAndExitsZero) {
  const Result result = shardcheck_program({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  for (const char* name : {"run", "kill", "axes", "replay", "verify", "tolerance", "cost", "digest", "list",
                           "reshard", "doctor", "corpus"})
    EXPECT_TRUE(contains(result.out, std::string("\n  ") + name)) << name;
}

TEST(Usage, EveryCommandHasHelpWithAnExample) {
  for (const char* name : {"run", "kill", "axes", "replay", "verify", "tolerance", "cost", "digest", "list",
                           "reshard", "doctor", "corpus"}) {
    const Result result = shardcheck_program({name, "--help"});
    EXPECT_EQ(result.code, 0) << name;
    EXPECT_TRUE(contains(result.out, std::string("usage: shardcheck ") + name)) << result.out;
    EXPECT_TRUE(contains(result.out, std::string("Example:\n  shardcheck ") + name)) << result.out;
  }
}

TEST(Usage, HelpOfACommandComesEitherWay) {
  EXPECT_EQ(shardcheck_program({"help", "kill"}).out, shardcheck_program({"kill", "--help"}).out);
  EXPECT_EQ(shardcheck_program({"help"}).out, shardcheck_program({"--help"}).out);
  expect_refusal(shardcheck_program({"help", "kil"}), 2, "did you mean 'kill'");
}

TEST(Usage, VersionIsOneLine) {
  const Result result = shardcheck_program({"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.rfind("shardcheck ", 0), 0U);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

TEST(Usage, WrongUseExitsTwoWithOneLineThatNamesTheNearest) {
  expect_refusal(shardcheck_program({}), 2, "no command");
  expect_refusal(shardcheck_program({"verfy"}), 2, "did you mean 'verify'");
  expect_refusal(shardcheck_program({"--sede=1"}), 2, "--sede");
  expect_refusal(shardcheck_program({"run", "--sede=1"}), 2, "did you mean --seed");
  expect_refusal(shardcheck_program({"run", "--see=1"}), 2, "--see");
  expect_refusal(shardcheck_program({"run", "-q"}), 2, "-q");
  expect_refusal(shardcheck_program({"run", "word"}), 2, "'word' is one too many");
  expect_refusal(shardcheck_program({"run", "--seed"}), 2, "--seed");
  expect_refusal(shardcheck_program({"run", "--seed=1", "--seed=2"}), 2, "--seed");
  expect_refusal(shardcheck_program({"run", "--quiet=yes"}), 2, "--quiet");
}

TEST(Usage, ValuesOutOfRangeAreRefusedByName) {
  expect_refusal(shardcheck_program({"run", "--seed=-1"}), 2, "--seed='-1'");
  expect_refusal(shardcheck_program({"run", "--seed=18446744073709551616"}), 2, "--seed=");
  expect_refusal(shardcheck_program({"run", "--cases=0"}), 2, "--cases='0'");
  expect_refusal(shardcheck_program({"run", "--jobs=9999"}), 2, "1..1024");
  expect_refusal(shardcheck_program({"run", "--time=5d"}), 2, "s, m or h");
  expect_refusal(shardcheck_program({"run", "--time=0s"}), 2, "--time='0s'");
  expect_refusal(shardcheck_program({"run", "--time=nan"}), 2, "--time='nan'");
  expect_refusal(shardcheck_program({"run", "--suite=smok"}), 2, "did you mean 'smoke'");
  expect_refusal(shardcheck_program({"run", "--arithmetic=exactly"}), 2, "native, tree");
  expect_refusal(shardcheck_program({"run", "--comm=mpi"}), 2, "allowed: in_process");
  expect_refusal(shardcheck_program({"run", "--report=junit:r.xml"}), 2, "allowed: json:FILE");
  expect_refusal(shardcheck_program({"run", "--report=json:"}), 2, "allowed: json:FILE");
  expect_refusal(shardcheck_program({"run", "--color=sometimes"}), 2, "auto, always, never");
  expect_refusal(shardcheck_program({"kill", "--min-score=1.5"}), 2, "--min-score='1.5'");
  expect_refusal(shardcheck_program({"kill", "--oracle=layot"}), 2, "did you mean 'layout'");
  expect_refusal(shardcheck_program({"verify", ".", "--tp=1,x"}), 2, "--tp='x'");
}

TEST(Usage, UnknownNamesAreRefusedWithTheNearestKnownOne) {
  expect_refusal(shardcheck_program({"run", "--law=gather_invert_split"}), 2, "gather_inverts_split");
  expect_refusal(shardcheck_program({"run", "--fault=reverse_rank_orde"}), 2, "reverse_rank_order");
  expect_refusal(shardcheck_program({"run", "--fault=reverse_rank_order:embedding"}), 2, "o_proj");
  expect_refusal(shardcheck_program({"kill", "--fault=slice_fused_kqv*"}), 2, "slice_fused_qkv_contiguously");
  expect_refusal(shardcheck_program({"list", "lows"}), 2, "did you mean 'laws'");
  expect_refusal(shardcheck_program({"tolerance", "measur"}), 2, "did you mean 'measure'");
}

TEST(Usage, FilesThatAreNotThereExitFour) {
  expect_refusal(shardcheck_program({"replay", "no/such.case"}), 4, "no/such.case");
  expect_refusal(shardcheck_program({"verify", "no/such/folder"}), 4, "no/such/folder");
  for (const char* command : {"run", "kill", "replay"})
    expect_refusal(shardcheck_program({command, "--data-dir=no/such"}), 4, "no/such/in_process.json");
}

TEST(Usage, ResultsThatCannotBeWrittenExitFour) {
  const Folder folder;
  const Result result =
      run_command({"/bin/sh", "-c", std::string(SHARDCHECK_PROGRAM) + " list > /dev/full"}, folder.path());
  expect_refusal(result, 4, "standard output");
}

TEST(Usage, AClosedStreamIsNeverTakenForAFile) {
  const Folder folder;
  const auto sh = [&](const std::string& tail) {
    return run_command({"/bin/sh", "-c", std::string(SHARDCHECK_PROGRAM) + tail}, folder.path());
  };
  expect_refusal(sh(" list >&-"), 4, "standard output");
  EXPECT_EQ(sh(" run --law=gather_inverts_split --cases=2 --report=json:r.json >&-").code, 4);
  EXPECT_EQ(read_file(folder / "r.json").substr(0, 1), "{") << "results did not go into the report";
  EXPECT_EQ(sh(" run --law=gather_inverts_split --cases=2 --report=json:r.json <&- 2>&-").code, 0);
  EXPECT_EQ(read_file(folder / "r.json").substr(0, 1), "{");
}

TEST(Usage, AnInterruptEndsTheProgramAsTheSignalDoesAndLeavesNoFile) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Folder folder;
    const Result result = run_until("law  gather_inverts_split", signal,
                                    {SHARDCHECK_PROGRAM, "run", "--law=gather_inverts_split",
                                     "--cases=100000000", "--report=json:r.json"},
                                    folder.path());
    EXPECT_EQ(result.code, 128 + signal) << result.out << result.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(Usage, ControlCharactersOfAnArgumentDoNotReachTheTerminal) {
  expect_refusal(shardcheck_program({"run", "--law=a\033[31m\nb"}), 2, "a?[31m b");
}

TEST(Usage, ColourFollowsTheOption) {
  EXPECT_TRUE(contains(shardcheck_program({"list", "oracles", "--color=always"}).out, "\033["));
  EXPECT_FALSE(contains(shardcheck_program({"list", "oracles", "--color=never"}).out, "\033["));
  EXPECT_FALSE(contains(shardcheck_program({"list", "oracles"}).out, "\033["));
}

TEST(Usage, ListNamesLawsFaultsLayoutsOraclesAndTargets) {
  const Result result = shardcheck_program({"list"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* word :
       {"sharded_equals_reference", "reverse_rank_order", "vllm-llama", "native", "SIMD target"})
    EXPECT_TRUE(contains(result.out, word)) << word;
  const Result laws = shardcheck_program({"list", "laws"});
  EXPECT_TRUE(contains(laws.out, "gather_inverts_split"));
  EXPECT_FALSE(contains(laws.out, "reverse_rank_order"));
}

TEST(Usage, DoctorFindsThatSimdTargetsAgree) {
  const Result result = shardcheck_program({"doctor"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "ok    every SIMD target gives the same bits")) << result.out;
  EXPECT_TRUE(contains(result.out, "mpirun"));
}

TEST(Usage, AnEmptyValueIsRefusedWithWhatIsAllowed) {
  expect_refusal(shardcheck_program({"run", "--seed="}), 2, "--seed= is empty; allowed: --seed=N|random");
  expect_refusal(shardcheck_program({"run", "--law="}), 2, "--law= is empty; allowed: --law=GLOB");
  expect_refusal(shardcheck_program({"run", "--fault", ""}), 2, "allowed: --fault=NAME[:ARG]");
  expect_refusal(shardcheck_program({"verify", ".", "--tp="}), 2, "allowed: --tp=LIST (degrees, e.g. 1,2,4");
  EXPECT_TRUE(contains(shardcheck_program({"verify", "--help"}).out, " --prompt[=TEXT] "));
}

}  // namespace
}  // namespace shardcheck::test
