#include "shardcheck/checkpoint/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {

namespace fs = std::filesystem;

std::vector<fs::path> files_under(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw IoError(fmt::format("{}: no such file or folder", path.string()));
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error))
    if (entry->is_regular_file(error)) files.push_back(entry->path());
  if (error) throw IoError(fmt::format("{}: {}", path.string(), error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

fs::path memory_folder() {
  std::error_code error;
  const fs::path memory = "/dev/shm";
  return fs::is_directory(memory, error) ? memory : fs::temp_directory_path();
}

TemporaryFolder::TemporaryFolder(const fs::path& parent) {
  std::string pattern = (parent / "shardcheck_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw IoError(fmt::format("{}: cannot be made", pattern));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace shardcheck
