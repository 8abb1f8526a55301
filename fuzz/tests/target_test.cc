#include "shardcheck/fuzz/target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "case_input.h"
#include "shardcheck/checkpoint/folders.h"
#include "shardcheck/fuzz/seeds.h"
#include "shardcheck/text/errors.h"

namespace shardcheck::fuzz {
namespace {

/// SHARDCHECK_PLANTED_FAULT for as long as it lives.
class Planted {
 public:
  explicit Planted(const char* fault) { setenv("SHARDCHECK_PLANTED_FAULT", fault, 1); }
  ~Planted() { unsetenv("SHARDCHECK_PLANTED_FAULT"); }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

/// The first finding among draws, empty when there is none.
std::string finding_among_draws(const Target& target, int draws) {
  for (int i = 0; i < draws; ++i) {
    Stream stream = Stream(3, target.name).child(std::to_string(i));
    const std::string input = target.draw(stream);
    if (const std::string finding = finding_of(target, input); !finding.empty())
      return finding + " on " + input;
  }
  return {};
}

TEST(Targets, EveryDrawHoldsAndFitsTheLimit) {
  for (const Target* target : all_targets()) {
    EXPECT_FALSE(target->claim.empty());
    if (target->name == "canary") continue;
    EXPECT_EQ(finding_among_draws(*target, 12), "") << target->name;
    for (int i = 0; i < 12; ++i) {
      Stream stream(static_cast<std::uint64_t>(i), target->name);
      EXPECT_LE(target->draw(stream).size(), target->max_bytes) << target->name;
    }
  }
}

TEST(Targets, AnInputAboveTheLimitIsNotLookedAt) {
  const Target& target = target_named("canary");
  const std::string line = "sharded_equals_reference heads=3 kv_heads=3 tied=true dtype=bf16 target=seed:tp3";
  EXPECT_NE(finding_of(target, line), "");
  EXPECT_EQ(finding_of(target, line + std::string(target.max_bytes, ' ')), "");
}

TEST(Targets, TheCanaryIsCaughtByRandomDraws) {
  EXPECT_NE(finding_among_draws(target_named("canary"), 5000), "");
}

TEST(Targets, APlantedFaultOfThePlanIsFound) {
  for (const char* name : {"plan_differential", "forward_differential", "sync_sequence", "fault_detection"}) {
    const Planted planted("slice_fused_qkv_contiguously");
    EXPECT_NE(finding_among_draws(target_named(name), 600), "") << name;
  }
}

TEST(Targets, APlantedFaultOfTheSecondSyncIsFoundInASequence) {
  const Planted planted("cache_layer_after_first_sync");
  EXPECT_NE(finding_among_draws(target_named("sync_sequence"), 600), "");
}

TEST(Targets, AnUnknownTargetIsNamedWithItsNeighbour) {
  try {
    target_named("case_lime");
    FAIL() << "accepted";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'case_line'?"), std::string::npos) << error.what();
  }
}

TEST(Seeds, EveryTargetHasSeedsOfWhichSomeAreAccepted) {
  const std::filesystem::path folder = SHARDCHECK_SOURCE_DIR "/corpus/seeds";
  for (const Target* target : all_targets()) {
    const auto files = files_under(folder / target->name);
    EXPECT_GE(files.size(), 2U) << target->name;
    for (const auto& file : files) {
      if (target->format != InputFormat::case_line || file.filename().string().starts_with("refused_"))
        continue;
      EXPECT_TRUE(read_case(read_seed(file))) << file;
    }
  }
}

TEST(Dictionary, HasTheWordsOfTheSources) {
  const auto has = [](const char* target, const char* word) {
    const auto words = dictionary_of(target_named(target));
    return std::ranges::find(words, word) != words.end();
  };
  EXPECT_TRUE(has("case_line", "kv_heads="));
  EXPECT_TRUE(has("case_line", "megatron-moe"));
  EXPECT_TRUE(has("fault_detection", "slice_fused_qkv_contiguously"));
  EXPECT_TRUE(has("safetensors", "F8_E4M3"));
  EXPECT_TRUE(has("config_json", "hidden_size"));
  EXPECT_TRUE(has("layout_table", "head_partitioned"));
}

}  // namespace
}  // namespace shardcheck::fuzz
