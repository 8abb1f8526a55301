// shardcheck layouts: tables listed, shown, and matched against folders.
#include <gtest/gtest.h>

#include <filesystem>

#include "program.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {
namespace {

using test::contains;
using test::expect_refusal;
using test::Folder;
using test::Result;

namespace fs = std::filesystem;

const fs::path kStories = fs::path(SHARDCHECK_SOURCE_DIR).parent_path() / "shared/checkpoints/stories260K";

Result layouts(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "layouts");
  return test::shardcheck_program(std::move(arguments));
}

Geometry small() {
  Geometry g;
  g.d_model = 12, g.n_layers = 2, g.n_heads = 4, g.n_kv_heads = 2, g.head_dim = 4, g.ffn = 8, g.vocab = 16;
  return g;
}

TensorMap zeros() {
  TensorMap tensors;
  for (const LogicalTensor& logical : logical_tensors(small())) {
    tensors.emplace(logical.name, Tensor::zeros(DType::f32, logical.shape));
  }
  return tensors;
}

void write_shards(const fs::path& folder, const std::string& name) {
  const Layout layout = make_layout(parse_layout_name(name), small());
  write_shard_folder(folder, layout, split(zeros(), layout));
}

TEST(Layouts, ListNamesEveryTableWithItsAxes) {
  const Result result = layouts({"list"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const std::string& name : LayoutTable::built_in_names())
    EXPECT_TRUE(contains(result.out, "  " + name));
  EXPECT_TRUE(contains(result.out, "tp ep etp pp dp"));
  EXPECT_TRUE(contains(result.out, "DeepSpeed module_inject/auto_tp.py"));
}

TEST(Layouts, ShowPrintsIntervalsAndTheRowMap) {
  const Result result = layouts({"show", "seed:tp2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "layers.{0..3}.qkv [384, 256]"));
  EXPECT_TRUE(contains(result.out, "  rank 1: q 128-255, k 32-63, v 32-63\n"));
  EXPECT_TRUE(contains(result.out, "    k  | 256-319 |  rank 0: 256-287\n"));
}

TEST(Layouts, ShowTakesAGeometryAndAnExampleOfEveryFamily) {
  const Result wide = layouts({"show", "seed:tp4", "--geometry=kv_heads=4,layers=32"});
  EXPECT_EQ(wide.code, 0) << wide.err;
  EXPECT_TRUE(contains(wide.out, "layers.{0..31}.qkv [512, 256]"));
  for (const char* name : {"hf-gpt2:tp2", "hf-neox:tp2", "vllm-mla-moe:ep2,tp2", "hf-mixtral"}) {
    const Result result = layouts({"show", name});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(contains(result.out, ".{0..3}.")) << name;
  }
}

TEST(Layouts, ShowTakesATableOfYourOwn) {
  const Folder folder;
  std::string table = test::read_file(SHARDCHECK_SOURCE_DIR "/lib/layouts/seed.json");
  table.replace(table.find("\"seed\""), 6, "\"mine\"");
  test::write_file(folder / "mine.json", table);
  const std::string file = (folder / "mine.json").string();
  EXPECT_TRUE(contains(layouts({"show", file + ":tp2"}).out, "rank 1: gate 352-703, up 352-703"));
  expect_refusal(layouts({"show", file + ":etp2"}), 2,
                 "layout mine:etp2: axis etp is not carried by the table 'mine'");
  expect_refusal(layouts({"show", (folder / "absent.json").string()}), 2, "absent.json: cannot be opened");
  test::write_file(folder / "mine.json", "{}");
  expect_refusal(layouts({"show", file}), 2, "mine.json: key 'name' is missing");
}

TEST(Layouts, WrongUseExitsTwo) {
  expect_refusal(layouts({}), 2, "layouts needs one of: list show match");
  expect_refusal(layouts({"shwo"}), 2, "did you mean");
  expect_refusal(layouts({"show"}), 2, "needs NAME[:AXES]");
  expect_refusal(layouts({"show", "sead"}), 2, "unknown layout table 'sead' (known: seed");
  expect_refusal(layouts({"show", "seed:etp2"}), 2, "axis etp is not carried by the table 'seed'");
  expect_refusal(layouts({"show", "seed:tp4"}), 2, "n_kv_heads=2 is not divisible by TP degree 4");
  expect_refusal(layouts({"show", "seed", "--geometry=head=2"}), 2, "--geometry: key 'head' is unknown");
  expect_refusal(layouts({"show", "seed", "--geometry=heads"}), 2, "--geometry: 'heads' has no value");
  expect_refusal(layouts({"show", "seed", "--geometry=heads=8,heads=8"}), 2, "heads is given twice");
  expect_refusal(layouts({"show", "seed", "--geometry=heads=-1"}), 2, "--geometry: heads");
  expect_refusal(layouts({"show", "seed", "--geometry=tied=yes"}), 2, "tied=yes: allowed is false|true");
  expect_refusal(layouts({"show", "seed", "--geometry=heads=7"}), 2, "--geometry: heads=7 is not a multiple");
  expect_refusal(layouts({"match", "/nowhere"}), 4, "/nowhere: no such folder");
}

TEST(Layouts, MatchRanksTheTablesOfAFolder) {
  const Folder folder;
  write_shards(folder.path(), "seed-bias-divided:tp2");
  const auto match = [&](const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"match", folder.path().string()};
    words.insert(words.end(), more.begin(), more.end());
    return layouts(words);
  };
  const Result recorded = match();
  EXPECT_EQ(recorded.code, 0) << recorded.out << recorded.err;
  EXPECT_LT(recorded.out.find("seed-bias-divided:tp2"), recorded.out.find("  seed:tp2"));
  EXPECT_TRUE(contains(recorded.out, "geometry from shardcheck.json"));
  fs::remove(folder / "shardcheck.json");
  const Result inferred = match();
  EXPECT_EQ(inferred.code, 0) << inferred.out << inferred.err;
  EXPECT_TRUE(contains(inferred.out, "geometry from the shapes: d_model=12 layers=2 "));
  EXPECT_TRUE(contains(inferred.out, "guessed: heads kv_heads head_dim norm_eps rope rope_theta"));
  EXPECT_FALSE(contains(recorded.out, "guessed"));
  EXPECT_FALSE(contains(inferred.out, "vllm-llama"));
  EXPECT_EQ(match({"--mesh=tp4"}).code, 1);
  expect_refusal(match({"--mesh=xp2"}), 2, "--mesh='xp2'");
}

TEST(Layouts, MatchExitsOneWhenNoTableFits) {
  const Folder folder;
  expect_refusal(layouts({"match", folder.path().string()}), 2, "holds no *.safetensors");
  TensorMap tensors = zeros();
  write_safetensors(folder / "model.safetensors", tensors);
  EXPECT_EQ(layouts({"match", folder.path().string()}).code, 1);
  const Layout layout = make_layout(parse_layout_name("seed"), small());
  TensorMap fused;
  for (auto& [name, ranks] : split(tensors, layout)) fused.emplace(name, ranks[0]);
  write_safetensors(folder / "model.safetensors", fused);
  EXPECT_EQ(layouts({"match", folder.path().string()}).code, 0);
  fused.erase("layers.1.down");
  write_safetensors(folder / "model.safetensors", fused);
  const Result lacking = layouts({"match", folder.path().string()});
  EXPECT_EQ(lacking.code, 1);
  EXPECT_TRUE(contains(lacking.out, "model.safetensors lacks 'layers.1.down'")) << lacking.out;
  EXPECT_EQ(test::last_line(lacking.out), "no table fits");
}

TEST(Layouts, MatchReadsAHuggingFaceFolder) {
  if (!fs::exists(kStories)) return;  // kept beside the project, not in it
  const Result result = layouts({"match", kStories.string()});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(contains(result.out, "geometry from config.json"));
  EXPECT_LT(result.out.find("  hf-llama  "), result.out.find("  deepspeed-autotp  "));
}

}  // namespace
}  // namespace shardcheck
