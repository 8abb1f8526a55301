#include "shardcheck/reshard/reshard.h"

#include <gmock/gmock.h>

#include <array>
#include <nlohmann/json.hpp>

#include "program.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/model/weights.h"
#include "small_checkpoint.h"

namespace shardcheck::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

Geometry small_geometry() {
  Geometry geometry;
  geometry.d_model = 32;
  geometry.n_layers = 2;
  geometry.n_heads = 8;
  geometry.n_kv_heads = 4;
  geometry.head_dim = 4;
  geometry.ffn = 48;
  geometry.vocab = 64;
  geometry.rope = Rope::half;
  return geometry;
}

/// A folder "model" with a small Hugging Face checkpoint, and commands that run beside it.
class Reshard : public testing::Test {
 protected:
  Reshard() {
    const json config = {{"model_type", "llama"},  {"hidden_size", 32},           {"intermediate_size", 48},
                         {"num_hidden_layers", 2}, {"num_attention_heads", 8},    {"num_key_value_heads", 4},
                         {"vocab_size", 64},       {"tie_word_embeddings", false}};
    write_hugging_face(folder_ / "model", small_geometry(), config, 3, DType::bf16);
  }

  Result run(std::vector<std::string> words) const { return shardcheck_in(folder_.path(), std::move(words)); }
  Result passes(std::vector<std::string> words) const {
    const Result result = run(std::move(words));
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    return result;
  }
  std::string digest_of(const std::string& name) const { return last_line(passes({"digest", name}).out); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& item : fs::directory_iterator(folder_.path()))
      names.push_back(item.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  Folder folder_;
};

TEST_F(Reshard, GoesThroughFrameworksAndBackWithOneDigest) {
  const std::string digest = digest_of("model");
  EXPECT_THAT(digest, MatchesRegex("[0-9a-f]{32}"));
  const std::array<std::array<std::string, 3>, 3> stages = {{{"model", "megatron", "megatron-llama:tp4"},
                                                             {"megatron", "vllm", "vllm-llama:tp2"},
                                                             {"vllm", "back", "hf-llama"}}};
  for (const auto& [source, target, layout] : stages) {
    const Result result = passes({"reshard", source, target, "--to=" + layout, "--verify"});
    EXPECT_THAT(last_line(result.out),
                AllOf(HasSubstr("RESHARDED"), HasSubstr(layout), HasSubstr("digests equal")));
    EXPECT_EQ(digest_of(target), digest);
  }
  EXPECT_EQ(read_file(folder_ / "back/model.safetensors"), read_file(folder_ / "model/model.safetensors"));
  EXPECT_EQ(read_file(folder_ / "back/config.json"), read_file(folder_ / "model/config.json"));
  const Result verified = run({"verify", "model", "--tp=2", "--layout=vllm-llama", "--shards=vllm"});
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
}

TEST_F(Reshard, ADryRunPrintsThePlanAndWritesNothing) {
  const Result result = passes({"reshard", "model", "target", "--to=megatron-llama:tp2", "--dry-run"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("megatron-llama:tp2"), HasSubstr("copies"),
                                HasSubstr("lower bound"), HasSubstr("peak memory")));
  EXPECT_THAT(last_line(result.out), AllOf(HasSubstr("PLANNED"), HasSubstr("2 files")));
  EXPECT_THAT(names(), ElementsAre("model"));
}

TEST_F(Reshard, QuietPrintsTheVerdictAlone) {
  const Result result = passes({"reshard", "model", "target", "--to=seed:tp2", "--quiet"});
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(passes({"digest", "target", "--quiet"}).out, MatchesRegex("[0-9a-f]{32}\n"));
}

TEST_F(Reshard, TakesTablesFromFilesAndSizesWithUnits) {
  const fs::path table = fs::path(SHARDCHECK_SOURCE_DIR) / "lib/layouts/vllm-llama.json";
  fs::copy_file(table, folder_ / "mine.json");
  passes({"reshard", "model", "target", "--to=mine.json:tp2", "--buffer=4KiB"});
  passes({"reshard", "target", "back", "--from=mine.json:tp2", "--to=hf-llama", "--max-shard-size=20KB"});
  EXPECT_TRUE(fs::exists(folder_ / "back/model.safetensors.index.json"));
  EXPECT_EQ(digest_of("back"), digest_of("model"));
}

TEST_F(Reshard, TheGeometryMayBeSaidInstead) {
  fs::remove(folder_ / "model/config.json");
  expect_refusal(run({"reshard", "model", "target", "--to=seed:tp2"}), 2, "--geometry=");
  const std::string geometry = "--geometry=d_model=32,layers=2,heads=8,kv_heads=4,ffn=48,vocab=64";
  passes({"reshard", "model", "target", "--to=seed:tp2", geometry, "--verify"});
  passes({"digest", "model", geometry});
}

TEST_F(Reshard, KeysOfTheGeometryStandInPlaceOfWhatTheFolderSays) {
  const std::string digest = digest_of("model");
  for (const std::string key : {"vocab=64", "kv_heads=4", "rope_theta=5000", "layers=2,tied=false"})
    EXPECT_EQ(last_line(passes({"digest", "model", "--geometry=" + key}).out), digest) << key;
  expect_refusal(run({"digest", "model", "--geometry=layers=1"}), 2, "model.layers.1");
  passes({"reshard", "model", "target", "--to=seed:tp2"});
  EXPECT_EQ(last_line(passes({"digest", "target", "--geometry=vocab=64"}).out), digest);
  expect_refusal(run({"digest", "target", "--geometry=vocab=65"}), 2, "vocab=65");
  // One that is not read has no say, but one that is broken is not passed over.
  write_file(folder_ / "model/config.json", R"({"model_type": "phi3"})");
  expect_refusal(run({"digest", "model", "--geometry=vocab=64"}), 2, "model.layers.1");
  write_file(folder_ / "target/shardcheck.json", "{}");
  expect_refusal(run({"digest", "target", "--geometry=vocab=64"}), 2, "shardcheck.json");
}

TEST_F(Reshard, AConfigThatWouldNotDescribeTheTargetIsRefused) {
  const std::string norm_eps = "--geometry=norm_eps=0.001";
  expect_refusal(run({"reshard", "model", "copy", "--to=hf-llama", norm_eps}), 2,
                 "norm_eps=1e-06, here 0.001");
  expect_refusal(run({"reshard", "model", "copy", "--to=hf-llama", norm_eps, "--dry-run"}), 2, "norm_eps");
  EXPECT_THAT(names(), ElementsAre("model"));
  passes({"reshard", "model", "shards", "--to=seed:tp2", norm_eps});
  expect_refusal(run({"reshard", "shards", "copy", "--to=hf-llama"}), 2, "config.json");
  fs::remove(folder_ / "shards/config.json");
  passes({"reshard", "shards", "copy", "--to=hf-llama"});
}

TEST_F(Reshard, AConfigOfAnotherFamilyIsCarriedWithAWarning) {
  const Result other = passes({"reshard", "model", "phi", "--to=hf-phi3"});
  EXPECT_THAT(other.out, AllOf(HasSubstr("warning"), HasSubstr("config.json is carried along unchanged"),
                               HasSubstr("'llama'"), HasSubstr("hf-phi3")));
  EXPECT_EQ(read_file(folder_ / "phi/config.json"), read_file(folder_ / "model/config.json"));
  EXPECT_THAT(passes({"reshard", "model", "same", "--to=hf-llama"}).out, Not(HasSubstr("warning")));
  EXPECT_THAT(passes({"reshard", "model", "shards", "--to=seed"}).out, Not(HasSubstr("warning")));
}

// A gain near zero is lost beside the one that is taken from it.
TEST_F(Reshard, ValuesThatAreStoredShiftedAreSaidToBeRounded) {
  TensorMap tensors;
  for (const auto& [name, tensor] : SafetensorsFile(folder_ / "model/model.safetensors").tensors())
    tensors[name] = tensor;
  tensors["model.norm.weight"].set_bits(0, 0x0101);  // a subnormal bf16: lost beside a one
  write_safetensors(folder_ / "tiny.safetensors", tensors, {{"format", "pt"}});
  fs::rename(folder_ / "tiny.safetensors", folder_ / "model/model.safetensors");
  const Result plain = passes({"reshard", "model", "plain", "--to=megatron-llama:tp2", "--verify"});
  EXPECT_THAT(plain.out, Not(HasSubstr("rounded")));
  const std::string table = "megatron-llama-zero-centered:tp2";
  const Result shifted = run({"reshard", "model", "shifted", "--to=" + table, "--verify"});
  EXPECT_EQ(shifted.code, 1) << shifted.out;
  EXPECT_THAT(shifted.out, AllOf(HasSubstr("5 tensors are stored minus 1 and rounded"),
                                 HasSubstr("final_norm: the values in the target"), HasSubstr("FAILED")));
  EXPECT_EQ(run({"reshard", "model", "again", "--to=" + table, "--dry-run"}).code, 0);
  // From one such layout to another nothing is rounded again.
  EXPECT_THAT(passes({"reshard", "shifted", "four", "--to=megatron-llama-zero-centered:tp4", "--verify"}).out,
              Not(HasSubstr("rounded")));
}

TEST_F(Reshard, RefusesWrongUseInOneLine) {
  expect_refusal(run({"reshard", "model"}), 2, "source and a target");
  expect_refusal(run({"reshard", "model", "target"}), 2, "--to=LAYOUT");
  expect_refusal(run({"reshard", "model", "target", "--to=vlm-llama"}), 2, "vllm-llama");
  expect_refusal(run({"reshard", "model", "target", "--to=seed:tp16"}), 2, "layers.0.qkv");
  expect_refusal(run({"reshard", "model", "target", "--to=seed", "--from=hf-llama:tp2"}), 2, "one rank");
  expect_refusal(run({"reshard", "model", "target", "--to=nowhere.json:tp2"}), 4, "nowhere.json");
  for (const std::string size : {"", "0", "8", "-1", "8 MiB", "8Mi", "2GiB", "99999999999999999999GB"})
    expect_refusal(run({"reshard", "model", "target", "--to=seed", "--buffer=" + size}), 2, "--buffer=");
  for (const auto& [geometry, part] :
       std::vector<std::pair<std::string, std::string>>{{"d_modl=3", "d_model"},
                                                        {"layers", "KEY=VALUE"},
                                                        {"layers=x", "layers=x"},
                                                        {"tied=1", "false|true"},
                                                        {"layers=2,layers=2", "twice"},
                                                        {"rope=full", "half"},
                                                        {"norm_eps=x", "number"},
                                                        {"heads=0", "heads=0"}})
    expect_refusal(run({"digest", "model", "--geometry=" + geometry}), 2, part);
  expect_refusal(run({"digest"}), 2, "folder");
  expect_refusal(run({"digest", "absent"}), 4, "absent");
  EXPECT_THAT(names(), ElementsAre("model"));
}

TEST_F(Reshard, ADigestOfFilesThatDisagreeFails) {
  passes({"reshard", "model", "target", "--to=megatron-llama:tp2"});
  const fs::path file = folder_ / "target/rank_00001-of-00002.safetensors";
  TensorMap tensors;
  for (const auto& [name, tensor] : SafetensorsFile(file).tensors()) tensors[name] = tensor;
  Tensor& norm = tensors.at("decoder.final_layernorm.weight");
  norm.set_bits(0, norm.bits(0) ^ 1);
  write_safetensors(folder_ / "damaged.safetensors", tensors);
  fs::rename(folder_ / "damaged.safetensors", file);
  const Result result = run({"digest", "target"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("final_norm"), HasSubstr("rank 1"), HasSubstr("rank 0"), HasSubstr("FAILED")));
  const Result resharded = run({"reshard", "target", "other", "--to=hf-llama"});
  EXPECT_EQ(resharded.code, 1);
  EXPECT_THAT(resharded.out, AllOf(HasSubstr("final_norm"), HasSubstr("nothing was written")));
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

TEST_F(Reshard, ADryRunRefusesTheTargetThatTheRunRefuses) {
  write_file(folder_ / "file", "");
  fs::create_directory(folder_ / "taken");
  write_file(folder_ / "taken/notes.txt", "mine");
  fs::create_directory(folder_ / "linked");
  fs::create_directory_symlink(folder_ / "model", folder_ / "linked/.shardcheck-reshard");
  for (const std::string target : {"file", "file/below", "taken", "linked", "model"}) {
    const Result real = run({"reshard", "model", target, "--to=seed"});
    const Result dry = run({"reshard", "model", target, "--to=seed", "--dry-run"});
    EXPECT_NE(real.code, 0) << target;
    EXPECT_EQ(dry.code, real.code) << target;
    EXPECT_EQ(dry.err, real.err) << target;
  }
}

// One exit code for one state of a folder, whichever command meets it.
TEST_F(Reshard, EveryCommandGivesAFolderTheSameExitCode) {
  passes({"reshard", "model", "whole", "--to=vllm-llama:tp2"});
  const std::string second = "rank_00001-of-00002.safetensors";
  for (const char* name : {"lacking", "cut"}) fs::copy(folder_ / "whole", folder_ / name);
  fs::remove(folder_ / "lacking" / second);
  fs::resize_file(folder_ / "cut" / second, fs::file_size(folder_ / "whole" / second) - 100);
  write_file(folder_ / "file", "");
  for (const auto& [folder, code] : std::vector<std::pair<std::string, int>>{
           {"absent", 4}, {"file", 4}, {"lacking", 2}, {"cut", 2}, {"whole", 0}}) {
    EXPECT_EQ(run({"digest", folder}).code, code) << folder;
    EXPECT_EQ(run({"reshard", folder, "out-of-" + folder, "--to=seed"}).code, code) << folder;
    EXPECT_EQ(run({"layouts", "match", folder}).code, code) << folder;
    EXPECT_EQ(run({"verify", "model", "--tp=2", "--layout=vllm-llama", "--shards=" + folder}).code, code)
        << folder;
  }
}

TEST_F(Reshard, ATargetThatIsTakenIsRefused) {
  passes({"reshard", "model", "target", "--to=seed"});
  expect_refusal(run({"reshard", "model", "target", "--to=seed"}), 2, "new or empty");
  write_file(folder_ / "file", "");
  expect_refusal(run({"reshard", "model", "file", "--to=seed"}), 4, "not a folder");
}

}  // namespace
}  // namespace shardcheck::test
