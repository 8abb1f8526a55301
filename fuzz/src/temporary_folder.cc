#include "temporary_folder.h"

#include <cstdlib>
#include <string>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path root() {
  std::error_code error;
  const fs::path memory = "/dev/shm";
  return fs::is_directory(memory, error) ? memory : fs::temp_directory_path();
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (root() / "shardcheck_fuzz_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw IoError(pattern + ": cannot be created");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace shardcheck::fuzz
