#include "shardcheck/checkpoint/shard_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint_fixture.h"
#include "reshard/mesh_layouts.h"

namespace shardcheck {
namespace {

using namespace shardcheck::testing;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Layout layout_named(const std::string& name) {
  return make_layout(parse_layout_name(name), small_geometry());
}

ShardedTensors random_shards(const Layout& layout, std::uint64_t seed = 3) {
  return split(make_weights(layout.geometry, WeightStyle::powered, seed, DType::bf16), layout);
}

/// A folder with shards of "vllm-llama:tp2" that a test then damages.
class ShardFolder : public ::testing::Test {
 protected:
  ShardFolder() { write_shard_folder(path(), layout_, shards_); }

  fs::path path() const { return folder_ / "shards"; }
  fs::path file(int rank) const { return path() / shard_file_name(rank, 2); }
  fs::path record() const { return path() / "shardcheck.json"; }
  std::string message() const {
    return refusal<InvalidInput>([&] { read_shard_folder(path(), layout_); });
  }
  /// The refusal of shardcheck.json after `edit`.
  std::string message_after(const std::function<void(json&)>& edit) const {
    json document = json::parse(read_file(record()));
    edit(document);
    write_file(record(), document.dump());
    return refusal<InvalidCheckpoint>([&] { read_shard_folder_info(path()); });
  }

  TemporaryFolder folder_;
  Layout layout_ = layout_named("vllm-llama:tp2");
  ShardedTensors shards_ = random_shards(layout_);
};

void expect_same(const ShardedTensors& actual, const ShardedTensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, ranks] : expected) {
    ASSERT_EQ(actual.at(name).size(), ranks.size()) << name;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_TRUE(actual.at(name)[rank].same_bytes(ranks[rank])) << name << " rank " << rank;
    }
  }
}

TEST(ShardFileName, PadsRankAndDegree) {
  EXPECT_EQ(shard_file_name(0, 1), "rank_00000-of-00001.safetensors");
  EXPECT_EQ(shard_file_name(1023, 1024), "rank_01023-of-01024.safetensors");
  EXPECT_THROW(shard_file_name(2, 2), std::out_of_range);
  EXPECT_THROW(shard_file_name(-1, 2), std::out_of_range);
  EXPECT_THROW(shard_file_name(0, 0), std::out_of_range);
}

TEST(ShardFolders, ComeBackByteForByteAtEveryLayout) {
  const TemporaryFolder folder;
  for (const std::string name : {"seed", "seed:tp2", "hf-llama:tp2", "vllm-llama", "vllm-llama:tp2"}) {
    const Layout layout = layout_named(name);
    const ShardedTensors shards = random_shards(layout);
    write_shard_folder(folder / name, layout, shards);
    expect_same(read_shard_folder(folder / name, layout), shards);
    const auto info = read_shard_folder_info(folder / name);
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(to_string(info->layout), name);
    EXPECT_EQ(info->geometry, layout.geometry);
  }
}

TEST(ShardFolders, OfAMeshHoldWhatEachRankHoldsUnderItsOwnNumbers) {
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& name : family.layouts) {
      const TemporaryFolder folder(memory_folder());
      const Layout layout = meshes::layout(name, family.geometry);
      const ShardedTensors shards =
          split(make_weights(family.geometry, WeightStyle::fingerprint, 3, DType::f32), layout);
      write_shard_folder(folder / "shards", layout, shards);
      expect_same(read_shard_folder(folder / "shards", layout), shards);
      const auto info = read_shard_folder_info(folder / "shards");
      ASSERT_TRUE(info.has_value());
      EXPECT_EQ(to_string(info->layout), name);
      EXPECT_EQ(info->geometry, family.geometry) << name;
    }
  }
}

TEST(ShardFolders, OfAPipelineCountLayersPerRank) {
  const TemporaryFolder folder(memory_folder());
  const Layout layout = meshes::layout("megatron-llama:pp3,tp2,first1,last2", meshes::llama());
  write_shard_folder(folder / "shards", layout,
                     split(make_weights(layout.geometry, WeightStyle::fingerprint, 3, DType::f32), layout));
  const SafetensorsFile last(folder / "shards" / shard_file_name(5, 6));
  EXPECT_TRUE(last.contains("decoder.layers.1.mlp.linear_fc2.weight"));
  EXPECT_FALSE(last.contains("decoder.layers.2.mlp.linear_fc2.weight"));
  EXPECT_FALSE(last.contains("embedding.word_embeddings.weight"));
  const json document = json::parse(read_file(folder / "shards/shardcheck.json"));
  EXPECT_EQ(document["mesh"], (json{{"pp", 3}, {"tp", 2}}));
  EXPECT_EQ(document["layout"], "megatron-llama:pp3,tp2,first1,last2");
}

TEST(ShardFolders, RecordOnlyThoseFurtherFieldsThatAreSet) {
  const TemporaryFolder folder(memory_folder());
  const Layout layout = meshes::layout("hf-moe:tp2", meshes::experts());
  write_shard_folder(folder / "shards", layout,
                     split(make_weights(layout.geometry, WeightStyle::fingerprint, 3, DType::f32), layout));
  const json geometry = json::parse(read_file(folder / "shards/shardcheck.json"))["geometry"];
  EXPECT_EQ(geometry["n_experts"], 4);
  EXPECT_EQ(geometry["router_bias"], true);
  EXPECT_FALSE(geometry.contains("kv_lora"));
  EXPECT_FALSE(geometry.contains("norm"));
}

TEST_F(ShardFolder, HoldsRankFilesAndTheRecord) {
  EXPECT_THAT(names_in(folder_), ElementsAre("shards"));
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(path())) names.push_back(item.path().filename().string());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("rank_00000-of-00002.safetensors",
                                                     "rank_00001-of-00002.safetensors", "shardcheck.json"));
}

TEST_F(ShardFolder, TheRecordSaysLayoutMeshAndGeometry) {
  const json document = json::parse(read_file(record()));
  EXPECT_EQ(document["format"], 1);
  EXPECT_EQ(document["layout"], "vllm-llama:tp2");
  EXPECT_EQ(document["mesh"], (json{{"tp", 2}}));
  EXPECT_EQ(document["geometry"]["d_model"], 24);
  EXPECT_EQ(document["geometry"]["rope"], "half");
  EXPECT_EQ(document["geometry"].size(), 14U);
}

TEST_F(ShardFolder, ANewWriteReplacesTheOld) {
  const ShardedTensors other = random_shards(layout_, 4);
  write_shard_folder(path(), layout_, other);
  expect_same(read_shard_folder(path(), layout_), other);
}

TEST_F(ShardFolder, AWriteAtAnotherDegreeIsRefusedAndChangesNothing) {
  const Layout other = layout_named("vllm-llama");
  EXPECT_THAT(refusal<IoError>([&] { write_shard_folder(path(), other, random_shards(other)); }),
              HasSubstr("rank_00000-of-00002.safetensors"));
  expect_same(read_shard_folder(path(), layout_), shards_);
}

TEST_F(ShardFolder, ShardsThatDoNotFitAreNotWritten) {
  ShardedTensors wrong = shards_;
  wrong.begin()->second.pop_back();
  EXPECT_THROW(write_shard_folder(folder_ / "new", layout_, wrong), InvalidShards);
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

TEST_F(ShardFolder, AFileInTheWayIsAnIoError) {
  write_file(folder_ / "file", "");
  EXPECT_THAT(refusal<IoError>([&] { write_shard_folder(folder_ / "file", layout_, shards_); }),
              HasSubstr("file"));
}

TEST_F(ShardFolder, AnInterruptedWriteLeavesNoRecord) {
  fs::remove(file(1));
  fs::create_directory(file(1));  // the rename onto it fails
  EXPECT_THROW(write_shard_folder(path(), layout_, shards_), IoError);
  EXPECT_FALSE(fs::exists(record()));
  EXPECT_THAT(message(), HasSubstr("unfinished"));
}

TEST_F(ShardFolder, AMissingFileIsNamed) {
  fs::remove(file(1));
  EXPECT_THAT(message(), AllOf(HasSubstr("missing"), HasSubstr("'rank_00001-of-00002.safetensors'")));
}

TEST_F(ShardFolder, AnExtraFileIsNamed) {
  for (const std::string name : {"rank_00002-of-00002.safetensors", "rank_00000-of-00004.safetensors",
                                 "rank_0-of-2.safetensors", "rank_.safetensors"}) {
    write_file(path() / name, "");
    EXPECT_THAT(message(), AllOf(HasSubstr("extra"), HasSubstr(name), HasSubstr("degree 2")));
    fs::remove(path() / name);
  }
  write_file(path() / "README.md", "");
  expect_same(read_shard_folder(path(), layout_), shards_);
}

TEST_F(ShardFolder, AnotherDegreeThanTheFilesIsRefused) {
  const Layout other = layout_named("vllm-llama");
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { read_shard_folder(path(), other); }),
              AllOf(HasSubstr("rank_00000-of-00002.safetensors"), HasSubstr("degree 1")));
}

TEST_F(ShardFolder, ATruncatedFileIsNamed) {
  const std::string whole = read_file(file(1));
  write_file(file(1), whole.substr(0, whole.size() - 1));
  EXPECT_THAT(message(), AllOf(HasSubstr("rank_00001-of-00002.safetensors"), HasSubstr("truncated")));
  write_file(file(1), "");
  EXPECT_THAT(message(), AllOf(HasSubstr("rank_00001-of-00002.safetensors"), HasSubstr("0 bytes")));
}

TEST_F(ShardFolder, MissingAndExtraTensorsAreNamedWithTheirFile) {
  TensorMap tensors = SafetensorsFile(file(1)).tensors();
  const std::string first = tensors.begin()->first;
  tensors.erase(first);
  tensors["bogus"] = Tensor::zeros(DType::f32, {1});
  write_safetensors(file(1), tensors);
  EXPECT_THAT(message(), AllOf(HasSubstr("rank_00001-of-00002.safetensors"),
                               HasSubstr("1 missing: '" + first + "'"), HasSubstr("1 extra: 'bogus'")));
}

TEST_F(ShardFolder, WrongShapesAndMixedDTypesAreNamed) {
  TensorMap tensors = SafetensorsFile(file(1)).tensors();
  const std::string norm = layout_.entry_of("final_norm").name;
  tensors[norm] = Tensor::zeros(DType::bf16, {25});
  write_safetensors(file(1), tensors);
  EXPECT_THAT(message(), AllOf(HasSubstr(norm), HasSubstr("[25]"), HasSubstr("[24]")));
  tensors[norm] = Tensor::zeros(DType::f32, {24});
  write_safetensors(file(1), tensors);
  EXPECT_THAT(message(), HasSubstr(norm));
}

// Contents are for the oracles to judge: the reader returns swapped files as they are.
TEST_F(ShardFolder, SwappedRankFilesAreReadAsTheyLie) {
  fs::rename(file(0), path() / "aside");
  fs::rename(file(1), file(0));
  fs::rename(path() / "aside", file(1));
  ShardedTensors swapped = shards_;
  for (auto& [name, ranks] : swapped) std::swap(ranks[0], ranks[1]);
  expect_same(read_shard_folder(path(), layout_), swapped);
}

TEST_F(ShardFolder, WithoutARecordItMayBeUnfinishedAndIsRefused) {
  fs::remove(record());
  EXPECT_FALSE(read_shard_folder_info(path()).has_value());
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { read_shard_folder(path(), layout_); }),
              AllOf(HasSubstr("shardcheck.json is missing"), HasSubstr("unfinished")));
}

TEST_F(ShardFolder, TheRecordMustAgreeWithTheLayoutAskedFor) {
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { read_shard_folder(path(), layout_named("seed:tp2")); }),
              AllOf(HasSubstr("shardcheck.json"), HasSubstr("'vllm-llama:tp2'"), HasSubstr("'seed:tp2'")));
  Geometry other = small_geometry();
  other.norm_eps = 1e-6;
  const Layout layout = make_layout(layout_.name, other);
  EXPECT_THAT(refusal<InvalidCheckpoint>([&] { read_shard_folder(path(), layout); }),
              AllOf(HasSubstr("shardcheck.json"), HasSubstr("geometry")));
}

TEST_F(ShardFolder, TheRecordMayOmitGeometryAndCarryANote) {
  json document = json::parse(read_file(record()));
  document.erase("geometry");
  document["note"] = {{"written_by", "a converter"}};
  write_file(record(), document.dump());
  const auto info = read_shard_folder_info(path());
  ASSERT_TRUE(info.has_value());
  EXPECT_FALSE(info->geometry.has_value());
  expect_same(read_shard_folder(path(), layout_), shards_);
}

TEST_F(ShardFolder, TheRecordIsReadStrictly) {
  const std::string original = read_file(record());
  const auto check = [&](const std::function<void(json&)>& edit, const std::vector<std::string>& parts) {
    const std::string text = message_after(edit);
    EXPECT_THAT(text, HasSubstr("shardcheck.json"));
    for (const std::string& part : parts) EXPECT_THAT(text, HasSubstr(part));
    write_file(record(), original);
  };
  for (const std::string field : {"format", "layout", "mesh"}) {
    check([&](json& j) { j.erase(field); }, {"required field " + field, "missing"});
  }
  check([](json& j) { j["format"] = 2; }, {"format is 2", "allowed: 1"});
  check([](json& j) { j["extra"] = 1; }, {"unknown field 'extra'", "note"});
  check([](json& j) { j["layout"] = 3; }, {"layout is 3"});
  check([](json& j) { j["layout"] = "vllm-llama:zz2"; }, {"layout", "zz"});
  check([](json& j) { j["mesh"] = 2; }, {"mesh is 2"});
  check([](json& j) { j["mesh"]["tp"] = 4; }, {"mesh.tp is 4", "2, as layout says"});
  check([](json& j) { j["mesh"]["tp"] = "2"; }, {"mesh.tp is '2'"});
  check([](json& j) { j["mesh"]["pp"] = 2; }, {"mesh.pp is 2"});
  check([](json& j) { j["mesh"]["gpu"] = 1; }, {"unknown field mesh.'gpu'"});
  check([](json& j) { j["layout"] = "vllm-llama:tp2,pp2"; }, {"mesh", "pp 2"});
  check([](json& j) { j["geometry"] = json::array(); }, {"geometry is []"});
  check([](json& j) { j["geometry"].erase("vocab"); }, {"required field geometry.vocab"});
  check([](json& j) { j["geometry"]["hidden"] = 1; }, {"unknown field geometry.'hidden'"});
  check([](json& j) { j["geometry"]["ffn"] = 20.0; }, {"geometry.ffn is 20.0", "an integer"});
  check([](json& j) { j["geometry"]["ffn"] = -1; }, {"geometry.ffn is -1"});
  check([](json& j) { j["geometry"]["ffn"] = 1LL << 40; }, {"geometry.ffn is 1099511627776"});
  check([](json& j) { j["geometry"]["n_kv_heads"] = 3; }, {"geometry", "3"});
  check([](json& j) { j["geometry"]["norm_eps"] = "small"; }, {"geometry.norm_eps is 'small'"});
  check([](json& j) { j["geometry"]["norm_eps"] = 0; }, {"norm_eps"});
  check([](json& j) { j["geometry"]["tied"] = 0; }, {"geometry.tied is 0", "true or false"});
  check([](json& j) { j["geometry"]["norm"] = "batch"; }, {"geometry.norm is 'batch'", "layer"});
  check([](json& j) { j["geometry"]["n_experts"] = -1; }, {"geometry.n_experts is -1"});
  check([](json& j) { j["geometry"]["n_experts"] = 4; }, {"geometry", "expert_ffn"});
  check([](json& j) { j["geometry"]["rope"] = "yarn"; }, {"geometry.rope is 'yarn'", "half"});
}

TEST_F(ShardFolder, TheFolderMustBeOne) {
  EXPECT_THAT(refusal<IoError>([&] { read_shard_folder(folder_ / "absent", layout_); }),
              HasSubstr("no such folder"));
  EXPECT_THAT(refusal<IoError>([&] { read_shard_folder_info(record()); }), HasSubstr("not a folder"));
}

}  // namespace
}  // namespace shardcheck
