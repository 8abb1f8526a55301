#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "program.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"
#include "small_checkpoint.h"

namespace shardcheck::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kStories = fs::path(SHARDCHECK_SOURCE_DIR).parent_path() / "shared/checkpoints/stories260K";

Geometry small_geometry() {
  Geometry geometry;
  geometry.d_model = 32;
  geometry.n_layers = 2;
  geometry.n_heads = 8;
  geometry.n_kv_heads = 4;
  geometry.head_dim = 8;
  geometry.ffn = 48;
  geometry.vocab = 64;
  geometry.norm_eps = 1e-5;
  geometry.rope = Rope::half;
  return geometry;
}

json small_config() {
  return {{"model_type", "llama"},    {"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 2},   {"num_attention_heads", 8},
          {"num_key_value_heads", 4}, {"head_dim", 8},
          {"vocab_size", 64},         {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},
          {"hidden_act", "silu"},     {"tie_word_embeddings", false},
          {"attention_bias", false},  {"mlp_bias", false},
          {"torch_dtype", "float32"}};
}

void write_checkpoint(const fs::path& folder) {
  write_hugging_face(folder, small_geometry(), small_config(), 5, DType::f32);
}

TEST(Verify, EveryDegreeOfASmallCheckpointHolds) {
  const Folder folder;
  write_checkpoint(folder / "model");
  const Result result = shardcheck_in(folder.path(), {"verify", "model", "--report=json:r.json"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "verify  reference\nverify  tp1\nverify  tp2\nverify  tp4\n");
  const json report = json::parse(read_file(folder / "r.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  const json degrees = report.at("verification").at("degrees");
  ASSERT_EQ(degrees.size(), 3U) << "1, 2 and 4, derived by probing";
  for (const json& degree : degrees) {
    EXPECT_EQ(degree.at("tree_differing"), 0);
    EXPECT_TRUE(degree.at("native_holds"));
  }
  EXPECT_EQ(degrees[0].at("deviation"), 0.0);
}

TEST(Verify, DegreesAndLayoutsThatCannotBeAreRefused) {
  const Folder folder;
  write_checkpoint(folder / "model");
  const auto verify = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"verify", "model"});
    return shardcheck_in(folder.path(), options);
  };
  expect_refusal(verify({"--tp=3"}), 2, "3");
  expect_refusal(verify({"--layout=vlm-llama"}), 2, "vllm-llama");
  expect_refusal(verify({"--layout=no/such/table.json"}), 4, "no/such/table.json");
  expect_refusal(verify({"--tokens=129"}), 2, "128 positions");
  expect_refusal(verify({"--golden=no-such-file"}), 4, "no-such-file");
  expect_refusal(verify({"--prompt"}), 4, "tokenizer.bin");
  expect_refusal(shardcheck_in(folder.path(), {"verify"}), 2, "checkpoint folder");
}

TEST(Verify, ASourceThatIsNotHuggingFaceIsReadThroughItsLayout) {
  const Folder folder;
  write_checkpoint(folder / "hf");
  const std::string hf = (folder / "hf").string(), megatron = (folder / "megatron").string();
  ASSERT_EQ(shardcheck_program({"reshard", hf, megatron, "--to=megatron-llama:pp2,tp2"}).code, 0);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"verify", megatron, "--to=vllm-llama:tp2"},
        {"verify", megatron, "--from=megatron-llama:pp2,tp2", "--layout=torchtitan-llama", "--tp=2"},
        {"verify", hf, "--from=hf-llama", "--to=megatron-llama:tp4"}}) {
    const Result result = shardcheck_program(command);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("bit-identical"), std::string::npos) << result.out;
  }
  const Result both = shardcheck_program({"verify", hf, "--to=vllm-llama:tp2", "--tp=4"});
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--to=vllm-llama:tp2: allowed without --layout and --tp"), std::string::npos);
  EXPECT_EQ(shardcheck_program({"verify", hf, "--to=vllm-llama:pp2"}).code, 2);
}

TEST(Verify, BrokenCheckpointsAreRefusedInOneLine) {
  const Folder folder;
  write_checkpoint(folder / "model");
  const fs::path model = folder / "model/model.safetensors", config = folder / "model/config.json";
  const std::string whole = read_file(model);
  const auto refused_with = [&](const std::string& bytes, const char* part) {
    write_file(model, bytes);
    expect_refusal(shardcheck_in(folder.path(), {"verify", "model"}), 2, part);
  };
  refused_with("", "model.safetensors");
  refused_with(whole.substr(0, whole.size() / 2), "model.safetensors");
  refused_with(std::string("\0\0\0\0\0\0\0\x80", 8) + whole.substr(8), "model.safetensors");
  write_file(model, whole);
  json broken = small_config();
  broken.erase("num_attention_heads");
  write_file(config, broken.dump());
  expect_refusal(shardcheck_in(folder.path(), {"verify", "model"}), 2, "num_attention_heads");
  write_file(config, small_config().dump());
  write_file(folder / "model/model.safetensors.index.json",
             R"({"weight_map": {"model.norm.weight": "../model.safetensors"}})");
  expect_refusal(shardcheck_in(folder.path(), {"verify", "model"}), 2, "..");
}

/// Rewrites the tensors of the checkpoint that `write_checkpoint` left in `folder`.
template <typename Change>
void change_tensors(const fs::path& folder, Change change) {
  const fs::path file = folder / "model.safetensors";
  TensorMap tensors = SafetensorsFile(file).tensors();
  for (auto& [name, tensor] : tensors) change(name, tensor);
  write_safetensors(file, tensors);
}

TEST(Verify, ACheckpointInWhichNoFaultWouldShowIsInconclusive) {
  const Folder folder;
  write_checkpoint(folder / "silent");
  change_tensors(folder / "silent", [](const std::string& name, Tensor& tensor) {
    if (contains(name, "o_proj")) tensor = Tensor::zeros(tensor.dtype(), tensor.shape());
  });
  write_checkpoint(folder / "empty");
  change_tensors(folder / "empty", [](const std::string& name, Tensor& tensor) {
    if (contains(name, "lm_head")) tensor = Tensor::zeros(tensor.dtype(), tensor.shape());
  });
  for (const auto& [model, verdict] : {std::pair("silent", "mistrusted"), std::pair("empty", "vacuous")}) {
    const Result result = shardcheck_in(folder.path(), {"verify", model, "--tp=2", "--report=json:r.json"});
    EXPECT_EQ(result.code, 3) << result.out << result.err;
    EXPECT_FALSE(contains(result.out, "PASSED")) << result.out;
    const json degree = json::parse(read_file(folder / "r.json")).at("verification").at("degrees").at(0);
    EXPECT_EQ(degree.at("verdict"), verdict);
    EXPECT_EQ(degree.at("holds"), false);
  }
}

TEST(Verify, OurOwnShardsAreAccepted) {
  const Folder folder;
  write_checkpoint(folder / "model");
  EXPECT_EQ(shardcheck_in(folder.path(), {"verify", "model", "--tp=1,2,4", "--write-shards=out"}).code, 0);
  EXPECT_TRUE(fs::exists(folder / "out/tp4/rank_00003-of-00004.safetensors"));
  const Result result = shardcheck_in(folder.path(), {"verify", "model", "--shards=out"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "same bytes")) << result.out;
  // One degree needs no tpN folder, and is then found in shardcheck.json.
  EXPECT_EQ(shardcheck_in(folder.path(), {"verify", "model", "--tp=2", "--write-shards=one"}).code, 0);
  EXPECT_TRUE(fs::exists(folder / "one/rank_00001-of-00002.safetensors"));
  EXPECT_EQ(shardcheck_in(folder.path(), {"verify", "model", "--shards=one"}).code, 0);
  expect_refusal(shardcheck_in(folder.path(), {"verify", "model", "--shards=one", "--tp=4"}), 2, "tp2");
  expect_refusal(shardcheck_in(folder.path(), {"verify", "model", "--shards=model"}), 2, "--tp");
}

class ForeignShards : public testing::Test {
 protected:
  void SetUp() override {
    write_checkpoint(folder_ / "model");
    ASSERT_EQ(shardcheck_in(folder_.path(), {"verify", "model", "--tp=2", "--write-shards=shards"}).code, 0);
  }
  fs::path rank(int r) const {
    return folder_ / ("shards/rank_0000" + std::to_string(r) + "-of-00002.safetensors");
  }
  Result verify() const {
    return shardcheck_in(folder_.path(), {"verify", "model", "--tp=2", "--shards=shards"});
  }

  Folder folder_;
};

TEST_F(ForeignShards, SwappedRankFilesFailNamingParameterAndRank) {
  fs::rename(rank(0), folder_ / "held");
  fs::rename(rank(1), rank(0));
  fs::rename(folder_ / "held", rank(1));
  const Result result = verify();
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_TRUE(contains(result.out,
                       "parameter model.embed_tokens.weight, rank 0 of 2: rank 0 holds the shard of rank 1"))
      << result.out;
}

TEST_F(ForeignShards, SwappedRowsFailNamingParameterRankAndRows) {
  SafetensorsFile file(rank(1));
  TensorMap tensors = file.tensors();
  const auto metadata = file.header().metadata;
  Tensor& weight = tensors.at("model.layers.1.mlp.gate_up_proj.weight");
  const auto width = static_cast<std::ptrdiff_t>(weight.dim(1));
  const auto values = weight.mutable_f32();
  std::swap_ranges(values.begin() + 3 * width, values.begin() + 4 * width, values.begin() + 7 * width);
  write_safetensors(rank(1), tensors, metadata);
  const Result result = verify();
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_TRUE(
      contains(result.out,
               "parameter model.layers.1.mlp.gate_up_proj.weight, rank 1 of 2: rows 3 and 7 are exchanged"))
      << result.out;
}

TEST_F(ForeignShards, AnElementNoLogitDependsOnStillFails) {
  SafetensorsFile file(rank(0));
  TensorMap tensors = file.tensors();
  const auto metadata = file.header().metadata;
  tensors.at("model.embed_tokens.weight").mutable_bytes()[0] ^= std::byte{1};
  write_safetensors(rank(0), tensors, metadata);
  EXPECT_EQ(verify().code, 1);
}

TEST_F(ForeignShards, AreNotWrittenOver) {
  const std::string before = read_file(rank(0));
  fs::create_directory_symlink(folder_ / "shards", folder_ / "link");
  for (const char* output : {"--write-shards=shards", "--write-shards=link",
                             "--write-shards=./model/../shards/", "--write-shards=model"}) {
    expect_refusal(shardcheck_in(folder_.path(), {"verify", "model", "--tp=2", "--shards=shards", output}), 2,
                   "--write-shards");
  }
  fs::create_directory(folder_ / "all");
  fs::rename(folder_ / "shards", folder_ / "all/tp2");
  expect_refusal(
      shardcheck_in(folder_.path(), {"verify", "model", "--tp=2", "--shards=all", "--write-shards=all/tp2"}),
      2, "--write-shards");
  expect_refusal(shardcheck_in(folder_.path(), {"verify", "model", "--tp=2", "--shards=all/tp2",
                                                "--report=json:all/tp2/shardcheck.json"}),
                 2, "--report");
  expect_refusal(shardcheck_in(folder_.path(), {"verify", "model", "--report=json:model/config.json"}), 2,
                 "--report");
  EXPECT_EQ(read_file(folder_ / "all/tp2/rank_00000-of-00002.safetensors"), before);
}

TEST_F(ForeignShards, WithoutTheirRecordMayBeUnfinishedAndAreRefused) {
  fs::remove(folder_ / "shards/shardcheck.json");
  expect_refusal(verify(), 2, "shardcheck.json is missing");
}

TEST_F(ForeignShards, OfASingleDegreeAreFoundInTpNToo) {
  fs::create_directory(folder_ / "all");
  fs::rename(folder_ / "shards", folder_ / "all/tp2");
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--shards=all"}, std::vector<std::string>{"--shards=all", "--tp=2"}}) {
    std::vector<std::string> words = {"verify", "model"};
    words.insert(words.end(), options.begin(), options.end());
    const Result result = shardcheck_in(folder_.path(), words);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_TRUE(contains(result.out, "same bytes")) << result.out;
  }
}

TEST_F(ForeignShards, OfAnotherDtypeShapeOrSetOfTensorsAreAFailedCheck) {
  const SafetensorsFile file(rank(1));
  const auto metadata = file.header().metadata;
  const auto failed = [&](const TensorMap& tensors, const char* part) {
    write_safetensors(rank(1), tensors, metadata);
    const Result result = verify();
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    EXPECT_TRUE(contains(result.out, part)) << result.out;
    EXPECT_TRUE(contains(result.out, "rank")) << result.out;
  };
  TensorMap tensors = file.tensors();
  tensors.emplace("stray", Tensor::zeros(DType::f32, {1}));
  failed(tensors, "stray");
  tensors = file.tensors();
  tensors.at("model.norm.weight") = Tensor::zeros(DType::f32, {31});
  failed(tensors, "model.norm.weight");
  tensors.at("model.norm.weight") = Tensor::zeros(DType::bf16, {32});
  failed(tensors, "model.norm.weight");
}

/// A tied model whose embedding is whole on every rank: the ranks then disagree about the logits themselves.
TEST(Verify, ADamagedReplicaOfATiedHeadFailsNamingParameterAndRank) {
  const Folder folder;
  ASSERT_EQ(shardcheck_in(folder.path(), {"verify", kStories.string(), "--layout=hf-llama", "--tp=2",
                                          "--write-shards=shards"})
                .code,
            0);
  const fs::path damaged = folder / "shards/rank_00001-of-00002.safetensors";
  const SafetensorsFile file(damaged);
  TensorMap tensors = file.tensors();
  tensors.at("model.embed_tokens.weight").mutable_f32()[64 * 9] += 1.0F;
  write_safetensors(damaged, tensors, file.header().metadata);
  const Result result = shardcheck_in(
      folder.path(), {"verify", kStories.string(), "--layout=hf-llama", "--tp=2", "--shards=shards"});
  EXPECT_EQ(result.code, 1) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "parameter model.embed_tokens.weight, rank 1 of 2")) << result.out;
}

TEST_F(ForeignShards, AMissingTensorOrFileIsNamed) {
  SafetensorsFile file(rank(1));
  TensorMap tensors = file.tensors();
  tensors.erase("model.norm.weight");
  write_safetensors(rank(1), tensors, file.header().metadata);
  const Result missing = verify();
  EXPECT_EQ(missing.code, 1) << missing.out << missing.err;
  EXPECT_TRUE(contains(missing.out + missing.err, "model.norm.weight")) << missing.out << missing.err;
  fs::remove(rank(1));
  const Result gone = verify();
  EXPECT_EQ(gone.code, 2) << gone.out << gone.err;
  EXPECT_TRUE(contains(gone.err, "rank_00001-of-00002")) << gone.err;
}

TEST(Verify, ATrainedCheckpointReproducesItsGoldenTokensAndStory) {
  ASSERT_TRUE(fs::exists(kStories / "model.safetensors")) << kStories;
  const Folder folder;
  const Result result =
      shardcheck_in(folder.path(), {"verify", kStories.string(), "--tp=1,2,4",
                                    "--golden=" + (kStories / "golden.safetensors").string(), "--prompt",
                                    "--report=json:r.json"});
  ASSERT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "256 of 256 reproduced")) << result.out;
  EXPECT_TRUE(contains(result.out, "\nOnce upon a time, there was a little girl named Lily.")) << result.out;
  const json golden = json::parse(read_file(folder / "r.json")).at("verification").at("golden");
  EXPECT_LT(golden.at("max_difference").get<double>(), 1e-4);
  EXPECT_GT(golden.at("max_difference").get<double>(), 0.0) << "two implementations never agree to the bit";
}

TEST(Verify, AGoldenFileThatDisagreesFails) {
  const Folder folder;
  const SafetensorsFile file(kStories / "golden.safetensors");
  TensorMap tensors = file.tensors();
  tensors.at("logits").mutable_f32()[1000] += 0.01F;
  write_safetensors(folder / "logits.safetensors", tensors);
  const auto verify = [&](const char* golden) {
    return shardcheck_in(folder.path(),
                         {"verify", kStories.string(), "--tp=2", std::string("--golden=") + golden});
  };
  EXPECT_EQ(verify("logits.safetensors").code, 1);

  tensors.at("tokens") = tensors.at("tokens").rows(0, 2);
  tensors.at("logits") = file.tensor("logits").rows(0, 1);
  tensors.at("tokens").mutable_as<std::int64_t>()[1] = 3;
  write_safetensors(folder / "tokens.safetensors", tensors);
  const Result wrong_token = verify("tokens.safetensors");
  EXPECT_EQ(wrong_token.code, 1);
  EXPECT_TRUE(contains(wrong_token.out, "1 of 2 reproduced")) << wrong_token.out;

  tensors.at("tokens").mutable_as<std::int64_t>()[1] = 512;
  write_safetensors(folder / "outside.safetensors", tensors);
  expect_refusal(verify("outside.safetensors"), 2, "512");
  tensors.erase("logits");
  write_safetensors(folder / "half.safetensors", tensors);
  expect_refusal(verify("half.safetensors"), 2, "logits");
  tensors.emplace("logits", file.tensor("logits").rows(0, 1));
  tensors.at("tokens").mutable_as<std::int64_t>()[1] = 3;
  tensors.at("logits").mutable_f32()[7] = std::numeric_limits<float>::quiet_NaN();
  write_safetensors(folder / "nan.safetensors", tensors);
  expect_refusal(verify("nan.safetensors"), 2, "finite");
}

}  // namespace
}  // namespace shardcheck::test
