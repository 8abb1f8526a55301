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

#include "shardcheck/model/consumer.h"

namespace shardcheck {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string read_layout_file(const std::string& name) {
  std::ifstream in(std::filesystem::path(SHARDCHECK_SOURCE_DIR) / "lib" / "layouts" / name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

json seed_json() { return json::parse(read_layout_file("seed.json")); }

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

template <typename Action>
std::string refusal_of(Action action) {
  try {
    action();
  } catch (const InvalidLayout& error) {
    return error.what();
  }
  return "accepted";
}

std::string parse_refusal(const std::string& text) {
  return refusal_of([&] { LayoutTable::parse(text, "mine.json"); });
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
  EXPECT_THAT(refused("seed:xp2"), HasSubstr("'xp2' is unknown (allowed: tp ep etp pp dp cp)"));
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
  EXPECT_THAT(LayoutTable::built_in_names(),
              ElementsAre("hf-llama", "seed", "seed-bias-divided", "seed-bias-on-first-rank", "vllm-llama"));
  EXPECT_EQ(LayoutTable::built_in("seed").consumer(), "seed");
  EXPECT_EQ(LayoutTable::built_in("hf-llama").consumer(), "hf");
  EXPECT_EQ(LayoutTable::built_in("vllm-llama").consumer(), "vllm");
  EXPECT_EQ(LayoutTable::built_in("hf-llama").framework(), "transformers");
  EXPECT_EQ(LayoutTable::built_in("hf-llama").family(), "llama");
}

TEST(BuiltInTables, UnknownNameListsTheNearestFirst) {
  EXPECT_THAT(refusal_of([] { LayoutTable::built_in("vlm-llama"); }),
              HasSubstr("unknown layout table 'vlm-llama' (known: vllm-llama hf-llama seed seed-bias-divided "
                        "seed-bias-on-first-rank)"));
}

// Names come from the tables here and from the consumer's code there: two sources that must agree.
TEST(BuiltInTables, HoldExactlyTheTensorsTheirConsumerReads) {
  Geometry tied = with_everything();
  tied.tied = true;
  for (const std::string& table : LayoutTable::built_in_names()) {
    for (const Geometry& geometry : {small(), with_everything(), tied}) {
      const Layout layout = make_layout({table, {}}, geometry);
      const auto read = consumer_named(layout.consumer).required_tensors(geometry, 1, 0);
      const auto held = entry_names(layout);
      EXPECT_EQ(std::set<std::string>(held.begin(), held.end()),
                std::set<std::string>(read.begin(), read.end()))
          << table << " " << to_string(geometry);
    }
  }
}

TEST(BuiltInTables, HoldEveryLogicalTensorOnceWithItsShape) {
  for (const std::string& table : LayoutTable::built_in_names()) {
    for (const Geometry& geometry : {small(), with_everything()}) {
      const Layout layout = make_layout({table, {{"tp", 2}}}, [&] {
        Geometry even = geometry;
        even.vocab = 14;
        return even;
      }());
      std::vector<std::string> held;
      for (const LayoutEntry& entry : layout.entries) {
        std::int64_t elements = 0;
        for (const LogicalTensor& part : entry.parts) {
          held.push_back(part.name);
          elements += element_count(part.shape);
        }
        EXPECT_EQ(elements, element_count(entry.placed.shape())) << entry.name;
        EXPECT_EQ(entry.placed.name(), entry.name);
        EXPECT_EQ(entry.placed.degree(), 2);
      }
      std::vector<std::string> expected;
      for (const LogicalTensor& tensor : logical_tensors(layout.geometry)) expected.push_back(tensor.name);
      EXPECT_THAT(held, ::testing::UnorderedElementsAreArray(expected)) << table;
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
  EXPECT_THAT(supported_degrees(seed, toy(), {-1, 0, 1}), ElementsAre(1));
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
  EXPECT_EQ(refused("vllm-llama:tp4", toy()),
            "model.layers.0.self_attn.qkv_proj.weight: n_kv_heads=2 is not divisible by TP degree 4");
  EXPECT_EQ(refused("hf-llama:tp4", toy()),
            "model.layers.0.self_attn.k_proj.weight: n_kv_heads=2 is not divisible by TP degree 4");
  EXPECT_EQ(refused("hf-llama:tp2", small()),
            "lm_head.weight: extent 13 of dimension 0 of [13, 12] is not divisible by TP degree 2");
  EXPECT_EQ(refused("seed:tp2", small()), "accepted");
}

TEST(LayoutTableInstantiate, AgreesWithUnrepresentableAtEveryDegree) {
  for (const std::string& name : LayoutTable::built_in_names()) {
    for (const Geometry& geometry : {small(), toy_kv4()}) {
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
  EXPECT_THAT(refusal_of([] { make_layout(parse_layout_name("seed:pp2,tp2"), toy()); }),
              HasSubstr("axis pp"));
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
  EXPECT_THAT(edited_refusal([](json& t) { t["mesh"] = {"ep"}; }),
              HasSubstr("unknown mesh axis 'ep' (allowed: tp)"));
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
  EXPECT_THAT(rule(1, "tensor", "layers.{layer}.{expert}"), HasSubstr("no other placeholder"));
  EXPECT_THAT(rule(2, "optional", "yes"), HasSubstr("optional: expected true or false, got string"));
  EXPECT_THAT(rule(1, "tensor", "layers.{layer}.o_proj"), HasSubstr("two rules for this tensor"));
  EXPECT_THAT(rule(1, "logical", {"q", "o_proj"}),
              HasSubstr("role 'o_proj' already has the rule 'layers.{layer}.qkv'"));
  EXPECT_THAT(rule(1, "logical", {"q", "q"}), HasSubstr("role 'q' already has the rule"));
}

TEST(LayoutTableParse, NamesTheFieldOfAPlacement) {
  const auto placement = [](const json& value) {
    return edited_refusal([&](json& t) { t["rules"][3]["placement"] = value; });
  };
  const std::string where = "mine.json: rules[3] (layers.{layer}.o_proj): placement: ";
  EXPECT_THAT(placement({{"kind", "strided"}}),
              StartsWith(where + "kind: unknown value 'strided' (allowed: replicate"));
  EXPECT_THAT(placement({{"dim", 1}}), StartsWith(where + "key 'kind' is missing"));
  EXPECT_THAT(placement({{"kind", "shard"}}), StartsWith(where + "key 'dim' is missing"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", -1}}),
              StartsWith(where + "dim: expected an integer in 0..3, got -1"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", 1.5}}), StartsWith(where + "dim: expected an integer"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", UINT64_MAX}}),
              StartsWith(where + "dim: expected an integer"));
  EXPECT_THAT(placement({{"kind", "shard"}, {"dim", 1}, {"policy", "floor"}}),
              StartsWith(where + "policy: unknown value 'floor' (allowed: even chunk balanced)"));
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
              HasSubstr("do not stack along dimension 0"));
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
}

TEST(LayoutTableSchema, ListsTheSameWordsAsTheParser) {
  const json schema = json::parse(read_layout_file("layout_table.schema.json"));
  EXPECT_EQ(schema["properties"]["consumer"]["enum"].get<std::set<std::string>>(), [] {
    const auto names = consumer_names();
    return std::set<std::string>(names.begin(), names.end());
  }());
  std::set<std::string> roles;
  for (const LogicalTensor& tensor : logical_tensors(with_everything())) roles.insert(tensor.role);
  EXPECT_EQ(schema["$defs"]["rule"]["properties"]["logical"]["items"]["enum"].get<std::set<std::string>>(),
            roles);
  for (const json& kind : schema["$defs"]["placement"]["oneOf"]) {
    // A placement of its kind alone either passes or lacks a key the schema requires; never an unknown kind.
    const std::string name = kind["properties"]["kind"]["const"];
    const std::string refusal = edited_refusal([&](json& t) {
      t["rules"][3]["placement"] = {{"kind", name}};
    });
    EXPECT_THAT(refusal, ::testing::Not(HasSubstr("unknown value"))) << name;
    EXPECT_EQ(refusal == "accepted", kind["required"].size() == 1) << name << ": " << refusal;
  }
}

}  // namespace
}  // namespace shardcheck
