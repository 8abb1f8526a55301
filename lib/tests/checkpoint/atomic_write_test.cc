// Reading and replacing whole files, with the system failing at every step that a test can make fail.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

#include "../../src/checkpoint/files.h"
#include "checkpoint_fixture.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRefusedWithMessage = 10;
constexpr int kRefusedOtherwise = 11;
constexpr int kNotRefused = 12;

/// Runs `action` in a child process whose files may not grow beyond `limit` bytes, as on a full disk: the
/// write that crosses the limit is short, the next one fails.
int run_with_file_limit(rlim_t limit, const std::function<void()>& action, const std::string& part) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limits = {limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &limits);
    int result = kNotRefused;
    try {
      action();
    } catch (const IoError& error) {
      result = std::string_view(error.what()).find(part) != std::string_view::npos ? kRefusedWithMessage
                                                                                   : kRefusedOtherwise;
    }
    ::_exit(result);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Kills a child in the middle of a write, at `limit` bytes; true when the signal did.
bool kill_while_writing(rlim_t limit, const std::function<void()>& write) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_DFL);
    const rlimit no_core = {0, 0}, limits = {limit, limit};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::setrlimit(RLIMIT_FSIZE, &limits);
    write();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ;
}

TensorMap one_tensor(std::int64_t elements) { return {{"a", Tensor::zeros(DType::f32, {elements})}}; }

class FullDisk : public ::testing::TestWithParam<rlim_t> {};

TEST_P(FullDisk, LeavesNothingWhereNothingWas) {
  const TemporaryFolder folder;
  const auto write = [&] { write_safetensors(folder / "t.safetensors", one_tensor(100'000)); };
  EXPECT_EQ(run_with_file_limit(GetParam(), write, "cannot write"), kRefusedWithMessage);
  EXPECT_TRUE(names_in(folder).empty());
}

TEST_P(FullDisk, LeavesTheOldFileAsItWas) {
  const TemporaryFolder folder;
  write_safetensors(folder / "t.safetensors", one_tensor(3));
  const std::string before = read_file(folder / "t.safetensors");
  const auto write = [&] { write_safetensors(folder / "t.safetensors", one_tensor(100'000)); };
  EXPECT_EQ(run_with_file_limit(GetParam(), write, "t.safetensors"), kRefusedWithMessage);
  EXPECT_EQ(read_file(folder / "t.safetensors"), before);
  EXPECT_THAT(names_in(folder), ElementsAre("t.safetensors"));
}

// Inside the length, the header and the data.
INSTANTIATE_TEST_SUITE_P(AtByte, FullDisk, ::testing::Values(0, 5, 40, 4096, 399'999));

bool has_unnamed_files(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0;
}

TEST(KilledWriter, LeavesNothingThatTheNextOneDoesNotClear) {
  const TemporaryFolder folder;
  write_text_atomically(folder / "a", "old");
  const auto write = [&] { write_text_atomically(folder / "a", std::string(100'000, 'x')); };
  ASSERT_TRUE(kill_while_writing(5'000, write));
  EXPECT_EQ(read_file(folder / "a"), "old");
  if (has_unnamed_files(folder.path())) {
    EXPECT_THAT(names_in(folder), ElementsAre("a"));
  }
  write_text_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_THAT(names_in(folder), ElementsAre("a"));
}

void write_named(const fs::path& file, std::string_view text) {
  AtomicFile target(file, Naming::named);
  target.write(text);
  target.commit();
}

TEST(KilledWriter, WithANamedFileLeavesOneThatTheNextOverwrites) {
  const TemporaryFolder folder;
  ASSERT_TRUE(kill_while_writing(5'000, [&] { write_named(folder / "a", std::string(100'000, 'x')); }));
  ASSERT_EQ(names_in(folder).size(), 1U);
  EXPECT_FALSE(fs::exists(folder / "a"));
  write_named(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_THAT(names_in(folder), ElementsAre("a"));
}

TEST(KilledWriter, ALeftoverIsClearedWhenAnUnnamedFileReplacesAnOldOne) {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  ASSERT_TRUE(kill_while_writing(5'000, [&] { write_named(folder / "a", std::string(100'000, 'x')); }));
  ASSERT_EQ(names_in(folder).size(), 2U);
  write_text_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_THAT(names_in(folder), ElementsAre("a"));
}

class EveryNaming : public ::testing::TestWithParam<Naming> {};

TEST_P(EveryNaming, ShowsNothingUntilItIsCommitted) {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  {
    AtomicFile dropped(folder / "a", GetParam());
    dropped.write("half");
    EXPECT_EQ(read_file(folder / "a"), "old");
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_THAT(names_in(folder), ElementsAre("a"));
}

TEST_P(EveryNaming, WritersOfOneTargetDoNotMixTheirBytes) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "a", GetParam()), second(folder / "a", GetParam());
  first.write("fir");
  second.write("second");
  first.write("st");
  first.commit();
  EXPECT_EQ(read_file(folder / "a"), "first");
  second.commit();
  EXPECT_EQ(read_file(folder / "a"), "second");
  EXPECT_THAT(names_in(folder), ElementsAre("a"));
}

TEST_P(EveryNaming, ManyWritersAtOnceLeaveOneWholeFile) {
  const TemporaryFolder folder;
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 10; ++i) {
        AtomicFile file(folder / "t", GetParam());
        file.write(std::string(1000, letter));
        file.commit();
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = read_file(folder / "t");
  EXPECT_EQ(text, std::string(1000, text.at(0)));
  EXPECT_THAT(names_in(folder), ElementsAre("t"));
}

INSTANTIATE_TEST_SUITE_P(Naming, EveryNaming, ::testing::Values(Naming::unnamed_if_possible, Naming::named));

TEST(AtomicWrite, ReplacesTheWholeFile) {
  const TemporaryFolder folder;
  write_text_atomically(folder / "a.json", "a longer first text");
  write_text_atomically(folder / "a.json", "second");
  EXPECT_EQ(read_text(folder / "a.json", 100), "second");
  EXPECT_THAT(names_in(folder), ElementsAre("a.json"));
}

TEST(AtomicWrite, AReaderKeepsTheFileItOpened) {
  const TemporaryFolder folder;
  const std::vector<float> old_values = {1, 2}, new_values = {3, 4};
  write_safetensors(folder / "t.safetensors", {{"a", Tensor::from({2}, old_values)}});
  const SafetensorsFile opened(folder / "t.safetensors");
  write_safetensors(folder / "t.safetensors", {{"a", Tensor::from({2}, new_values)}});
  EXPECT_THAT(opened.tensor("a").f32(), ::testing::ElementsAreArray(old_values));
  EXPECT_THAT(SafetensorsFile(folder / "t.safetensors").tensor("a").f32(),
              ::testing::ElementsAreArray(new_values));
}

TEST(AtomicWrite, KeepsALinkAndReplacesWhatItPointsAt) {
  const TemporaryFolder folder;
  write_file(folder / "target", "old");
  fs::create_symlink(folder / "target", folder / "link");
  write_text_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");
}

TEST(AtomicWrite, WritesIntoADeviceAndNeverReplacesIt) {
  const TemporaryFolder folder;
  fs::create_symlink("/dev/null", folder / "void");
  write_text_atomically(folder / "void", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", folder / "full");
  EXPECT_THROW(write_text_atomically(folder / "full", "no room"), IoError);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

/// Writes `path` in a child whose standard output is `output`, between two texts of its own.
void write_with_output(const fs::path& output, const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int descriptor = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(descriptor, 1);
    bool whole = ::write(1, "before ", 7) == 7;
    write_text_atomically(path, "text ");
    whole = whole && ::write(1, "after", 5) == 5;
    ::_exit(whole ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(AtomicWrite, WritesThroughTheStandardOutputWhereverItGoes) {
  const TemporaryFolder folder;
  fs::create_symlink("/dev/stdout", folder / "link");
  for (const fs::path& path :
       {fs::path("/dev/stdout"), fs::path("/dev/fd/1"), fs::path("/proc/self/fd/1"), folder / "link"}) {
    write_with_output(folder / "out", path);
    EXPECT_EQ(read_file(folder / "out"), "before text after") << path;
    EXPECT_THAT(names_in(folder), ElementsAre("link", "out"));
  }
  EXPECT_TRUE(fs::is_symlink("/dev/stdout"));
}

TEST(AtomicWrite, WritesThroughAPipe) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  write_text_atomically(fmt::format("/dev/fd/{}", ends[1]), "through");
  char text[16] = {};
  EXPECT_EQ(::read(ends[0], text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(AtomicWrite, ADanglingLinkStaysAndItsTargetIsCreated) {
  const TemporaryFolder folder;
  fs::create_symlink("target", folder / "link");
  write_text_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "target"), "new");
}

TEST(AtomicWrite, RefusesAFolderAndAReadOnlyFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_text_atomically(folder.path(), "text"), IoError);
  write_file(folder / "kept", "precious");
  fs::permissions(folder / "kept", fs::perms::owner_read);
  EXPECT_THROW(write_text_atomically(folder / "kept", "text"), IoError);
  EXPECT_EQ(read_file(folder / "kept"), "precious");
}

TEST(AtomicWrite, ALongNameNeedsNoLongerTemporaryName) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  write_text_atomically(folder / name, "x");
  EXPECT_THAT(names_in(folder), ElementsAre(name));
}

TEST(AtomicWrite, FailuresNameThePathAndLeaveNoTemporaryFile) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "taken");
  write_file(folder / "taken" / "inside", "");
  EXPECT_THAT(refusal<IoError>([&] { write_text_atomically(folder / "taken", "x"); }),
              AllOf(HasSubstr("taken"), HasSubstr("is a folder")));
  EXPECT_THAT(refusal<IoError>([&] { write_text_atomically(folder / "absent" / "a.json", "x"); }),
              AllOf(HasSubstr("absent"), HasSubstr("temporary file")));
  EXPECT_THAT(names_in(folder), ElementsAre("taken"));
}

TEST(ReadText, ReturnsEveryByteUpToTheLimit) {
  const TemporaryFolder folder;
  const std::string text = std::string(200'000, 'x') + std::string(1, '\0') + "\r\n";
  write_file(folder / "a.json", text);
  EXPECT_EQ(read_text(folder / "a.json", text.size()), text);
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { read_text(folder / "a.json", text.size() - 1); }),
              AllOf(HasSubstr("a.json"), HasSubstr("200002")));
  write_file(folder / "empty.json", "");
  EXPECT_EQ(read_text(folder / "empty.json", 0), "");
}

TEST(ReadText, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal<IoError>([&] { read_text(folder / "absent.json", 10); }), HasSubstr("absent.json"));
  EXPECT_THAT(refusal<IoError>([&] { read_text(folder.path(), 10); }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal<IoError>([&] { read_text(folder / "pipe", 10); }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal<IoError>([&] { read_text("/dev/zero", 10); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace shardcheck
