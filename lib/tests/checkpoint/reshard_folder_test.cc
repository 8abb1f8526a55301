#include "shardcheck/checkpoint/reshard_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "../reshard/mesh_layouts.h"
#include "checkpoint_fixture.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/checkpoint/shard_folder.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Any bytes, so that a value that changed on the way shows. Shifts are exact on small integers only.
TensorMap numbered_weights(const Geometry& geometry, DType dtype = DType::bf16) {
  TensorMap weights;
  std::int64_t next = 0;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    Tensor values = Tensor::zeros(DType::f32, tensor.shape);
    for (float& value : values.mutable_f32()) value = static_cast<float>(next++ * 37 % 251 - 125);
    weights.emplace(tensor.name, values.to(dtype));
  }
  return weights;
}

bool is_hugging_face(const Layout& layout) {
  return layout.degree == 1 && layout.name.table.starts_with("hf-");
}

void write_folder(const fs::path& folder, const Layout& layout, const ShardedTensors& shards) {
  if (!is_hugging_face(layout)) return write_shard_folder(folder, layout, shards);
  TensorMap tensors;
  for (const auto& [name, ranks] : shards) tensors.emplace(name, ranks.front());
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

/// Every file of a folder: name and bytes.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& item : fs::directory_iterator(folder)) {
    files[item.path().filename().string()] =
        item.is_regular_file() ? read_file(item.path()) : std::string("(no file)");
  }
  return files;
}

void expect_same_contents(const fs::path& actual, const fs::path& expected, const std::string& what) {
  const auto a = contents(actual), b = contents(expected);
  std::vector<std::string> names_a, names_b;
  for (const auto& [name, bytes] : a) names_a.push_back(name);
  for (const auto& [name, bytes] : b) names_b.push_back(name);
  ASSERT_EQ(names_a, names_b) << what;
  for (const auto& [name, bytes] : a) EXPECT_TRUE(bytes == b.at(name)) << what << " " << name;
}

ReshardOptions small_buffer() { return {.buffer_bytes = 4096}; }

// The claim of the whole room: what is streamed is what the tensors in memory would have become, file by
// file.
TEST(ReshardFolder, WritesTheFilesThatReshardingInMemoryWouldWrite) {
  for (const meshes::Family& family : meshes::families()) {
    const TensorMap weights = numbered_weights(family.geometry);
    for (std::size_t i = 0; i < family.layouts.size(); ++i) {
      const std::string to = family.layouts[(i + 1) % family.layouts.size()];
      const TemporaryFolder folder;
      const Layout source = meshes::layout(family.layouts[i], family.geometry);
      const Layout target = meshes::layout(to, family.geometry);
      const ShardedTensors shards = split(weights, source);
      write_folder(folder / "source", source, shards);
      write_folder(folder / "expected", target, reshard(shards, source, target));
      reshard_folder(folder / "source", source, folder / "large", target);
      reshard_folder(folder / "source", source, folder / "small", target, small_buffer());
      const std::string what = family.layouts[i] + " -> " + to;
      expect_same_contents(folder / "large", folder / "expected", what);
      expect_same_contents(folder / "small", folder / "expected", what + " in a small buffer");
    }
  }
}

TEST(DigestFolder, IsTheSameForEveryLayoutOfAModel) {
  for (const meshes::Family& family : meshes::families()) {
    const TensorMap weights = numbered_weights(family.geometry);
    WeightDigest expected;
    for (const LogicalTensor& tensor : logical_tensors(family.geometry)) {
      TensorDigest digest(tensor.name, DType::bf16, tensor.shape);
      digest.add_run(0, weights.at(tensor.name).bytes().data(), element_count(tensor.shape));
      expected += digest.sum() + digest_of_header(tensor.name, DType::bf16, tensor.shape);
    }
    for (const std::string& name : family.layouts) {
      const TemporaryFolder folder;
      const Layout layout = meshes::layout(name, family.geometry);
      write_folder(folder.path() / "shards", layout, split(weights, layout));
      const FolderDigest digest = digest_folder(folder / "shards", layout);
      EXPECT_EQ(digest.digest.hex(), expected.hex()) << name;
      EXPECT_THAT(digest.disagreements, IsEmpty()) << name;
      EXPECT_EQ(digest.tensors, std::ssize(logical_tensors(family.geometry))) << name;
    }
  }
}

}  // namespace
}  // namespace shardcheck
