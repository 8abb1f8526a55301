#include "shardcheck/checkpoint/reshard_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reshard_fixture.h"
#include "shardcheck/checkpoint/hugging_face.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Share of a file's pages that the system holds in memory; `forget` asks it to let go of them first.
double share_in_memory(const fs::path& file, bool forget = false) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (forget) {
    ::fsync(descriptor);
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  }
  const std::size_t size = fs::file_size(file), page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  std::vector<unsigned char> pages((size + page - 1) / page);
  EXPECT_EQ(::mincore(mapped, size, pages.data()), 0) << file;
  ::munmap(mapped, size);
  const auto held = std::count_if(pages.begin(), pages.end(), [](unsigned char bits) { return bits & 1; });
  return static_cast<double>(held) / static_cast<double>(pages.size());
}

/// A folder that tests fill with checkpoints.
class ReshardFolder : public ::testing::Test {
 protected:
  void reshard_to(const std::string& source, const Layout& from, const std::string& target, const Layout& to,
                  const ReshardOptions& options = {}) {
    reshard_folder(folder_ / source, from, folder_ / target, to, options);
  }

  TemporaryFolder folder_{memory_folder()};
  Geometry geometry_ = meshes::llama();
  Layout plain_ = meshes::layout("hf-llama", geometry_);
  Layout megatron_ = meshes::layout("megatron-llama:tp2", geometry_);
  TensorMap weights_ = numbered_weights(geometry_);
};

// What is streamed is what the tensors in memory would have become, file by file.
TEST(ReshardFolders, HoldTheFilesThatReshardingInMemoryWouldWrite) {
  for (const meshes::Family& family : meshes::families()) {
    const TensorMap weights = numbered_weights(family.geometry);
    for (std::size_t i = 0; i < family.layouts.size(); ++i) {
      const std::string from = family.layouts[i], to = family.layouts[(i + 1) % family.layouts.size()];
      const TemporaryFolder folder(memory_folder());
      const Layout source = meshes::layout(from, family.geometry);
      const Layout target = meshes::layout(to, family.geometry);
      const ShardedTensors shards = split(weights, source);
      write_folder(folder / "source", source, shards);
      write_folder(folder / "expected", target, reshard(shards, source, target));
      reshard_folder(folder / "source", source, folder / "large", target);
      reshard_folder(folder / "source", source, folder / "small", target, {.buffer_bytes = 4096});
      expect_same_contents(folder / "large", folder / "expected", from + " -> " + to);
      expect_same_contents(folder / "small", folder / "expected", from + " -> " + to + " in a small buffer");
    }
  }
}

// Chunks then end inside rows, experts and transposed columns.
TEST(ReshardFolders, DoNotDependOnTheBufferWhereTensorsAreLarger) {
  Geometry experts = meshes::experts();
  experts.d_model = 96, experts.ffn = 104, experts.expert_ffn = 72;
  Geometry gpt2 = meshes::gpt2();
  gpt2.d_model = 96, gpt2.ffn = 202;
  Geometry llama = meshes::llama();
  llama.d_model = 1100;
  const std::vector<std::tuple<Geometry, std::string, std::string>> pairs = {
      {experts, "hf-moe", "vllm-moe:ep3,tp2"},
      {experts, "vllm-moe:tp2", "megatron-moe:ep4,tp2"},
      {gpt2, "hf-gpt2:tp2", "hf-gpt2"},
      {llama, "hf-llama", "megatron-llama-zero-centered:tp2"},
      {llama, "fsdp2-tp:dp3", "megatron-llama:pp2,tp2"}};
  for (const auto& [geometry, from, to] : pairs) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const TemporaryFolder folder(memory_folder());
      const Layout source = meshes::layout(from, geometry), target = meshes::layout(to, geometry);
      const ShardedTensors shards = split(numbered_weights(geometry, dtype), source);
      write_folder(folder / "source", source, shards);
      write_folder(folder / "expected", target, reshard(shards, source, target));
      reshard_folder(folder / "source", source, folder / "small", target, {.buffer_bytes = 4096});
      expect_same_contents(folder / "small", folder / "expected", from + " -> " + to);
    }
  }
}

TEST_F(ReshardFolder, AChainOfFrameworksGivesTheOriginalTensorsBack) {
  const std::vector<std::string> stages = {"hf-llama", "megatron-llama:tp4", "vllm-llama:tp2", "hf-llama"};
  const auto folder_of = [](std::size_t stage) { return fmt::format("stage{}", stage); };
  write_folder(folder_ / folder_of(0), plain_, weights_);
  const std::string digest = digest_folder(folder_ / folder_of(0), plain_).digest.hex();
  for (std::size_t i = 1; i < stages.size(); ++i) {
    const Layout target = meshes::layout(stages[i], geometry_);
    reshard_to(folder_of(i - 1), meshes::layout(stages[i - 1], geometry_), folder_of(i), target);
    const FolderDigest found = digest_folder(folder_ / folder_of(i), target);
    EXPECT_EQ(found.digest.hex(), digest) << stages[i];
    EXPECT_THAT(found.disagreements, IsEmpty());
  }
  expect_same_contents(folder_ / folder_of(3), folder_ / folder_of(0), "there and back");
}

TEST_F(ReshardFolder, TheStoriesCheckpointComesBackByteForByte) {
  const Geometry geometry = load_checkpoint(stories_folder()).config.geometry;
  const Layout plain = meshes::layout("hf-llama", geometry);
  const Layout megatron = meshes::layout("megatron-llama:tp4", geometry);
  const Layout vllm = meshes::layout("vllm-llama:tp2", geometry);
  reshard_folder(stories_folder(), plain, folder_ / "megatron", megatron);
  reshard_to("megatron", megatron, "vllm", vllm);
  reshard_to("vllm", vllm, "back", plain);
  const TensorMap original = load_tensors(stories_folder()), back = load_tensors(folder_ / "back");
  ASSERT_EQ(back.size(), original.size());
  for (const auto& [name, tensor] : original) EXPECT_TRUE(back.at(name).same_bytes(tensor)) << name;
  EXPECT_EQ(read_file(folder_ / "back/config.json"), read_file(stories_folder() / "config.json"));
}

TEST_F(ReshardFolder, EveryTensorKeepsItsDType) {
  TensorMap tensors;
  for (auto& [name, ranks] : split(weights_, plain_)) {
    tensors[name] = ranks[0].rank() == 1 ? ranks[0].to(DType::f32) : ranks[0];
  }
  fs::create_directories(folder_ / "source");
  write_safetensors(folder_ / "source/model.safetensors", tensors);
  reshard_to("source", plain_, "target", megatron_);
  for (const auto& [name, ranks] : read_shard_folder(folder_ / "target", megatron_)) {
    const DType dtype = megatron_.find(name)->placed.shape().size() == 1 ? DType::f32 : DType::bf16;
    EXPECT_EQ(ranks[0].dtype(), dtype) << name;
  }
  reshard_to("target", megatron_, "back", plain_);
  for (const auto& [name, tensor] : load_tensors(folder_ / "back")) {
    EXPECT_TRUE(tensor.same_bytes(tensors.at(name))) << name;
  }
}

TEST_F(ReshardFolder, DTypesThatCannotShareATensorAreNamed) {
  TensorMap tensors;
  for (auto& [name, ranks] : split(weights_, plain_)) tensors[name] = ranks[0];
  Tensor& k = tensors.at("model.layers.1.self_attn.k_proj.weight");
  k = k.to(DType::f32);
  fs::create_directories(folder_ / "source");
  write_safetensors(folder_ / "source/model.safetensors", tensors);
  EXPECT_THAT(refusal<InvalidShards>([&] { reshard_to("source", plain_, "target", megatron_); }),
              AllOf(HasSubstr("decoder.layers.1.self_attention.linear_qkv.weight"),
                    HasSubstr("'layers.1.q' is bf16"), HasSubstr("'layers.1.k' is f32")));
  EXPECT_FALSE(fs::exists(folder_ / "target"));
}

TEST_F(ReshardFolder, QuantisedElementsAreMovedAsTheyLie) {
  for (const DType dtype : {DType::f8_e4m3, DType::f64}) {
    TensorMap weights;
    for (const auto& [name, tensor] : weights_) {
      Tensor bits = Tensor::zeros(dtype, tensor.shape());
      std::size_t i = 0;
      for (std::byte& byte : bits.mutable_bytes()) byte = static_cast<std::byte>(i++ * 31 + name.size());
      weights.emplace(name, bits);
    }
    const std::string kind(short_name(dtype));
    const ShardedTensors shards = split(weights, plain_);
    write_folder(folder_ / ("source" + kind), plain_, shards);
    write_folder(folder_ / ("expected" + kind), megatron_, reshard(shards, plain_, megatron_));
    reshard_to("source" + kind, plain_, "target" + kind, megatron_, {.buffer_bytes = 4096});
    expect_same_contents(folder_ / ("target" + kind), folder_ / ("expected" + kind), kind);
  }
}

TEST_F(ReshardFolder, LargeHuggingFaceTargetsAreCutIntoFilesWithAnIndex) {
  write_folder(folder_ / "source", megatron_, weights_);
  constexpr std::uint64_t kLimit = 600;
  reshard_to("source", megatron_, "target", plain_, {.max_shard_bytes = kLimit});
  const json index = json::parse(read_file(folder_ / "target/model.safetensors.index.json"));
  const std::vector<std::string> names = names_in(folder_ / "target");
  const std::size_t files = names.size() - 1;
  ASSERT_GT(files, 2U);
  EXPECT_EQ(names.front(), fmt::format("model-00001-of-{:05}.safetensors", files));
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < files; ++i) {
    const SafetensorsFile file(folder_ / "target" / names[i]);
    const std::uint64_t size = file.header().entries.back().end;
    EXPECT_TRUE(size <= kLimit || file.header().entries.size() == 1) << names[i];
    total += size;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  const ShardedTensors expected = split(weights_, plain_);
  const TensorMap tensors = load_tensors(folder_ / "target");
  ASSERT_EQ(tensors.size(), expected.size());
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(tensor.same_bytes(expected.at(name)[0])) << name;
  reshard_to("target", plain_, "back", megatron_);
  expect_same_contents(folder_ / "back", folder_ / "source", "from a sharded folder");
}

TEST_F(ReshardFolder, WhatEveryReaderNeedsIsCarriedAlong) {
  write_folder(folder_ / "source", plain_, weights_);
  for (const std::string name : {"config.json", "generation_config.json", "tokenizer.json",
                                 "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json"}) {
    write_file(folder_ / "source" / name, "text of " + name);
  }
  write_file(folder_ / "source/pytorch_model.bin", "another format");
  reshard_to("source", plain_, "shards", megatron_);
  reshard_to("shards", megatron_, "back", plain_);
  fs::remove(folder_ / "source/pytorch_model.bin");
  expect_same_contents(folder_ / "back", folder_ / "source", "carried");
}

// Memory that files would fill for good is what a run pays for most where pages are dear. On a file system
// that has nothing but memory the source shows that nothing can be let go of.
TEST(ReshardFolders, WhatIsOnTheDiskIsNotKeptInMemory) {
  Geometry geometry = meshes::llama();
  geometry.d_model = 1100;
  const TemporaryFolder folder;
  const Layout source = meshes::layout("hf-llama", geometry),
               target = meshes::layout("megatron-llama:tp2", geometry);
  write_folder(folder / "source", source, numbered_weights(geometry));
  reshard_folder(folder / "source", source, folder / "target", target, {.checkpoint_bytes = 1 << 18});
  const double possible = share_in_memory(folder / "source/model.safetensors", true);
  for (const int rank : {0, 1}) {
    const fs::path file = folder / "target" / shard_file_name(rank, 2);
    ASSERT_GT(fs::file_size(file), 1u << 17);
    EXPECT_LE(share_in_memory(file), possible + 0.1) << file;
  }
}

TEST_F(ReshardFolder, ATargetThatHoldsSomethingElseIsRefusedAndLeftAlone) {
  write_folder(folder_ / "source", plain_, weights_);
  fs::create_directories(folder_ / "target");
  write_file(folder_ / "target/notes.txt", "mine");
  const auto message = [&] {
    return refusal<InvalidInput>([&] { reshard_to("source", plain_, "target", megatron_); });
  };
  EXPECT_THAT(message(), AllOf(HasSubstr("target"), HasSubstr("'notes.txt'"), HasSubstr("new or empty")));
  EXPECT_THAT(names_in(folder_ / "target"), ElementsAre("notes.txt"));
  EXPECT_THAT(refusal<InvalidInput>([&] { reshard_to("source", plain_, "source", megatron_); }),
              HasSubstr("'model.safetensors'"));
  fs::remove(folder_ / "target/notes.txt");
  reshard_to("source", plain_, "target", megatron_);
  EXPECT_THAT(message(), HasSubstr("'rank_00000-of-00002.safetensors'"));
}

TEST_F(ReshardFolder, ReplicasThatDifferAreRefused) {
  write_folder(folder_ / "source", megatron_, weights_);
  const std::string norm = "decoder.final_layernorm.weight";
  flip_bit(folder_ / "source" / shard_file_name(1, 2), norm, 3);
  EXPECT_THAT(refusal<InvalidShards>([&] { reshard_to("source", megatron_, "target", plain_); }),
              AllOf(HasSubstr("final_norm"), HasSubstr(norm), HasSubstr("rank 1"), HasSubstr("rank 0")));
  EXPECT_FALSE(fs::exists(folder_ / "target"));
}

TEST_F(ReshardFolder, AStoredHeadOfATiedCheckpointMustBeTheEmbedding) {
  const Geometry tied = meshes::tied_llama();
  const Layout plain = meshes::layout("hf-llama", tied), vllm = meshes::layout("vllm-llama:tp2", tied);
  TensorMap tensors;
  for (auto& [name, ranks] : split(numbered_weights(tied), plain)) tensors[name] = ranks[0];
  const auto write = [&](const Tensor& head) {
    tensors["lm_head.weight"] = head;
    fs::create_directories(folder_ / "source");
    write_safetensors(folder_ / "source/model.safetensors", tensors);
  };
  const Tensor embed = tensors.at("model.embed_tokens.weight");
  Tensor other = embed;
  other.set_bits(5, 1);
  write(other);
  EXPECT_THAT(refusal<InvalidInput>([&] { reshard_to("source", plain, "target", vllm); }),
              AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("'model.embed_tokens.weight'")));
  write(embed.to(DType::f32));
  EXPECT_THAT(refusal<InvalidInput>([&] { reshard_to("source", plain, "target", vllm); }),
              AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("F32"), HasSubstr("BF16")));
  write(embed);
  reshard_to("source", plain, "target", vllm);
  reshard_to("target", vllm, "back", plain);
  tensors.erase("lm_head.weight");
  const TensorMap back = load_tensors(folder_ / "back");
  ASSERT_EQ(back.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(back.at(name).same_bytes(tensor)) << name;
}

TEST_F(ReshardFolder, AHuggingFaceFolderThatDoesNotFitIsRefusedByName) {
  TensorMap tensors;
  for (auto& [name, ranks] : split(weights_, plain_)) tensors[name] = ranks[0];
  const auto message = [&] {
    fs::create_directories(folder_ / "source");
    write_safetensors(folder_ / "source/model.safetensors", tensors);
    return refusal<InvalidInput>([&] { reshard_to("source", plain_, "target", megatron_); });
  };
  const std::string norm = "model.norm.weight";
  const Tensor right = tensors.at(norm);
  tensors.erase(norm);
  EXPECT_THAT(message(), AllOf(HasSubstr("1 missing: '" + norm + "'")));
  tensors[norm] = Tensor::zeros(DType::bf16, {3});
  EXPECT_THAT(message(), AllOf(HasSubstr(norm), HasSubstr("[3]"), HasSubstr("[10]")));
  tensors[norm] = right;
  tensors["model.extra"] = right;
  EXPECT_THAT(message(), AllOf(HasSubstr("1 extra: 'model.extra'")));
  tensors.erase("model.extra");
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = right;
  write_safetensors(folder_ / "source/model.safetensors", tensors);
  EXPECT_NO_THROW(reshard_to("source", plain_, "target", megatron_));
  EXPECT_THAT(refusal<InvalidInput>([&] {
                reshard_to("source", meshes::layout("hf-llama:tp2", geometry_), "other", megatron_);
              }),
              AllOf(HasSubstr("Hugging Face"), HasSubstr("one rank"), HasSubstr("hf-llama:tp2")));
}

TEST_F(ReshardFolder, ADescriptionCountsAndWritesNothing) {
  write_folder(folder_ / "source", plain_, weights_);
  const auto before = names_in(folder_.path());
  const ReshardSummary summary = describe_reshard(folder_ / "source", plain_, megatron_);
  EXPECT_EQ(names_in(folder_.path()), before);
  EXPECT_EQ(summary.target.ranks, 2);
  EXPECT_EQ(summary.target.files, 2);
  EXPECT_EQ(summary.elements_copied, plan_bound(plain_, megatron_).elements);
  EXPECT_EQ(summary.elements_bound, summary.elements_copied);
  EXPECT_EQ(summary.bytes_copied, 2 * static_cast<std::uint64_t>(summary.elements_copied));
  EXPECT_EQ(summary.copies, std::ssize(make_plan(plain_, megatron_).copies));
  reshard_to("source", plain_, "target", megatron_);
  std::uint64_t size = 0;
  for (int rank = 0; rank < 2; ++rank) size += fs::file_size(folder_ / "target" / shard_file_name(rank, 2));
  EXPECT_EQ(summary.target.bytes, size);
}

TEST_F(ReshardFolder, BuffersOutOfRangeAreRefused) {
  write_folder(folder_ / "source", plain_, weights_);
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{4095}, (std::uint64_t{1} << 30) + 1}) {
    EXPECT_THAT(refusal<InvalidInput>(
                    [&] { reshard_to("source", plain_, "target", megatron_, {.buffer_bytes = size}); }),
                AllOf(HasSubstr(fmt::format("{} bytes", size)), HasSubstr("4096")));
  }
}

}  // namespace
}  // namespace shardcheck
