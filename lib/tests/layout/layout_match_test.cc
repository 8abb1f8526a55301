#include "shardcheck/layout/layout_match.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reshard/mesh_layouts.h"

namespace shardcheck {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

/// One file per rank of a layout.
std::vector<FileTensors> files_of(const Layout& layout) {
  std::vector<FileTensors> files;
  for (int rank = 0; rank < layout.degree; ++rank) {
    FileTensors file{"rank " + std::to_string(rank), {}};
    for (const LayoutEntry& entry : layout.entries) {
      if (entry.placed.held_by(rank)) file.shapes.emplace(entry.file_name(), entry.placed.local_shape(rank));
    }
    files.push_back(std::move(file));
  }
  return files;
}

TableMatch match(const std::string& table, const std::vector<FileTensors>& files,
                 const std::string& mesh = "seed", const std::optional<Geometry>& geometry = {}) {
  return match_table(LayoutTable::built_in(table), files, parse_layout_name(mesh), geometry);
}

std::vector<std::string> fitting(const std::vector<FileTensors>& files) {
  std::vector<TableMatch> matches;
  for (const std::string& name : LayoutTable::built_in_names()) matches.push_back(match(name, files));
  sort_matches(matches);
  std::vector<std::string> names;
  for (const TableMatch& one : matches) {
    if (one.fits()) names.push_back(one.layout.table);
  }
  return names;
}

// The geometry is inferred from the shapes, or given.
TEST(MatchTable, FitsTheFilesOfEveryLayout) {
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& name : family.layouts) {
      const Layout layout = meshes::layout(name, family.geometry);
      const std::vector<FileTensors> files = files_of(layout);
      const TableMatch inferred = match(layout.name.table, files, name);
      EXPECT_TRUE(inferred.fits()) << name << ": " << inferred.problem;
      EXPECT_EQ(inferred.share(), 1.0) << name;
      const TableMatch given = match(layout.name.table, files, name, family.geometry);
      EXPECT_TRUE(given.fits()) << name << ": " << given.problem;
      std::size_t tensors = 0;
      for (const FileTensors& file : files) tensors += file.shapes.size();
      EXPECT_EQ(given.matched, tensors) << name;
    }
  }
}

TEST(MatchTable, RecoversTheGeometryThatTheShapesFix) {
  for (const Geometry& geometry : {meshes::llama(), meshes::experts(), meshes::latent()}) {
    const bool latent = geometry.kv_lora > 0, experts = geometry.n_experts > 0;
    const std::string table = latent ? "hf-mla-moe" : experts ? "hf-moe" : "hf-llama";
    Geometry expected = geometry;
    if (latent) expected.head_dim = expected.nope_dim + expected.rope_dim, expected.n_kv_heads = 4;
    EXPECT_EQ(match(table, files_of(meshes::layout(table, geometry))).geometry, expected) << table;
  }
}

// Every key that may differ from the truth is said to be a guess.
TEST(MatchTable, KeysThatAreNotGuessedAreThoseOfTheModel) {
  const auto value_of = [](const Geometry& geometry, const std::string& key) {
    const std::string text = fmt::format(" {} ", to_string(geometry));
    const std::size_t at = text.find(fmt::format(" {}=", key));
    return at == text.npos ? "" : text.substr(at, text.find(' ', at + 1) - at);
  };
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& name : family.layouts) {
      const Layout layout = meshes::layout(name, family.geometry);
      const TableMatch found = match(layout.name.table, files_of(layout), name);
      ASSERT_TRUE(found.geometry) << name;
      for (const char* key :
           {"d_model",  "layers",   "heads",      "kv_heads",  "ffn",          "vocab",      "tied",
            "qkv_bias", "o_bias",   "qk_norm",    "gated",     "experts",      "expert_ffn", "shared_ffn",
            "rope",     "norm_eps", "rope_theta", "positions", "dense_layers", "kv_lora",    "v_dim"}) {
        const bool guess = std::find(found.guessed.begin(), found.guessed.end(), key) != found.guessed.end();
        // Latent attention has no width of its key heads; its layouts say heads.
        if (guess || (key == std::string("kv_heads") && family.geometry.kv_lora > 0)) continue;
        EXPECT_EQ(value_of(*found.geometry, key), value_of(family.geometry, key)) << name << " " << key;
      }
      EXPECT_THAT(found.guessed, IsSupersetOf({"norm_eps", "rope", "rope_theta"}));
      EXPECT_THAT(match(layout.name.table, files_of(layout), name, family.geometry).guessed, IsEmpty());
    }
  }
  const TableMatch plain = match("hf-llama", files_of(meshes::layout("hf-llama", toy())));
  EXPECT_THAT(plain.guessed,
              ElementsAre("heads", "kv_heads", "head_dim", "norm_eps", "rope", "rope_theta", "tied"));
}

// The last stage of a pipeline holds the embedding a second time, under the name of a head.
TEST(MatchTable, AGivenGeometryStaysTiedThoughItsHeadIsStored) {
  const Geometry tied = meshes::tied_llama();
  const auto stages = files_of(meshes::layout("megatron-llama:pp2,tp2", tied));
  EXPECT_EQ(match("megatron-llama", stages, "megatron-llama:pp2,tp2", tied).geometry, tied);
  const TableMatch inferred = match("megatron-llama", stages, "megatron-llama:pp2,tp2");
  EXPECT_THAT(inferred.guessed, Contains("tied"));
  Geometry untied = tied;
  untied.tied = false;
  const auto stored = files_of(meshes::layout("hf-llama", untied));
  const TableMatch twice = match("hf-llama", stored, "hf-llama", tied);
  EXPECT_TRUE(twice.fits()) << twice.problem;
  EXPECT_EQ(twice.geometry, tied);
}

TEST(MatchTable, TellsTheTablesApart) {
  EXPECT_THAT(fitting(files_of(meshes::layout("seed:tp2", toy()))),
              ElementsAre("seed", "seed-bias-divided", "seed-bias-on-first-rank"));
  EXPECT_THAT(fitting(files_of(meshes::layout("megatron-llama:tp2", toy()))),
              ElementsAre("megatron-llama", "megatron-llama-zero-centered"));
  EXPECT_THAT(fitting(files_of(meshes::layout("hf-gpt2", meshes::gpt2()))), ElementsAre("hf-gpt2"));
  EXPECT_THAT(fitting(files_of(meshes::layout("torchtitan-llama:tp2", toy()))),
              ElementsAre("torchtitan-llama"));
  EXPECT_EQ(fitting(files_of(meshes::layout("hf-llama", toy()))).front(), "hf-llama");
  EXPECT_EQ(fitting(files_of(meshes::layout("vllm-llama:tp4", toy()))).front(), "sglang-llama");
}

TEST(MatchTable, SaysWhatDoesNotFit) {
  std::vector<FileTensors> files = files_of(meshes::layout("seed:tp2", toy()));
  const auto problem = [&](std::size_t rank, const char* name, const std::optional<Shape>& shape) {
    std::vector<FileTensors> edited = files;
    edited[rank].shapes.erase(name);
    if (shape) edited[rank].shapes[name] = *shape;
    return match("seed", edited, "seed", toy());
  };
  const TableMatch lacks = problem(1, "layers.2.down", {});
  EXPECT_EQ(lacks.problem, "rank 1 lacks 'layers.2.down'");
  EXPECT_EQ(lacks.missing, 1u);
  EXPECT_EQ(lacks.extra + lacks.misshapen, 0u);
  const TableMatch more = problem(0, "layers.2.downs", Shape{1});
  EXPECT_EQ(more.problem, "rank 0 holds 'layers.2.downs', which the table does not expect");
  EXPECT_EQ(more.extra, 1u);
  const TableMatch wrong = problem(0, "layers.2.qkv", Shape{192, 255});
  EXPECT_EQ(wrong.problem, "rank 0 holds 'layers.2.qkv' of shape [192, 255], expected [192, 256]");
  EXPECT_EQ(wrong.misshapen, 1u);
  EXPECT_LT(wrong.share(), 1.0);
  EXPECT_THAT(match("hf-llama", files).problem, HasSubstr("no rule for 'embed'"));
  EXPECT_THAT(match("seed", files, "seed:tp4").problem, HasSubstr("a mesh of 4 ranks, but files of 2"));
  EXPECT_FALSE(match("seed", {{"empty", {}}}).fits());
}

TEST(MatchTable, SurvivesShapesOfNoModel) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{INT64_MAX, INT64_MAX}, Shape{1, 2, 3, 4, 5}}) {
    for (const std::string& table : LayoutTable::built_in_names()) {
      const LayoutTable& built_in = LayoutTable::built_in(table);
      for (const meshes::Family& family : meshes::families()) {
        const auto own = [&](const std::string& name) { return parse_layout_name(name).table == table; };
        if (std::none_of(family.layouts.begin(), family.layouts.end(), own)) continue;
        std::vector<FileTensors> files = files_of(built_in.instantiate(family.geometry, 1));
        for (auto& [name, known] : files[0].shapes) known = shape;
        EXPECT_FALSE(match(table, files).fits()) << table;
      }
    }
  }
}

TEST(JoinFiles, TellsRanksFromPiecesOfOneCheckpoint) {
  const FileTensors a{"a", {{"x", {1}}, {"layers.0.rotary_emb.inv_freq", {8}}}}, b{"b", {{"y", {2}}}};
  const FileTensors a_again{"c", {{"x", {1}}}};
  EXPECT_EQ(join_files({a, b}, 1).size(), 1u);
  EXPECT_EQ(join_files({a, b}, 1)[0].shapes.size(), 2u);
  EXPECT_EQ(join_files({a, b}, 2).size(), 2u);
  EXPECT_EQ(join_files({a, a_again}, 1).size(), 2u);
}

}  // namespace
}  // namespace shardcheck
