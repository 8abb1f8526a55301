// Every kind of wrong table, with what is said of it: the file, the rule and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "layout/table_text.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// An edit of a table of the folder, and a part of what is said of it.
struct Wrong {
  std::function<void(json& table)> edit;
  std::string message;
};

/// The rule of a table whose tensor ends in `name`.
json& rule(json& table, const std::string& name) {
  for (json& one : table["rules"]) {
    if (one["tensor"].get<std::string>().ends_with(name)) return one;
  }
  throw std::out_of_range("no rule " + name);
}

json edited(const std::string& table, const Wrong& wrong) {
  json document = json::parse(read_layout_file(table + ".json"));
  wrong.edit(document);
  return document;
}

void expect_parse_refusals(const std::string& table, const std::vector<Wrong>& all) {
  for (const Wrong& wrong : all) {
    EXPECT_THAT(parse_refusal(edited(table, wrong).dump()),
                AllOf(StartsWith("mine.json: "), HasSubstr(wrong.message)));
  }
}

/// Tables that parse and are refused for a geometry and a mesh, as invalid or as unsupported.
template <typename Exception>
void expect_refusals(const std::string& table, const Geometry& geometry, const std::string& layout,
                     const std::vector<Wrong>& all) {
  for (const Wrong& wrong : all) {
    const LayoutTable parsed = LayoutTable::parse(edited(table, wrong).dump(), "mine.json");
    const auto make = [&] { parsed.instantiate(geometry, parse_layout_name(layout)); };
    EXPECT_THAT(refusal_of<Exception>(make), HasSubstr(wrong.message));
  }
}

Geometry small() {
  Geometry g;
  g.d_model = 12, g.n_layers = 3, g.n_heads = 4, g.n_kv_heads = 2, g.head_dim = 4, g.ffn = 10, g.vocab = 14;
  return g;
}

Geometry experts() {
  Geometry g = small();
  g.n_experts = 6, g.expert_ffn = 8;
  return g;
}

/// An edit that sets one key of a rule.
std::function<void(json&)> set(const std::string& name, const std::string& key, const json& value) {
  return [=](json& table) { rule(table, name)[key] = value; };
}

std::function<void(json&)> order(const json& step) { return set("qkv", "order", json::array({step})); }

TEST(WrongTable, HeaderFields) {
  const auto header = [](const char* key, const json& value) {
    return [=](json& table) { table[key] = value; };
  };
  expect_parse_refusals(
      "seed",
      {{header("axes", {"tp"}), "unknown key 'axes'"},
       {header("description", ""), "description: text of 0 bytes, allowed 1..256"},
       {header("description", std::string(257, 'x')), "description: text of 257 bytes, allowed 1..256"},
       {header("mesh", "tp"), "mesh: expected an array, got string"},
       {header("mesh", {1}), "mesh[0]: expected a string, got number"},
       {header("mesh", {"tp", "tensor"}),
        "mesh[1]: unknown mesh axis 'tensor' (allowed: tp ep etp pp dp cp)"},
       {header("mesh", {"tp", "tp"}), "mesh[1]: axis tp appears twice"},
       {header("expert_axis", "experts"), "expert_axis: unknown mesh axis 'experts'"},
       {header("expert_axis", "etp"), "expert_axis: axis etp is not in the table's mesh"},
       {header("expert_policy", "chunk"), "expert_policy: unknown value 'chunk' (allowed: even balanced)"},
       {header("local_numbers", 1), "local_numbers: expected true or false, got number"},
       {header("rules", json::object()), "rules: expected an array, got object"},
       {[](json& t) { t["rules"][0] = "embed"; }, "rules[0]: expected an object, got string"}});
}

TEST(WrongTable, KeysOfARule) {
  expect_parse_refusals(
      "seed",
      {{set("o_proj", "stacked", "experts"), "rules[3]: unknown key 'stacked' (allowed: tensor logical"},
       {set("o_proj", "logical", "o_proj"), "logical: expected an array, got string"},
       {set("o_proj", "logical", {"o_prj"}), "logical[0]: unknown role 'o_prj' (known: attn_norm"},
       {set("o_proj", "optional", 1), "optional: expected true or false, got number"},
       {set("o_proj", "transposed", "yes"), "transposed: expected true or false, got string"},
       {set("o_proj", "dim", 4), "dim: expected an integer in 0..3, got 4"},
       {set("o_proj", "shift", 2), "shift: expected an integer in -1..1, got 2"},
       {set("o_proj", "shift", 0.5), "shift: expected an integer in -1..1, got 0.5"},
       {set("o_proj", "stage", "first"), "(layers.{layer}.o_proj): stage: allowed for roles outside layers"},
       {set("embed", "stage", "middle"), "stage: unknown value 'middle' (allowed: every first last)"},
       {set("embed", "layers", "dense"), "(embed): layers: allowed for roles that are per layer"},
       {set("embed", "with", "embeds"), "with: unknown role 'embeds' (known: attn_norm"},
       {set("embed", "without", "q"), "without: role 'q' is not one of the model"},
       {set("o_proj", "with", "expert_up"), "with: role 'expert_up' is not one of the model or of a layer"},
       {set("o_proj", "layers", "every"), "layers: unknown value 'every' (allowed: dense experts)"},
       {set("embed", "tied", 1), "tied: expected true or false, got number"},
       {set("embed", "tied", true), "(embed): tied: allowed with the stage last"},
       {[](json& t) {
          rule(t, "embed").update({{"tied", true}, {"stage", "first"}});
        },
        "(embed): tied: allowed with the stage last"},
       {set("o_proj", "stack", "experts"), "stack: allowed: \"experts\", for roles that are per expert"},
       {set("embed", "stack", "experts"), "stack: allowed: \"experts\", for roles that are per expert"},
       {set("o_proj", "tensor", "layers.{layer}.qkv"), "(layers.{layer}.qkv): two rules for this tensor"},
       {set("o_proj", "logical", {"down"}), "role 'down' already has the rule 'layers.{layer}.o_proj'"}});
  expect_parse_refusals(
      "vllm-moe",
      {{set("w2_weight", "stack", "layers"), "stack: allowed: \"experts\", for roles that are per expert"},
       {set("w2_weight", "tensor", "layers.{layer}.{expert}"),
        "pattern 'layers.{layer}.{expert}' has {expert} although its roles are not per expert"},
       {[](json& t) { rule(t, "w2_weight").erase("stack"); }, "lacks {expert} although its roles are per"},
       {set("w2_weight", "with", "expert_up"),
        "with: role 'expert_up' is one of an expert; allowed where experts are not stacked"},
       {set("w2_weight", "logical", {"expert_down", "down"}),
        "role 'down' and role 'expert_down' cannot share a tensor"}});
  expect_parse_refusals(
      "vllm-mla-moe",
      {{[](json& t) { rule(t, "kv_a_proj_with_mqa.weight").erase("without"); },
        "role 'kv_down' already has the rule 'model.layers.{layer}.self_attn.fused_qkv_a_proj.weight'"},
       {[](json& t) { rule(t, "kv_a_proj_with_mqa.weight")["without"] = "q_up"; },
        "role 'kv_down' already has"}});
  expect_parse_refusals(
      "megatron-moe",
      {{set("mlp.linear_fc1.layer_norm_weight", "layers", "experts"),
        "role 'ffn_norm' already has the rule 'decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight'"}});
}

TEST(WrongTable, OrderAndPadding) {
  const std::string where = "rules[1] (layers.{layer}.qkv): order[0]: ";
  const auto grouped = [](const json& more) {
    json step = {{"kind", "grouped"}, {"groups", 2}, {"units", {8, 4, 4}}};
    step.update(more);
    return order(step);
  };
  expect_parse_refusals(
      "seed",
      {{set("qkv", "order", json::array()), "order: 0 elements, allowed 1..8"},
       {set("qkv", "order", {{"kind", "grouped"}}), "order: expected an array, got object"},
       {order("reverse"), where + "expected an object, got string"},
       {order({{"kind", "reverse"}}), where + "kind: unknown value 'reverse' (allowed: grouped rotary_int"},
       {order({{"units", {1}}}), where + "key 'kind' is missing"},
       {order({{"kind", "grouped"}, {"units", {1}}}), where + "key 'groups' is missing"},
       {grouped({{"heads", 4}}), where + "unknown key 'heads'"},
       {grouped({{"units", json::array()}}), where + "units: 0 elements, allowed 1..16"},
       {grouped({{"units", {1, "n_head"}}}), where + "units[1]: expression 'n_head': unknown name"},
       {grouped({{"inverse", "yes"}}), where + "inverse: expected true or false, got string"},
       {grouped({{"begin", -1}}), where + "begin: expected an integer in 0.."},
       {order({{"kind", "rotary_interleaved"}, {"heads", 4}}), where + "key 'head_dim' is missing"},
       {order({{"kind", "pad"}, {"multiple", 4}}), where + "key 'begin' is missing"},
       {order({{"kind", "pad"}, {"begin", 1}, {"multiple", 4}, {"inverse", true}}),
        where + "unknown key 'inverse'"},
       {set("embed", "pad", 128), "pad: expected an object, got number"},
       {set("embed", "pad", json::object()), "pad: key 'multiple' is missing"},
       {set("embed", "pad", {{"multiple", 1}, {"value", 0}}), "pad: unknown key 'value'"},
       {set("embed", "pad", {{"multiple", "128*"}}), "pad: multiple: expression '128*': missing operand"},
       {set("embed", "pad", {{"multiple", "128*rank"}}), "unknown name 'rank' (known: d_model"}});
}

TEST(WrongTable, PlacementFields) {
  const std::string where = "rules[3] (layers.{layer}.o_proj): placement: ";
  const auto placed = [](const json& placement) { return set("o_proj", "placement", placement); };
  expect_parse_refusals(
      "seed",
      {{placed("replicate"), where + "expected an object, got string"},
       {placed(json::array()), "placement: 0 elements, allowed 1..6"},
       {placed({{{"kind", "replicate"}, {"axis", "xp"}}}),
        "placement[0]: axis: unknown axis 'xp' (allowed: tp ep etp pp dp cp)"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"axis", "etp"}}),
        where + "axis etp is not in the table's mesh"},
       {placed({{{"kind", "shard"}, {"dim", 0}}, {{"kind", "replicate"}, {"axis", "etp"}}}),
        where + "axis etp is not in the table's mesh"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"multiple", 2}}),
        where + "multiple: allowed with the policy padded only"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"policy", "padded"}, {"unit", 2}}),
        where + "unit: not allowed with the policy padded"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"unit", "head"}}),
        where + "unit: expression 'head': unknown"},
       {placed({{"kind", "strided"}, {"split_factor", 2}, {"units", {1}}}), where + "unknown key 'units'"},
       {placed({{"kind", "strided"}, {"split_factor", "2+"}}), where + "split_factor: expression '2+'"},
       {placed({{"kind", "grouped"}, {"groups", 2}}), where + "key 'units' is missing"},
       {placed({{"kind", "replicated_groups"}}), where + "key 'blocks' is missing"},
       {placed({{"kind", "segments"}, {"segments", {{{"items", 1}, {"copies", 2}}}}}),
        where + "segments[0]: unknown key 'copies'"},
       {placed({{"kind", "segments"}, {"segments", {{{"items", 1}, {"replicate", 1}}}}}),
        where + "segments[0]: replicate: expected true or false"},
       {placed({{"kind", "partial"}}), where + "key 'encoding' is missing"},
       {placed({{"kind", "partial"}, {"encoding", "sum"}}),
        where + "encoding: unknown value 'sum' (allowed: first_rank equal_share)"}});
}

TEST(WrongTable, ThatDoesNotFitTheGeometry) {
  const auto grouped = [](const json& groups, const json& units, const json& begin) {
    return order({{"kind", "grouped"}, {"groups", groups}, {"units", units}, {"begin", begin}});
  };
  const std::string where = "mine.json: rule 'layers.{layer}.qkv': ";
  expect_refusals<InvalidLayout>(
      "seed", small(), "seed:tp2",
      {{grouped(2, {8, 4, 5}, 0), where + "order: a step moves rows 0..34 of 32"},
       {grouped(2, {8, 4, 4}, 1), where + "order: a step moves rows 1..33 of 32"},
       {grouped(2, {8, 4, 4}, "n_heads-5"), where + "order: a step begins at row -1 of 32"},
       {grouped(2, {8, 4, 4}, 33), where + "order: a step begins at row 33 of 32"},
       {grouped("n_heads/(n_layers-3)", {1}, 0),
        where + "expression 'n_heads/(n_layers-3)': division by zero"},
       {order({{"kind", "pad"}, {"begin", 33}, {"multiple", 4}}),
        where + "order: a step begins at row 33 of 32"},
       {order({{"kind", "pad"}, {"begin", 3}, {"multiple", 0}}),
        where + "pad: multiple 0; allowed: 1..16777216"},
       {set("qkv", "pad", {{"multiple", 0}}), where + "pad: multiple 0; allowed: 1..16777216"},
       {set("qkv", "pad", {{"multiple", "tp-3"}}), where + "pad: multiple -1; allowed: 1..16777216"},
       {set("qkv", "pad", {{"multiple", 16777217}}), where + "pad: multiple 16777217; allowed: 1..16777216"},
       {set("qkv", "pad", {{"multiple", "128/(tp-2)"}}), where + "expression '128/(tp-2)': division by zero"},
       {set("qkv", "dim", 2), where + "dim: parts of shape [16, 12] do not follow each other along dimension "
                                      "2 of the file; allowed: 0..1"},
       {set("qkv", "dim", 1),
        where + "shapes [16, 12] and [8, 12] do not fit side by side along dimension 1"},
       {[](json& t) {
          rule(t, "qkv").update({{"logical", {"k", "v"}}, {"placement", {{"kind", "replicate"}}}});
        },
        "mine.json: no rule for the logical tensor 'layers.0.q'"},
       {[](json& t) { rule(t, "o_proj")["logical"] = {"kv_up"}; },
        "rule 'layers.{layer}.o_proj': logical: the geometry lacks the roles kv_up"},
       {[](json& t) { rule(t, "qkv_bias").erase("optional"); },
        "logical: the geometry lacks the roles q_bias"},
       {set("lm_head", "tensor", "layers.2.down"), "two rules make the tensor 'layers.2.down'"}});
  expect_refusals<UnsupportedLayout>(
      "seed", small(), "seed:tp2",
      {{grouped(0, {8}, 0), "layers.0.qkv: interleave: 0 groups of [8] rows; allowed: positive numbers"},
       {grouped(2, {8, "4-n_heads"}, 0), "interleave: 2 groups of [8, 0] rows; allowed: positive numbers"},
       {order({{"kind", "rotary_interleaved"}, {"heads", 4}, {"head_dim", 3}}),
        "layers.0.qkv: rotary order of 4 heads of 3 with 3 rotated; allowed: an even number up to the head"},
       {order({{"kind", "rotary_interleaved"}, {"heads", 4}, {"head_dim", 4}, {"rotary", 6}}),
        "rotary order of 4 heads of 4 with 6 rotated"}});
}

TEST(WrongTable, PlacementsThatDoNotFit) {
  const auto placed = [](const json& placement) { return set("o_proj", "placement", placement); };
  const std::string where = "layers.0.o_proj: ";
  expect_refusals<UnsupportedLayout>(
      "seed", small(), "seed:tp2",
      {{placed({{"kind", "shard"}, {"dim", 2}}), where + "dimension 2 is outside the shape [12, 16]"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"unit", 5}}), where + "extent 12 of dimension 0 of [12, 16]"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"unit", 4}}),
        where + "3 units of 4 along dimension 0 of [12, 16] are not divisible by TP degree 2"},
       {placed({{"kind", "shard"}, {"dim", 0}, {"policy", "padded"}, {"multiple", 0}}),
        where + "multiple 0 of a padded part; allowed: 1.."},
       {placed({{"kind", "strided"}, {"split_factor", 0}}),
        where + "split factor 0; allowed at TP degree 2: 1.."},
       {placed({{"kind", "grouped"}, {"groups", 2}, {"units", {4, 1}}}),
        where + "2 groups of 4+1 do not fill dimension 0 of [12, 16] (TP degree 2)"},
       {placed({{"kind", "replicated_groups"}, {"blocks", 5}}), where + "extent 12 of dimension 0"},
       {placed({{"kind", "replicated_groups"}, {"blocks", 4}}),
        where + "TP degree 2 is not divisible by its 4 replicated blocks"},
       {placed({{"kind", "segments"}, {"segments", {{{"items", 3}, {"unit", 4}, {"replicate", true}}}}}),
        where + "3=3 is not divisible by TP degree 2 nor the degree by it"},
       {placed({{{"kind", "shard"}, {"dim", 0}}, {{"kind", "shard"}, {"dim", 1}}}),
        where + "two placements for the axis tp"},
       {placed({{"kind", "head_partitioned"}, {"n_heads", 1}, {"n_kv_heads", 1}, {"head_dim", 4}}),
        where + "n_heads=1 is not divisible by TP degree 2"},
       {placed({{"kind", "fused_paired"}, {"first", {0, 5}}, {"second", {5, 12}}}),
        where + "paired ranges [0, 5) and [5, 12) differ in length"}});
}

TEST(WrongTable, MeshesThatDoNotFit) {
  const auto unsupported = [](const Geometry& geometry, const char* layout) {
    return refusal_of<UnsupportedLayout>([&] { make_layout(parse_layout_name(layout), geometry); });
  };
  EXPECT_EQ(refusal_of([] { make_layout(parse_layout_name("seed:etp2"), small()); }),
            "layout seed:etp2: axis etp is not carried by the table 'seed' (allowed: tp ep pp cp dp)");
  EXPECT_THAT(
      unsupported(small(), "megatron-llama:pp2"),
      StartsWith("layout megatron-llama:pp2: n_layers=3 do not spread evenly over PP degree 2; first"));
  EXPECT_THAT(unsupported(small(), "megatron-llama:pp2,first3"),
              HasSubstr("n_layers=3 do not spread evenly over PP degree 2 with 3 and 0 at the ends"));
  EXPECT_EQ(unsupported(experts(), "megatron-moe:ep4"), "n_experts=6 is not divisible by ep degree 4");
  EXPECT_THAT(unsupported(experts(), "megatron-moe:etp3"),
              HasSubstr("linear_fc1.weight0: paired range=8 is not divisible by ETP degree 3"));
}

}  // namespace
}  // namespace shardcheck
