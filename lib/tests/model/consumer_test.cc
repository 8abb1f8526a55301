#include "shardcheck/model/consumer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

Geometry rich() {
  Geometry g;
  g.d_model = 24, g.n_layers = 2, g.n_heads = 12, g.n_kv_heads = 6, g.head_dim = 4, g.ffn = 36, g.vocab = 192;
  g.qkv_bias = g.qk_norm = true;
  return g;
}

const std::map<std::string, std::string>& table_of_consumer() {
  static const std::map<std::string, std::string> tables = {{"seed", "seed"},
                                                            {"hf", "hf-llama"},
                                                            {"vllm", "vllm-llama"},
                                                            {"megatron", "megatron-llama"},
                                                            {"torchtitan", "torchtitan-llama"}};
  return tables;
}

/// Rows of a logical tensor that rank `rank` should play: its share of heads, channels or vocabulary.
std::pair<std::int64_t, std::int64_t> expected_rows(const Geometry& g, const LocalExtent& e,
                                                    const LogicalTensor& t, int rank) {
  if (t.role == "embed") return {e.embed_begin, e.embed_end};
  if (t.role == "lm_head") return {e.head_begin, e.head_end};
  if (t.role == "q" || t.role == "q_bias")
    return {rank * e.heads * g.head_dim, (rank + 1) * e.heads * g.head_dim};
  if (t.role == "k" || t.role == "v" || t.role == "k_bias" || t.role == "v_bias") {
    return {rank * e.kv_heads * g.head_dim, (rank + 1) * e.kv_heads * g.head_dim};
  }
  if (t.role == "gate" || t.role == "up") return {rank * e.ffn, (rank + 1) * e.ffn};
  return {0, t.shape[0]};
}

/// The convention and the table were written apart; where both are right they must meet.
TEST(Consumer, ReadsTheRowsTheRightTablePutsThere) {
  const Geometry g = rich();
  const auto prints = make_weights(g, WeightStyle::fingerprint, 0, DType::f32);
  for (const auto& [consumer_name, table] : table_of_consumer()) {
    const Consumer& consumer = consumer_named(consumer_name);
    for (const int degree : {1, 2, 3, 6}) {
      const Layout layout = LayoutTable::built_in(table).instantiate(g, degree);
      EXPECT_EQ(layout.consumer, consumer_name);
      const auto shards = split(prints, layout);
      for (int rank = 0; rank < degree; ++rank) {
        for (const auto& logical : logical_tensors(g)) {
          const LocalRows where = consumer.locate(g, degree, rank, logical.role, logical.layer);
          const Tensor local =
              read_rows(shards.at(where.tensor)[static_cast<std::size_t>(rank)], where, g.head_dim);
          const auto [begin, end] = expected_rows(g, consumer.extent(g, degree, rank), logical, rank);
          ASSERT_EQ(where.count, end - begin) << table << " " << logical.name;
          const Tensor rows = prints.at(logical.name).rows(begin, end - begin);
          if (logical.role == "o_proj" || logical.role == "down") {
            EXPECT_EQ(local.dim(1) * degree, rows.dim(1)) << table << " " << logical.name;
            EXPECT_EQ(local.bits(0), rows.bits(rank * local.dim(1)));
          } else {
            EXPECT_TRUE(local.same_bytes(rows)) << table << " " << logical.name << " rank " << rank;
          }
        }
      }
    }
  }
}

TEST(Consumer, ExtentsCoverTheVocabularyOnceAtUnevenDegrees) {
  Geometry g = rich();
  for (const std::int64_t vocab : {5, 7, 16, 60, 61}) {
    g.vocab = vocab;
    for (const int degree : {1, 2, 3, 6}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < degree; ++rank) {
        const LocalExtent e = consumer_named("seed").extent(g, degree, rank);
        EXPECT_EQ(e.head_begin, next);
        EXPECT_EQ(e.embed_begin, next);
        next = e.head_end;
      }
      EXPECT_EQ(next, vocab);
    }
  }
}

TEST(Consumer, RefusesDegreesItCannotRunAndNamesKvHeadsFirst) {
  const auto refusal = [](const char* consumer, const Geometry& g, int degree) {
    try {
      consumer_named(consumer).require_supported(g, degree);
    } catch (const UnsupportedLayout& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("seed", toy(), 4), HasSubstr("n_kv_heads=2 is not divisible by TP degree 4"));
  EXPECT_THAT(refusal("seed", toy(), 3), HasSubstr("n_kv_heads"));
  Geometry g = rich();
  g.ffn = 37;
  EXPECT_THAT(refusal("seed", g, 2), HasSubstr("ffn=37"));
  g = rich();
  g.vocab = 61;
  EXPECT_EQ(refusal("seed", g, 2), "accepted");
  EXPECT_EQ(refusal("vllm", g, 2), "accepted") << "padded to 64";
  EXPECT_THAT(refusal("vllm", g, 3), HasSubstr("padded vocab=64"));
  EXPECT_EQ(refusal("megatron", g, 3), "accepted") << "padded to a multiple of 128 x 3";
  EXPECT_THAT(refusal("hf", g, 2), HasSubstr("vocab=61"));
  g.tied = true;
  EXPECT_EQ(refusal("hf", g, 2), "accepted");
}

TEST(Consumer, EveryQueryHeadReadsTheKvHeadOfItsGroup) {
  const Consumer& consumer = consumer_named("seed");
  const LocalExtent extent = consumer.extent(rich(), 2, 0);
  std::vector<std::int64_t> read;
  for (std::int64_t head = 0; head < extent.heads; ++head) read.push_back(consumer.kv_head_of(extent, head));
  EXPECT_EQ(read, (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}));
}

TEST(Consumer, UnknownNamesAndRolesAreErrors) {
  EXPECT_THROW(consumer_named("deepspeed"), InvalidInput);
  EXPECT_THROW(consumer_named("seed").locate(rich(), 2, 0, "no_such_role", 0), std::invalid_argument);
  EXPECT_EQ(consumer_names(),
            (std::vector<std::string>{"hf", "hf-gpt2", "hf-mixtral", "hf-moe", "hf-neox", "megatron",
                                      "megatron-moe", "seed", "seed-summed-bias", "torchtitan", "vllm",
                                      "vllm-moe"}));
}

}  // namespace
}  // namespace shardcheck
