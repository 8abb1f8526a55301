#include "shardcheck/case/case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::string_view_literals;

Case law_case() {
  Case c;
  c.law = "law";
  return c;
}

std::string refusal_of(std::string_view line) {
  try {
    (void)parse_case(line);
  } catch (const InvalidCase& error) {
    return error.what();
  }
  return {};
}

/// The example of the design: every part of the grammar at once.
constexpr std::string_view kExample =
    "sharded_equals_reference d_model=64 layers=2 heads=8 kv_heads=2 ffn=176 vocab=97 arithmetic=tree "
    "source=seed:tp2 target=hf-llama:tp2 seed=17 fault=reverse_rank_order:o_proj";

TEST(CaseTest, TheDefaultsAreFrozen) {
  const Case c = parse_case("law");
  const Geometry& g = c.geometry;
  EXPECT_EQ(c, law_case());
  EXPECT_EQ(g.d_model, 8);
  EXPECT_EQ(g.n_layers, 1);
  EXPECT_EQ(g.n_heads, 1);
  EXPECT_EQ(g.n_kv_heads, 1);
  EXPECT_EQ(g.head_dim, 8);
  EXPECT_EQ(g.ffn, 8);
  EXPECT_EQ(g.vocab, 16);
  EXPECT_EQ(g.norm_eps, 1e-6);
  EXPECT_EQ(g.rope, Rope::none);
  EXPECT_EQ(g.rope_theta, 10000.0);
  EXPECT_FALSE(g.tied || g.qkv_bias || g.qk_norm);
  EXPECT_EQ(c.dtype, DType::f32);
  EXPECT_EQ(c.arithmetic, Arithmetic::native);
  EXPECT_EQ(c.weights, WeightStyle::powered);
  EXPECT_EQ(to_string(c.source), "seed");
  EXPECT_EQ(to_string(c.target), "seed");
  EXPECT_EQ(to_string(c.via), "seed");
  EXPECT_EQ(c.batch, 1);
  EXPECT_EQ(c.length, 32);
  EXPECT_EQ(c.seed, 0U);
}

TEST(CaseTest, TheKeysAreFrozenInPrintOrderWithTheirDefaults) {
  std::string text;
  for (const CaseKey& key : case_keys()) {
    text += key.key + "=" + key.default_value + " ";
    EXPECT_FALSE(key.allowed.empty()) << key.key;
  }
  EXPECT_EQ(
      text,
      "d_model=8 layers=1 heads=1 kv_heads=1 head_dim=8 ffn=8 vocab=16 norm_eps=1e-06 rope=none "
      "rope_theta=10000 tied=false qkv_bias=false o_bias=false qk_norm=false norm=rms rotary_dim=0 "
      "activation=silu gated=true mlp_bias=false sinks=false parallel_residual=false alibi=false positions=0 "
      "experts=0 experts_per_token=2 expert_ffn=0 shared_ffn=0 "
      "dense_layers=0 router_bias=false q_lora=0 "
      "kv_lora=0 nope_dim=0 rope_dim=0 v_dim=0 dtype=f32 arithmetic=native "
      "tree_shape=halving leaf=128 key_block=64 degrees=all exchange=automatic "
      "weights=powered source=seed target=seed via=seed sequence_parallel=false context_ends=blocks batch=1 "
      "length=32 lengths=even chunks=whole effective=none seed=0 fault= input= ");
}

TEST(CaseTest, PrintingOmitsDefaultsAndIsCanonical) {
  EXPECT_EQ(print_case(parse_case(kExample)), kExample);
  EXPECT_EQ(print_case(parse_case("  law \t seed=007  layers=1   target=seed:tp1 norm_eps=1e-6\r\n")),
            "law seed=7");
  EXPECT_EQ(print_case(parse_case("law seed=1 heads=2 kv_heads=2")), "law heads=2 kv_heads=2 seed=1");
}

TEST(CaseTest, EveryKeyReadsBackWhatItPrints) {
  // Latent attention and biases of q and k exclude each other.
  const std::vector<std::string> lines = {
      "law d_model=17 layers=3 heads=6 kv_heads=2 head_dim=10 ffn=36 vocab=101 norm_eps=1.25e-05 rope=half "
      "rope_theta=5e+05 tied=true qkv_bias=true o_bias=true qk_norm=true dtype=bf16 arithmetic=tree "
      "tree_shape=linear leaf=9 key_block=7 degrees=1,2 exchange=two_shot weights=recorded "
      "source=seed:tp2 target=hf-llama:tp2 via=vllm-llama:tp2 batch=2 length=33 seed=18446744073709551615 "
      "fault=name:argument-1.5 input=\"two words\"",
      "law layers=3 heads=6 kv_heads=2 norm=layer gated=false mlp_bias=true sinks=true positions=5 experts=4 "
      "expert_ffn=12 shared_ffn=6 dense_layers=1 router_bias=true source=megatron-moe:pp3,tp2,first1,last1",
      "law layers=3 heads=2 rope=half norm=layer rotary_dim=4 activation=gelu_tanh gated=false "
      "parallel_residual=true alibi=true experts=4 "
      "experts_per_token=3 expert_ffn=6 key_block=4 target=seed:pp3,cp3,tp2 sequence_parallel=true "
      "context_ends=4,12 lengths=5,1,9 chunks=2,7",
      "law layers=3 heads=6 kv_heads=2 q_lora=4 kv_lora=3 nope_dim=2 rope_dim=2 v_dim=5 effective=adapter"};
  std::set<std::string> set;
  for (const std::string& line : lines) {
    const Case c = parse_case(line);
    EXPECT_EQ(print_case(c), line);
    for (const CaseKey& key : case_keys()) {
      Case copy = c;
      set_case_key(copy, key.key, get_case_key(c, key.key));
      EXPECT_EQ(copy, c) << key.key;
      if (get_case_key(c, key.key) != key.default_value) set.insert(key.key);
    }
  }
  EXPECT_EQ(set.size(), case_keys().size());
}

TEST(CaseTest, TextTravelsThroughJsonEscapes) {
  Case c = law_case();
  for (const std::string& text : {std::string("\"quoted\" \\ back"), std::string("tab\tnew\nline"),
                                  std::string("nul\0inside"sv), std::string("caf\u00e9 \U0001F600"),
                                  std::string("a=b c=d"), std::string("'single'"), std::string("plain")}) {
    c.input = text;
    const std::string line = print_case(c);
    EXPECT_EQ(parse_case(line), c) << line;
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char ch) { return ch >= ' ' && ch <= '~'; }))
        << line;
  }
}

TEST(CaseTest, FloatsPrintShortestAndExactly) {
  Case c = law_case();
  for (const double value : {0.1, 1e-6, 1.0 / 3.0, 0x1p-126, 1.0}) {
    c.geometry.norm_eps = value;
    EXPECT_EQ(parse_case(print_case(c)).geometry.norm_eps, value);
  }
  c.geometry.norm_eps = 0.1;
  EXPECT_EQ(print_case(c), "law norm_eps=0.1");
}

TEST(CaseTest, AnUnknownKeyNamesTheNearestOne) {
  EXPECT_THAT(refusal_of("law kv_head=2"),
              AllOf(HasSubstr("'kv_head'"), HasSubstr("did you mean 'kv_heads'")));
  EXPECT_THAT(refusal_of("law zzzzzzzzzz=2"), AllOf(HasSubstr("zzzzzzzzzz"), HasSubstr("known are d_model")));
}

TEST(CaseTest, RefusalsNameKeyValueAndWhatIsAllowed) {
  EXPECT_THAT(refusal_of("law d_model=0"), AllOf(HasSubstr("d_model=0"), HasSubstr("1..1048576")));
  EXPECT_THAT(refusal_of("law arithmetic=trees"),
              AllOf(HasSubstr("arithmetic=trees"), HasSubstr("native|tree|exact")));
  for (const char* degrees : {"0", "2,1", "1,1", "1,", ",1", "1,2000", "1;2", "one", "\"\""})
    EXPECT_THAT(refusal_of(std::string("law degrees=") + degrees), HasSubstr("ascending numbers in 1..1024"))
        << degrees;
  EXPECT_THAT(refusal_of("law heads=8 kv_heads=8 degrees=1,3"),
              AllOf(HasSubstr("degree 3"), HasSubstr("n_heads=8")));
  EXPECT_THAT(refusal_of("law leaf=0"), HasSubstr("leaf=0"));
  EXPECT_THAT(refusal_of("law heads=4 kv_heads=4 arithmetic=tree degrees=2 target=seed:tp4"),
              AllOf(HasSubstr("degrees=2"), HasSubstr("target=seed:tp4")));
  EXPECT_THAT(refusal_of("law arithmetic=exact length=8193"),
              HasSubstr("at most 8192 with arithmetic=exact"));
  EXPECT_THAT(refusal_of("law tied=yes"), AllOf(HasSubstr("tied=yes"), HasSubstr("false|true")));
  EXPECT_THAT(refusal_of("law target=seed:tp0"), HasSubstr("target=seed:tp0"));
  EXPECT_THAT(refusal_of("law target=seed:zz2"), HasSubstr("target=seed:zz2"));
  EXPECT_THAT(refusal_of("law fault=No-Such"), AllOf(HasSubstr("fault=No-Such"), HasSubstr("lower-case")));
  EXPECT_THAT(refusal_of("law seed=1 seed=1"), AllOf(HasSubstr("seed=1"), HasSubstr("twice")));
}

TEST(CaseTest, RefusalsOfStepsAndAxesNameKeyValueAndWhatIsAllowed) {
  const auto expect_refused = [](const std::string& key, const std::vector<std::string>& values,
                                 const std::string& allowed) {
    for (const std::string& value : values)
      EXPECT_THAT(refusal_of("law key_block=4 " + key + "=" + value),
                  AllOf(HasSubstr(key + "=" + value), HasSubstr(allowed)));
  };
  expect_refused("sequence_parallel", {"yes", "1", "TRUE"}, "false|true");
  expect_refused("alibi", {"yes", "2"}, "false|true");
  expect_refused("activation", {"relu", "GELU", "gelu_new"}, "silu|gelu_tanh|gelu");
  expect_refused("experts_per_token", {"0", "-1", "1025", "two"}, "a whole number in 1..1024");
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"law experts=4 expert_ffn=8 experts_per_token=5", "1..4, as experts"},
           {"law experts_per_token=3", "left out without experts"},
           {"law experts=4", "expert_ffn=0: experts need it"},
           {"law context_ends=64", "which has no axis cp"},
           {"law batch=3 lengths=5,6", "leave those out"},
           {"law vocab=65536 d_model=256 target=seed:cp64", "copies counted"},
           {"law layers=256 target=seed:pp256,cp256", "tensors, copies counted"}}) {
    try {
      parse_case(line);
      ADD_FAILURE() << line << " is accepted";
    } catch (const InvalidCase& refusal) {
      EXPECT_NE(std::string(refusal.what()).find(message), std::string::npos) << refusal.what();
    }
  }
  expect_refused("context_ends", {"0", "4,4", "8,4", "4,", "-4", "65540", "none"},
                 "blocks, or ascending numbers in 1..65536");
  expect_refused("context_ends", {"5", "4,10"}, "multiples of key_block=4");
  expect_refused("lengths", {"0", "3,", "-3", "3;4", "65537", "odd"}, "even, or numbers in 1..65536");
  expect_refused("chunks", {"0", "3,3", "5,2", "3,", "65537", "even"},
                 "whole, or ascending numbers in 1..65536");
}

TEST(CaseTest, LengthsStandInThePlaceOfBatchAndLength) {
  EXPECT_EQ(lengths_of(parse_case("law batch=3 length=7")), (std::vector<std::int64_t>{7, 7, 7}));
  EXPECT_EQ(lengths_of(parse_case("law lengths=5,1,9")), (std::vector<std::int64_t>{5, 1, 9}));
  for (const char* also : {"batch=2", "length=7"})
    EXPECT_THAT(refusal_of(std::string("law lengths=5,1 ") + also),
                AllOf(HasSubstr("lengths=5,1"), HasSubstr("leave those out")));
  EXPECT_EQ(refusal_of("law lengths=65535,1"), "");
  EXPECT_THAT(refusal_of("law lengths=65535,2"),
              AllOf(HasSubstr("lengths=65535,2"), HasSubstr("65536 tokens")));
}

/// Attention grows with the square of a length: all tokens in one sequence cost more than in many.
TEST(CaseTest, BoundedWorkCountsLengths) {
  const std::string wide = "law d_model=512 heads=8 kv_heads=8 head_dim=64 ffn=512 vocab=512 layers=4 ";
  EXPECT_THAT(refusal_of(wide + "batch=2 length=8192"),
              AllOf(HasSubstr("length=8192 batch=2"), HasSubstr("multiply-adds")));
  EXPECT_EQ(refusal_of(wide + "batch=2 length=512"), "");
  EXPECT_EQ(refusal_of(wide + "lengths=512,512"), "");
  EXPECT_THAT(refusal_of(wide + "lengths=32768,32768"),
              AllOf(HasSubstr("lengths=32768,32768"), HasSubstr("multiply-adds")));
  EXPECT_THAT(refusal_of(wide + "lengths=1,40000"), HasSubstr("lengths=1,40000"));
  EXPECT_THAT(refusal_of("law arithmetic=exact lengths=3,8193"),
              AllOf(HasSubstr("lengths=3,8193"), HasSubstr("at most 8192 with arithmetic=exact")));
}

TEST(CaseTest, BoundedWorkCountsExperts) {
  const std::string narrow = "law vocab=16 batch=64 length=1024 experts=2 ";
  EXPECT_EQ(refusal_of(narrow + "expert_ffn=8"), "");
  EXPECT_THAT(refusal_of(narrow + "expert_ffn=1048576"), HasSubstr("length=1024 batch=64"));
  EXPECT_THAT(refusal_of(narrow + "expert_ffn=8 shared_ffn=1048576"), HasSubstr("length=1024 batch=64"));
  EXPECT_THAT(refusal_of("law d_model=1 vocab=16 batch=64 length=1024 experts=2 expert_ffn=8192"),
              HasSubstr("largest activation"));
}

TEST(CaseTest, ExecutionIsThatOfTheTarget) {
  const Case c = parse_case(
      "law layers=5 key_block=4 exchange=two_shot target=seed:pp3,cp2,first2,last1 sequence_parallel=true "
      "context_ends=8");
  const Execution execution = execution_of(c);
  EXPECT_EQ(execution.exchange, CoverExchange::two_shot);
  EXPECT_TRUE(execution.sequence_parallel);
  EXPECT_EQ(execution.stage_ends, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(execution.context_ends, (std::vector<std::int64_t>{8}));
}

class RefusedLineTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RefusedLineTest, IsRefusedWithAMessage) { EXPECT_FALSE(refusal_of(GetParam()).empty()) << GetParam(); }

INSTANTIATE_TEST_SUITE_P(
    Limits, RefusedLineTest,
    ::testing::Values("", "   ", "Law", "d_model=8", "law word", "law =1", "law d_model",
                      "law d_model=", "law d_model=1048577", "law d_model=-1", "law d_model=8.0",
                      "law d_model=0x8", "law d_model=99999999999999999999", "law layers=257",
                      "law heads=1025", "law head_dim=1025", "law ffn=1048577", "law vocab=1048577",
                      "law heads=3 kv_heads=2", "law kv_heads=2", "law head_dim=7 rope=half",
                      "law batch=65537", "law batch=256 length=257", "law length=0", "law norm_eps=0",
                      "law norm_eps=1.01", "law norm_eps=nan", "law norm_eps=inf", "law rope_theta=0.5",
                      "law rope_theta=1e10", "law rope=full", "law dtype=f64", "law dtype=F32", "law seed=-1",
                      "law seed=18446744073709551616", "law seed=1e3", "law weights=fingerprint",
                      "law input=\"open", "law input=\"a\"b", "law input=\"\\q\"", "law input=caf\xc3\xa9",
                      "law input=\"\xff\"", "law input=a\"b", "law fault=a:", "law fault=a:B", "law fault=:x",
                      "law d_model=1048576 ffn=1048576", "law target=seed:tp2,tp2",
                      "law target=seed:tp1025"));

TEST(CaseTest, LimitsThemselvesAreAccepted) {
  for (const char* line :
       {"law d_model=1048576", "law ffn=1048576", "law layers=256", "law heads=1024 kv_heads=1024",
        "law head_dim=1024", "law vocab=1048576", "law norm_eps=1", "law rope_theta=1",
        "law rope_theta=1000000000", "law batch=65536 length=1", "law batch=256 length=256",
        "law target=seed:tp1024"}) {
    EXPECT_EQ(refusal_of(line), "") << line;
  }
}

TEST(CaseTest, ALineIsAtMost4096Bytes) {
  const std::string head = "law input=";
  EXPECT_EQ(refusal_of(head + std::string(4096 - head.size(), 'x')), "");
  EXPECT_THAT(refusal_of(head + std::string(4097 - head.size(), 'x')), HasSubstr("4096"));
  // 2000 two-byte characters fit as they stand, their escapes do not.
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "\u00e9";
  EXPECT_THAT(refusal_of(head + "\"" + text + "\""), HasSubstr("canonical"));
}

TEST(CaseTest, GarbageIsRefusedOrPrintsCanonically) {
  Stream stream(1, "case_test garbage");
  constexpr std::string_view alphabet = "law d_model=8\"\\:,tp seed\0\xff\n#'"sv;
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string line(kExample.substr(0, static_cast<std::size_t>(stream.integer(0, 120))));
    for (std::int64_t edits = stream.integer(0, 4); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(stream.integer(0, static_cast<std::int64_t>(line.size())));
      const char c = alphabet[static_cast<std::size_t>(
          stream.integer(0, static_cast<std::int64_t>(alphabet.size()) - 1))];
      line.insert(at, 1, c);
    }
    try {
      const Case c = parse_case(line);
      ++accepted;
      ASSERT_EQ(parse_case(print_case(c)), c) << line;
    } catch (const InvalidCase&) {
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(NearestNameTest, PicksTheSmallestEditDistance) {
  const std::vector<std::string> known = {"heads", "kv_heads", "head_dim"};
  EXPECT_EQ(nearest_name("head", known), "heads");
  EXPECT_EQ(nearest_name("kvheads", known), "kv_heads");
  EXPECT_EQ(nearest_name("heads", known), "heads");
}

TEST(NearestNameTest, IsEmptyBeyondHalfTheWord) {
  EXPECT_EQ(nearest_name("abcd", {"abxy"}), "abxy");
  EXPECT_EQ(nearest_name("abcd", {"axyz"}), "");
  EXPECT_EQ(nearest_name("", {"a"}), "");
  EXPECT_EQ(nearest_name("anything", {}), "");
}

TEST(CaseFileTest, HeadersAndCaseReadBack) {
  CaseFile file;
  file.header = {{"verdict", "failed"}, {"why", "the fused tensor: cut as one block"}};
  file.value = parse_case(kExample);
  const CaseFile again = parse_case_file(print_case_file(file), "file.case");
  EXPECT_EQ(again.header, file.header);
  EXPECT_EQ(again.value, file.value);
}

TEST(CaseFileTest, ProseCommentsAndBlankLinesAreIgnored) {
  const CaseFile file = parse_case_file(
      "# Some prose: with a colon\r\n#\r\n\r\n# verdict:   failed  \r\n  law seed=3\r\n\r\n", "f");
  ASSERT_EQ(file.header.size(), 1U);
  EXPECT_EQ(file.header[0], (std::pair<std::string, std::string>{"verdict", "failed"}));
  EXPECT_EQ(file.value.seed, 3U);
}

TEST(CaseFileTest, AHeaderValueStaysOnItsLine) {
  CaseFile file;
  file.header = {{"why", "first\nlaw seed=9"}};
  file.value = parse_case("law");
  EXPECT_EQ(parse_case_file(print_case_file(file), "f").header[0].second, "first law seed=9");
}

TEST(CaseFileTest, RefusalsNameFileAndLine) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      (void)parse_case_file(text, "dir/x.case");
    } catch (const InvalidCase& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(refusal("# only: comments\n"), AllOf(HasSubstr("dir/x.case"), HasSubstr("no case line")));
  EXPECT_THAT(refusal("# a: b\nlaw seed=x\n"), AllOf(HasSubstr("dir/x.case:2:"), HasSubstr("seed=x")));
  EXPECT_THAT(refusal("law\nlaw\n"), AllOf(HasSubstr("dir/x.case:2:"), HasSubstr("second case line")));
  EXPECT_THAT(refusal(std::string((1U << 20) + 1, '#')), HasSubstr("allowed is at most 1048576"));
}

TEST(CaseBatch, HoldsAnyNumberOfCasesUnderOneHeader) {
  const CaseBatch batch =
      parse_case_batch("# verdict: passed\nfirst_law seed=2\n\n# prose\nsecond_law heads=4\n", "b.batch");
  ASSERT_EQ(batch.header.size(), 1U);
  ASSERT_EQ(batch.lines.size(), 2U);
  EXPECT_EQ(batch.lines[0].number, 2);
  EXPECT_EQ(batch.lines[1].number, 5);
  EXPECT_EQ(print_case(batch.lines[1].value), "second_law heads=4");
}

TEST(CaseBatch, RefusesWhatNoCaseFileMayHold) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)parse_case_batch(text, "dir/x.batch");
    } catch (const InvalidCase& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(refusal("# verdict: passed\n"), HasSubstr("dir/x.batch: no case line"));
  EXPECT_THAT(refusal("law\nlaw haeds=3\n"), AllOf(HasSubstr("dir/x.batch:2:"), HasSubstr("heads")));
  std::string many;
  for (int i = 0; i < 10'001; ++i) many += "law\n";
  EXPECT_THAT(refusal(many), HasSubstr("dir/x.batch:10001: more than 10000 case lines"));
}

}  // namespace
}  // namespace shardcheck
