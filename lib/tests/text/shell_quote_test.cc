#include "shardcheck/text/shell_quote.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace shardcheck {
namespace {

/// What a shell makes of a word.
std::string read_by_a_shell(const std::string& word) {
  const std::string command = "printf %s " + word;
  FILE* shell = ::popen(command.c_str(), "r");
  if (shell == nullptr) return "no shell";
  std::string text;
  std::array<char, 256> chunk;
  while (const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), shell))
    text.append(chunk.data(), count);
  ::pclose(shell);
  return text;
}

TEST(ShellQuote, AShellReadsTheTextBack) {
  for (const std::string text :
       {"", "plain-word_1.txt", "two words", "it's", "'", "$HOME `id` $(id)", "a;b|c&d", "*?[x]", "~",
        "\"double\"", "back\\slash", "line\nbreak", "--option=a,b", "\xc3\xa9"}) {
    EXPECT_EQ(read_by_a_shell(shell_quote(text)), text);
  }
}

TEST(ShellQuote, LeavesPlainWordsAsTheyAre) {
  EXPECT_EQ(shell_quote("build/shardcheck"), "build/shardcheck");
  EXPECT_EQ(shell_quote("two words"), "'two words'");
}

}  // namespace
}  // namespace shardcheck
