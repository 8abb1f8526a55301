#include <fmt/format.h>

#include "reshard_fixture.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WeightDigest digest_in_memory(const Geometry& geometry, const TensorMap& weights) {
  WeightDigest sum;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    const Tensor& values = weights.at(tensor.name);
    TensorDigest digest(tensor.name, values.dtype(), tensor.shape);
    digest.add_run(0, values.bytes().data(), values.elements());
    sum += digest.sum() + digest_of_header(tensor.name, values.dtype(), tensor.shape);
  }
  return sum;
}

TEST(DigestFolder, IsTheSameForEveryLayoutOfAModel) {
  for (const meshes::Family& family : meshes::families()) {
    const TensorMap weights = numbered_weights(family.geometry);
    const std::string expected = digest_in_memory(family.geometry, weights).hex();
    for (const std::string& name : family.layouts) {
      const TemporaryFolder folder(memory_folder());
      const Layout layout = meshes::layout(name, family.geometry);
      write_folder(folder / "shards", layout, weights);
      const FolderDigest found = digest_folder(folder / "shards", layout);
      EXPECT_EQ(found.digest.hex(), expected) << name;
      EXPECT_THAT(found.disagreements, IsEmpty()) << name;
      EXPECT_EQ(found.tensors, std::ssize(logical_tensors(family.geometry))) << name;
    }
  }
}

/// Shards of a layout in which a test changes one bit at a time.
class DigestOfShards : public ::testing::Test {
 protected:
  void write(const std::string& layout, const Geometry& geometry) {
    layout_ = meshes::layout(layout, geometry);
    write_folder(path(), layout_, numbered_weights(geometry));
  }
  fs::path path() const { return folder_ / "shards"; }
  fs::path file(int rank) const { return path() / shard_file_name(rank, layout_.degree); }
  FolderDigest digest() const { return digest_folder(path(), layout_); }

  TemporaryFolder folder_{memory_folder()};
  Layout layout_;
};

TEST_F(DigestOfShards, EveryBitCounts) {
  write("megatron-llama:tp2", meshes::llama());
  const WeightDigest before = digest().digest;
  for (const int rank : {0, 1}) {
    for (const std::string tensor :
         {"decoder.layers.2.self_attention.linear_qkv.weight", "decoder.layers.0.mlp.linear_fc1.weight",
          "decoder.layers.3.mlp.linear_fc2.weight"}) {
      flip_bit(file(rank), tensor, 7);
      EXPECT_NE(digest().digest, before) << tensor << " on rank " << rank;
      flip_bit(file(rank), tensor, 7);
    }
  }
  EXPECT_EQ(digest().digest, before);
}

TEST_F(DigestOfShards, ExchangedRanksShow) {
  write("vllm-llama:tp2", meshes::llama());
  const WeightDigest before = digest().digest;
  fs::rename(file(0), path() / "aside");
  fs::rename(file(1), file(0));
  fs::rename(path() / "aside", file(1));
  EXPECT_NE(digest().digest, before);
}

TEST_F(DigestOfShards, TheDigestsOfTheTensorsAddUpAndTellWhichOneChanged) {
  write("megatron-llama:tp2", meshes::llama());
  const FolderDigest before = digest();
  WeightDigest sum;
  for (const auto& [name, part] : before.by_tensor) sum += part;
  EXPECT_EQ(sum, before.digest);
  flip_bit(file(1), "decoder.layers.1.self_attention.linear_proj.weight", 0);
  std::vector<std::string> changed;
  for (const auto& [name, part] : digest().by_tensor) {
    if (before.by_tensor.at(name) != part) changed.push_back(name);
  }
  EXPECT_THAT(changed, ElementsAre("layers.1.o_proj"));
}

TEST_F(DigestOfShards, AReplicaThatDiffersIsNamedWithItsRanks) {
  write("megatron-llama:dp2,pp2,cp2,tp2", meshes::llama());
  const WeightDigest before = digest().digest;
  flip_bit(file(5), "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
           2);  // the second stage's first layer
  const FolderDigest found = digest();
  EXPECT_EQ(found.digest, before) << "the lowest rank counts";
  EXPECT_THAT(found.disagreements,
              ElementsAre(AllOf(HasSubstr("layers.2.ffn_norm"), HasSubstr("rank 5"), HasSubstr("rank 4"))));
}

// Four ranks hold two KV heads: each head twice, in tensors that are not replicas as a whole.
TEST_F(DigestOfShards, AReplicatedHeadThatDiffersIsNamed) {
  write("vllm-llama:tp4", meshes::llama());
  const std::string qkv = "model.layers.1.self_attn.qkv_proj.weight";
  const auto rows = static_cast<std::size_t>(layout_.find(qkv)->placed.local_shape(3)[0]);
  flip_bit(file(3), qkv, (rows - 1) * 10 * 2);  // the last row is one of v
  EXPECT_THAT(digest().disagreements,
              ElementsAre(AllOf(HasSubstr("layers.1.v"), HasSubstr("rank 3"), HasSubstr("rank 2"))));
}

TEST_F(DigestOfShards, ATiedCopyThatDiffersIsNamed) {
  write("megatron-llama:pp2,tp2", meshes::tied_llama());
  flip_bit(file(2), "output_layer.weight", 0);
  EXPECT_THAT(digest().disagreements,
              ElementsAre(AllOf(HasSubstr("embed"), HasSubstr("'output_layer.weight'"), HasSubstr("rank 2"),
                                HasSubstr("rank 0"))));
}

TEST_F(DigestOfShards, PaddingThatIsNotZeroIsNamed) {
  write("megatron-llama:tp2", meshes::llama());
  const std::string embed = "embedding.word_embeddings.weight";
  const auto rows = static_cast<std::size_t>(layout_.find(embed)->placed.local_shape(1)[0]);
  const WeightDigest before = digest().digest;
  flip_bit(file(1), embed, rows * 10 * 2 - 1);
  const FolderDigest found = digest();
  EXPECT_EQ(found.digest, before) << "padding does not count";
  EXPECT_THAT(found.disagreements,
              ElementsAre(AllOf(HasSubstr(embed), HasSubstr("padding"), HasSubstr("rank 1"))));
}

TEST(DigestFolder, AddendsHaveNone) {
  Geometry geometry = meshes::llama();
  geometry.qk_norm = geometry.qkv_bias = false;
  const TemporaryFolder folder(memory_folder());
  const Layout layout = meshes::layout("seed-bias-divided:tp2", geometry);
  write_folder(folder / "shards", layout, numbered_weights(geometry));
  EXPECT_THROW(digest_folder(folder / "shards", layout), UnsupportedLayout);
}

}  // namespace
}  // namespace shardcheck
