// What ranks hold, against an independent index map in Python: a recorded subset, and random geometries where
// the oracle lies beside the project.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/reshard/plan.h"

namespace shardcheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Indices = std::vector<std::int64_t>;

const fs::path kSource = SHARDCHECK_SOURCE_DIR;
const fs::path kOracle = kSource.parent_path() / "shared" / "oracle" / "layout_oracle.py";
constexpr std::size_t kLiveCases = 200;

json read_json(const fs::path& file) { return json::parse(std::ifstream(file)); }

/// What the oracle says of random geometries.
json ask_oracle() {
  const std::string command =
      fmt::format("/usr/bin/python3 '{}' '{}' {}", (kSource / "lib/tests/layout/oracle_cases.py").string(),
                  kOracle.string(), kLiveCases);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[1 << 16];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
  return pclose(pipe) == 0 ? json::parse(text) : json();
}

std::int64_t number(const json& args, const char* name) { return args[name].get<std::int64_t>(); }
int degree(const json& args, const char* name = "t") { return args[name].get<int>(); }

Indices indices(const std::vector<Run>& runs) {
  Indices all;
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.length; ++i) {
      all.push_back(run.global == kPadding ? kPadding : run.global + i);
    }
  }
  return all;
}

// Direct: a placement meets one dimension.

json held(const Placement& placement, std::int64_t extent, int t) {
  const PlacedTensor placed("w", {extent}, placement, t);
  json ranks = json::array();
  for (int r = 0; r < t; ++r) ranks.push_back(indices(placed.selection(r).runs));
  return ranks;
}

json share(const json& args, SplitPolicy policy) {
  return held(Shard{0, policy}, number(args, "n"), degree(args));
}

json strided(const json& args) {
  return held(Strided{0, number(args, "sf")}, number(args, "n"), degree(args));
}

/// A remainder is refused, never dropped.
json floor_share(const json& args) {
  const std::int64_t n = number(args, "n");
  const int t = degree(args);
  try {
    return share(args, SplitPolicy::even);
  } catch (const UnsupportedLayout&) {
    json dropped = json::array();
    for (int r = 0; r < t && n % t != 0; ++r) {
      dropped.push_back(indices({{r * (n / t), n / t}}));
    }
    return dropped;
  }
}

// By a table: what its rule for one tensor makes of the logical rows.

/// A small model with as many rows in o_proj as `rows`.
Geometry tiny(std::int64_t rows = 1) {
  Geometry g;
  g.d_model = rows;
  g.n_layers = g.n_heads = g.n_kv_heads = g.ffn = 1;
  g.head_dim = 2;
  g.vocab = 1;
  return g;
}

/// A table of the folder where every tensor but one is replicated, unpadded.
json table_with(const std::string& name, const std::string& tensor) {
  json table = read_json(kSource / "lib/layouts" / (name + ".json"));
  for (json& rule : table["rules"]) {
    if (rule["tensor"] == tensor) continue;
    rule["placement"] = {{"kind", "replicate"}};
    rule.erase("pad");
  }
  return table;
}

Layout instantiated(const json& table, const Geometry& geometry, int t) {
  return LayoutTable::parse(table.dump(), "mine.json").instantiate(geometry, t);
}

/// Logical indices that each rank holds of a tensor, along the dimension its parts follow each other on.
json rows_of(const Layout& layout, const std::string& tensor) {
  const LayoutEntry* entry = layout.find(tensor);
  if (entry == nullptr) return "no tensor " + tensor;
  const Arrangement& arranged = entry->arrangement();
  const auto extent = entry->placed.shape()[static_cast<std::size_t>(arranged.dim)];
  json ranks = json::array();
  for (int r = 0; r < layout.degree; ++r) {
    std::vector<Run> runs = {{0, extent}};
    for (const Selection& selection : entry->placed.selections(r)) {
      if (selection.dim == arranged.dim) runs = selection.runs;
    }
    ranks.push_back(indices(arranged.order.empty() ? runs : compose_runs(arranged.order, runs)));
  }
  return ranks;
}

/// The same for a table of the folder; `pattern` names the tensor of layer 0.
json built_in_rows(const std::string& table, const std::string& pattern, const Geometry& geometry, int t) {
  std::string name = pattern;
  const std::size_t at = name.find("{layer}");
  if (at != std::string::npos) name.replace(at, 7, "0");
  return rows_of(instantiated(table_with(table, pattern), geometry, t), name);
}

/// A tensor of `rows` logical rows under a placement, an order and padding of its own.
json o_proj_table(const json& placement, const json& order = nullptr, const json& pad = nullptr) {
  const std::string tensor = "layers.{layer}.o_proj";
  json table = table_with("seed", tensor);
  for (json& rule : table["rules"]) {
    if (rule["tensor"] != tensor) continue;
    rule["placement"] = placement;
    if (!order.is_null()) rule["order"] = order;
    if (!pad.is_null()) rule["pad"] = pad;
  }
  return table;
}

json rows_under(const json& table, std::int64_t rows, int t) {
  return rows_of(instantiated(table, tiny(rows), t), "layers.0.o_proj");
}

/// The rows of a tensor that one step rearranges.
json rearranged(std::int64_t rows, const json& step) {
  return rows_under(o_proj_table({{"kind", "replicate"}}, json::array({step})), rows, 1)[0];
}

json grouped(const json& groups, const json& units) {
  return {{"kind", "grouped"}, {"groups", groups}, {"units", units}};
}

json inverse(json step) {
  step["inverse"] = true;
  return step;
}

const json kEven = {{"kind", "shard"}, {"dim", 0}};

json segments(const std::vector<std::int64_t>& sizes) {
  json list = json::array();
  for (const std::int64_t size : sizes) list.push_back({{"items", size}});
  return {{"kind", "segments"}, {"segments", std::move(list)}};
}

json stacked_segments(const json& args) {
  const auto sizes = args["sizes"].get<std::vector<std::int64_t>>();
  std::int64_t rows = 0;
  for (const std::int64_t size : sizes) rows += size;
  return rows_under(o_proj_table(segments(sizes)), rows, degree(args));
}

// Attention.

Geometry attention(const json& args) {
  Geometry g = tiny();
  g.n_heads = number(args, "nh"), g.n_kv_heads = number(args, "nkv"), g.head_dim = number(args, "hd");
  g.d_model = g.attention_width();
  return g;
}

json seed_qkv(const json& args) {
  return built_in_rows("seed", "layers.{layer}.qkv", attention(args), degree(args));
}

/// The table knows one head_dim: another one for values is a placement of its own.
json vllm_qkv(const json& args) {
  const Geometry g = attention(args);
  const std::int64_t value_dim = number(args, "vhd");
  if (value_dim == g.head_dim) {
    return built_in_rows("vllm-llama", "model.layers.{layer}.self_attn.qkv_proj.weight", g, degree(args));
  }
  json placement = segments({g.n_heads, g.n_kv_heads, g.n_kv_heads});
  for (std::size_t i = 0; i < 3; ++i) {
    placement["segments"][i]["unit"] = i == 2 ? value_dim : g.head_dim;
    placement["segments"][i]["replicate"] = i > 0;
  }
  const std::int64_t rows = g.attention_width() + g.kv_width() + g.n_kv_heads * value_dim;
  return rows_under(o_proj_table(placement), rows, degree(args));
}

/// Gated: queries and their gates side by side in every head, but query heads before gates in every group.
json gated_qkv_order(const Geometry& g) {
  const std::int64_t queries = g.n_heads / g.n_kv_heads * g.head_dim;
  return {inverse(grouped(g.n_heads, {g.head_dim, g.head_dim})),
          grouped(g.n_kv_heads, {queries, queries, g.head_dim, g.head_dim})};
}

json megatron_qkv(const json& args, int t) {
  const Geometry g = attention(args);
  if (!args["gated"].get<bool>()) {
    return built_in_rows("megatron-llama", "decoder.layers.{layer}.self_attention.linear_qkv.weight", g, t);
  }
  const std::int64_t rows = 2 * (g.attention_width() + g.kv_width());
  return rows_under(o_proj_table(kEven, gated_qkv_order(g)), rows, t);
}

json neox_qkv(const json& args) {
  Geometry g = attention(args);
  g.norm = Norm::layer, g.gated = false, g.mlp_bias = g.qkv_bias = g.o_bias = true;
  return built_in_rows("hf-neox", "gpt_neox.layers.{layer}.attention.query_key_value.weight", g, 1)[0];
}

json falcon_qkv(const json& args) {
  const Geometry g = attention(args);
  return rearranged(g.attention_width() + 2 * g.kv_width(),
                    grouped(g.n_kv_heads, {g.n_heads / g.n_kv_heads * g.head_dim, g.head_dim, g.head_dim}));
}

json gpt2_qkv(const json& args) {
  Geometry g = attention(args);
  g.norm = Norm::layer, g.gated = false, g.mlp_bias = g.qkv_bias = g.o_bias = g.tied = true;
  g.positions = 1;
  return built_in_rows("hf-gpt2", "h.{layer}.attn.c_attn.weight", g, degree(args));
}

Geometry with_experts() {
  Geometry g = tiny();
  g.n_experts = g.expert_ffn = 1;
  return g;
}

json latent_kv_up(const json& args) {
  Geometry g = with_experts();
  g.n_heads = g.n_kv_heads = number(args, "nh");
  g.kv_lora = 1, g.rope_dim = 2, g.nope_dim = number(args, "nope"), g.v_dim = number(args, "v");
  return built_in_rows("vllm-mla-moe", "model.layers.{layer}.self_attn.kv_b_proj.weight", g, degree(args));
}

// MLP.

json fused_pair(const json& args) {
  const std::int64_t first = number(args, "first"), second = number(args, "second");
  const std::int64_t rows = number(args, "rows");
  const json placement = {
      {"kind", "fused_paired"}, {"first", {first, first + rows}}, {"second", {second, second + rows}}};
  return rows_under(o_proj_table(placement), 2 * rows, degree(args));
}

/// Gate and up in turn, `block` rows at a time.
json alternating(std::int64_t rows, std::int64_t block) {
  return rearranged(2 * rows, grouped(rows / block, {block, block}));
}

json alternating_share(const json& args) {
  const std::int64_t rows = number(args, "i");
  const json placement = {{"kind", "grouped"}, {"groups", rows}, {"units", {1, 1}}};
  return rows_under(o_proj_table(placement), 2 * rows, degree(args));
}

// Vocabulary.

json megatron_embedding(const json& args) {
  const std::string tensor = "embedding.word_embeddings.weight";
  json table = table_with("megatron-llama", tensor);
  table["rules"][0]["pad"]["multiple"] = fmt::format("{}*tp", number(args, "div"));
  Geometry g = tiny();
  g.vocab = number(args, "v");
  return rows_of(instantiated(table, g, degree(args)), tensor);
}

json megatron_padded_vocab(const json& args) {
  std::size_t rows = 0;
  for (const json& rank : megatron_embedding(args)) rows += rank.size();
  return rows;
}

std::int64_t padded(std::int64_t rows, std::int64_t multiple) {
  return (rows + multiple - 1) / multiple * multiple;
}

/// The vocabulary padded, then the added tokens padded, each cut on its own.
json vllm_embedding(const json& args) {
  const std::int64_t original = number(args, "org"), added = number(args, "added"), pad = number(args, "pad");
  const std::int64_t first = padded(original, pad), all = padded(first + added, pad);
  const json step = {{"kind", "pad"}, {"begin", original}, {"multiple", pad}};
  const json table = o_proj_table(segments({first, all - first}), json::array({step}), {{"multiple", pad}});
  return rows_under(table, original + added, degree(args));
}

// Linear attention and rotary orders.

json qkvz(const json& args) {
  const std::int64_t groups = number(args, "nk"), per_group = number(args, "nv") / groups;
  const std::int64_t key = number(args, "hk"), value = per_group * number(args, "hv");
  return rearranged(groups * 2 * (key + value), grouped(groups, {key, key, value, value}));
}

json ba(const json& args) {
  const std::int64_t groups = number(args, "nk"), per_group = number(args, "nv") / groups;
  return rearranged(groups * 2 * per_group, grouped(groups, {per_group, per_group}));
}

json rotary(const json& args, bool undone) {
  const std::int64_t heads = number(args, "nh"), head_dim = number(args, "hd");
  const json step = {{"kind", "rotary_interleaved"}, {"heads", heads}, {"head_dim", head_dim}};
  return rearranged(heads * head_dim, undone ? inverse(step) : step);
}

// Experts, pipelines, plans.

Layout megatron(const std::string& table, const Geometry& geometry, LayoutName name) {
  name.table = table;
  return make_layout(name, geometry);
}

json experts(const json& args) {
  Geometry g = with_experts();
  g.n_experts = number(args, "e");
  const int ranks = degree(args, "ep");
  const Layout layout = megatron("megatron-moe", g, {"", {{"ep", ranks}}});
  std::vector<Indices> held(static_cast<std::size_t>(ranks));
  for (std::int64_t expert = 0; expert < g.n_experts; ++expert) {
    const LayoutEntry& entry = layout.entry_of(fmt::format("layers.0.experts.{}.down", expert));
    for (const int rank : entry.placed.holders()) held[static_cast<std::size_t>(rank)].push_back(expert);
  }
  return held;
}

/// First layer of every stage.
json stages(const json& args) {
  Geometry g = tiny();
  g.n_layers = number(args, "layers");
  LayoutName name{"", {{"pp", degree(args, "pp")}}, degree(args, "first"), degree(args, "last")};
  const Layout layout = megatron("megatron-llama", g, name);
  Indices first(static_cast<std::size_t>(layout.degree), g.n_layers);
  for (std::int64_t layer = g.n_layers - 1; layer >= 0; --layer) {
    const auto holders = layout.entry_of(fmt::format("layers.{}.down", layer)).placed.holders();
    first[static_cast<std::size_t>(holders.at(0))] = layer;
  }
  return first;
}

json rows_planned(const json& args) {
  const std::int64_t n = number(args, "n");
  const auto strided_layout = [&](const char* ranks, const char* stride) {
    const json placement = {{"kind", "strided"}, {"split_factor", number(args, stride)}};
    return instantiated(o_proj_table(placement), tiny(n), degree(args, ranks));
  };
  const Layout source = strided_layout("ts", "ss"), target = strided_layout("td", "ds");
  std::vector<json> rows(static_cast<std::size_t>(target.degree));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r] = json(std::vector<json>(static_cast<std::size_t>(n / target.degree)));
  }
  for (const Copy& copy : make_plan(source, target).copies) {
    if (target.entries[static_cast<std::size_t>(copy.target_entry)].name != "layers.0.o_proj") continue;
    for (std::int64_t i = 0; i < copy.size[0]; ++i) {
      json& row = rows[static_cast<std::size_t>(copy.target_rank)].at(
          static_cast<std::size_t>(copy.target_origin[0] + i));
      EXPECT_TRUE(row.is_null());
      row = {copy.source_rank, copy.source_origin[0] + i};
    }
  }
  return rows;
}

using Answer = std::function<json(const json& args)>;

/// What the library says, by the name of the oracle's formula.
const std::map<std::string, Answer>& answers() {
  static const std::map<std::string, Answer> all = {
      {"shard_even", [](const json& a) { return share(a, SplitPolicy::even); }},
      {"shard_torch_chunk", [](const json& a) { return share(a, SplitPolicy::chunk); }},
      {"shard_array_split", [](const json& a) { return share(a, SplitPolicy::balanced); }},
      {"shard_hf_floor", floor_share},
      {"segments", stacked_segments},
      {"strided", strided},
      {"strided_mcore", strided},
      {"head_partitioned", seed_qkv},
      {"vllm_qkv", vllm_qkv},
      {"mcore_qkv_to_flat", [](const json& a) { return megatron_qkv(a, 1)[0]; }},
      {"mcore_qkv_rank", [](const json& a) { return megatron_qkv(a, degree(a)); }},
      {"neox_to_flat", neox_qkv},
      {"falcon_new_to_flat", falcon_qkv},
      {"gpt2_cols", gpt2_qkv},
      {"mla_kv_b", latent_kv_up},
      {"fused_paired", fused_pair},
      {"gptoss_interleave_to_stacked", [](const json& a) { return alternating(number(a, "i"), 1); }},
      {"gptoss_gate_up_rank", alternating_share},
      {"glu_block_interleave_to_stacked",
       [](const json& a) { return alternating(number(a, "i"), number(a, "s")); }},
      {"mcore_padded_vocab", megatron_padded_vocab},
      {"mcore_vocab", megatron_embedding},
      {"vllm_vocab", vllm_embedding},
      {"mamba2_in_proj", stacked_segments},
      {"mamba2_conv", stacked_segments},
      {"gdn_in_proj", stacked_segments},
      {"qwen3next_qkvz_to_flat", qkvz},
      {"qwen3next_ba_to_flat", ba},
      {"rope_half_to_interleaved", [](const json& a) { return rotary(a, false); }},
      {"rope_interleaved_to_half", [](const json& a) { return rotary(a, true); }},
      {"mcore_expert", experts},
      {"pp_offset", stages},
      {"lcm_plan", rows_planned},
  };
  return all;
}

/// Every formula has at least `cases` cases and the library answers them as the oracle does.
void expect_agreement(const json& oracle, std::size_t cases) {
  EXPECT_EQ(oracle.size(), answers().size());
  for (const auto& [formula, answer] : answers()) {
    ASSERT_TRUE(oracle.contains(formula)) << formula;
    EXPECT_GE(oracle[formula].size(), cases) << formula;
    for (const json& one : oracle[formula]) {
      EXPECT_EQ(answer(one["args"]), one["want"]) << formula << " " << one["args"];
    }
  }
}

TEST(LayoutOracle, AgreesOnTheRecordedCases) {
  expect_agreement(read_json(kSource / "lib/tests/layout/oracle_subset.json"), 8);
}

TEST(LayoutOracle, AgreesOnRandomGeometriesWhereTheOracleIsBeside) {
  if (!fs::exists(kOracle)) return;  // the recorded cases stand for it
  expect_agreement(ask_oracle(), kLiveCases);
}

// The floor division of Hugging Face loses rows that no rank holds: such a layout must not exist here.
TEST(LayoutOracle, RefusesTheShareThatDropsRows) {
  for (std::int64_t n = 0; n <= 24; ++n) {
    for (int t = 1; t <= 8; ++t) {
      const auto make = [&] { return PlacedTensor("w", {n}, Shard{0, SplitPolicy::even}, t); };
      if (n % t == 0) {
        EXPECT_NO_THROW(make());
      } else {
        EXPECT_THROW(make(), UnsupportedLayout) << n << " over " << t;
      }
    }
  }
}

}  // namespace
}  // namespace shardcheck
