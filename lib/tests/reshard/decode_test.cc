#include "shardcheck/reshard/decode.h"

#include <gtest/gtest.h>

#include "mesh_layouts.h"
#include "reshard/origin_lines.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/misplacement.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {
namespace {

/// Neighbouring runs of one origin as one: boxes and selections may be cut at other places.
LineRuns joined(const LineRuns& runs) {
  LineRuns result;
  for (const LineRun& run : runs) {
    const bool continues = !result.empty() && result.back().kind == run.kind &&
                           result.back().entry == run.entry &&
                           run.begin == result.back().begin + result.back().length;
    if (continues) {
      result.back().length += run.length;
    } else {
      result.push_back(run);
    }
  }
  return result;
}

/// Calls check(layout, entry, rank) for all that the layouts of all families hold, shifted values apart.
template <typename Check>
void for_each_shard(const Check& check) {
  for (const meshes::Family& family : meshes::families()) {
    for (const std::string& name : family.layouts) {
      const Layout layout = make_layout(parse_layout_name(name), family.geometry);
      SCOPED_TRACE(name);
      check(layout);
    }
  }
}

/// Right shards decoded: every one holds the lines that its placement says.
void expect_decodes(const Layout& layout, const ShardedTensors& shards, ShardDecoder& decoder) {
  for (std::size_t e = 0; e < layout.entries.size(); ++e) {
    const LayoutEntry& entry = layout.entries[e];
    if (entry.arrangement().shift != 0 || entry.placed.is_partial()) continue;  // values, not places
    for (const int rank : entry.placed.holders()) {
      const Tensor& shard = shards.at(entry.name)[static_cast<std::size_t>(rank)];
      if (shard.elements() == 0 || entry.placed.selections(rank).size() > 1) continue;
      const auto index = static_cast<std::int64_t>(e);
      const DecodedShard decoded = decoder.decode(index, rank, shard);
      const std::size_t dim = line_dim(entry, rank);
      const auto lines = lines_along(layout, index, rank, dim, decoded);
      if (!lines && padding_in(entry.arrangement().order) > 0) continue;  // padding beside elements of a line
      ASSERT_TRUE(lines.has_value()) << entry.name << " on rank " << rank;
      if (padding_in(entry.arrangement().order) > 0) continue;
      EXPECT_EQ(joined(*lines), joined(expected_lines(layout, index, rank, dim)))
          << entry.name << " rank " << rank;
    }
  }
}

TEST(Decode, RightFingerprintsAreWhereEveryLayoutPutsThem) {
  for_each_shard([](const Layout& layout) {
    const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
    expect_decodes(layout, split(weights, layout), *make_fingerprint_decoder(layout));
  });
}

TEST(Decode, LinesOfRealWeightsAreFoundWhereEveryLayoutPutsThem) {
  for_each_shard([](const Layout& layout) {
    const TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 1, DType::f32);
    expect_decodes(layout, split(weights, layout), *make_line_matcher(layout, weights));
  });
}

TEST(Decode, ShardsOfAnotherShapeOrDtypeAreRefused) {
  const Layout layout = make_layout(parse_layout_name("seed:tp2"), meshes::llama());
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 1, DType::bf16);
  const Tensor right = split(weights, layout).at("embed")[0];
  EXPECT_THROW(make_fingerprint_decoder(layout)->decode(0, 0, right), InvalidInput);
  EXPECT_THROW(make_line_matcher(layout, weights)->decode(0, 0, Tensor::zeros(DType::bf16, {1, 1})),
               InvalidInput);
  EXPECT_THROW(make_line_matcher(layout, {}), InvalidInput);
}

// Only what changed is told apart: one element in the middle leaves boxes around it.
TEST(Decode, OneChangedElementIsOneBox) {
  const Layout layout = make_layout(parse_layout_name("seed:tp2"), meshes::llama());
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  Tensor shard = split(weights, layout).at("embed")[1];
  shard.set_bits(13, 0xFFFFFFFFU);
  std::int64_t unknown = 0;
  for (const OriginBox& box : make_fingerprint_decoder(layout)->decode(0, 1, shard).boxes) {
    if (box.kind != OriginBox::Kind::unknown) continue;
    ++unknown;
    EXPECT_EQ(box.local, (OriginBox::Index{1, 3, 0, 0}));
    EXPECT_EQ(box.size, (OriginBox::Index{1, 1, 1, 1}));
  }
  EXPECT_EQ(unknown, 1);
}

// A box is many times as large as the element it speaks of.
TEST(Decode, OfElementsInNoOrderOnlySoManyBoxesAreKept) {
  Geometry geometry = meshes::llama();
  geometry.d_model = 64, geometry.vocab = 2048;
  const Layout layout = make_layout(parse_layout_name("seed"), geometry);
  const TensorMap weights = make_weights(geometry, WeightStyle::fingerprint, 0, DType::f32);
  const Tensor& right = weights.at("embed");
  Tensor shard = right;
  for (std::int64_t i = 0; i < right.elements(); ++i)
    shard.set_bits(i, i % 16 == 0 ? 0 : right.bits(i * 12345 % right.elements()));
  DecodedShard decoded = make_fingerprint_decoder(layout)->decode(0, 0, shard);
  EXPECT_EQ(decoded.boxes.size(), DecodedShard::kMostBoxes);
  EXPECT_GT(decoded.boxes_left_out, 0);
  decoded.keep(10);
  EXPECT_EQ(decoded.boxes.size(), 10U);
  EXPECT_EQ(decoded.elements(OriginBox::Kind::zero), right.elements() / 16);
  EXPECT_EQ(decoded.elements(OriginBox::Kind::element), right.elements() / 16 * 15);
  EXPECT_EQ(decoded.elements(OriginBox::Kind::unknown), 0);
}

}  // namespace
}  // namespace shardcheck
