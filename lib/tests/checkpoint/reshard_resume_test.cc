// Reshards that end early: killed, out of room, in the way of something.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "reshard_fixture.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kWorkspace = ".shardcheck-reshard";

/// A source of a few hundred kB, written to a Megatron layout with many points where it can go on.
class ReshardResume : public ::testing::Test {
 protected:
  ReshardResume() {
    write_folder(source(), plain_, numbered_weights(geometry_));
    write_file(source() / "config.json", "{}");
    reshard_folder(source(), plain_, folder_ / "expected", megatron_);
  }

  fs::path source() const { return folder_ / "source"; }
  fs::path target() const { return folder_ / "target"; }

  static ReshardOptions options() { return {.buffer_bytes = 4096, .checkpoint_bytes = 20'000}; }

  ReshardSummary run(const ReshardOptions& options) {
    return reshard_folder(source(), plain_, target(), megatron_, options);
  }

  /// Runs in a child that kills itself after `steps` of its steps; whether it was killed.
  bool killed_after(int steps) {
    const pid_t child = ::fork();
    if (child == 0) {
      ReshardOptions cut_off = options();
      cut_off.progress = [left = steps](const ProgressEvent&) mutable {
        if (left-- == 0) ::kill(::getpid(), SIGKILL);
      };
      run(cut_off);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status);
  }

  std::string refused(const ReshardOptions& with) {
    return refusal<InvalidInput>([&] { run(with); });
  }

  static Geometry wide() {
    Geometry g = meshes::llama();
    g.d_model = 400, g.ffn = 120;
    return g;
  }

  TemporaryFolder folder_{memory_folder()};
  Geometry geometry_ = wide();
  Layout plain_ = meshes::layout("hf-llama", geometry_);
  Layout megatron_ = meshes::layout("megatron-llama:tp2", geometry_);
};

TEST_F(ReshardResume, AKilledRunShowsNoFileAndIsContinuedToTheSameFiles) {
  std::uint64_t most = 0;
  for (const int steps : {0, 1, 20, 90, 200}) {
    ASSERT_TRUE(killed_after(steps)) << steps;
    EXPECT_THAT(names_in(target()), ElementsAre(kWorkspace)) << steps;
    const ReshardSummary summary = run(options());
    most = std::max(most, summary.bytes_resumed);
    expect_same_contents(target(), folder_ / "expected", fmt::format("after {} steps", steps));
    fs::remove_all(target());
  }
  EXPECT_GT(most, 0U);
}

TEST_F(ReshardResume, RunsThatAreKilledAgainAndAgainArrive) {
  std::uint64_t done = 0;
  int runs = 0;
  while (killed_after(60)) {
    ASSERT_LT(++runs, 100);
    EXPECT_THAT(names_in(target()), ElementsAre(kWorkspace));
  }
  EXPECT_GT(runs, 2) << done;
  expect_same_contents(target(), folder_ / "expected", "arrived");
}

TEST_F(ReshardResume, AnotherBufferContinuesWhereTheFirstStopped) {
  ASSERT_TRUE(killed_after(150));
  EXPECT_GT(run({.buffer_bytes = 1 << 20}).bytes_resumed, 0U);
  expect_same_contents(target(), folder_ / "expected", "another buffer");
}

TEST_F(ReshardResume, AChangedSourceIsRefusedUntilARestart) {
  ASSERT_TRUE(killed_after(150));
  flip_bit(source() / "model.safetensors", "model.norm.weight", 0);
  EXPECT_THAT(refused(options()), AllOf(HasSubstr("target"), HasSubstr("'model.safetensors'"),
                                        HasSubstr("changed"), HasSubstr("--restart")));
  EXPECT_THAT(names_in(target()), ElementsAre(kWorkspace));
  ReshardOptions restart = options();
  restart.restart = true;
  EXPECT_EQ(run(restart).bytes_resumed, 0U);
  EXPECT_EQ(digest_folder(target(), megatron_).digest, digest_folder(source(), plain_).digest);
}

TEST_F(ReshardResume, AnotherPlanIsRefused) {
  ASSERT_TRUE(killed_after(150));
  const Layout other = meshes::layout("vllm-llama:tp2", geometry_);
  EXPECT_THAT(refusal<InvalidInput>([&] { reshard_folder(source(), plain_, target(), other, options()); }),
              AllOf(HasSubstr("another plan"), HasSubstr("--restart")));
  run(options());
  expect_same_contents(target(), folder_ / "expected", "the plan that began");
}

TEST_F(ReshardResume, AJournalThatIsNoneIsRefused) {
  for (const std::string text : {"", "{}", "[]", R"({"format": 1})", R"({"format": 2})"}) {
    ASSERT_TRUE(killed_after(150));
    write_file(target() / kWorkspace / "journal.json", text);
    EXPECT_THAT(refused(options()), HasSubstr("journal.json")) << text;
    fs::remove_all(target());
  }
}

// Values and checksum: neither a position outside the files nor "complete" may give names to unwritten bytes.
TEST_F(ReshardResume, AnEditedJournalIsRefusedWithTheWayOut) {
  const fs::path file = target() / kWorkspace / "journal.json";
  const std::vector<std::pair<std::string, nlohmann::json>> edits = {
      {"entry", -1},       {"entry", 1},   {"entry", 1'000'000}, {"offset", -1},
      {"offset", 1 << 30}, {"offset", 24}, {"complete", true},   {"checksum_xxh3", 1}};
  for (const auto& [key, value] : edits) {
    ASSERT_TRUE(killed_after(150));
    nlohmann::json journal = nlohmann::json::parse(read_file(file));
    journal[key] = value;
    write_file(file, journal.dump());
    EXPECT_THAT(refused(options()), AllOf(HasSubstr("journal.json"), HasSubstr("--restart"))) << key << value;
    EXPECT_THAT(names_in(target()), ElementsAre(kWorkspace));
    ReshardOptions restart = options();
    restart.restart = true;
    run(restart);
    expect_same_contents(target(), folder_ / "expected", "restarted");
    fs::remove_all(target());
  }
}

TEST_F(ReshardResume, AWaitingFileThatIsNotAsItWasLeftIsRefused) {
  const fs::path file = target() / kWorkspace / shard_file_name(1, 2);
  for (const bool cut : {true, false}) {
    ASSERT_TRUE(killed_after(150));
    cut ? fs::resize_file(file, 100) : void(fs::remove(file));
    EXPECT_THAT(refused(options()), AllOf(HasSubstr(shard_file_name(1, 2)), HasSubstr("--restart")));
    EXPECT_THAT(names_in(target()), ElementsAre(kWorkspace));
    fs::remove_all(target());
  }
}

TEST_F(ReshardResume, AForeignFileInTheWorkspaceIsNamedBeforeAnythingIsRemovedOrNamed) {
  for (const std::string name : {"notes.txt", "tokenizer.mine", "rank_1.safetensors", "journal.json.old"}) {
    for (const bool restart : {true, false}) {
      ASSERT_TRUE(killed_after(150));
      write_file(target() / kWorkspace / name, "mine");
      const auto before = contents(target());
      ReshardOptions again = options();
      again.restart = restart;
      EXPECT_THAT(refused(again), HasSubstr("'" + name + "'"));
      EXPECT_EQ(contents(target()), before) << name;
      fs::remove_all(target());
    }
  }
}

TEST_F(ReshardResume, AWorkspaceThatIsALinkIsRefusedAndNotFollowed) {
  fs::create_directory(folder_ / "precious");
  write_file(folder_ / "precious/model.safetensors", "mine");
  fs::create_directory(target());
  fs::create_directory_symlink(folder_ / "precious", target() / kWorkspace);
  for (const bool restart : {true, false}) {
    ReshardOptions again = options();
    again.restart = restart;
    EXPECT_THAT(refused(again), AllOf(HasSubstr(kWorkspace), HasSubstr("link")));
    EXPECT_EQ(read_file(folder_ / "precious/model.safetensors"), "mine");
  }
}

// A killed writer's temporary file does not keep the folder from being finished.
TEST_F(ReshardResume, TemporaryFilesOfAKilledRunAreSweptUp) {
  ASSERT_TRUE(killed_after(150));
  write_file(target() / kWorkspace / ".shardcheck-0123456789abcdef-0.tmp", "half");
  run(options());
  expect_same_contents(target(), folder_ / "expected", "finished");
}

TEST_F(ReshardResume, ADescriptionRefusesTheTargetsThatTheRunRefuses) {
  const auto described = [&] {
    return refusal<InvalidInput>([&] { describe_reshard(source(), plain_, target(), megatron_, options()); });
  };
  fs::create_directory(target());
  write_file(target() / "notes.txt", "mine");
  EXPECT_EQ(described(), refused(options()));
  fs::remove_all(target());
  ASSERT_TRUE(killed_after(150));
  write_file(target() / kWorkspace / "notes.txt", "mine");
  EXPECT_EQ(described(), refused(options()));
  fs::remove(target() / kWorkspace / "notes.txt");
  write_file(target() / kWorkspace / "journal.json", "{}");
  EXPECT_EQ(described(), refused(options()));
  EXPECT_FALSE(described().empty());
}

TEST_F(ReshardResume, AFileAmongTheUnfinishedOnesIsLeftAlone) {
  ASSERT_TRUE(killed_after(150));
  write_file(target() / "notes.txt", "mine");
  EXPECT_THAT(refused(options()), HasSubstr("'notes.txt'"));
  EXPECT_EQ(read_file(target() / "notes.txt"), "mine");
}

TEST_F(ReshardResume, TwoRunsDoNotWriteAtOnce) {
  ReshardOptions outer = options();
  std::string message;
  outer.progress = [&](const ProgressEvent& event) {
    if (!message.empty() || !event.text.starts_with("writing")) return;
    message = refusal<IoError>([&] { run(options()); });
  };
  run(outer);
  EXPECT_THAT(message, AllOf(HasSubstr("target"), HasSubstr("another reshard")));
  expect_same_contents(target(), folder_ / "expected", "the first run");
}

// Something takes a final name while the files are written: nothing is lost, and the run is finished later.
TEST_F(ReshardResume, NamesThatAreTakenAreNotReplacedAndTheRestIsFinishedLater) {
  for (const std::string& name :
       {shard_file_name(1, 2), std::string("config.json"), std::string("shardcheck.json")}) {
    ReshardOptions blocked = options();
    blocked.progress = [&](const ProgressEvent&) { write_file(target() / name, "mine"); };
    EXPECT_THAT(refusal<std::runtime_error>([&] { run(blocked); }), HasSubstr((target() / name).string()));
    EXPECT_EQ(read_file(target() / name), "mine");
    const bool record_is_taken = name == "shardcheck.json";
    EXPECT_EQ(fs::exists(target() / "shardcheck.json"), record_is_taken);
    fs::remove(target() / name);
    EXPECT_GT(run(options()).bytes_resumed, 0U);
    expect_same_contents(target(), folder_ / "expected", "finished after " + name);
    fs::remove_all(target());
  }
}

TEST_F(ReshardResume, WithoutRoomNothingIsLeftAndTheSameCallSucceedsLater) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{50'000, 50'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      run(options());
    } catch (const IoError& error) {
      const std::string text = error.what();
      const bool says = text.find(shard_file_name(0, 2)) != text.npos && text.find("make room") != text.npos;
      ::_exit(says ? 7 : 8);
    } catch (...) {
    }
    ::_exit(9);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(fs::exists(target()));
  run(options());
  expect_same_contents(target(), folder_ / "expected", "with room");
}

}  // namespace
}  // namespace shardcheck
