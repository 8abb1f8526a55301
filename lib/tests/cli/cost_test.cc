#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "json_schema.h"
#include "program.h"

namespace shardcheck::test {
namespace {

using nlohmann::json;

/// The lines of a text that hold every one of `parts`.
std::size_t lines_with(const std::string& text, const std::vector<std::string>& parts) {
  std::istringstream in(text);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line);)
    count +=
        std::ranges::all_of(parts, [&](const std::string& part) { return contains(line, part); }) ? 1 : 0;
  return count;
}

Result cost(std::vector<std::string> options) {
  options.insert(options.begin(), "cost");
  return shardcheck_program(std::move(options));
}

json report_of(std::vector<std::string> options) {
  const Folder folder;
  options.insert(options.begin(), {"cost", "--quiet", "--report=json:cost.json"});
  const Result result = shardcheck_in(folder.path(), std::move(options));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  json report = json::parse(read_file(folder / "cost.json"));
  const json schema = json::parse(read_file(SHARDCHECK_SOURCE_DIR "/docs/cost_report.schema.json"));
  EXPECT_THAT(SchemaCheck(schema).problems(report), testing::IsEmpty());
  return report;
}

std::vector<json> rows_of(const json& report, const std::string& kind) {
  std::vector<json> rows;
  for (const json& row : report.at("rows"))
    if (row.at("kind") == kind) rows.push_back(row);
  return rows;
}

TEST(Cost, WithoutOptionsPrintsTheSeedsCaseBesideItsFigures) {
  const Result result = cost({});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<std::vector<std::string>> expected = {
      {" 0.0868 %", " 0.1 %"},
      {" 5.43 %", " 5 %"},
      {" 18.06 %", " 18 %"},
      {" 8 192 ", " 0.508 ", " 0.51 ", " 0.337 ", " 0.340"},
      {" 524 288 ", " 0.888 ", " 0.89 ", " 0.506 ", " 0.635"},
      {" 67 108 864 ", " 1.967 ", " about 2 ", " 0.985 ", " 1.474"},
      {"all-gather", "750 000 bytes = 91.6 tokens"},
      {"two-shot bf16", "at no size"},
      {"two-shot f32 first leg", "2 000 000 bytes = 244.1 tokens"}};
  for (const auto& parts : expected) EXPECT_EQ(lines_with(result.out, parts), 1U) << parts[0] << result.out;
}

TEST(Cost, OriginalFiguresStandOnlyBesideTheirOwnCase) {
  EXPECT_TRUE(contains(cost({}).out, "original"));
  for (const char* other : {"--dtype=f32", "--chunks=2", "--ffn=11008", "--link=bw:300e9", "--partials=f32"})
    EXPECT_FALSE(contains(cost({other}).out, "original")) << other;
  EXPECT_EQ(lines_with(cost({"--tp=4,8"}).out, {"ring all-reduce", "original"}), 1U);
  EXPECT_EQ(lines_with(cost({"--tp=8"}).out, {"ring all-reduce", "original"}), 0U);
}

TEST(Cost, TheReportHoldsVersionInputsAndRows) {
  const json report = report_of({});
  EXPECT_EQ(report.at("command"), "cost");
  EXPECT_FALSE(report.at("version").get<std::string>().empty());
  EXPECT_EQ(report.at("inputs").at("link").at("link_bytes_per_s"), 25e9);
  const auto single = rows_of(report, "single_rank");
  ASSERT_EQ(single.size(), 3U);
  EXPECT_NEAR(single[2].at("extra").get<double>(), 0.1806, 5e-5);
  const auto collective = rows_of(report, "collective");
  ASSERT_EQ(collective.size(), 3U);
  for (const json& row : collective)
    EXPECT_DOUBLE_EQ(row.at("all_gather_seconds").get<double>() / row.at("ring_seconds").get<double>(),
                     row.at("all_gather_ratio").get<double>());
  const auto crossover = rows_of(report, "crossover");
  ASSERT_EQ(crossover.size(), 3U);
  EXPECT_NEAR(crossover[0].at("bytes").get<double>(), 750000.0, 1e-6);
  EXPECT_TRUE(crossover[1].at("bytes").is_null());
}

TEST(Cost, HelpNamesTheSchemaOfItsReport) {
  EXPECT_TRUE(contains(cost({"--help"}).out, "docs/cost_report.schema.json"));
  EXPECT_TRUE(std::filesystem::exists(SHARDCHECK_SOURCE_DIR "/docs/cost_report.schema.json"));
  EXPECT_TRUE(contains(shardcheck_program({"run", "--help"}).out, "docs/report.schema.json"));
}

TEST(Cost, OptionsReachTheModel) {
  const json report = report_of({"--tp=7,3,3", "--tokens=9", "--dtype=f32", "--chunks=2", "--d_model=64",
                                 "--heads=6", "--kv_heads=2", "--head_dim=32", "--ffn=176", "--leaf=16",
                                 "--shape=linear", "--link=bw:1e9,latency:0"});
  EXPECT_EQ(report.at("inputs").at("degrees"), json({3, 7}));
  EXPECT_EQ(report.at("inputs").at("chunks"), 2);
  const auto covers = rows_of(report, "cover");
  ASSERT_EQ(covers.size(), 4U);
  // K = 6 * 32 = 192: 12 leaves of 16, 4 of each rank; a left fold adds up those of rank 0 alone.
  EXPECT_EQ(covers[0].at("nodes"), json({1, 4, 4}));
  EXPECT_EQ(covers[0].at("one_shot_bytes"), 2 * 4 * 9 * 64 * 4);
  EXPECT_EQ(covers[1].at("leaves"), 11);
  // Without latency the all-gather costs p / 2 of the ring, at every size.
  const auto collective = rows_of(report, "collective");
  ASSERT_EQ(collective.size(), 2U);
  EXPECT_NEAR(collective[0].at("all_gather_ratio").get<double>(), 1.5, 1e-12);
  EXPECT_NEAR(collective[1].at("all_gather_ratio").get<double>(), 3.5, 1e-12);
  EXPECT_EQ(collective[0].at("bytes"), 9 * 64 * 4);
  EXPECT_FALSE(collective[0].contains("two_shot_f32_ratio"));
  EXPECT_TRUE(contains(cost({"--link=latency:0"}).out, "longer than the ring at every size"));
}

TEST(Cost, SyncCostsAPlanBetweenTwoLayouts) {
  const std::vector<std::string> options = {"--sync",
                                            "--d_model=8",
                                            "--layers=2",
                                            "--heads=4",
                                            "--ffn=12",
                                            "--kv_heads=4",
                                            "--head_dim=2",
                                            "--vocab=16",
                                            "--source=hf-llama",
                                            "--target=seed:tp4",
                                            "--link=bw:1000,latency:0.5"};
  const json report = report_of(options);
  const auto ranks = rows_of(report, "sync_rank");
  ASSERT_EQ(ranks.size(), 5U);
  // Embedding and head 16*8, per layer 4*8*8 + 3*8*12, all cut in four; 5 norms of 8 on every rank; bf16.
  const std::int64_t cut = 2 * 16 * 8 + 2 * (4 * 8 * 8 + 3 * 8 * 12), norms = 5 * 8;
  EXPECT_EQ(ranks[0].at("side"), "source");
  EXPECT_EQ(ranks[0].at("bytes"), 2 * (cut + 4 * norms));
  EXPECT_EQ(ranks[0].at("peers"), 4);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].at("bytes"), 2 * (cut / 4 + norms));
  const auto total = rows_of(report, "sync");
  ASSERT_EQ(total.size(), 1U);
  EXPECT_NEAR(total[0].at("seconds_per_peer").get<double>(),
              2 * static_cast<double>(cut + 4 * norms) / 1000 + 4 * 0.5, 1e-9);
  EXPECT_NEAR(total[0].at("seconds_per_copy").get<double>() - total[0].at("seconds_per_peer").get<double>(),
              0.5 * (ranks[0].at("copies").get<double>() - 4), 1e-9);
}

TEST(Cost, SyncOnSharedDevicesOfEqualLayoutsIsFree) {
  const json report =
      report_of({"--sync", "--source=seed:tp4", "--target=seed:tp4", "--devices=shared", "--layers=1"});
  EXPECT_EQ(rows_of(report, "sync").at(0).at("seconds_per_copy"), 0.0);
  const Result text = cost({"--sync"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(lines_with(text.out, {"source", "vllm-llama:tp4", "4 "}), 1U) << text.out;
  EXPECT_EQ(lines_with(text.out, {"target", "vllm-llama:tp2", "2 "}), 1U) << text.out;
}

TEST(Cost, WrongInputIsRefusedByOptionValueAndRange) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--tp=1"}, "--tp='1' is not a whole number in 2..64"},
      {{"--tp=2,,4"}, "--tp=''"},
      {{"--tokens=0"}, "--tokens='0' is not a whole number in 1..1048576"},
      {{"--tokens=1e3"}, "--tokens='1e3'"},
      {{"--chunks=-1"}, "--chunks='-1'"},
      {{"--dtype=bf61"}, "did you mean 'bf16'"},
      {{"--partials=bf16"}, "storage, f32"},
      {{"--shape=halvin"}, "did you mean 'halving'"},
      {{"--link=bw:0"}, "--link='bw:0': bw:'0' is not a number in 1..1e+18"},
      {{"--link=bw:nan"}, "bw:'nan'"},
      {{"--link=band:1"}, "allowed: hbm, flops, bw, latency"},
      {{"--d_model=0"}, "--d_model=0: allowed is a whole number in 1..1048576"},
      {{"--heads=12"}, "heads=12 is not a multiple of kv_heads=8"},
      {{"--leaf=0"}, "--leaf='0'"},
      {{"--leaf=1", "--ffn=1048576"}, "--leaf='1': down with K=1048576"},
      {{"--source=seed"}, "--source has no meaning without --sync"},
      {{"--sync", "--tp=4"}, "--tp has no meaning with --sync"},
      {{"--sync", "--source=sed"}, "--source='sed'"},
      {{"--sync", "--source=seed:tp3"}, "--source='seed:tp3'"},
      {{"--sync", "--target=seed:tp128"}, "allowed 1..64"},
      {{"--sync", "--target=seed:tp0"}, "--target='seed:tp0'"},
      {{"--sync", "--devices=both"}, "separate, shared"},
      {{"4"}, "'4' is one too many"}};
  for (const auto& [options, part] : wrong) expect_refusal(cost(options), 2, part);
  std::string many = "--tokens=1";
  for (int i = 2; i <= 65; ++i) many.append(",").append(std::to_string(i));
  expect_refusal(cost({many}), 2, "--tokens lists 65 values: allowed are at most 64");
  expect_refusal(cost({"--report=json:no/such/folder/f.json"}), 4, "no/such/folder");
}

TEST(Cost, ExtremeInputsStayFinite) {
  for (const char* link : {"hbm:1,flops:1,bw:1,latency:1", "hbm:1e18,flops:1e21,bw:1e18,latency:0"}) {
    for (const char* tokens : {"--tokens=1", "--tokens=1048576"}) {
      const std::vector<std::string> options = {"--tp=2,64",     std::string("--link=") + link,
                                                tokens,          "--d_model=1",
                                                "--ffn=1",       "--heads=1",
                                                "--kv_heads=1",  "--head_dim=1",
                                                "--rope=none",   "--leaf=1",
                                                "--chunks=65536"};
      const Result result = cost(options);
      EXPECT_EQ(result.code, 0) << result.err;
      for (const char* word : {"inf", "nan"}) EXPECT_FALSE(contains(result.out, word)) << result.out;
    }
  }
}

}  // namespace
}  // namespace shardcheck::test
