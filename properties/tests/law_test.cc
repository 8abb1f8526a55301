#include "shardcheck/properties/law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

template <typename Use>
std::string refusal_of(Use use) {
  try {
    use();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return {};
}

TEST(LawRegistryTest, EveryLawIsCompleteAndSortedByName) {
  std::string_view previous;
  for (const Law* law : all_laws()) {
    EXPECT_LT(previous, law->name);
    previous = law->name;
    EXPECT_TRUE(law->claim.ends_with('.')) << law->name;
    EXPECT_NE(law->check, nullptr) << law->name;
    EXPECT_NE(law->draw, nullptr) << law->name;
    EXPECT_FALSE(law->shares.empty()) << law->name;
    EXPECT_GE(law->smoke_cases, 40) << law->name;
    Stream stream(1, law->name);
    EXPECT_EQ(law->draw(stream).law, law->name);
  }
}

TEST(LawRegistryTest, TheLawsOfTheHouseAreListed) {
  for (const char* name :
       {"placement_covers_once", "gather_inverts_split", "split_inverts_gather",
        "divergent_replicas_are_rejected", "reshard_equals_gather_then_split", "reshard_composes",
        "degree_one_is_identity", "sharded_equals_reference", "source_degree_is_invisible",
        "rejected_iff_unrepresentable", "ranks_agree", "printed_case_parses_back", "wrong_table_is_detected",
        "unused_rows_are_compared"}) {
    EXPECT_EQ(law_named(name).name, name);
  }
}

TEST(LawRegistryTest, TheCanaryIsKnownByItsNameAlone) {
  EXPECT_EQ(law_named("canary").name, "canary");
  EXPECT_EQ(laws_matching("canary"), std::vector<const Law*>{&canary_law()});
  for (const char* glob : {"*", "c*"})
    EXPECT_THAT(laws_matching(glob), ::testing::Not(Contains(&canary_law()))) << glob;
}

TEST(LawRegistryTest, AnUnknownLawNamesTheNearest) {
  EXPECT_THAT(refusal_of([] { (void)law_named("reshard_compose"); }),
              AllOf(HasSubstr("'reshard_compose'"), HasSubstr("did you mean 'reshard_composes'")));
}

std::set<std::string> names_matching(std::string_view glob) {
  std::set<std::string> names;
  for (const Law* law : laws_matching(glob)) names.emplace(law->name);
  return names;
}

TEST(LawRegistryTest, GlobsMatchWholeNames) {
  EXPECT_EQ(names_matching("*").size(), all_laws().size());
  EXPECT_EQ(names_matching("ranks_agree"), (std::set<std::string>{"ranks_agree"}));
  EXPECT_EQ(names_matching("rank?_agree"), (std::set<std::string>{"ranks_agree"}));
  EXPECT_EQ(names_matching("*_inverts_*"),
            (std::set<std::string>{"gather_inverts_split", "split_inverts_gather"}));
  EXPECT_EQ(names_matching("reshard_*"),
            (std::set<std::string>{"reshard_composes", "reshard_equals_gather_then_split"}));
  EXPECT_EQ(names_matching("**agree**"),
            (std::set<std::string>{"control_layer_offset_formulas_agree", "logprobs_agree_across_layouts",
                                   "ranks_agree"}));
}

TEST(LawRegistryTest, AGlobThatMatchesNothingIsRefused) {
  for (const char* glob : {"", "ranks", "?", "ranks_agree?", "no_such_*"}) {
    EXPECT_THAT(refusal_of([&] { (void)laws_matching(glob); }), HasSubstr("no law matches")) << glob;
  }
}

TEST(LawRegistryTest, AHostileGlobIsCheap) {
  std::string glob;
  for (int i = 0; i < 2000; ++i) glob += "*a";
  EXPECT_THAT(refusal_of([&] { (void)laws_matching(glob); }), HasSubstr("no law matches"));
}

TEST(CheckCaseTest, LabelsOfTheCaseAndOfTheLawAreMergedOnce) {
  Law law;
  law.check = [](const Case&, Subject&) {
    Outcome outcome = Outcome::pass();
    outcome.labels = {"of_the_law", "tied"};
    return outcome;
  };
  const Case c = parse_case("law heads=2 kv_heads=2 tied=true target=seed:tp2");
  Subject subject;
  const Outcome outcome = check_case(law, c, subject);
  EXPECT_THAT(outcome.labels, AllOf(Contains("of_the_law"), Contains("target_degree>1")));
  EXPECT_EQ(std::count(outcome.labels.begin(), outcome.labels.end(), "tied"), 1);
}

TEST(CheckCaseTest, ExceptionsBecomeVerdicts) {
  Law law;
  Subject subject;
  const Case c = parse_case("law");
  law.check = [](const Case&, Subject&) -> Outcome { throw UnsupportedLayout("tp3"); };
  EXPECT_EQ(check_case(law, c, subject).verdict, Verdict::skipped);
  law.check = [](const Case&, Subject&) -> Outcome { throw InvalidShards("rank 2"); };
  EXPECT_EQ(check_case(law, c, subject).verdict, Verdict::failed);
  law.check = [](const Case&, Subject&) -> Outcome { throw std::runtime_error("boom"); };
  EXPECT_EQ(check_case(law, c, subject).verdict, Verdict::error);
  law.check = [](const Case&, Subject&) -> Outcome { throw 7; };
  EXPECT_EQ(check_case(law, c, subject).verdict, Verdict::error);
}

TEST(CheckCaseTest, AnUnknownFaultIsAnErrorThatNamesIt) {
  const Outcome outcome =
      check_case(law_named("gather_inverts_split"), parse_case("gather_inverts_split fault=no_such"));
  EXPECT_EQ(outcome.verdict, Verdict::error);
  EXPECT_THAT(outcome.message, HasSubstr("no_such"));
}

TEST(CheckCaseTest, AFaultThatCannotActIsSkippedAndTheLawNeverRuns) {
  Law law;
  law.check = [](const Case&, Subject&) { return Outcome::fail("the law ran"); };
  const std::string even = "law d_model=24 heads=4 kv_heads=4 ffn=12 vocab=40 target=seed:tp2 ";
  for (const char* fault : {"drop_remainder", "gqa_tile_for_repeat"}) {
    const Outcome outcome = check_case(law, parse_case(even + "fault=" + fault));
    EXPECT_EQ(outcome.verdict, Verdict::skipped) << fault;
    EXPECT_THAT(outcome.message, HasSubstr(std::string("fault ") + fault + " cannot act here: "));
    EXPECT_THAT(outcome.labels, Contains("target_degree>1"));
  }
  const Case uneven =
      parse_case("law d_model=24 heads=4 kv_heads=4 ffn=12 vocab=41 target=seed:tp2 fault=drop_remainder");
  EXPECT_EQ(check_case(law, uneven).verdict, Verdict::failed);
}

TEST(CheckCaseTest, TheFaultOfTheCaseIsInjected) {
  const std::string line =
      "sharded_equals_reference d_model=24 heads=4 kv_heads=2 ffn=12 vocab=40 target=seed:tp2 seed=3";
  const Law& law = law_named("sharded_equals_reference");
  EXPECT_EQ(check_case(law, parse_case(line)).verdict, Verdict::passed);
  EXPECT_EQ(check_case(law, parse_case(line + " fault=slice_fused_qkv_contiguously")).verdict,
            Verdict::failed);
}

}  // namespace
}  // namespace shardcheck
