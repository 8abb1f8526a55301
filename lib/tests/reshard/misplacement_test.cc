#include "shardcheck/reshard/misplacement.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "mesh_layouts.h"
#include "reshard/line_index.h"
#include "shardcheck/model/weights.h"

namespace shardcheck {
namespace {

using testing::HasSubstr;

/// Real weights, with changes made before they are split, and shards that are changed after.
class RealShards {
 public:
  explicit RealShards(const std::string& name) : layout(meshes::layout(name, meshes::llama())) {
    weights = make_weights(layout.geometry, WeightStyle::powered, 1, DType::f32);
  }
  void zero_row(const std::string& tensor, std::int64_t row) {
    Tensor& whole = weights.at(tensor);
    const std::int64_t width = whole.elements() / whole.shape()[0];
    for (std::int64_t i = 0; i < width; ++i) whole.set_bits(row * width + i, 0);
  }
  void split_all() { shards = right = split(weights, layout); }
  /// Row `row` of the shard becomes the one that `source_of` names.
  template <typename SourceOf>
  void reorder(const std::string& tensor, std::size_t rank, SourceOf source_of) {
    Tensor& shard = shards.at(tensor)[rank];
    const Tensor before = shard;
    const std::int64_t rows = shard.shape()[0], width = shard.elements() / rows;
    for (std::int64_t i = 0; i < shard.elements(); ++i)
      shard.set_bits(i, before.bits(source_of(i / width) * width + i % width));
  }
  Misplacement described(const std::string& tensor, int rank) const {
    const auto entry = std::ranges::find(layout.entries, tensor, &LayoutEntry::name) - layout.entries.begin();
    return describe_shard(layout, entry, rank, right, shards.at(tensor)[static_cast<std::size_t>(rank)],
                          *make_line_matcher(layout, weights));
  }

  Layout layout;
  TensorMap weights;
  ShardedTensors right, shards;
};

TEST(Misplacement, ARowOfZerosOfTheCheckpointWasWritten) {
  for (const std::int64_t zero : {10, 13, 19}) {
    RealShards model("seed:tp2");
    model.zero_row("embed", zero);
    model.split_all();
    model.reorder("embed", 1, [](std::int64_t row) { return 9 - row; });
    const Misplacement reversed = model.described("embed", 1);
    EXPECT_EQ(reversed.symptom, Symptom::reversed) << sentence_of(model.layout, reversed);

    model.split_all();
    model.reorder("embed", 1, [](std::int64_t row) { return (row + 3) % 10; });
    const Misplacement rolled = model.described("embed", 1);
    EXPECT_EQ(rolled.symptom, Symptom::rolled) << sentence_of(model.layout, rolled);

    model.split_all();
    model.reorder("embed", 1, [](std::int64_t row) { return (row * 3) % 10; });
    const Misplacement reordered = model.described("embed", 1);
    EXPECT_EQ(reordered.symptom, Symptom::reordered) << sentence_of(model.layout, reordered);
  }
}

TEST(Misplacement, ABlockThatBeginsLateKeepsItsRowOfZeros) {
  RealShards model("seed:tp2");
  model.zero_row("embed", 4);
  model.split_all();
  const Tensor& whole = model.weights.at("embed");
  model.shards.at("embed")[0] = whole.rows(1, 10);
  const Misplacement late = model.described("embed", 0);
  EXPECT_EQ(late.symptom, Symptom::displaced) << sentence_of(model.layout, late);
  EXPECT_EQ(late.holds, "source rows 1-10 in order");
}

TEST(Misplacement, ZerosWhereTheCheckpointHasNoneWereNeverWritten) {
  RealShards model("seed:tp2");
  model.zero_row("embed", 4);
  model.split_all();
  Tensor& shard = model.shards.at("embed")[0];
  for (std::int64_t i = 0; i < 20; ++i) shard.set_bits(60 + i, 0);
  const Misplacement part = model.described("embed", 0);
  EXPECT_EQ(part.symptom, Symptom::never_written);
  EXPECT_THAT(part.holds, HasSubstr("2 rows of zeros"));
  shard = Tensor::zeros(DType::f32, shard.shape());
  EXPECT_EQ(model.described("embed", 0).symptom, Symptom::never_written);
}

TEST(Misplacement, ZerosInABiasAreElementsOfIt) {
  RealShards model("hf-llama:tp2");
  for (const std::int64_t zero : {0, 3, 4, 7}) model.zero_row("layers.1.q_bias", zero);
  model.split_all();
  const std::string name = "model.layers.1.self_attn.q_proj.bias";
  model.reorder(name, 0, [](std::int64_t row) { return 7 - row; });
  const Misplacement reversed = model.described(name, 0);
  EXPECT_NE(reversed.symptom, Symptom::never_written) << sentence_of(model.layout, reversed);
}

/// What `rank` holds of the output bias of layer 1 of fingerprints after `change`, as a sentence.
template <typename Change>
std::string addend_sentence(const std::string& name, int rank, Change change) {
  const Layout layout = meshes::layout(name, meshes::llama());
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const ShardedTensors right = split(weights, layout);
  const std::string tensor = "layers.1.o_bias";
  Tensor shard = right.at(tensor)[static_cast<std::size_t>(rank)];
  change(shard, weights.at(tensor), right);
  const auto entry = std::ranges::find(layout.entries, tensor, &LayoutEntry::name) - layout.entries.begin();
  const auto decoder = make_fingerprint_decoder(layout);
  const Misplacement m = describe_shard(layout, entry, rank, right, shard, *decoder);
  if (!shard.same_bytes(weights.at(tensor))) {  // a share is no element of any tensor
    EXPECT_EQ(m.found.elements(OriginBox::Kind::element), 0);
  }
  EXPECT_EQ(origin_map(layout, {&m}), "");
  return sentence_of(layout, m);
}

TEST(Misplacement, AddendsAreDescribedByValue) {
  const auto whole = [](Tensor& shard, const Tensor& bias, const ShardedTensors&) { shard = bias; };
  const auto zeros = [](Tensor& shard, const Tensor& bias, const ShardedTensors&) {
    shard = Tensor::zeros(DType::f32, bias.shape());
  };
  const auto halved = [](Tensor& shard, const Tensor&, const ShardedTensors&) {
    for (float& value : shard.mutable_f32()) value /= 2.0F;
  };
  const auto other_layer = [](Tensor& shard, const Tensor&, const ShardedTensors& right) {
    shard = right.at("layers.2.o_bias")[0];
  };
  const auto exchanged = [](Tensor& shard, const Tensor&, const ShardedTensors&) {
    auto values = shard.mutable_f32();
    std::swap(values[1], values[8]);
  };
  const auto one_changed = [](Tensor& shard, const Tensor&, const ShardedTensors&) {
    shard.mutable_f32()[3] = 1.5F;
  };
  EXPECT_EQ(
      addend_sentence("seed-bias-divided:tp2", 1, whole),
      "rank 1 of layers.1.o_bias holds the whole tensor; expected 1/2 of the tensor: the sum over ranks "
      "has more of it than it should");
  EXPECT_EQ(
      addend_sentence("seed-bias-divided:tp2", 0, halved),
      "rank 0 of layers.1.o_bias holds 1/4 of the tensor; expected 1/2 of the tensor: the sum over ranks "
      "has less of it than it should");
  EXPECT_EQ(
      addend_sentence("seed-bias-on-first-rank:tp2", 1, whole),
      "rank 1 of layers.1.o_bias holds the whole tensor; expected zeros: the sum over ranks has more of "
      "it than it should");
  EXPECT_EQ(addend_sentence("seed-bias-on-first-rank:tp2", 0, zeros),
            "rank 0 of layers.1.o_bias holds zeros; expected the whole tensor: it was never written");
  EXPECT_EQ(addend_sentence("seed-bias-divided:tp2", 0, other_layer),
            "rank 0 of layers.1.o_bias holds what it should hold of layers.2.o_bias; expected 1/2 of the "
            "tensor: the shard of layers.2.o_bias");
  EXPECT_THAT(addend_sentence("seed-bias-divided:tp2", 0, exchanged), HasSubstr("in another order"));
  EXPECT_THAT(addend_sentence("seed-bias-divided:tp2", 0, one_changed), HasSubstr("1 of 10 values changed"));
  EXPECT_THAT(addend_sentence("seed-bias-on-first-rank:tp2", 0, one_changed),
              HasSubstr("1 of 10 values changed"));
}

TEST(Misplacement, TheWholeAddendInAnotherOrderIsToldElementByElement) {
  const Layout layout = meshes::layout("seed-bias-on-first-rank:tp2", meshes::llama());
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const ShardedTensors right = split(weights, layout);
  const auto entry =
      std::ranges::find(layout.entries, "layers.0.o_bias", &LayoutEntry::name) - layout.entries.begin();
  Tensor shard = right.at("layers.0.o_bias")[0];
  std::ranges::reverse(shard.mutable_f32());
  const auto decoder = make_fingerprint_decoder(layout);
  EXPECT_EQ(describe_shard(layout, entry, 0, right, shard, *decoder).symptom, Symptom::reversed);
}

// Of norms that are all ones, every element of the model is equal.
TEST(LineIndex, FindsEqualLinesWithoutCopyingThem) {
  LineIndex index;
  for (const std::int64_t entry : {4, 2}) index.add(entry, std::vector<LineHash>(1000, {7, false}));
  index.add(3, {{9, true}});
  index.sort();
  const LineIndex::Equals equals = index.find(7);
  ASSERT_EQ(equals.size(), 2000U);
  EXPECT_EQ(equals.data(), index.find(7).data());
  EXPECT_EQ(equals.front().second, (Line{2, 0}));
  EXPECT_TRUE(LineIndex::contains(equals, {4, 999}));
  EXPECT_FALSE(LineIndex::contains(equals, {4, 1000}));
  EXPECT_FALSE(LineIndex::contains(equals, {3, 0}));
  EXPECT_TRUE(index.find(8).empty());
}

}  // namespace
}  // namespace shardcheck
