#include "outputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "shardcheck/case/case.h"
#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;

/// The files that commands read from folders; a report beside them may be written again and again.
bool is_input_name(const fs::path& file) {
  constexpr std::array<std::string_view, 5> kNames = {"config.json", "model.safetensors.index.json",
                                                      "tokenizer.bin", "shardcheck.json", "in_process.json"};
  const std::string extension = file.extension().string();
  return extension == ".safetensors" || extension == ".case" ||
         std::find(kNames.begin(), kNames.end(), file.filename().string()) != kNames.end();
}

bool same_file(const fs::path& x, const fs::path& y) {
  std::error_code error;
  return fs::equivalent(x, y, error) && !error;
}

bool is_file_of(const fs::path& output, const fs::path& folder) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error))
    if (is_input_name(entry->path()) && same_file(output, entry->path())) return true;
  return false;
}

}  // namespace

void require_writable(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (status.type() == fs::file_type::directory)
    throw IoError(fmt::format("{}: is a folder, not a file that can be written", file.string()));
  if (fs::exists(status) && status.type() != fs::file_type::regular) return;
  constexpr fs::perms kWritable = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  if (fs::exists(status) && (status.permissions() & kWritable) == fs::perms::none)
    throw IoError(fmt::format("{}: is read-only", file.string()));
  // A link is written through: what counts is the folder of its target.
  const fs::path target = fs::is_symlink(file, error) ? fs::weakly_canonical(file, error) : file;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error))
    throw IoError(fmt::format("{}: cannot be written: no folder {}", file.string(), folder.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw IoError(fmt::format("{}: cannot be written: no permission in {}", file.string(), folder.string()));
}

void require_no_input_among(std::string_view option, const std::vector<fs::path>& outputs,
                            const std::vector<fs::path>& inputs) {
  std::error_code error;
  for (const fs::path& output : outputs) {
    if (!fs::is_regular_file(output, error)) continue;
    for (const fs::path& input : inputs)
      if (same_file(output, input) || (fs::is_directory(input, error) && is_file_of(output, input)))
        throw InvalidInput(fmt::format("{}={} is an input of this command: allowed is another file", option,
                                       output.string()));
  }
}

}  // namespace shardcheck
