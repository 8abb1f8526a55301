#include "shardcheck/layout/layout_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "../../src/layout/table_rule.h"
#include "cli/json_schema.h"
#include "layout/table_text.h"
#include "reshard/mesh_layouts.h"
#include "shardcheck/model/consumer.h"

namespace shardcheck {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Geometry small() {
  Geometry g;
  g.d_model = 12;
  g.n_layers = 3;
  g.n_heads = 4;
  g.n_kv_heads = 2;
  g.head_dim = 4;
  g.ffn = 10;
  g.vocab = 13;
  return g;
}

Geometry with_everything() {
  Geometry g = small();
  g.qkv_bias = g.qk_norm = true;
  return g;
}

/// Refusal of the seed's table after an edit.
std::string edited_refusal(const std::function<void(json&)>& edit) {
  json table = seed_json();
  edit(table);
  return parse_refusal(table.dump());
}

std::string instantiation_refusal(const std::function<void(json&)>& edit, const Geometry& geometry) {
  json table = seed_json();
  edit(table);
  return refusal_of([&] { LayoutTable::parse(table.dump(), "mine.json").instantiate(geometry, 2); });
}

std::vector<std::string> entry_names(const Layout& layout) {
  std::vector<std::string> names;
  for (const LayoutEntry& entry : layout.entries) names.push_back(entry.name);
  return names;
}

TEST(LayoutName, IsPrintedAndParsedBack) {
  for (const char* text : {"seed", "seed:tp2", "hf-llama:tp1024", "megatron-moe:pp2,ep4,tp2"}) {
    EXPECT_EQ(to_string(parse_layout_name(text)), text);
  }
  EXPECT_EQ(to_string(parse_layout_name("seed:tp1")), "seed");
  EXPECT_EQ(parse_layout_name("seed:tp1"), parse_layout_name("seed"));
  EXPECT_EQ(parse_layout_name("seed:pp2,tp4").tp_degree(), 4);
  EXPECT_EQ(parse_layout_name("seed:pp2,tp4").degree("pp"), 2);
  EXPECT_EQ(parse_layout_name("seed:pp2,tp4").degree("ep"), 1);
}

TEST(LayoutName, SaysWhatIsWrong) {
  const auto refused = [](std::string_view text) { return refusal_of([&] { parse_layout_name(text); }); };
  EXPECT_THAT(refused(""), HasSubstr("table name"));
  EXPECT_THAT(refused("Seed"), HasSubstr("'Seed'"));
  EXPECT_THAT(refused("../seed"), HasSubstr("table name"));
  EXPECT_THAT(refused(std::string(65, 'a')), HasSubstr("1..64"));
  EXPECT_THAT(refused("seed:"), HasSubstr("axis ''"));
  EXPECT_THAT(refused("seed:tp2,"), HasSubstr("axis ''"));
  EXPECT_THAT(refused("seed:xp2"),
              HasSubstr("'xp2' is unknown (allowed: tp ep etp pp dp cp, and first and last for the "
                        "layers of the end stages)"));
  EXPECT_THAT(refused("seed:tp0"), HasSubstr("1..1024"));
  EXPECT_THAT(refused("seed:tp"), HasSubstr("1..1024"));
  EXPECT_THAT(refused("seed:tp1025"), HasSubstr("1..1024"));
  EXPECT_THAT(refused("seed:tp99999999999999999999"), HasSubstr("1..1024"));
  EXPECT_THAT(refused("seed:tp-2"), HasSubstr("unknown"));
  EXPECT_THAT(refused("seed:tp2x"), HasSubstr("tp2x"));
  EXPECT_THAT(refused("seed:tp2,tp4"), HasSubstr("axis tp appears twice"));
  EXPECT_THAT(refused("seed:tp1,tp4"), HasSubstr("axis tp appears twice"));
}

TEST(BuiltInTables, AreThoseOfTheFolder) {
  std::set<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(layouts_folder())) {
    if (file.path().stem() != "layout_table.schema") files.insert(file.path().stem().string());
  }
  const std::vector<std::string> names = LayoutTable::built_in_names();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), files);
  for (const char* name :
       {"seed", "hf-llama", "hf-phi3", "hf-gpt2", "hf-neox", "hf-mixtral", "megatron-llama", "megatron-moe",
        "megatron-mla-moe", "vllm-llama", "vllm-moe", "vllm-mla-moe", "sglang-llama", "torchtitan-llama",
        "fsdp2-tp", "deepspeed-autotp"}) {
    EXPECT_TRUE(files.contains(name)) << name;
  }
  EXPECT_EQ(LayoutTable::built_in("seed").consumer(), "seed");
  EXPECT_EQ(LayoutTable::built_in("hf-llama").consumer(), "hf");
  EXPECT_EQ(LayoutTable::built_in("vllm-llama").consumer(), "vllm");
  EXPECT_EQ(LayoutTable::built_in("hf-llama").framework(), "transformers");
  EXPECT_EQ(LayoutTable::built_in("hf-llama").family(), "llama");
}

TEST(BuiltInTables, UnknownNameListsTheNearestFirst) {
  EXPECT_THAT(refusal_of([] { LayoutTable::built_in("vlm-llama"); }),
              HasSubstr("unknown layout table 'vlm-llama' (known: vllm-llama deepspeed-autotp fsdp2-tp "));
}

/// A geometry that the table has rules for.
Geometry geometry_of(const LayoutTable& table) {
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& layout : family.layouts) {
      if (parse_layout_name(layout).table == table.name()) return family.geometry;
    }
  }
  Geometry plain = meshes::llama();
  plain.qkv_bias = plain.o_bias = plain.qk_norm = false;
  if (table.family() == "mla-moe") return meshes::latent();
  if (table.family() == "mixtral") plain.n_experts = 4, plain.expert_ffn = 8;
  if (table.family() == "neox") {
    plain.norm = Norm::layer, plain.n_kv_heads = plain.n_heads, plain.gated = false;
    plain.mlp_bias = plain.qkv_bias = plain.o_bias = true;
  }
  return plain;
}

/// Those that a table whose layouts are executed has rules for, among them tied and rich ones.
std::vector<Geometry> geometries_of(const LayoutTable& table) {
  std::vector<Geometry> all = {geometry_of(table)};
  if (table.family().starts_with("llama")) all.insert(all.end(), {small(), with_everything()});
  if (table.consumer().starts_with("seed")) {
    all.insert(all.end(), {meshes::gpt2(), meshes::experts(), meshes::sinks()});
  }
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().tied = true;
  }
  return all;
}

// Names come from the tables here and from the consumer's code there: two sources that must agree.
TEST(BuiltInTables, HoldExactlyTheTensorsTheirConsumerReads) {
  for (const std::string& table : LayoutTable::built_in_names()) {
    const LayoutTable& parsed = LayoutTable::built_in(table);
    if (parsed.consumer() == "none") continue;
    for (const Geometry& geometry : geometries_of(parsed)) {
      const Layout layout = make_layout({table, {}}, geometry);
      const auto read = consumer_named(layout.consumer).required_tensors(geometry, 1, 0);
      const auto held = entry_names(layout);
      EXPECT_EQ(std::set<std::string>(held.begin(), held.end()),
                std::set<std::string>(read.begin(), read.end()))
          << table << " " << to_string(geometry);
    }
  }
}

std::int64_t padding_of(const LayoutEntry& entry) {
  const std::int64_t rows = padding_in(entry.arrangement().order);
  const int dim = entry.arrangement().dim;
  return rows * element_count(entry.placed.shape()) / entry.placed.shape()[static_cast<std::size_t>(dim)];
}

TEST(BuiltInTables, HoldEveryLogicalTensorOnceWithItsShape) {
  for (const std::string& name : LayoutTable::built_in_names()) {
    const Geometry geometry = geometry_of(LayoutTable::built_in(name));
    for (const int degree : {1, 2}) {
      const Layout layout = LayoutTable::built_in(name).instantiate(geometry, degree);
      std::vector<std::string> held;
      for (const LayoutEntry& entry : layout.entries) {
        std::int64_t elements = padding_of(entry);
        for (const LogicalTensor& part : entry.parts) {
          held.push_back(part.name);
          elements += element_count(part.shape);
        }
        EXPECT_EQ(elements, element_count(entry.placed.shape())) << name << " " << entry.name;
        EXPECT_EQ(entry.placed.name(), entry.name);
        EXPECT_EQ(entry.placed.degree(), degree);
      }
      std::vector<std::string> expected;
      for (const LogicalTensor& tensor : logical_tensors(geometry)) expected.push_back(tensor.name);
      EXPECT_THAT(held, ::testing::UnorderedElementsAreArray(expected)) << name;
    }
  }
}

TEST(SeedTable, HasTheNamesShapesAndPlacementsOfTheSeedDocument) {
  const Layout layout = make_layout(parse_layout_name("seed:tp2"), toy());
  EXPECT_EQ(layout.entries.size(), 27u);
  EXPECT_EQ(layout.degree, 2);
  EXPECT_EQ(to_string(layout.name), "seed:tp2");
  const std::vector<std::tuple<std::string, Shape, std::string>> expected = {
      {"embed", {32000, 256}, "shard(dim=0, chunk)"},
      {"layers.3.qkv", {384, 256}, "segments(dim=0, 256+64+64)"},
      {"layers.0.o_proj", {256, 256}, "shard(dim=1)"},
      {"layers.0.gate_up", {1408, 256}, "segments(dim=0, 704+704)"},
      {"layers.0.down", {256, 704}, "shard(dim=1)"},
      {"layers.0.attn_norm", {256}, "replicate"},
      {"layers.0.ffn_norm", {256}, "replicate"},
      {"final_norm", {256}, "replicate"},
      {"lm_head", {32000, 256}, "shard(dim=0, chunk)"},
  };
  for (const auto& [name, shape, placement] : expected) {
    const LayoutEntry* entry = layout.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->placed.shape(), shape) << name;
    EXPECT_EQ(to_string(entry->placed.placement()), placement) << name;
  }
  EXPECT_EQ(layout.entry_of("layers.2.k").name, "layers.2.qkv");
  EXPECT_EQ(layout.find("layers.4.qkv"), nullptr);
  EXPECT_THROW(layout.entry_of("layers.4.k"), std::out_of_range);
}

TEST(SeedTable, SupportsTheDegreesTheSeedDerives) {
  const LayoutTable& seed = LayoutTable::built_in("seed");
  EXPECT_THAT(supported_degrees(seed, toy(), {1, 2, 4}), ElementsAre(1, 2));
  EXPECT_THAT(supported_degrees(seed, toy_kv4(), {1, 2, 4}), ElementsAre(1, 2, 4));
  EXPECT_THAT(seed.unrepresentable(toy(), 4), ElementsAre("qkv"));
  EXPECT_THAT(seed.unrepresentable(toy(), 3), ElementsAre("down", "gate_up", "o_proj", "qkv"));
  EXPECT_THAT(seed.unrepresentable(toy_kv4(), 4), IsEmpty());
  EXPECT_THAT(supported_degrees(seed, toy(), {-1, 0, 1, 1025}), ElementsAre(1));
}

TEST(LayoutTableInstantiate, NamesTheParameterTheSizesAndTheDegree) {
  const auto refused = [](const char* name, const Geometry& geometry) -> std::string {
    try {
      make_layout(parse_layout_name(name), geometry);
    } catch (const UnsupportedLayout& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused("seed:tp4", toy()), "layers.0.qkv: n_kv_heads=2 is not divisible by TP degree 4");
  EXPECT_EQ(refused("vllm-llama:tp8", toy()), "accepted");
  Geometry three = toy();
  three.n_heads = 24, three.n_kv_heads = 3;
  EXPECT_EQ(refused("vllm-llama:tp4", three),
            "model.layers.0.self_attn.qkv_proj.weight: n_kv_heads=3 is not divisible by TP degree 4 nor the "
            "degree by it");
  EXPECT_EQ(refused("hf-llama:tp4", toy()),
            "model.layers.0.self_attn.k_proj.weight: n_kv_heads=2 is not divisible by TP degree 4");
  EXPECT_EQ(refused("hf-llama:tp2", small()),
            "lm_head.weight: extent 13 of dimension 0 of [13, 12] is not divisible by TP degree 2");
  EXPECT_EQ(refused("seed:tp2", small()), "accepted");
}

// Placements of a rank are padded to 64 whatever the degree, and share KV heads once ranks outnumber them.
TEST(VllmTable, PadsTheVocabularyAndReplicatesKvHeads) {
  Geometry geometry = small();
  geometry.ffn = 8;
  const Layout layout = make_layout(parse_layout_name("vllm-llama:tp4"), geometry);
  EXPECT_EQ(layout.find("lm_head.weight")->placed.shape(), (Shape{64, 12}));
  EXPECT_EQ(layout.find("lm_head.weight")->placed.local_shape(3), (Shape{16, 12}));
  EXPECT_EQ(layout.find("lm_head.weight")->arrangement().order,
            (std::vector<shardcheck::Run>{{0, 13}, {kPadding, 51}}));
  const LayoutEntry* qkv = layout.find("model.layers.0.self_attn.qkv_proj.weight");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(qkv->placed.selection(rank),
              (Selection{0, {{rank * 4, 4}, {16 + rank / 2 * 4, 4}, {24 + rank / 2 * 4, 4}}}));
  }
}

// Source: vLLM and SGLang deepseek_v2.py: the latent projections are one tensor where the query has a latent.
TEST(LatentAttentionTables, FuseTheLatentProjectionsOfQueryAndKeys) {
  Geometry geometry = meshes::latent();
  const std::vector<std::pair<std::string, std::string>> fused = {
      {"vllm-mla-moe", "fused_qkv_a_proj"}, {"sglang-mla-moe", "fused_qkv_a_proj_with_mqa"}};
  for (const auto& [table, name] : fused) {
    const std::string prefix = "model.layers.0.self_attn.";
    geometry.q_lora = 6;
    const Layout with = make_layout({table, {{"tp", 2}}}, geometry);
    EXPECT_EQ(with.find(prefix + name + ".weight")->placed.local_shape(1), (Shape{6 + 5 + 2, 10}));
    EXPECT_EQ(with.find(prefix + "kv_a_proj_with_mqa.weight"), nullptr);
    geometry.q_lora = 0;
    const Layout without = make_layout({table, {{"tp", 2}}}, geometry);
    EXPECT_EQ(without.find(prefix + name + ".weight"), nullptr);
    EXPECT_EQ(without.find(prefix + "kv_a_proj_with_mqa.weight")->placed.shape(), (Shape{5 + 2, 10}));
    EXPECT_EQ(without.find(prefix + "q_proj.weight")->placed.local_shape(0), (Shape{12, 10}));
  }
}

// Source: DeepSpeed tp_shard.py, get_shard_size: 5 KV heads over 3 ranks are 2, 2 and 1, with the query heads
// and the columns of the output projection that belong to them.
TEST(AutoTpTable, DealsOutWholeKvHeads) {
  Geometry geometry = small();
  geometry.n_heads = 10, geometry.n_kv_heads = 5;
  const Layout layout = make_layout(parse_layout_name("deepspeed-autotp:tp3"), geometry);
  const std::string prefix = "model.layers.0.self_attn.";
  const std::vector<std::pair<std::int64_t, std::int64_t>> heads = {{0, 2}, {2, 2}, {4, 1}};
  for (int rank = 0; rank < 3; ++rank) {
    const auto [first, count] = heads[static_cast<std::size_t>(rank)];
    const auto held = [&](const char* name) { return layout.find(prefix + name)->placed.selection(rank); };
    EXPECT_EQ(held("q_proj.weight"), (Selection{0, {{8 * first, 8 * count}}}));
    EXPECT_EQ(held("k_proj.weight"), (Selection{0, {{4 * first, 4 * count}}}));
    EXPECT_EQ(held("o_proj.weight"), (Selection{1, {{8 * first, 8 * count}}}));
  }
  EXPECT_TRUE(layout.find("model.embed_tokens.weight")->placed.is_replicated());
  EXPECT_EQ(layout.find("lm_head.weight")->placed.local_shape(1), (Shape{13, 4}));
}

TEST(LayoutTableInstantiate, AgreesWithUnrepresentableAtEveryDegree) {
  for (const std::string& name : LayoutTable::built_in_names()) {
    for (const Geometry& geometry : {geometry_of(LayoutTable::built_in(name))}) {
      for (int degree = 1; degree <= 9; ++degree) {
        bool constructed = true;
        try {
          make_layout({name, {{"tp", degree}}}, geometry);
        } catch (const UnsupportedLayout&) {
          constructed = false;
        }
        EXPECT_EQ(constructed, LayoutTable::built_in(name).unrepresentable(geometry, degree).empty())
            << name << degree;
      }
    }
  }
}

TEST(LayoutTableInstantiate, RefusesAxesAndGeometriesItDoesNotCarry) {
  EXPECT_THAT(refusal_of([] { make_layout(parse_layout_name("seed:etp2,tp2"), toy()); }),
              HasSubstr("axis etp"));
  EXPECT_THAT(refusal_of([] { make_layout(parse_layout_name("sead"), toy()); }), HasSubstr("known: seed"));
  Geometry broken = toy();
  broken.n_kv_heads = 3;
  EXPECT_THROW(make_layout({}, broken), InvalidInput);
}

TEST(LayoutTableInstantiate, OrdersEntriesByRuleThenLayer) {
  const Layout layout = make_layout({}, small());
  EXPECT_THAT(
      std::vector<std::string>(entry_names(layout)),
      ElementsAre("embed", "layers.0.qkv", "layers.1.qkv", "layers.2.qkv", "layers.0.o_proj",
                  "layers.1.o_proj", "layers.2.o_proj", "layers.0.gate_up", "layers.1.gate_up",
                  "layers.2.gate_up", "layers.0.down", "layers.1.down", "layers.2.down", "layers.0.attn_norm",
                  "layers.1.attn_norm", "layers.2.attn_norm", "layers.0.ffn_norm", "layers.1.ffn_norm",
                  "layers.2.ffn_norm", "final_norm", "lm_head"));
}

// A wrong table must be constructible: only its numbers are wrong.
TEST(LayoutTableInstantiate, AcceptsAWrongTableWhoseShapesFit) {
  json table = seed_json();
  table["rules"][1]["placement"] = {{"kind", "shard"}, {"dim", 0}};
  const Layout wrong = LayoutTable::parse(table.dump(), "wrong.json").instantiate(toy(), 2);
  EXPECT_EQ(wrong.find("layers.0.qkv")->placed.selection(0), (Selection{0, {{0, 192}}}));
  EXPECT_EQ(wrong.find("layers.0.qkv")->placed.local_shape(0),
            make_layout({"seed", {{"tp", 2}}}, toy()).find("layers.0.qkv")->placed.local_shape(0));
}

TEST(LayoutTableInstantiate, EvaluatesEveryKindOfPlacement) {
  json table = seed_json();
  auto& rules = table["rules"];
  rules[0]["placement"] = {{"kind", "shard"}, {"dim", 0}, {"policy", "balanced"}};
  rules[3]["placement"] = {
      {"kind", "segments"},
      {"dim", 1},
      {"segments",
       {{{"begin", "n_heads*head_dim/2"}, {"items", "n_heads/2"}, {"unit", "head_dim"}},
        {{"begin", 0}, {"items", "n_heads/2"}, {"unit", "head_dim"}, {"label", "second half"}}}}};
  rules[4]["placement"] = {{"kind", "fused_paired"}, {"first", {"ffn", "2*ffn"}}, {"second", {0, "ffn"}}};
  rules[6]["placement"] = {{"kind", "partial"}, {"encoding", "equal_share"}};
  const Layout layout = LayoutTable::parse(table.dump(), "mine.json").instantiate(small(), 2);
  const auto placement = [&](const char* name) { return to_string(layout.find(name)->placed.placement()); };
  EXPECT_EQ(placement("embed"), "shard(dim=0, balanced)");
  EXPECT_EQ(placement("layers.0.o_proj"), "segments(dim=1, 8@8+8@0)");
  EXPECT_EQ(placement("layers.0.gate_up"), "segments(dim=0, 10@10+10@0)");
  EXPECT_EQ(placement("layers.0.attn_norm"), "partial(equal_share)");
}

TEST(LayoutTableParse, RefusesWhatIsNotAnObjectOfTheRightKeys) {
  EXPECT_THAT(parse_refusal(""), StartsWith("mine.json: not valid JSON"));
  EXPECT_THAT(parse_refusal("{"), StartsWith("mine.json: not valid JSON"));
  EXPECT_THAT(parse_refusal("[]"), HasSubstr("allowed: a JSON object"));
  EXPECT_THAT(parse_refusal("\xff"), HasSubstr("byte 0 (0xff) is not valid UTF-8"));
  EXPECT_THAT(parse_refusal("{} {}"), StartsWith("mine.json: not valid JSON"));
  // The lexer would take NUL for the end and never see what follows.
  EXPECT_THAT(parse_refusal(std::string("{}\0garbage", 10)), HasSubstr("byte 2 is NUL"));
  EXPECT_THAT(parse_refusal("{}"), HasSubstr("key 'name' is missing"));
  EXPECT_THAT(edited_refusal([](json& t) { t["nmae"] = 1; }),
              HasSubstr("unknown key 'nmae' (allowed: name framework"));
  EXPECT_THAT(edited_refusal([](json& t) { t["name"] = 1; }),
              HasSubstr("name: expected a string, got number"));
  EXPECT_THAT(edited_refusal([](json& t) { t["name"] = "My Table"; }),
              HasSubstr("name: 'My Table' is not a name"));
  EXPECT_THAT(edited_refusal([](json& t) { t["family"] = ""; }), HasSubstr("family: text of 0 bytes"));
  EXPECT_THAT(edited_refusal([](json& t) { t["consumer"] = "sglang"; }),
              HasSubstr("unknown consumer 'sglang'"));
  EXPECT_THAT(edited_refusal([](json& t) {
                t["mesh"] = {"tp", "sp"};
              }),
              HasSubstr("mesh[1]: unknown mesh axis 'sp' (allowed: tp ep etp pp dp cp)"));
  EXPECT_THAT(edited_refusal([](json& t) {
                t["mesh"] = {"tp", "pp", "tp"};
              }),
              HasSubstr("mesh[2]: axis tp appears twice"));
  EXPECT_THAT(edited_refusal([](json& t) { t["mesh"] = json::array(); }), HasSubstr("mesh: 0 elements"));
  EXPECT_THAT(edited_refusal([](json& t) { t["rules"] = json::array(); }),
              HasSubstr("rules: 0 elements, allowed 1..64"));
  EXPECT_THAT(edited_refusal([](json& t) { t["rules"][0].erase("placement"); }),
              HasSubstr("rules[0]: key 'placement'"));
}

TEST(LayoutTableParse, NamesTheFileTheRuleAndTheField) {
  const auto rule = [](std::size_t index, const char* key, const json& value) {
    return edited_refusal([&](json& t) { t["rules"][index][key] = value; });
  };
  EXPECT_THAT(rule(1, "logical", {"q", "kk"}),
              AllOf(StartsWith("mine.json: rules[1] (layers.{layer}.qkv): logical[1]"),
                    HasSubstr("unknown role 'kk'")));
  EXPECT_THAT(rule(1, "logical", {"q", "embed"}), HasSubstr("cannot share a tensor"));
  EXPECT_THAT(rule(1, "logical", json::array()), HasSubstr("logical: 0 elements"));
  EXPECT_THAT(rule(1, "tensor", "layers.qkv"), HasSubstr("tensor: pattern 'layers.qkv' lacks {layer}"));
  EXPECT_THAT(rule(0, "tensor", "layers.{layer}.embed"), HasSubstr("has {layer} although"));
  EXPECT_THAT(rule(1, "tensor", "layers.{layer}.{layer}"), HasSubstr("may appear once"));
  EXPECT_THAT(rule(1, "tensor", "layers.{layer}.{expert}"),
              HasSubstr("has {expert} although its roles are not per expert"));
  EXPECT_THAT(rule(1, "tensor", "layers.{layer}.{rank}"), HasSubstr("no other placeholder"));
  EXPECT_THAT(rule(2, "optional", "yes"), HasSubstr("optional: expected true or false, got string"));
  EXPECT_THAT(rule(1, "tensor", "layers.{layer}.o_proj"), HasSubstr("two rules for this tensor"));
  EXPECT_THAT(rule(1, "logical", {"q", "o_proj"}),
              HasSubstr("role 'o_proj' already has the rule 'layers.{layer}.qkv'"));
  EXPECT_THAT(rule(1, "logical", {"q", "q"}), HasSubstr("logical[1]: role 'q' appears twice"));
}

TEST(LayoutTableParse, NamesTheFieldOfAPlacement) {
  const auto placement = [](const json& value) {
    return edited_refusal([&](json& t) { t["rules"][3]["placement"] = value; });
  };
  const std::string where = "mine.json: rules[3] (layers.{layer}.o_proj): placement: ";
  EXPECT_THAT(placement({{"kind", "striped"}}),
              StartsWith(where + "kind: unknown value 'striped' (allowed: replicate"));
  EXPECT_THAT(placement({{"dim", 1}}), StartsWith(where + "key 'kind' is missing"));
  EXPECT_THAT(placement({{"kind", "shard"}}), StartsWith(where + "key 'dim' is missing"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", -1}}),
              StartsWith(where + "dim: expected an integer in 0..3, got -1"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", 1.5}}), StartsWith(where + "dim: expected an integer"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", UINT64_MAX}}),
              StartsWith(where + "dim: expected an integer"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", 1}, {"policy", "floor"}}),
              StartsWith(where + "policy: unknown value 'floor' (allowed: even chunk balanced padded)"));
  EXPECT_THAT(placement({{"kind", "replicate"}, {"dim", 1}}), StartsWith(where + "unknown key 'dim'"));
  EXPECT_THAT(placement({{"kind", "partial"}, {"encoding", "last_rank"}}),
              StartsWith(where + "encoding: unknown value"));
  EXPECT_THAT(
      placement({{"kind", "head_partitioned"}, {"n_heads", "heads"}, {"n_kv_heads", 1}, {"head_dim", 1}}),
      StartsWith(where + "n_heads: expression 'heads': unknown name"));
  EXPECT_THAT(placement({{"kind", "fused_paired"}, {"first", {0}}, {"second", {0, 1}}}),
              StartsWith(where + "first: 1 elements, allowed 2..2"));
  EXPECT_THAT(placement({{"kind", "segments"}, {"segments", json::array()}}),
              StartsWith(where + "segments: 0 elements"));
  EXPECT_THAT(placement({{"kind", "segments"}, {"segments", {{{"unit", 1}}}}}),
              StartsWith(where + "segments[0]: key 'items' is missing"));
  EXPECT_THAT(placement({{"kind", "segments"}, {"segments", {{{"items", -1}}}}}),
              StartsWith(where + "segments[0]: items: expected an integer in 0.."));
}

TEST(LayoutTableParse, RefusesDuplicatedKeys) {
  EXPECT_THAT(parse_refusal(R"({"name": "a", "name": "b"})"), HasSubstr("key 'name' appears twice"));
  std::string text = read_layout_file("seed.json");
  text.replace(text.find("\"dim\": 0"), 8, "\"dim\": 0, \"dim\": 1");
  EXPECT_THAT(parse_refusal(text), HasSubstr("key 'dim' appears twice"));
}

TEST(LayoutTableParse, BoundsSizeAndDepthBeforeParsing) {
  EXPECT_THAT(parse_refusal(std::string(1 << 20, '[')), HasSubstr("nested deeper than"));
  EXPECT_THAT(parse_refusal(std::string(200, '{')), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_refusal(std::string((4 << 20) + 1, ' ')), HasSubstr("allowed: at most 4194304"));
  EXPECT_THAT(parse_refusal("\"" + std::string(100, '[') + "\""), HasSubstr("allowed: a JSON object"));
  EXPECT_THAT(parse_refusal("{\"\\\"" + std::string(100, '[') + "\": 1}"), HasSubstr("unknown key"));
  const std::string long_key = parse_refusal("{\"" + std::string(1 << 20, 'k') + "\": 1}");
  EXPECT_LT(long_key.size(), 1000u);
}

TEST(LayoutTableParse, RefusesEveryTruncationOfATable) {
  const std::string text = read_layout_file("seed.json");
  for (std::size_t length = 0; length < text.find_last_of('}'); length += 7) {
    EXPECT_THAT(parse_refusal(text.substr(0, length)), HasSubstr("not valid JSON")) << length;
  }
}

TEST(LayoutTableInstantiate, NamesTheRuleThatDoesNotFitTheGeometry) {
  EXPECT_THAT(instantiation_refusal([](json& t) { t["rules"].erase(5); }, small()),
              HasSubstr("mine.json: no rule for the logical tensor 'layers.0.down'"));
  EXPECT_THAT(instantiation_refusal([](json& t) { t["rules"].erase(2); }, with_everything()),
              HasSubstr("no rule for the logical tensor 'layers.0.q_bias'"));
  EXPECT_EQ(instantiation_refusal([](json& t) { t["rules"].erase(2); }, small()), "accepted");
  EXPECT_THAT(instantiation_refusal([](json& t) { t["rules"][2].erase("optional"); }, small()),
              HasSubstr("rule 'layers.{layer}.qkv_bias': logical: the geometry lacks"));
  EXPECT_THAT(instantiation_refusal(
                  [](json& t) {
                    t["rules"][3]["logical"] = {"o_proj", "q_bias"};
                    t["rules"].erase(2);
                  },
                  small()),
              HasSubstr("lacks one of the roles o_proj q_bias"));
  EXPECT_THAT(instantiation_refusal(
                  [](json& t) {
                    t["rules"][1]["logical"] = {"q", "k", "v", "down"};
                    t["rules"].erase(5);
                  },
                  small()),
              HasSubstr("shapes [16, 12] and [12, 10] do not fit side by side along dimension 0"));
  EXPECT_THAT(instantiation_refusal([](json& t) { t["rules"][10]["tensor"] = "layers.1.qkv"; }, small()),
              HasSubstr("two rules make the tensor 'layers.1.qkv'"));
  EXPECT_THAT(instantiation_refusal(
                  [](json& t) { t["rules"][1]["placement"]["n_heads"] = "n_heads/(n_layers-3)"; }, small()),
              AllOf(HasSubstr("rule 'layers.{layer}.qkv'"), HasSubstr("division by zero")));
}

TEST(LayoutTableLoad, ReadsAFileAndNamesOneItCannotRead) {
  const std::filesystem::path layouts = std::filesystem::path(SHARDCHECK_SOURCE_DIR) / "lib" / "layouts";
  EXPECT_EQ(LayoutTable::load(layouts / "hf-llama.json").name(), "hf-llama");
  EXPECT_THAT(refusal_of([&] { LayoutTable::load(layouts / "absent.json"); }),
              HasSubstr("absent.json: cannot be opened"));
  EXPECT_THAT(refusal_of([&] { LayoutTable::load(layouts); }), HasSubstr("cannot be opened"));
  // A changed copy must not pass for the built-in table.
  json copy = seed_json();
  const auto file = std::filesystem::temp_directory_path() / "shardcheck_changed_seed.json";
  const auto load = [&] {
    std::ofstream(file) << copy.dump();
    return refusal_of([&] { LayoutTable::load(file); });
  };
  EXPECT_EQ(load(), "accepted");
  copy["rules"][0]["placement"] = {{"kind", "replicate"}};
  EXPECT_THAT(load(), HasSubstr("name: 'seed' is a built-in table with other content"));
  copy["name"] = "mine";
  EXPECT_EQ(load(), "accepted");
  std::filesystem::remove(file);
}

json schema_json() { return json::parse(read_layout_file("layout_table.schema.json")); }

std::set<std::string> words(const json& list) { return list.get<std::set<std::string>>(); }

template <typename Names>
std::set<std::string> as_set(const Names& names) {
  return {names.begin(), names.end()};
}

TEST(LayoutTableSchema, ListsTheSameWordsAsTheParser) {
  const json schema = schema_json();
  auto consumers = as_set(consumer_names());
  consumers.insert("none");
  EXPECT_EQ(words(schema["properties"]["consumer"]["enum"]), consumers);
  EXPECT_EQ(words(schema["$defs"]["role"]["enum"]), as_set(role_names()));
  for (const std::string& axis : words(schema["$defs"]["axis"]["enum"])) {
    EXPECT_TRUE(axis_from_name(axis)) << axis;
  }
  EXPECT_EQ(schema["$defs"]["axis"]["enum"].size(), kAxes);
  const std::string sizes = schema["$defs"]["size"]["description"];
  for (const std::string& name : Expression::names())
    EXPECT_THAT(sizes, ::testing::ContainsRegex(" " + name + "[ ,]"));
}

/// The tables of the folder, the geometry of each fixed, and one that uses what none of them does.
std::vector<json> example_tables() {
  std::vector<json> tables;
  for (const std::string& name : LayoutTable::built_in_names()) {
    tables.push_back(json::parse(read_layout_file(name + ".json")));
  }
  json rare = seed_json();
  rare["description"] = "made up";
  rare["mesh"] = {"tp", "pp", "dp"};
  rare["expert_axis"] = "dp", rare["expert_policy"] = "balanced", rare["local_numbers"] = true;
  auto& rules = rare["rules"];
  rules[0]["placement"] = {{"kind", "shard"}, {"dim", 0}, {"policy", "padded"}, {"multiple", 4}};
  rules[1]["order"] = {
      {{"kind", "grouped"}, {"groups", 1}, {"units", {1, "1"}}, {"begin", 0}, {"inverse", true}},
      {{"kind", "rotary_interleaved"}, {"heads", 1}, {"head_dim", 2}, {"rotary", 2}},
      {{"kind", "pad"}, {"begin", "ffn"}, {"multiple", 8}}};
  rules[3]["placement"] = {
      {{"kind", "strided"}, {"dim", 1}, {"split_factor", 2}, {"axis", "tp"}},
      {{"kind", "shard"}, {"dim", 0}, {"policy", "balanced"}, {"unit", 2}, {"axis", "dp"}}};
  rules[4]["placement"] = {{"kind", "grouped"}, {"groups", "ffn"}, {"units", {1, 1}}};
  rules[5]["placement"] = {{"kind", "replicated_groups"}, {"blocks", 2}};
  tables.push_back(std::move(rare));
  return tables;
}

bool follows_schema(const json& table) {
  static const test::SchemaCheck schema(schema_json());
  return schema.problems(table).empty();
}

bool parses(const json& table) { return parse_refusal(table.dump()) == "accepted"; }

/// Every object of a document, by its path.
void list_objects(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& all) {
  if (value.is_object()) all.push_back(at);
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) {
    list_objects(item, value.is_array() ? at / static_cast<std::size_t>(std::stoul(key)) : at / key, all);
  }
}

TEST(LayoutTableSchema, AcceptsEveryTable) {
  for (const json& table : example_tables()) {
    EXPECT_TRUE(parses(table)) << parse_refusal(table.dump());
    EXPECT_TRUE(follows_schema(table)) << table["name"];
  }
}

/// Tables of one rule each, every object in them once.
std::vector<std::pair<json, std::vector<json::json_pointer>>> objects_of_tables() {
  std::vector<std::pair<json, std::vector<json::json_pointer>>> all;
  std::set<json> seen;
  for (const json& table : example_tables()) {
    for (const json& rule : table["rules"]) {
      json one = table;
      one["rules"] = json::array({rule});
      std::vector<json::json_pointer> objects;
      list_objects(one, json::json_pointer(), objects);
      const auto known = [&](const json::json_pointer& at) {
        json object = one[at];
        for (const char* name : {"name", "framework", "family", "rules", "tensor"}) object.erase(name);
        return !seen.insert(std::move(object)).second;
      };
      std::erase_if(objects, known);
      all.emplace_back(std::move(one), std::move(objects));
    }
  }
  return all;
}

// What the parser takes follows the schema. One more key in any object, a value of another type and a
// required key that is missing are refused by both.
TEST(LayoutTableSchema, AgreesWithTheParserAboutEveryKey) {
  // Rules between keys, which the schema does not state.
  const std::set<std::string> contextual = {"policy", "stage", "tied", "layers", "stack"};
  std::size_t edits = 0;
  for (const auto& [table, objects] : objects_of_tables()) {
    for (const auto& at : objects) {
      json more = table;
      more[at]["kindd"] = 1;
      EXPECT_FALSE(parses(more) || follows_schema(more)) << at;
      for (const auto& [key, value] : table[at].items()) {
        json less = table, other = table;
        less[at].erase(key);
        EXPECT_TRUE(parses(less) ? follows_schema(less) : !follows_schema(less) || contextual.contains(key))
            << at << " without " << key << ": " << parse_refusal(less.dump());
        other[at][key] = json::array({json::array()});
        EXPECT_FALSE(parses(other) || follows_schema(other)) << at << " " << key;
        edits += 2;
      }
    }
  }
  EXPECT_GT(edits, 300u);
}

}  // namespace
}  // namespace shardcheck
