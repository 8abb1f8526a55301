// What the tests of folders that are resharded share.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "checkpoint_fixture.h"
#include "reshard/mesh_layouts.h"
#include "shardcheck/checkpoint/reshard_folder.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck::testing {

/// Small integers, which a shift by one leaves exact in every dtype.
inline TensorMap numbered_weights(const Geometry& geometry, DType dtype = DType::bf16) {
  TensorMap weights;
  std::int64_t next = 0;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    Tensor values = Tensor::zeros(DType::f32, tensor.shape);
    for (float& value : values.mutable_f32()) value = static_cast<float>(next++ * 37 % 251 - 125);
    weights.emplace(tensor.name, values.to(dtype));
  }
  return weights;
}

inline bool is_hugging_face(const Layout& layout) {
  return layout.degree == 1 && layout.name.table.starts_with("hf-");
}

/// The folder as other code of the library writes it, whole tensors in memory.
inline void write_folder(const fs::path& folder, const Layout& layout, const ShardedTensors& shards) {
  if (!is_hugging_face(layout)) return write_shard_folder(folder, layout, shards);
  TensorMap tensors;
  for (const auto& [name, ranks] : shards) tensors.emplace(name, ranks.front());
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

inline void write_folder(const fs::path& folder, const Layout& layout, const TensorMap& weights) {
  write_folder(folder, layout, split(weights, layout));
}

/// Every file of a folder and its folders: name and bytes.
inline std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    files[fs::relative(item.path(), folder).string()] =
        item.is_regular_file() ? read_file(item.path()) : std::string("(no file)");
  }
  return files;
}

inline void expect_same_contents(const fs::path& actual, const fs::path& expected, const std::string& what) {
  const auto a = contents(actual), b = contents(expected);
  std::vector<std::string> names_a, names_b;
  for (const auto& [name, bytes] : a) names_a.push_back(name);
  for (const auto& [name, bytes] : b) names_b.push_back(name);
  ASSERT_EQ(names_a, names_b) << what;
  for (const auto& [name, bytes] : a) EXPECT_TRUE(bytes == b.at(name)) << what << " " << name;
}

/// Names in a folder, sorted; none when it is not there.
inline std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Changes one bit of a tensor in a file.
inline void flip_bit(const fs::path& file, const std::string& tensor, std::size_t byte) {
  std::string bytes = read_file(file);
  const SafetensorsHeader header = parse(bytes);
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.name == tensor) bytes[header.buffer_offset + entry.begin + byte] ^= 1;
  }
  write_file(file, bytes);
}

}  // namespace shardcheck::testing
