#include "shardcheck/properties/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/consumer.h"

namespace shardcheck {
namespace {

constexpr int kDraws = 5000;

Case draw_number(int i, const DrawOptions& options) {
  Stream stream(static_cast<std::uint64_t>(i), "generator_test");
  Case c = draw_case(stream, options);
  c.law = "law";
  return c;
}

bool runs(const LayoutName& name, const Geometry& g) {
  try {
    (void)make_layout(name, g);
    consumer_named(LayoutTable::built_in(name.table).consumer()).require_supported(g, name.tp_degree());
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

std::int64_t parameters(const Geometry& g) {
  std::int64_t count = 0;
  for (const LogicalTensor& tensor : logical_tensors(g)) count += element_count(tensor.shape);
  return count;
}

TEST(DrawTest, EveryForwardCaseIsValidRunnableAndSmall) {
  for (int i = 0; i < kDraws; ++i) {
    const Case c = draw_number(i, {.any_arithmetic = true});
    const std::string line = print_case(c);
    ASSERT_EQ(parse_case(line), c) << line;
    ASSERT_TRUE(runs(c.source, c.geometry) && runs(c.target, c.geometry)) << line;
    ASSERT_LE(c.geometry.d_model, 104) << line;
    ASSERT_LE(c.geometry.vocab, 208) << line;
    ASSERT_LE(c.geometry.n_layers, 3) << line;
    ASSERT_GE(c.length, 32) << line;
    ASSERT_LE(c.batch * c.length, 80) << line;
    ASSERT_LE(parameters(c.geometry), 250'000) << line;
    ASSERT_EQ(c.weights, WeightStyle::powered) << line;
  }
}

TEST(DrawTest, ByteCasesAreValidAndUseEveryDtypeTableAndDegree) {
  std::map<std::string, int> seen;
  for (int i = 0; i < kDraws; ++i) {
    const Case c = draw_number(i, {.forward = false, .any_dtype = true, .three_layouts = true});
    ASSERT_EQ(parse_case(print_case(c)), c) << print_case(c);
    for (const LayoutName* name : {&c.source, &c.target, &c.via}) {
      (void)make_layout(*name, c.geometry);
      ++seen[name->table];
    }
    ++seen["tp" + std::to_string(c.source.tp_degree()) + ">" + std::to_string(c.target.tp_degree())];
    ++seen[std::string(short_name(c.dtype))];
  }
  for (const char* value : {"seed", "hf-llama", "vllm-llama", "f32", "bf16", "f16"}) {
    EXPECT_GT(seen[value], kDraws / 10) << value;
  }
  // Ordered pairs of degrees, powers of two and others.
  for (const char* pair : {"tp1>1", "tp1>2", "tp2>1", "tp2>4", "tp4>2", "tp2>3", "tp3>2", "tp6>3", "tp3>6",
                           "tp5>1", "tp1>5", "tp7>1", "tp1>7", "tp8>2", "tp2>8", "tp6>2", "tp4>8"}) {
    EXPECT_GT(seen[pair], 5) << pair;
  }
}

TEST(DrawTest, UnrepresentableCasesAppearOnlyWhereAskedFor) {
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    const Case c = draw_number(i, {.forward = false, .allow_unrepresentable = true});
    try {
      (void)make_layout(c.target, c.geometry);
    } catch (const UnsupportedLayout&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
  EXPECT_LT(refused, 700);
}

TEST(DrawTest, PoweredInputsHaveTheirShares) {
  std::map<std::string, int> count;
  int distinct = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Case c = draw_number(i, {});
    for (const std::string& label : labels_of(c)) ++count[label];
    const Geometry& g = c.geometry;
    const std::vector<std::int64_t> widths = {g.d_model, g.attention_width(), g.ffn, g.vocab};
    bool all_differ = true;
    for (std::size_t a = 0; a < widths.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) all_differ = all_differ && widths[a] != widths[b];
    }
    if (all_differ) ++distinct;
  }
  const std::map<std::string, double> wanted = {{"heads_not_power_of_two", 0.4},
                                                {"groups>=2x2", 0.5},
                                                {"square", 0.2},
                                                {"uneven", 0.15},
                                                {"tied", 0.15},
                                                {"rope", 0.4},
                                                {"bias", 0.25},
                                                {"qk_norm", 0.25},
                                                {"source!=target", 0.7},
                                                {"fused", 0.5},
                                                {"target_degree>1", 0.6},
                                                {"two_tables", 0.4},
                                                {"degree_not_power_of_two", 0.15}};
  for (const auto& [label, share] : wanted) EXPECT_GT(count[label], share * kDraws) << label;
  EXPECT_GT(distinct, kDraws / 2);
  EXPECT_LT(count["square"], kDraws / 2);
}

TEST(DrawTest, SquareIsTheOnlyEqualityOfWidths) {
  for (int i = 0; i < 1000; ++i) {
    const Geometry g = draw_number(i, {}).geometry;
    ASSERT_NE(g.ffn, g.attention_width());
    ASSERT_NE(g.vocab, g.d_model);
    ASSERT_NE(g.vocab, g.ffn);
  }
}

/// Recorded once: the same seed must give the same cases with every compiler and standard library.
TEST(DrawTest, TheSameSeedGivesTheSameCaseLines) {
  const std::vector<std::string> recorded = {
      "law d_model=37 layers=2 heads=6 kv_heads=6 head_dim=4 ffn=66 vocab=120 arithmetic=tree "
      "source=hf-llama:tp3 target=seed:tp2 via=vllm-llama:tp2 batch=2 length=33 seed=601500",
      "law d_model=23 heads=6 kv_heads=3 head_dim=4 ffn=93 vocab=173 qkv_bias=true "
      "source=vllm-llama:tp3 target=vllm-llama via=seed:tp3 length=40 seed=119345",
      "law d_model=90 layers=3 heads=15 kv_heads=5 head_dim=6 ffn=45 vocab=135 norm_eps=1e-05 "
      "rope=half arithmetic=exact source=vllm-llama target=hf-llama:tp5 via=seed:tp5 batch=2 "
      "seed=230101",
      "law d_model=92 layers=2 heads=8 kv_heads=2 head_dim=4 ffn=18 vocab=198 rope=half tied=true "
      "qkv_bias=true dtype=f16 arithmetic=tree source=vllm-llama:tp2 target=seed:tp2 via=hf-llama:tp2 "
      "batch=2 length=38 seed=526478",
      "law d_model=69 layers=3 heads=15 kv_heads=5 head_dim=4 ffn=50 vocab=160 source=seed:tp5 "
      "target=seed:tp5 via=vllm-llama length=35 seed=903643",
      "law d_model=10 layers=2 heads=15 kv_heads=5 head_dim=6 ffn=65 vocab=155 rope=half "
      "rope_theta=5e+05 arithmetic=exact source=hf-llama:tp5 target=vllm-llama length=35 "
      "seed=569736",
  };
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    EXPECT_EQ(print_case(draw_number(static_cast<int>(i),
                                     {.any_dtype = true, .three_layouts = true, .any_arithmetic = true})),
              recorded[i]);
  }
}

// Shrinking -------------------------------------------------------------------------------------------------

/// Greedy descent, as the runner does it.
Case minimal(Case c, const std::function<bool(const Case&)>& condition) {
  for (bool improved = true; improved;) {
    improved = false;
    for (const Case& candidate : shrink_case(c)) {
      if (!condition(candidate)) continue;
      c = candidate;
      improved = true;
      break;
    }
  }
  return c;
}

/// Descends from the first drawn case that meets the condition.
std::string minimal_line(const std::function<bool(const Case&)>& condition) {
  for (int i = 0; i < kDraws; ++i) {
    const Case c = draw_number(i, {});
    if (condition(c)) return print_case(minimal(c, condition));
  }
  return "no drawn case meets the condition";
}

TEST(ShrinkTest, EveryCandidateIsValidAndStrictlySmaller) {
  for (int i = 0; i < 200; ++i) {
    const Case c = draw_number(i, {.any_dtype = true, .three_layouts = true});
    for (const Case& candidate : shrink_case(c)) {
      ASSERT_EQ(parse_case(print_case(candidate)), candidate);
      ASSERT_LT(case_size(candidate), case_size(c)) << print_case(candidate) << "\n" << print_case(c);
      ASSERT_TRUE(runs(candidate.source, candidate.geometry) && runs(candidate.target, candidate.geometry))
          << print_case(candidate);
    }
  }
}

TEST(ShrinkTest, TheSimplestCaseHasNoShrinks) {
  Case c;
  c.law = "law";
  EXPECT_EQ(case_size(c), 0.0);
  EXPECT_TRUE(shrink_case(c).empty());
}

TEST(ShrinkTest, AnythingShrinksToTheBareLaw) {
  for (int i = 0; i < 50; ++i) {
    const Case c = draw_number(i, {.any_dtype = true, .three_layouts = true});
    EXPECT_EQ(print_case(minimal(c, [](const Case&) { return true; })), "law") << print_case(c);
  }
}

TEST(ShrinkTest, EveryRandomDescentEnds) {
  Stream stream(1, "ShrinkTest descents");
  for (int i = 0; i < 20; ++i) {
    Case c = draw_number(i, {});
    int steps = 0;
    for (std::vector<Case> next = shrink_case(c); !next.empty() && steps < 1000;
         ++steps, next = shrink_case(c))
      c = stream.pick(next);
    EXPECT_LT(steps, 1000);
  }
}

TEST(ShrinkTest, AShardedTargetKeepsOnlyWhatItNeeds) {
  EXPECT_EQ(minimal_line([](const Case& c) { return c.target.tp_degree() > 1; }),
            "law heads=2 kv_heads=2 target=seed:tp2");
}

TEST(ShrinkTest, DegreeThreeKeepsHeadsAndFfnThatDivide) {
  EXPECT_EQ(minimal_line([](const Case& c) { return c.target.tp_degree() % 3 == 0; }),
            "law heads=3 kv_heads=3 ffn=9 target=seed:tp3");
}

TEST(ShrinkTest, TwoDifferentDegrees) {
  EXPECT_EQ(minimal_line([](const Case& c) {
              return c.source.tp_degree() > 1 && c.target.tp_degree() > c.source.tp_degree();
            }),
            "law heads=4 kv_heads=4 source=seed:tp2 target=seed:tp4");
}

TEST(ShrinkTest, GroupedQueriesShrinkToTwoHeadsOfOneGroup) {
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.n_heads > c.geometry.n_kv_heads; }),
            "law heads=2");
}

TEST(ShrinkTest, TwoGroupsOfTwoOnTwoRanks) {
  EXPECT_EQ(minimal_line([](const Case& c) {
              return c.target.tp_degree() > 1 && c.geometry.n_heads >= 2 * c.geometry.n_kv_heads;
            }),
            "law heads=4 kv_heads=2 target=seed:tp2");
}

TEST(ShrinkTest, AFeatureStaysAlone) {
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.rope != Rope::none; }), "law rope=half");
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.tied; }), "law tied=true");
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.qkv_bias && c.geometry.qk_norm; }),
            "law qkv_bias=true qk_norm=true");
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.n_layers > 1; }), "law layers=2");
}

TEST(ShrinkTest, WhatIsNoLlamaShrinksToWhatIsNeededOfIt) {
  Case c;
  c.law = "law";
  c.geometry.activation = Activation::gelu, c.geometry.alibi = true, c.geometry.gated = false;
  c.geometry.n_experts = 8, c.geometry.expert_ffn = 16, c.geometry.experts_per_token = 7;
  const auto line = [&](const std::function<bool(const Geometry&)>& condition) {
    return print_case(minimal(c, [&](const Case& smaller) { return condition(smaller.geometry); }));
  };
  EXPECT_EQ(line([](const Geometry&) { return true; }), "law");
  EXPECT_EQ(line([](const Geometry& g) { return g.activation == Activation::gelu; }), "law activation=gelu");
  EXPECT_EQ(line([](const Geometry& g) { return g.alibi; }), "law alibi=true");
  EXPECT_EQ(line([](const Geometry& g) { return !g.gated; }), "law gated=false");
  EXPECT_EQ(line([](const Geometry& g) { return g.experts_per_token > 4; }),
            "law experts=5 experts_per_token=5 expert_ffn=1");
}

TEST(ShrinkTest, AnUnevenVocabularyShrinksToTheNearestOne) {
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.vocab % c.target.tp_degree() != 0; }),
            "law heads=2 kv_heads=2 vocab=17 target=seed:tp2");
}

TEST(ShrinkTest, ASquareProjectionStaysSquareWhileItShrinks) {
  EXPECT_EQ(minimal_line([](const Case& c) {
              return c.target.tp_degree() > 1 && c.geometry.d_model == c.geometry.attention_width();
            }),
            "law d_model=16 heads=2 kv_heads=2 target=seed:tp2");
}

TEST(ShrinkTest, ATableStaysWhereItMatters) {
  EXPECT_EQ(
      minimal_line([](const Case& c) { return c.target.table == "vllm-llama" && c.target.tp_degree() > 1; }),
      "law heads=2 kv_heads=2 target=vllm-llama:tp2");
}

TEST(ShrinkTest, NumbersGoToTheBoundary) {
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.vocab >= 100; }), "law vocab=100");
  EXPECT_EQ(minimal_line([](const Case& c) { return c.geometry.d_model > 37; }), "law d_model=38");
  EXPECT_EQ(minimal_line([](const Case& c) { return c.batch > 1; }), "law batch=2");
}

TEST(ShrinkTest, TextLosesWhatDoesNotMatter) {
  Case c;
  c.law = "law";
  c.input = "a long line of text with one ! in it";
  EXPECT_EQ(print_case(minimal(c, [](const Case& s) { return s.input.find('!') != std::string::npos; })),
            "law input=!");
}

TEST(ShrinkTest, AnUnrepresentableCaseMayShrinkToAnother) {
  Case c = parse_case("law heads=6 kv_heads=6 ffn=48 vocab=112 target=seed:tp5 seed=99");
  const auto refused = [](const Case& s) {
    try {
      (void)make_layout(s.target, s.geometry);
      return false;
    } catch (const UnsupportedLayout&) {
      return true;
    }
  };
  EXPECT_EQ(print_case(minimal(c, refused)), "law target=seed:tp2");
}

}  // namespace
}  // namespace shardcheck
