#include "failure_files.h"

#include <fmt/format.h>

#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {

std::filesystem::path write_failure_file(const std::filesystem::path& folder, const Law& law,
                                         const Failure& failure) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(fmt::format("{}: cannot create the folder: {}", folder.string(), error.message()));
  const std::uint64_t hash = stream_key(0, print_case(failure.minimal));
  const std::filesystem::path file = folder / fmt::format("{}-{:016x}.case", law.name, hash);
  write_text_atomically(file, regression_file(law, failure));
  return file;
}

}  // namespace shardcheck
