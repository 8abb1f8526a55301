#include "checkpoint/carried_files.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "checkpoint/files.h"
#include "checkpoint/system_call.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kNames = {
    "added_tokens.json", "chat_template.jinja",     "config.json", "generation_config.json",
    "merges.txt",        "special_tokens_map.json", "vocab.json"};
constexpr std::string_view kPrefix = "tokenizer";

bool is_carried(std::string_view name) {
  return name.starts_with(kPrefix) || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void copy_whole(const fs::path& source, const fs::path& target) {
  const OpenedFile opened = open_for_reading(source);
  AtomicFile copy(target);
  std::vector<std::byte> chunk(std::size_t{1} << 20);
  while (true) {
    const ssize_t count = retry([&] { return ::read(opened.descriptor.get(), chunk.data(), chunk.size()); });
    if (count < 0) fail_io(source, "read");
    if (count == 0) break;
    copy.write(std::span(chunk).first(static_cast<std::size_t>(count)));
  }
  copy.commit();
}

}  // namespace

std::vector<std::string> carried_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (is_carried(name) && at->is_regular_file(ignored)) names.push_back(name);
  }
  if (error) fail_io(folder, "list the folder", error);
  std::sort(names.begin(), names.end());
  return names;
}

void carry_files(const fs::path& source, const std::vector<std::string>& names, const fs::path& target) {
  for (const std::string& name : names) copy_whole(source / name, target / name);
}

}  // namespace shardcheck
