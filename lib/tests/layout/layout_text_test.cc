#include "shardcheck/layout/layout_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "reshard/mesh_layouts.h"

namespace shardcheck {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> held(const std::string& layout, const Geometry& geometry, const std::string& entry,
                              int rank) {
  return held_parts(*meshes::layout(layout, geometry).find(entry), rank);
}

std::string map_of(const std::string& layout, const Geometry& geometry, const std::string& entry) {
  return row_map(*meshes::layout(layout, geometry).find(entry));
}

std::string text_of(const std::string& layout, const Geometry& geometry) {
  const LayoutName name = parse_layout_name(layout);
  const LayoutTable& table = LayoutTable::built_in(name.table);
  return layout_text(table, table.instantiate(geometry, name));
}

TEST(HeldParts, AreIntervalsOfLogicalTensors) {
  const auto seed = [](const char* entry, int rank) { return held("seed:tp2", toy(), entry, rank); };
  EXPECT_THAT(seed("layers.0.qkv", 1), ElementsAre("q 128-255", "k 32-63", "v 32-63"));
  EXPECT_THAT(seed("layers.3.gate_up", 0), ElementsAre("gate 0-351", "up 0-351"));
  EXPECT_THAT(seed("layers.0.down", 1), ElementsAre("down columns 352-703"));
  EXPECT_THAT(seed("final_norm", 1), ElementsAre("all"));
}

TEST(HeldParts, AreAscendingWhateverTheOrderInTheFile) {
  EXPECT_THAT(held("megatron-llama:tp2", toy(), "decoder.layers.0.self_attention.linear_qkv.weight", 1),
              ElementsAre("q 128-255", "k 32-63", "v 32-63"));
  // Half a group each: query rows alone on the first rank.
  EXPECT_THAT(held("megatron-llama:tp4", toy(), "decoder.layers.0.self_attention.linear_qkv.weight", 0),
              ElementsAre("q 0-95"));
  EXPECT_THAT(held("torchtitan-llama:tp2", meshes::llama(), "layers.0.attention.wq.weight", 0),
              ElementsAre("q 0-7"));
}

TEST(HeldParts, SayColumnsExpertsPaddingAndNothing) {
  EXPECT_THAT(held("hf-gpt2:tp2", meshes::gpt2(), "h.0.attn.c_attn.weight", 1),
              ElementsAre("q 8-15", "k 8-15", "v 8-15"));
  EXPECT_THAT(held("vllm-llama:tp2", meshes::llama(), "lm_head.weight", 0),
              ElementsAre("lm_head 0-19", "padding of 12"));
  EXPECT_THAT(held("vllm-moe:ep2,etp2", meshes::experts(), "model.layers.1.mlp.experts.w2_weight", 3),
              ElementsAre("expert_down experts 2-3 columns 4-7"));
  EXPECT_THAT(held("vllm-moe:ep2,etp2", meshes::experts(), "model.layers.1.mlp.experts.w13_weight", 3),
              ElementsAre("expert_gate 4-7", "expert_up 4-7", "experts 2-3 of each"));
  EXPECT_THAT(held("fsdp2-tp:dp4", meshes::llama(), "model.norm.weight", 3), ElementsAre("final_norm 9"));
  Geometry narrow = meshes::llama();
  narrow.d_model = 5;
  EXPECT_THAT(held("fsdp2-tp:dp4", narrow, "model.norm.weight", 3), ElementsAre("nothing"));
}

// Every element that the intervals name is held, and nothing else: their lengths add up to the shard.
TEST(HeldParts, AddUpToTheShardInEveryLayout) {
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& name : family.layouts) {
      for (const LayoutEntry& entry : meshes::layout(name, family.geometry).entries) {
        const int side = entry.arrangement().dim;
        for (const int rank : entry.placed.holders()) {
          if (entry.placed.selections(rank).size() != 1 || entry.placed.selection(rank).dim != side) continue;
          std::int64_t length = 0;
          for (const std::string& part : held_parts(entry, rank)) {
            std::istringstream words(part);
            for (std::string word; words >> word;) {
              const std::size_t dash = word.find('-');
              if (word.find_first_not_of("0123456789-") != std::string::npos) continue;
              if (part.starts_with("padding")) {
                length += std::stoll(word);
              } else {
                length +=
                    dash == std::string::npos ? 1 : std::stoll(word.substr(dash + 1)) - std::stoll(word) + 1;
              }
            }
          }
          EXPECT_EQ(length, entry.placed.local_shape(rank)[static_cast<std::size_t>(side)])
              << name << " " << entry.name << " rank " << rank;
        }
      }
    }
  }
}

TEST(RowMap, IsThePictureOfTheSeedDocument) {
  EXPECT_EQ(map_of("seed:tp2", toy(), "layers.0.qkv"),
            "          rows\n"
            "       +---------+\n"
            "    q  |   0-255 |  rank 0: 0-127\n"
            "       |         |  rank 1: 128-255\n"
            "    k  | 256-319 |  rank 0: 256-287\n"
            "       |         |  rank 1: 288-319\n"
            "    v  | 320-383 |  rank 0: 320-351\n"
            "       |         |  rank 1: 352-383\n"
            "       +---------+\n");
}

TEST(RowMap, ListsBlocksInTheOrderOfTheFile) {
  const std::string megatron =
      map_of("megatron-llama:tp2", toy(), "decoder.layers.0.self_attention.linear_qkv.weight");
  EXPECT_THAT(megatron, HasSubstr("q  |   0-127 |  rank 0: 0-127\n"));
  EXPECT_THAT(megatron, HasSubstr("v  | 160-191 |  rank 0: 160-191\n    q  | 192-319 |  rank 1: 192-319\n"));
  EXPECT_THAT(map_of("hf-gpt2:tp2", meshes::gpt2(), "h.0.attn.c_attn.weight"), HasSubstr("columns\n"));
  Geometry many = toy();
  many.n_heads = many.n_kv_heads = 8;
  EXPECT_THAT(map_of("megatron-llama:tp2", many, "decoder.layers.0.self_attention.linear_qkv.weight"),
              HasSubstr("and 8 more blocks in the same order\n"));
}

TEST(RowMap, IsEmptyWhereNothingFusedIsCut) {
  EXPECT_EQ(map_of("seed:tp2", toy(), "layers.0.o_proj"), "");
  EXPECT_EQ(map_of("seed", toy(), "layers.0.qkv"), "");
}

TEST(LayoutText, FoldsLayersAndSaysReplicas) {
  const std::string text = text_of("vllm-llama:tp4", toy());
  EXPECT_THAT(text, HasSubstr("model.layers.{0..3}.self_attn.qkv_proj.weight [384, 256]: q k v; segments("));
  EXPECT_THAT(text, HasSubstr("  rank 1: q 64-127, k 0-31 (as rank 0), v 0-31 (as rank 0)\n"));
  EXPECT_THAT(text, HasSubstr("model.norm.weight [256]: final_norm; replicate\n  every rank: all\n"));
  EXPECT_THAT(text, Not(HasSubstr("layers.1.")));
}

TEST(LayoutText, NamesStagesExpertsAndCoordinates) {
  const std::string text = text_of("megatron-moe:pp2,ep2,tp2", meshes::experts());
  EXPECT_THAT(text,
              HasSubstr("embedding.word_embeddings.weight [256, 10]: embed; shard(dim=0), padded by 236\n"
                        "  on pp 0 (ranks 0-3)\n"
                        "  tp 0 (ranks 0 2): embed 0-19, padding of 108\n"
                        "  tp 1 (ranks 1 3): padding of 128\n"));
  EXPECT_THAT(text,
              HasSubstr("decoder.layers.{1..3}.mlp.experts.linear_fc2.weight{0..3} [10, 8]: expert_down; "
                        "shard(dim=1)\n  on pp 0, ep 0 (ranks 0-1): layers 1 experts {0..1}\n"));
  EXPECT_THAT(text, HasSubstr("interleaved\n"));
  EXPECT_THAT(text_of("hf-gpt2", meshes::gpt2()), HasSubstr("; segments(dim=1, 16+16+16), transposed\n"));
  EXPECT_THAT(text_of("megatron-llama-zero-centered", meshes::llama()), HasSubstr("replicate, value -1\n"));
}

// Each entry is in exactly one listed tensor, however many there are.
TEST(LayoutText, HasALineForEveryDistinctShapeOfEveryLayout) {
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& name : family.layouts) {
      const Layout layout = meshes::layout(name, family.geometry);
      std::set<std::pair<std::string, Shape>> shapes;
      for (const LayoutEntry& entry : layout.entries) {
        std::string pattern = entry.name;
        std::erase_if(pattern, [](char c) { return c >= '0' && c <= '9'; });
        shapes.emplace(entry.parts.front().role + pattern, entry.placed.shape());
      }
      const std::string text = text_of(name, family.geometry);
      std::size_t headers = 0;
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) headers += line.starts_with(' ') ? 0 : 1;
      EXPECT_EQ(headers, shapes.size()) << name << "\n" << text;
    }
  }
}

TEST(LayoutText, RefusesALayoutOfAnotherTable) {
  const Layout seed = meshes::layout("seed", toy());
  EXPECT_THROW(layout_text(LayoutTable::built_in("hf-llama"), seed), std::invalid_argument);
}

TEST(RangesText, JoinsNeighbours) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({3}), "3");
  EXPECT_EQ(ranges_text({0, 1, 2, 5, 7, 8}), "0-2 5 7-8");
}

}  // namespace
}  // namespace shardcheck
