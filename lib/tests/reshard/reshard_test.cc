#include "shardcheck/reshard/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "shardcheck/tensor/stream.h"
#include "small_layouts.h"

namespace shardcheck {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<DType> kDtypes = {DType::f32, DType::bf16, DType::f16};

template <typename Exception, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what();
  }
  return "accepted";
}

void expect_equal(const TensorMap& actual, const TensorMap& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_TRUE(actual.at(name).same_bytes(tensor)) << what << ": " << name;
  }
}

void expect_equal(const ShardedTensors& actual, const ShardedTensors& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, shards] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    const std::vector<Tensor>& others = actual.at(name);
    ASSERT_EQ(others.size(), shards.size()) << name;
    for (std::size_t r = 0; r < shards.size(); ++r) {
      EXPECT_TRUE(others[r].same_bytes(shards[r])) << what << ": " << name << " rank " << r;
    }
  }
}

/// Element i of a tensor cut along `dim`: indices of that dimension in order, everything else whole.
Tensor taken(const Tensor& full, int dim, const std::vector<std::int64_t>& indices) {
  Shape shape = full.shape();
  shape[static_cast<std::size_t>(dim)] = static_cast<std::int64_t>(indices.size());
  Tensor out = Tensor::uninitialized(DType::i64, shape);
  const auto from = full.as<std::int64_t>();
  const auto to = out.mutable_as<std::int64_t>();
  const std::int64_t columns = full.dim(1);
  std::size_t next = 0;
  if (dim == 0) {
    for (const std::int64_t row : indices)
      for (std::int64_t c = 0; c < columns; ++c) to[next++] = from[row * columns + c];
  } else {
    for (std::int64_t row = 0; row < full.dim(0); ++row)
      for (const std::int64_t c : indices) to[next++] = from[row * columns + c];
  }
  return out;
}

void expect_round_trip(const PlacedTensor& placed) {
  const Tensor full = small::counting(DType::i64, placed.shape(), 1);
  const std::vector<Tensor> shards = split_tensor(placed, full);
  ASSERT_EQ(shards.size(), static_cast<std::size_t>(placed.degree()));
  for (int rank = 0; rank < placed.degree(); ++rank) {
    const Selection selection = placed.selection(rank);
    std::vector<std::int64_t> indices;
    for (const Run& run : selection.runs) {
      for (std::int64_t i = 0; i < run.length; ++i) indices.push_back(run.global + i);
    }
    const Tensor expected = selection.dim < 0 ? full : taken(full, selection.dim, indices);
    EXPECT_TRUE(shards[static_cast<std::size_t>(rank)].same_bytes(expected))
        << to_string(placed.placement()) << " rank " << rank << " of " << placed.degree();
  }
  EXPECT_TRUE(gather_tensor(placed, shards).same_bytes(full)) << to_string(placed.placement());
}

TEST(SplitTensor, HoldsTheSelectedIndicesAndGatherInvertsIt) {
  for (std::int64_t n = 0; n <= 12; ++n) {
    for (int t = 1; t <= 6; ++t) {
      for (int dim = 0; dim < 2; ++dim) {
        const Shape shape = dim == 0 ? Shape{n, 3} : Shape{3, n};
        expect_round_trip(PlacedTensor("w", shape, Replicate{}, t));
        expect_round_trip(PlacedTensor("w", shape, Shard{dim, SplitPolicy::chunk}, t));
        expect_round_trip(PlacedTensor("w", shape, Shard{dim, SplitPolicy::balanced}, t));
        if (n % t == 0) expect_round_trip(PlacedTensor("w", shape, Shard{dim}, t));
      }
    }
  }
}

TEST(SplitTensor, RoundTripsSegmentsWhereverTheyBegin) {
  for (int t = 1; t <= 3; ++t) {
    for (int dim = 0; dim < 2; ++dim) {
      const auto shape = [dim](std::int64_t n) { return dim == 0 ? Shape{n, 3} : Shape{3, n}; };
      for (std::int64_t rows = t; rows <= 12; rows += t) {
        expect_round_trip(
            PlacedTensor("w", shape(2 * rows), fused_paired({0, rows}, {rows, 2 * rows}, dim), t));
        expect_round_trip(
            PlacedTensor("w", shape(2 * rows), fused_paired({rows, 2 * rows}, {0, rows}, dim), t));
      }
      for (std::int64_t hd = 1; hd <= 3; ++hd) {
        expect_round_trip(PlacedTensor("w", shape((12 + 12) * hd), head_partitioned(12, 6, hd, dim), t));
      }
    }
  }
  for (const int t : {1, 2, 3, 6}) {
    const Segments scattered{0, {{18, 6, 1, ""}, {6, 6, 1, ""}, {0, 6, 1, ""}, {12, 6, 1, ""}}};
    expect_round_trip(PlacedTensor("w", {24, 3}, scattered, t));
  }
}

TEST(SplitTensor, GivesBytesNotViews) {
  const Tensor full = small::counting(DType::f32, {4, 2}, 1);
  for (const Placement& placement : {Placement(Shard{0}), Placement(Replicate{})}) {
    const auto shards = split_tensor(PlacedTensor("w", {4, 2}, placement, 1), full);
    EXPECT_NE(shards[0].bytes().data(), full.bytes().data());
  }
}

TEST(SplitTensor, RefusesAnotherShape) {
  const PlacedTensor placed("layers.0.down", {4, 2}, Shard{0}, 2);
  EXPECT_EQ(message_of<InvalidInput>([&] {
              split_tensor(placed, Tensor::zeros(DType::f32, {2, 4}));
            }),
            "layers.0.down: the full tensor has the shape [2, 4], expected [4, 2]");
}

TEST(SplitTensor, CutsSubByteElementsAtWholeBytesOnly) {
  Tensor full = Tensor::zeros(DType::f4, {4, 8});
  const auto bytes = full.mutable_bytes();
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(17 * i + 1);
  for (const Shard shard : {Shard{0}, Shard{1}}) {
    const PlacedTensor placed("w", {4, 8}, shard, 2);
    EXPECT_TRUE(gather_tensor(placed, split_tensor(placed, full)).same_bytes(full));
  }
  const auto refusal = [](const Shape& shape, int degree) {
    return message_of<UnsupportedLayout>(
        [&] { split_tensor(PlacedTensor("w", shape, Shard{1}, degree), Tensor::zeros(DType::f4, shape)); });
  };
  EXPECT_EQ(refusal({1, 8}, 8), "w: shape [1, 1] of f4 does not fill whole bytes");
  EXPECT_EQ(refusal({2, 3}, 3), "w: a copy would cut a byte that holds several elements");
}

TEST(GatherTensor, NamesTheRankAndElementOfADivergentReplica) {
  for (const DType dtype : kDtypes) {
    const PlacedTensor placed("final_norm", {7}, Replicate{}, 3);
    for (std::size_t rank = 1; rank < 3; ++rank) {
      for (std::size_t element = 0; element < 7; ++element) {
        std::vector<Tensor> shards = split_tensor(placed, small::counting(dtype, {7}, 1));
        const auto width = static_cast<std::size_t>(size_bits(dtype) / 8);
        shards[rank].mutable_bytes()[element * width + width - 1] ^= std::byte{1};
        EXPECT_EQ(message_of<InvalidShards>([&] { gather_tensor(placed, shards); }),
                  "final_norm: the replica on rank " + std::to_string(rank) +
                      " of 3 differs from rank 0, first at element " + std::to_string(element));
      }
    }
  }
}

TEST(GatherTensor, CountsSubByteElementsInADivergentReplica) {
  const PlacedTensor placed("w", {8}, Replicate{}, 2);
  std::vector<Tensor> shards(2, Tensor::zeros(DType::f4, {8}));
  shards[1].mutable_bytes()[2] ^= std::byte{0x20};  // the high half of byte 2: element 5
  EXPECT_THAT(message_of<InvalidShards>([&] { gather_tensor(placed, shards); }), HasSubstr("element 5"));
}

TEST(GatherTensor, TellsZeroesAndNaNPayloadsApart) {
  const PlacedTensor placed("w", {1}, Replicate{}, 2);
  const auto differ = [&](std::uint32_t a, std::uint32_t b) {
    const float values[] = {std::bit_cast<float>(a), std::bit_cast<float>(b)};
    std::vector<Tensor> shards(2, Tensor::zeros(DType::f32, {1}));
    for (std::size_t i = 0; i < 2; ++i) std::memcpy(shards[i].mutable_bytes().data(), &values[i], 4);
    return message_of<InvalidShards>([&] { gather_tensor(placed, shards); }) != "accepted";
  };
  EXPECT_TRUE(differ(0x00000000u, 0x80000000u));
  EXPECT_TRUE(differ(0x7fc00000u, 0x7fc00001u));
  EXPECT_FALSE(differ(0x7fa00001u, 0x7fa00001u));
}

TEST(GatherTensor, SaysWhatIsWrongWithTheShards) {
  const PlacedTensor placed("layers.0.o_proj", {4, 6}, Shard{1, SplitPolicy::chunk}, 4);  // 2, 2, 2, 0
  const std::vector<Tensor> shards = split_tensor(placed, small::counting(DType::f32, {4, 6}, 1));
  const auto refusal = [&](auto edit) {
    std::vector<Tensor> wrong = shards;
    edit(wrong);
    return message_of<InvalidShards>([&] { gather_tensor(placed, wrong); });
  };
  EXPECT_EQ(refusal([](auto& s) { s.pop_back(); }),
            "layers.0.o_proj: got 3 shards, expected 4 (one per rank of TP degree 4)");
  EXPECT_EQ(refusal([](auto& s) { s.clear(); }),
            "layers.0.o_proj: got 0 shards, expected 4 (one per rank of TP degree 4)");
  EXPECT_EQ(refusal([](auto& s) { s[3] = s[2]; }),
            "layers.0.o_proj: rank 3 of 4 has the shape [4, 2], expected [4, 0]");
  EXPECT_EQ(refusal([](auto& s) { s[1] = s[1].to(DType::bf16); }),
            "layers.0.o_proj: rank 1 of 4 is bf16, rank 0 is f32");
}

TEST(Partial, FirstRankHoldsTheTensorAndGatherReturnsItsBits) {
  const PlacedTensor placed("b", {6}, Partial{Partial::Encoding::first_rank}, 3);
  Tensor full = Tensor::from({6}, std::vector<float>{1.5f, -0.0f, 0.0f, 1e-45f, 3e38f, -7.25f});
  const std::uint32_t signalling = 0x7fa00123u;
  std::memcpy(full.mutable_bytes().data(), &signalling, 4);
  const std::vector<Tensor> shards = split_tensor(placed, full);
  EXPECT_TRUE(shards[0].same_bytes(full));
  for (std::size_t rank = 1; rank < 3; ++rank)
    EXPECT_TRUE(shards[rank].same_bytes(Tensor::zeros(DType::f32, {6})));
  EXPECT_TRUE(gather_tensor(placed, shards).same_bytes(full));
}

TEST(Partial, EqualSharesAddUpExactlyAtPowersOfTwo) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const int degree : {1, 2, 4}) {
      const PlacedTensor placed("b", {5}, Partial{Partial::Encoding::equal_share}, degree);
      Tensor full = Tensor::from({5}, std::vector<float>{1.5f, -0.0f, 40.0f, -3.25f, 96.0f});
      if (dtype == DType::f64) {
        full = Tensor::zeros(DType::f64, {5});
        for (std::size_t i = 0; i < 5; ++i) full.mutable_as<double>()[i] = 0.1 * static_cast<double>(i + 1);
      } else {
        full = full.to(dtype);
      }
      const std::vector<Tensor> shards = split_tensor(placed, full);
      for (const Tensor& shard : shards) EXPECT_TRUE(shard.same_bytes(shards[0]));
      EXPECT_TRUE(gather_tensor(placed, shards).same_bytes(full)) << short_name(dtype) << " " << degree;
    }
  }
}

TEST(Partial, SumsInF64AndRoundsOnce) {
  const PlacedTensor placed("b", {2}, Partial{}, 3);
  // In f32 the small addends would vanish one by one.
  const float big = 16777216.0f;
  const std::vector<Tensor> f32 = {Tensor::from({2}, std::vector<float>{big, 1.0f}),
                                   Tensor::from({2}, std::vector<float>{1.0f, 2.0f}),
                                   Tensor::from({2}, std::vector<float>{1.0f, -3.0f})};
  const Tensor sum = gather_tensor(placed, f32);
  EXPECT_EQ(sum.f32()[0], big + 2.0f);
  EXPECT_EQ(sum.f32()[1], 0.0f);
  // 256 + 1 + 2^-16: rounded to f32 first, the last term would be lost and the tie would go to even (256).
  const PlacedTensor one("b", {1}, Partial{}, 3);
  std::vector<Tensor> bf16;
  for (const float value : {256.0f, 1.0f, std::ldexp(1.0f, -16)}) {
    bf16.push_back(Tensor::from({1}, std::vector<float>{value}).to(DType::bf16));
  }
  EXPECT_EQ(gather_tensor(one, bf16).to(DType::f32).f32()[0], 258.0f);
}

TEST(Partial, RefusesElementsThatCannotBeAdded) {
  const PlacedTensor share("b", {2}, Partial{Partial::Encoding::equal_share}, 2);
  EXPECT_THAT(message_of<UnsupportedLayout>([&] { split_tensor(share, Tensor::zeros(DType::i64, {2})); }),
              AllOf(HasSubstr("b: partial(equal_share) at TP degree 2"), HasSubstr("i64")));
}

TEST(Fuse, StacksPartsInOrder) {
  const Layout layout = make_layout({}, small::geometries()[0]);
  const TensorMap logical = small::logical(layout.geometry, DType::f32);
  const Tensor qkv = fuse(*layout.find("layers.1.qkv"), logical);
  std::int64_t row = 0;
  for (const char* name : {"layers.1.q", "layers.1.k", "layers.1.v"}) {
    const Tensor& part = logical.at(name);
    EXPECT_TRUE(qkv.rows(row, part.dim(0)).same_bytes(part)) << name;
    row += part.dim(0);
  }
  EXPECT_EQ(row, qkv.dim(0));
}

TEST(Split, RefusesWeightsThatDoNotMatchTheGeometry) {
  const Layout layout = make_layout({"seed", {{"tp", 2}}}, small::geometries()[0]);
  const auto refusal = [&](auto edit) {
    TensorMap full = small::logical(layout.geometry, DType::f32);
    edit(full);
    return message_of<InvalidInput>([&] { split(full, layout); });
  };
  EXPECT_EQ(refusal([](TensorMap&) {}), "accepted");
  EXPECT_EQ(refusal([](TensorMap& m) { m.erase("layers.1.k"); }),
            "the logical tensor 'layers.1.k' is missing");
  EXPECT_EQ(refusal([](TensorMap& m) { m["extra"] = Tensor(); }),
            "'extra' is no logical tensor of the layout seed:tp2");
  EXPECT_EQ(refusal([](TensorMap& m) { m["final_norm"] = Tensor::zeros(DType::f32, {13}); }),
            "the logical tensor 'final_norm' has the shape [13], expected [12]");
  EXPECT_EQ(refusal([](TensorMap& m) { m["layers.0.v"] = m["layers.0.v"].to(DType::bf16); }),
            "layers.0.qkv: 'layers.0.q' is f32, 'layers.0.v' is bf16: they cannot share a tensor");
}

TEST(Gather, InvertsSplitForEveryTableAndDtype) {
  for (const Geometry& geometry : small::geometries()) {
    for (const Layout& layout : small::layouts(geometry, 6)) {
      for (const DType dtype : kDtypes) {
        const TensorMap full = small::logical(geometry, dtype);
        const ShardedTensors shards = split(full, layout);
        const TensorMap gathered = gather(shards, layout);
        expect_equal(gathered, full, to_string(layout.name));
        expect_equal(split(gathered, layout), shards, to_string(layout.name));
      }
    }
  }
}

TEST(Gather, ReturnsTensorsThatAreIndependentValues) {
  const Layout layout = make_layout({}, small::geometries()[0]);
  const TensorMap full = small::logical(layout.geometry, DType::f32);
  TensorMap gathered = gather(split(full, layout), layout);
  auto bytes = gathered["layers.0.q"].mutable_bytes();
  std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  gathered.erase("layers.0.q");
  TensorMap rest = full;
  rest.erase("layers.0.q");
  expect_equal(gathered, rest, "after a write to one part");
}

void expect_pairs_equal_gather_then_split(const Geometry& geometry, DType dtype, int max_degree) {
  const std::vector<Layout> layouts = small::layouts(geometry, max_degree);
  ASSERT_GE(layouts.size(), 5u);
  const TensorMap full = small::logical(geometry, dtype);
  std::vector<ShardedTensors> shards;
  for (const Layout& layout : layouts) shards.push_back(split(full, layout));
  for (std::size_t s = 0; s < layouts.size(); ++s) {
    for (std::size_t t = 0; t < layouts.size(); ++t) {
      const ShardedTensors moved = reshard(shards[s], layouts[s], layouts[t]);
      const std::string what = to_string(layouts[s].name) + " -> " + to_string(layouts[t].name);
      expect_equal(moved, shards[t], what);
      if (t % 3 == 0) expect_equal(moved, reshard_by_gathering(shards[s], layouts[s], layouts[t]), what);
    }
  }
}

TEST(Reshard, EqualsGatherThenSplitForEveryPairOfLayouts) {
  for (const Geometry& geometry : small::geometries()) {
    expect_pairs_equal_gather_then_split(geometry, DType::bf16, 4);
  }
  for (const DType dtype : kDtypes) {
    expect_pairs_equal_gather_then_split(small::geometries().front(), dtype, 2);
  }
}

TEST(Reshard, KeepsEveryBit) {
  const Geometry geometry = small::geometries()[2];
  TensorMap full = small::logical(geometry, DType::f32);
  Stream stream(7, "keeps_every_bit");
  for (auto& [name, tensor] : full) {
    for (std::byte& byte : tensor.mutable_bytes()) byte = static_cast<std::byte>(stream.next_u32());
  }
  // Signalling and quiet NaNs with payloads, among random bits.
  const std::uint32_t special[] = {0x7fa00001u, 0xffc12345u, 0x80000000u, 0x00000001u};
  std::memcpy(full["final_norm"].mutable_bytes().data(), special, sizeof(special));
  const Layout source = make_layout({"seed", {{"tp", 2}}}, geometry),
               target = make_layout({"hf-llama", {{"tp", 3}}}, geometry);
  const ShardedTensors moved = reshard(split(full, source), source, target);
  expect_equal(gather(moved, target), full, "random bits");
}

TEST(Reshard, ComparesTheReplicasOfItsSource) {
  const Geometry geometry = small::geometries()[2];
  const Layout source = make_layout({"hf-llama", {{"tp", 3}}}, geometry),
               target = make_layout({"seed", {{"tp", 2}}}, geometry);
  ShardedTensors shards = split(small::logical(geometry, DType::bf16), source);
  shards["model.embed_tokens.weight"][2].mutable_bytes()[10] ^= std::byte{4};
  const std::string expected =
      "model.embed_tokens.weight: the replica on rank 2 of 3 differs from rank 0, first at element 5";
  EXPECT_EQ(message_of<InvalidShards>([&] { reshard(shards, source, target); }), expected);
  EXPECT_EQ(message_of<InvalidShards>([&] { reshard_by_gathering(shards, source, target); }), expected);
}

TEST(Reshard, SumsAndSplitsPartialTensors) {
  const Geometry geometry = small::geometries()[2];
  const Layout seed = make_layout({"seed", {{"tp", 2}}}, geometry);
  const Layout first =
      small::with_placement(seed, "layers.0.qkv_bias", Partial{Partial::Encoding::first_rank});
  const Layout share = small::with_placement(first, "final_norm", Partial{Partial::Encoding::equal_share});
  const Layout hf = make_layout({"hf-llama", {{"tp", 3}}}, geometry);
  TensorMap full = small::logical(geometry, DType::f32);
  // Halves must be exact.
  for (float& value : full["final_norm"].mutable_f32()) value = 1.5f;
  const std::vector<Layout> layouts = {seed, first, share, hf};
  for (const Layout& source : layouts) {
    const ShardedTensors shards = split(full, source);
    for (const Layout& target : layouts) {
      const std::string what = to_string(source.name) + " -> " + to_string(target.name);
      expect_equal(reshard(shards, source, target), split(full, target), what);
      expect_equal(reshard_by_gathering(shards, source, target), split(full, target), what);
    }
  }
}

TEST(Reshard, AddsWhatTheRanksOfAPartialSourceHold) {
  const Geometry geometry = small::geometries()[0];
  const Layout target = make_layout({"seed", {{"tp", 2}}}, geometry);
  const Layout source = small::with_placement(target, "final_norm", Partial{});
  TensorMap full = small::logical(geometry, DType::f32);
  for (float& value : full["final_norm"].mutable_f32()) value = 2.0f;
  ShardedTensors shards = split(full, source);
  for (float& value : shards["final_norm"][1].mutable_f32()) value = 0.25f;
  const ShardedTensors moved = reshard(shards, source, target);
  for (const Tensor& tensor : moved.at("final_norm")) {
    for (const float value : tensor.f32()) EXPECT_EQ(value, 2.25f);
  }
}

TEST(Reshard, RefusesDtypesThatCannotShareATensor) {
  const Geometry geometry = small::geometries()[2];
  const Layout hf = make_layout({"hf-llama", {{"tp", 2}}}, geometry),
               seed = make_layout({"seed", {{"tp", 3}}}, geometry);
  TensorMap full = small::logical(geometry, DType::f32);
  full["layers.1.k"] = full["layers.1.k"].to(DType::f16);
  full["final_norm"] = full["final_norm"].to(DType::bf16);
  const ShardedTensors shards = split(full, hf);
  EXPECT_EQ(message_of<InvalidShards>([&] { reshard(shards, hf, seed); }),
            "layers.1.qkv: 'layers.1.q' is f32, 'layers.1.k' is f16: they cannot share a tensor");
  const Layout other = make_layout({"hf-llama", {{"tp", 3}}}, geometry);
  expect_equal(reshard(shards, hf, other), split(full, other), "mixed dtypes in separate tensors");
}

TEST(Reshard, RefusesLayoutsOfDifferentGeometries) {
  const Layout source = make_layout({}, small::geometries()[0]),
               target = make_layout({}, small::geometries()[1]);
  const ShardedTensors shards = split(small::logical(source.geometry, DType::f32), source);
  EXPECT_THAT(message_of<InvalidLayout>([&] { reshard(shards, source, target); }),
              HasSubstr("different geometries"));
}

TEST(RequireShardsOf, NamesMissingExtraMisshapenAndMistypedTensors) {
  const Layout layout = make_layout({"seed", {{"tp", 2}}}, small::geometries()[0]);
  const auto refusal = [&](auto edit) {
    ShardedTensors shards = split(small::logical(layout.geometry, DType::f32), layout);
    edit(shards);
    const std::string required = message_of<InvalidShards>([&] { require_shards_of(layout, shards); });
    EXPECT_EQ(message_of<InvalidShards>([&] { gather(shards, layout); }), required);
    EXPECT_EQ(message_of<InvalidShards>([&] { reshard(shards, layout, layout); }), required);
    return required;
  };
  EXPECT_EQ(refusal([](ShardedTensors&) {}), "accepted");
  EXPECT_EQ(refusal([](ShardedTensors& s) { s.erase("layers.1.down"); }),
            "the tensor 'layers.1.down' of the layout seed:tp2 is missing");
  EXPECT_EQ(refusal([](ShardedTensors& s) { s["layers.2.down"] = {}; }),
            "'layers.2.down' is no tensor of the layout seed:tp2");
  EXPECT_EQ(refusal([](ShardedTensors& s) { s["embed"].pop_back(); }),
            "embed: got 1 shards, expected 2 (one per rank of TP degree 2)");
  EXPECT_EQ(refusal([](ShardedTensors& s) {
              s["embed"][1] = Tensor::zeros(DType::f32, {6, 11});
            }),
            "embed: rank 1 of 2 has the shape [6, 11], expected [6, 12]");
  EXPECT_EQ(refusal([](ShardedTensors& s) { s["embed"][1] = s["embed"][1].to(DType::f16); }),
            "embed: rank 1 of 2 is f16, rank 0 is f32");
}

// The figures of the seed document: rank 0 of two of TOY's fused tensors.
TEST(Split, GivesTheRowsOfTheSeedDocument) {
  Geometry geometry = toy();
  geometry.n_layers = 1;
  geometry.vocab = 2;
  const TensorMap full = small::logical(geometry, DType::f32);
  const Layout layout = make_layout({"seed", {{"tp", 2}}}, geometry);
  const ShardedTensors shards = split(full, layout);
  const auto expect_rows = [&](const char* entry, std::vector<std::pair<std::int64_t, std::int64_t>> ranges) {
    const Tensor fused = fuse(*layout.find(entry), full);
    const Tensor& local = shards.at(entry)[0];
    std::int64_t row = 0;
    for (const auto& [first, last] : ranges) {
      EXPECT_TRUE(local.rows(row, last - first + 1).same_bytes(fused.rows(first, last - first + 1)))
          << entry << first;
      row += last - first + 1;
    }
    EXPECT_EQ(row, local.dim(0)) << entry;
  };
  expect_rows("layers.0.qkv", {{0, 127}, {256, 287}, {320, 351}});
  expect_rows("layers.0.gate_up", {{0, 351}, {704, 1055}});
}

}  // namespace
}  // namespace shardcheck
