// Runs the real program, as a user would, in a folder of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern char** environ;

namespace shardcheck::test {

struct Result {
  int code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
};

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_file(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

/// A folder that is removed at the end of the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardcheck_cli_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Starts `words[0]` in a folder with stdin empty, stdout and stderr opened on the given paths; -1 when it
/// does not.
inline pid_t start(std::vector<std::string> words, const std::filesystem::path& folder,
                   const std::string& out, const std::string& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_NOCTTY, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  if (posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

/// The code of a process that has ended; -1 when there is none.
inline int code_of(pid_t pid) {
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Runs `words[0]` to its end.
inline Result run_command(std::vector<std::string> words, const std::filesystem::path& folder) {
  const Folder output;
  const int code = code_of(start(std::move(words), folder, output / "out", output / "err"));
  return {code, read_file(output / "out"), read_file(output / "err")};
}

/// The same with stderr on a terminal.
inline Result run_on_terminal(std::vector<std::string> words, const std::filesystem::path& folder) {
  const Folder output;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return {};
  const std::string name = ptsname(terminal);
  const int held = open(name.c_str(), O_RDWR | O_NOCTTY);  // until the child holds it
  const pid_t pid = start(std::move(words), folder, output / "out", name);
  close(held);
  Result result;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;)
    result.err.append(buffer, static_cast<std::size_t>(got));
  close(terminal);
  result.code = code_of(pid);
  result.out = read_file(output / "out");
  return result;
}

/// Runs `words[0]` until stderr holds `text`, then sends a signal.
inline Result run_until(const std::string& text, int signal, std::vector<std::string> words,
                        const std::filesystem::path& folder) {
  const Folder output;
  const pid_t pid = start(std::move(words), folder, output / "out", output / "err");
  siginfo_t ended{};
  while (read_file(output / "err").find(text) == std::string::npos) {
    if (pid < 0 || (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                    ended.si_pid == pid))
      break;
    usleep(2000);
  }
  if (pid > 0) kill(pid, signal);
  const int code = code_of(pid);
  return {code, read_file(output / "out"), read_file(output / "err")};
}

inline Result shardcheck_in(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SHARDCHECK_PROGRAM);
  return run_command(std::move(arguments), folder);
}

inline Result shardcheck_program(std::vector<std::string> arguments) {
  const Folder folder;
  return shardcheck_in(folder.path(), std::move(arguments));
}

/// The refusal every wrong use must get: the code, nothing but one clear line on stderr.
inline void expect_refusal(const Result& result, int code, const std::string& part) {
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_EQ(result.err.rfind("shardcheck: ", 0), 0U) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err << "\nlacks: " << part;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin));
}

}  // namespace shardcheck::test
