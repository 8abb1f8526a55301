// What libFuzzer calls, for the one target of the program.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "one_target.h"
#include "shardcheck/fuzz/editor.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using shardcheck::Stream;
using shardcheck::fuzz::finding_of;
using shardcheck::fuzz::InputFormat;
using shardcheck::fuzz::Target;
using shardcheck::fuzz::the_target;

std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

[[noreturn]] void report(const Target& target, const std::string& finding, std::string_view input) {
  std::fprintf(stderr, "finding: %.*s: %s\n", static_cast<int>(target.name.size()), target.name.data(),
               finding.c_str());
  if (target.format != InputFormat::safetensors)
    std::fprintf(stderr, "input: %.*s\n", static_cast<int>(input.size()), input.data());
  std::abort();
}

/// Copies the edited input to where libFuzzer wants it; 0 when it does not fit.
std::size_t deliver(const std::optional<std::string>& edited, std::uint8_t* out, std::size_t max_size) {
  if (!edited || edited->empty() || edited->size() > max_size) return 0;
  std::memcpy(out, edited->data(), edited->size());
  return edited->size();
}

}  // namespace

/// Limits of the target, before the user's own flags, which take precedence.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::vector<std::string> flags = {"-max_len=" + std::to_string(the_target().max_bytes),
                                           "-len_control=0", "-timeout=10", "-rss_limit_mb=2048",
                                           "-malloc_limit_mb=512"};
  static std::vector<char*> words;
  words = {(*argv)[0]};
  for (std::string& flag : flags) words.push_back(flag.data());
  words.insert(words.end(), *argv + 1, *argv + *argc);
  *argc = static_cast<int>(words.size());
  words.push_back(nullptr);
  *argv = words.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = text_of(data, size);
  if (const std::string finding = finding_of(the_target(), input); !finding.empty())
    report(the_target(), finding, input);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  Stream stream(seed, "edit");
  const auto edited = shardcheck::fuzz::edit(the_target(), text_of(data, size), stream);
  const std::size_t length = deliver(edited, data, max_size);
  return length > 0 ? length : LLVMFuzzerMutate(data, size, max_size);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* data1, std::size_t size1,
                                                 const std::uint8_t* data2, std::size_t size2,
                                                 std::uint8_t* out, std::size_t max_size, unsigned int seed) {
  Stream stream(seed, "cross over");
  const auto crossed =
      shardcheck::fuzz::cross_over(the_target(), text_of(data1, size1), text_of(data2, size2), stream);
  return deliver(crossed, out, max_size);
}
