#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "program.h"

namespace shardcheck::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kStories = fs::path(SHARDCHECK_SOURCE_DIR).parent_path() / "shared/checkpoints/stories260K";
const std::string kSmall = "--geometry=d_model=32,layers=2,heads=8,kv_heads=4,ffn=48,vocab=64";

json schema(const std::string& name) { return json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/" + name)); }

Result mutate(const Folder& folder, const std::string& fault, std::vector<std::string> options) {
  options.insert(options.begin(), {"mutate", "--fault=" + fault, "--out=faulty"});
  return shardcheck_in(folder.path(), std::move(options));
}

TEST(Explain, NamesTheFaultThatMutateWrote) {
  const Folder folder;
  const Result written = mutate(folder, "slice_fused_qkv_contiguously",
                                {"--fingerprint", kSmall, "--layout=seed", "--tp=2", "--report=json:m.json"});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("layers.{0-1}.qkv  0-1"));
  const json mutation = json::parse(read_file(folder / "m.json"));
  EXPECT_THAT(SchemaCheck(schema("mutate_report.schema.json")).problems(mutation), IsEmpty());
  EXPECT_EQ(mutation.at("touched").size(), 4U);

  const Result result = shardcheck_in(folder.path(), {"explain", "faulty", "--report=json:e.json"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              HasSubstr("holds source rows 32-63 in order; expected 16-31, 40-47, 56-63: the fused "
                        "tensor was cut as one block"));
  EXPECT_THAT(result.out, HasSubstr("rank 1:  16-31     -"));
  EXPECT_THAT(last_line(result.out), HasSubstr("4 of 30 shards, as by slice_fused_qkv_contiguously"));
  const json report = json::parse(read_file(folder / "e.json"));
  EXPECT_THAT(SchemaCheck(schema("explain_report.schema.json")).problems(report), IsEmpty());
  EXPECT_EQ(report.at("causes").at(0).at("text"), "slice_fused_qkv_contiguously");
  EXPECT_EQ(report.at("misplaced").at(0).at("symptom"), "one_block");
}

TEST(Explain, NothingInTheFolderTellsOfTheFault) {
  const Folder folder;
  mutate(folder, "reverse_rank_order:down", {"--fingerprint", kSmall, "--layout=seed", "--tp=2"});
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(folder / "faulty")) {
    names.push_back(file.path().filename().string());
    EXPECT_FALSE(contains(read_file(file.path()), "reverse")) << names.back();
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("rank_00000-of-00002.safetensors",
                                                   "rank_00001-of-00002.safetensors", "shardcheck.json"));
}

TEST(Explain, RealWeightsAreVerifiedAndExplained) {
  const Folder folder;
  const std::string source = "--source=" + kStories.string();
  const Result written =
      mutate(folder, "reverse_rank_order:o_proj", {source, "--layout=vllm-llama", "--tp=4"});
  ASSERT_EQ(written.code, 0) << written.err;
  const Result verified = shardcheck_in(
      folder.path(), {"verify", kStories.string(), "--layout=vllm-llama", "--tp=4", "--shards=faulty"});
  EXPECT_EQ(verified.code, 1) << verified.out << verified.err;
  const Result explained = shardcheck_in(folder.path(), {"explain", "faulty", source});
  EXPECT_EQ(explained.code, 1) << explained.err;
  EXPECT_THAT(last_line(explained.out), HasSubstr("as by reverse_rank_order:o_proj"));
  EXPECT_THAT(explained.out, HasSubstr("the shard of rank 3"));
}

TEST(Explain, RightShardsPassWithAndWithoutARecord) {
  const Folder folder;
  const std::string source = "--source=" + kStories.string();
  shardcheck_in(folder.path(), {"verify", kStories.string(), "--tp=2", "--write-shards=right"});
  const Result result = shardcheck_in(folder.path(), {"explain", "right", source});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(last_line(result.out), HasSubstr("where they belong"));
  fs::remove(folder / "right/shardcheck.json");
  expect_refusal(
      shardcheck_in(folder.path(), {"explain", "right", source}), 2,
      "right: shardcheck.json is missing, so the layout is unknown; allowed: --layout=NAME --tp=N");
  EXPECT_EQ(shardcheck_in(folder.path(), {"explain", "right", source, "--layout=vllm-llama", "--tp=2"}).code,
            0);
}

TEST(Explain, RefusesWhatItCannotReadInOneLine) {
  const Folder folder;
  mutate(folder, "swap_gate_and_up", {"--fingerprint", kSmall, "--layout=seed", "--tp=2"});
  const auto refused = [&](const std::string& part, std::vector<std::string> options = {}) {
    options.insert(options.begin(), {"explain", "faulty"});
    expect_refusal(shardcheck_in(folder.path(), std::move(options)), 2, part);
  };
  refused("shards of seed:tp2, but seed:tp4 is asked for", {"--tp=4"});
  refused("shards of another model", {"--source=" + kStories.string()});
  expect_refusal(shardcheck_in(folder.path(), {"explain"}), 2, "explain needs a folder of shards");
  expect_refusal(shardcheck_in(folder.path(), {"explain", "nowhere"}), 4, "nowhere");
  const fs::path rank = folder / "faulty/rank_00001-of-00002.safetensors";
  fs::resize_file(rank, fs::file_size(rank) / 2);
  refused("rank_00001-of-00002.safetensors");
  write_file(rank, "garbage that is no file of tensors");
  refused("rank_00001-of-00002.safetensors");
  fs::remove(rank);
  refused("missing rank files 'rank_00001-of-00002.safetensors'");
  write_file(folder / "faulty/shardcheck.json", "{\"format\": 1");
  refused("shardcheck.json");
}

TEST(Explain, RefusesWeightsThatAreNoFingerprintsWithoutASource) {
  const Folder folder;
  mutate(folder, "swap_gate_and_up", {kSmall, "--seed=3", "--layout=seed", "--tp=2"});
  expect_refusal(shardcheck_in(folder.path(), {"explain", "faulty"}), 2, "hold no fingerprints");
}

TEST(Mutate, RefusesWhatItCannotWrite) {
  const Folder folder;
  const auto refused = [&](const std::string& fault, const std::string& part,
                           std::vector<std::string> options) {
    expect_refusal(mutate(folder, fault, std::move(options)), 2, part);
    EXPECT_FALSE(fs::exists(folder / "faulty")) << fault;
  };
  refused("missing_all_reduce", "it acts on the forward level", {kSmall, "--layout=seed", "--tp=2"});
  refused("swap_k_and_w", "the nearest known one is swap_k_and_v", {kSmall, "--layout=seed", "--tp=2"});
  refused("slice_fused_qkv_contiguously", "cannot be delivered: no tensor stacks q, k and v",
          {kSmall, "--tp=1"});
  refused("order_qkv_per_kv_group", "one KV head on each rank", {kSmall, "--layout=seed", "--tp=4"});
  refused("swap_k_and_v", "mutate needs --tp=N", {kSmall});
  refused("swap_k_and_v", "--geometry: allowed without --source",
          {"--source=" + kStories.string(), kSmall, "--tp=2"});
  fs::create_directories(folder / "faulty");
  write_file(folder / "faulty/mine", "kept");
  expect_refusal(mutate(folder, "swap_k_and_v", {kSmall, "--layout=seed", "--tp=2"}), 2,
                 "a new or an empty folder");
  EXPECT_EQ(read_file(folder / "faulty/mine"), "kept");
  fs::remove(folder / "faulty/mine");
  EXPECT_EQ(mutate(folder, "swap_k_and_v", {kSmall, "--layout=seed", "--tp=2"}).code, 0);
}

}  // namespace
}  // namespace shardcheck::test
