#include "shardcheck/arithmetic/cost.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <limits>

#include "reshard/small_layouts.h"
#include "shardcheck/layout/placement.h"

namespace shardcheck {
namespace {

// Model time is a handful of double operations.
constexpr double kRounding = 1e-12;

void expect_close(double actual, double expected, const std::string& what = {}) {
  EXPECT_NEAR(actual, expected, kRounding * std::abs(expected)) << what;
}

void expect_refused(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected a refusal with " << part;
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

double ratio(const Link& link, const CollectiveCost& cost, int degree, double bytes) {
  return cost.seconds(link, bytes) / ring_all_reduce(degree).seconds(link, bytes);
}

constexpr std::array<std::int64_t, 3> kTokens = {1, 64, 8192};

std::array<std::string, 3> seed_ratios(const CollectiveCost& cost) {
  std::array<std::string, 3> text;
  const CostInputs inputs;
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = fmt::format("{:.3f}", ratio(inputs.link, cost, 4, inputs.output_bytes(kTokens[i])));
  return text;
}

using Three = std::array<std::string, 3>;

TEST(SeedCost, SingleRankExtraIsReproduced) {
  EXPECT_EQ(fmt::format("{:.4f}", 100 * single_rank_extra({}, 1)), "0.0868");
  EXPECT_EQ(fmt::format("{:.2f}", 100 * single_rank_extra({}, 64)), "5.43");
  EXPECT_EQ(fmt::format("{:.2f}", 100 * single_rank_extra({}, 8192)), "18.06");
}

TEST(SeedCost, RatiosAndCrossoverAreReproduced) {
  EXPECT_EQ(seed_ratios(all_gather_and_fold(4)), (Three{"0.508", "0.888", "1.967"}));
  EXPECT_EQ(seed_ratios(two_shot(4)), (Three{"0.337", "0.506", "0.985"}));
  EXPECT_EQ(seed_ratios(two_shot(4, 2.0)), (Three{"0.340", "0.635", "1.474"}));
  const auto bytes = crossover_bytes(Link{}, all_gather_and_fold(4), ring_all_reduce(4));
  ASSERT_TRUE(bytes.has_value());
  expect_close(*bytes, 750000.0);
  EXPECT_EQ(fmt::format("{:.1f}", *bytes / CostInputs{}.output_bytes(1)), "91.6");
}

// One projection at a time, by the definition of a roofline.
TEST(SingleRankCost, GemmsAreBoundByMemoryThenByOperations) {
  CostInputs inputs;
  const double weights = 4096.0 * (4096 + 14336) * 2;
  expect_close(row_parallel_seconds(inputs, 1), (weights + 2 * (4096 + 14336 + 2 * 4096)) / 1.5e12);
  expect_close(row_parallel_seconds(inputs, 8192), 2.0 * 8192 * 4096 * (4096 + 14336) / 312e12);
  inputs.storage = inputs.partials = DType::f32;
  expect_close(row_parallel_seconds(inputs, 1), 2 * (weights + 2 * (4096 + 14336 + 2 * 4096)) / 1.5e12);
  // Each projection meets its own bound: at 64 tokens a K of 1 is bound by its output, one of 4096 by
  // operations.
  inputs.geometry.ffn = 1;
  inputs.link.flops_per_s = 1e12;
  const double attention = 2.0 * 64 * 4096 * 4096 / 1e12, down = 4.0 * (4096 + 64 * (1 + 4096)) / 1.5e12;
  expect_close(row_parallel_seconds(inputs, 64), attention + down);
}

TEST(SingleRankCost, ExtraGrowsWithTokensAndIsLinearInChunks) {
  CostInputs inputs;
  double last = 0.0;
  for (std::int64_t tokens = 1; tokens <= 1 << 20; tokens *= 2) {
    const double extra = single_rank_extra(inputs, tokens);
    // Bound by operations, the ratio no longer depends on the number of tokens.
    EXPECT_GE(extra, last * (1 - kRounding)) << tokens;
    last = extra;
  }
  // 2 GEMMs * C*N*2 bytes * 2 / HBM over 2*N*(K1 + K2) / FLOPS.
  expect_close(last, 2 * 4 * 2.0 * 2 / 1.5e12 / (2.0 * (4096 + 14336) / 312e12));
  for (const std::int64_t chunks : {1, 3, 16}) {
    inputs.chunks = chunks;
    expect_close(partial_sums_seconds(inputs, 7),
                 static_cast<double>(chunks) / 4 * partial_sums_seconds({}, 7));
  }
}

TEST(SingleRankCost, F32PartialsOfA16BitDtypeCostTwice) {
  CostInputs wide;
  wide.partials = DType::f32;
  expect_close(partial_sums_seconds(wide, 64), 2 * partial_sums_seconds({}, 64));
  expect_close(row_parallel_seconds(wide, 64), row_parallel_seconds({}, 64));
  EXPECT_EQ(wide.partial_ratio(), 2.0);
  wide.storage = DType::f32;
  EXPECT_EQ(wide.partial_ratio(), 1.0);
}

struct Limits {
  double latency_only, bandwidth_only;
};

void expect_limits(int degree, const CollectiveCost& cost, const Limits& limits) {
  Link latency_only, bandwidth_only;
  latency_only.link_bytes_per_s = 1e18;
  bandwidth_only.step_latency_s = 0.0;
  EXPECT_NEAR(ratio(latency_only, cost, degree, 1.0), limits.latency_only, 1e-9) << degree;
  for (const double bytes : {1.0, 1e3, 1e12})
    expect_close(ratio(bandwidth_only, cost, degree, bytes), limits.bandwidth_only);
  double last = 0.0;
  for (double bytes = 1.0; bytes < 1e13; bytes *= 8) {
    const double here = ratio(Link{}, cost, degree, bytes);
    EXPECT_GE(here, last) << degree << ' ' << bytes;
    EXPECT_GE(here, std::min(limits.latency_only, limits.bandwidth_only) * (1 - kRounding));
    EXPECT_LE(here, std::max(limits.latency_only, limits.bandwidth_only) * (1 + kRounding));
    last = here;
  }
}

TEST(CollectiveCost, RatiosMoveFromTheLatencyLimitToTheBandwidthLimit) {
  for (int p = 2; p <= 16; ++p) {
    for (const double partial : {1.0, 2.0}) {
      expect_limits(p, all_gather_and_fold(p, partial), {0.5, p * partial / 2});
      expect_limits(p, two_shot(p, partial), {1.0 / (p - 1), (1 + partial) / 2});
    }
  }
}

TEST(CollectiveCost, TimeGrowsWithSizeDegreeAndLatencyAndFallsWithBandwidth) {
  Link slow, far;
  slow.link_bytes_per_s /= 2;
  far.step_latency_s *= 2;
  const std::array<CollectiveCost (*)(int), 3> kinds = {
      ring_all_reduce, [](int p) { return all_gather_and_fold(p); }, [](int p) { return two_shot(p, 2.0); }};
  for (const auto& kind : kinds) {
    for (int p = 2; p <= 16; ++p) {
      const double seconds = kind(p).seconds({}, 1e6);
      EXPECT_LT(seconds, kind(p).seconds({}, 2e6));
      EXPECT_LT(seconds, kind(p + 1).seconds({}, 1e6));
      EXPECT_LT(seconds, kind(p).seconds(slow, 1e6));
      EXPECT_LT(seconds, kind(p).seconds(far, 1e6));
    }
  }
}

TEST(Crossover, IsWhereTheTimesMeet) {
  const Link link;
  for (int p = 2; p <= 16; ++p) {
    const CollectiveCost ring = ring_all_reduce(p);
    for (const CollectiveCost& cost :
         {all_gather_and_fold(p), all_gather_and_fold(p, 2.0), two_shot(p, 2.0)}) {
      const auto bytes = crossover_bytes(link, cost, ring);
      if (!bytes) {
        EXPECT_LT(cost.seconds(link, 1e15), ring.seconds(link, 1e15));
        continue;
      }
      expect_close(cost.seconds(link, *bytes), ring.seconds(link, *bytes));
      EXPECT_GT(cost.seconds(link, *bytes + 1000), ring.seconds(link, *bytes + 1000));
      const double smaller = *bytes * 0.999;
      EXPECT_LE(cost.seconds(link, smaller), ring.seconds(link, smaller));
    }
  }
}

TEST(Crossover, IsAbsentWhereTheRingNeverWinsAndZeroWhereItAlwaysDoes) {
  const CollectiveCost ring2 = ring_all_reduce(2);
  EXPECT_EQ(crossover_bytes({}, all_gather_and_fold(2), ring2), std::nullopt);
  for (int p = 2; p <= 16; ++p) EXPECT_EQ(crossover_bytes({}, two_shot(p), ring_all_reduce(p)), std::nullopt);
  EXPECT_EQ(crossover_bytes({}, two_shot(2, 2.0), ring2), 0.0);
  Link link;
  link.step_latency_s = 0.0;
  EXPECT_EQ(crossover_bytes(link, all_gather_and_fold(4), ring_all_reduce(4)), 0.0);
  EXPECT_THROW(crossover_bytes({}, {1.0, 3.0}, ring2), std::invalid_argument);
}

TEST(CoverSizes, AreThoseOfTheCoversOfTheRanks) {
  // 5 leaves: [0,4) + [4,5); 32 leaves: three ranks of 11, 11, 10.
  EXPECT_EQ(cover_sizes(TreeShape::halving, 5, 3).nodes, (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(cover_sizes(TreeShape::halving, 5, 2).nodes, (std::vector<std::int64_t>{2, 2}));
  // [0,11) = 8+2+1, [11,22) = 1+4+4+2, [22,32) = 2+8.
  EXPECT_EQ(cover_sizes(TreeShape::halving, 32, 3).nodes, (std::vector<std::int64_t>{3, 4, 2}));
  EXPECT_EQ(cover_sizes(TreeShape::linear, 10, 3).nodes, (std::vector<std::int64_t>{1, 3, 3}));
  EXPECT_EQ(cover_sizes(TreeShape::halving, 2, 4).nodes, (std::vector<std::int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(cover_sizes(TreeShape::halving, 32, 3).total(), 9);
  EXPECT_EQ(cover_sizes(TreeShape::halving, 32, 3).most(), 4);
}

TEST(CoverSizes, AreOneNodeForPowersOfTwoAndBoundedOtherwise) {
  for (int degree = 1; degree <= 16; ++degree) {
    for (const std::int64_t leaves : {3, 7, 32, 56, 112, 1000}) {
      const CoverSizes sizes = cover_sizes(TreeShape::halving, leaves, degree);
      ASSERT_EQ(sizes.degree(), degree);
      const auto bits = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(leaves - 1)));
      EXPECT_LE(sizes.most(), std::max<std::int64_t>(1, 2 * bits - 2)) << leaves << ' ' << degree;
      if (std::has_single_bit(static_cast<unsigned>(degree)) && leaves % degree == 0) {
        EXPECT_EQ(sizes.nodes, std::vector<std::int64_t>(static_cast<std::size_t>(degree), 1)) << leaves;
      }
      // Under a left fold only rank 0 can add anything up.
      const auto [first, last] = part_of(SplitPolicy::balanced, leaves, degree, 0);
      EXPECT_EQ(cover_sizes(TreeShape::linear, leaves, degree).total(), leaves - (last - first) + 1);
    }
  }
}

/// Traffic counted message by message: every node of every rank for every output, to whoever needs it.
struct Counted {
  std::vector<RankTraffic> one_shot, two_shot;
};
Counted count_messages(std::int64_t leaves, int degree, std::int64_t elements) {
  const auto ranks = static_cast<std::size_t>(degree);
  Counted counted{std::vector<RankTraffic>(ranks), std::vector<RankTraffic>(ranks)};
  const auto send = [](std::vector<RankTraffic>& traffic, std::size_t sender, std::size_t receiver,
                       int bytes) {
    if (sender == receiver) return;
    traffic[sender].sent += bytes;
    traffic[receiver].received += bytes;
  };
  for (std::int64_t element = 0; element < elements; ++element) {
    std::size_t owner = 0;
    while (part_of(SplitPolicy::balanced, elements, degree, static_cast<int>(owner)).second <= element)
      ++owner;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto [first, last] = part_of(SplitPolicy::balanced, leaves, degree, static_cast<int>(rank));
      const std::size_t nodes = cover(TreeShape::halving, leaves, first, last).size();
      for (std::size_t node = 0; node < nodes; ++node) {
        for (std::size_t peer = 0; peer < ranks; ++peer) send(counted.one_shot, rank, peer, 4);
        send(counted.two_shot, rank, owner, 4);
      }
      send(counted.two_shot, owner, rank, 2);
    }
  }
  return counted;
}

TEST(CoverTraffic, IsWhatExplicitMessagesAddUpTo) {
  for (int degree = 1; degree <= 16; ++degree) {
    for (const std::int64_t leaves : {1, 5, 32, 56}) {
      const CoverSizes sizes = cover_sizes(TreeShape::halving, leaves, degree);
      for (const std::int64_t elements : {1, 13, 48}) {
        const Counted counted = count_messages(leaves, degree, elements);
        EXPECT_EQ(one_shot_traffic(sizes, elements, 4), counted.one_shot) << degree << ' ' << leaves;
        EXPECT_EQ(two_shot_traffic(sizes, elements, 4, 2), counted.two_shot) << degree << ' ' << leaves;
      }
    }
  }
}

TEST(CoverTraffic, OfOneNodePerRankIsTheVolumeOfTheCollective) {
  for (const int degree : {2, 4, 8, 16}) {
    const CoverSizes sizes = cover_sizes(TreeShape::halving, 112, degree);
    const std::int64_t elements = 4096 * 64, message = elements * 2;
    EXPECT_EQ(static_cast<double>(busiest_bytes(one_shot_traffic(sizes, elements, 4))),
              all_gather_and_fold(degree, 2.0).volume * static_cast<double>(message));
    EXPECT_EQ(static_cast<double>(busiest_bytes(two_shot_traffic(sizes, elements, 4, 2))),
              two_shot(degree, 2.0).volume * static_cast<double>(message));
  }
  EXPECT_EQ(busiest_bytes({}), 0);
  EXPECT_EQ(busiest_bytes({{3, 1}, {2, 5}}), 5);
}

/// Elements that each rank holds, padding apart.
std::vector<std::int64_t> held_by_rank(const Layout& layout) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(layout.degree), 0);
  for (const Piece& piece : pieces(layout)) {
    std::int64_t elements = 1;
    for (const std::int64_t size : piece.size) elements *= size;
    held[static_cast<std::size_t>(piece.rank)] += elements;
  }
  return held;
}
std::int64_t held_by(const Layout& layout, int rank) {
  return held_by_rank(layout)[static_cast<std::size_t>(rank)];
}

void expect_conserved(const SyncTraffic& traffic) {
  SyncShare sent, received;
  for (const auto& [side, total] :
       {std::pair{&traffic.sent, &sent}, std::pair{&traffic.received, &received}}) {
    for (const SyncShare& share : *side) {
      total->elements += share.elements;
      total->copies += share.copies;
      total->peers += share.peers;
      EXPECT_LE(share.peers, share.copies);
      EXPECT_LE(share.copies, share.elements);
    }
  }
  EXPECT_EQ(sent, received);
}

TEST(SyncTraffic, GivesEveryTargetRankWhatItHolds) {
  for (const Geometry& geometry : small::geometries()) {
    const std::vector<Layout> layouts = small::layouts(geometry, 6);
    for (const Layout& target : layouts) {
      const std::vector<std::int64_t> held = held_by_rank(target);
      for (const Layout& source : layouts) {
        const SyncTraffic traffic =
            sync_traffic(make_plan(source, target), source.degree, target.degree, SyncDevices::separate);
        ASSERT_EQ(static_cast<int>(traffic.sent.size()), source.degree);
        ASSERT_EQ(static_cast<int>(traffic.received.size()), target.degree);
        for (int rank = 0; rank < target.degree; ++rank)
          EXPECT_EQ(traffic.received[static_cast<std::size_t>(rank)].elements,
                    held[static_cast<std::size_t>(rank)]);
        expect_conserved(traffic);
      }
    }
  }
}

TEST(SyncTraffic, SharedDevicesMoveNothingBetweenEqualLayoutsAndNeverMore) {
  const Geometry geometry = small::geometry(4, 4, 8, 12);
  const std::vector<Layout> layouts = small::layouts(geometry, 4);
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      const Plan plan = make_plan(source, target);
      const auto traffic = [&](SyncDevices devices) {
        return sync_traffic(plan, source.degree, target.degree, devices);
      };
      const SyncTraffic shared = traffic(SyncDevices::shared), separate = traffic(SyncDevices::separate);
      expect_conserved(shared);
      for (std::size_t rank = 0; rank < shared.received.size(); ++rank)
        EXPECT_LE(shared.received[rank].elements, separate.received[rank].elements);
      const double seconds = sync_seconds(shared, Link{}, DType::bf16, SyncMessages::per_copy);
      EXPECT_LE(seconds, sync_seconds(separate, Link{}, DType::bf16, SyncMessages::per_copy));
      if (source.name == target.name) {
        EXPECT_EQ(seconds, 0.0);
      }
    }
  }
}

TEST(SyncSeconds, AreTheBusiestRanksBytesAndMessages) {
  const SyncTraffic traffic{{{1000, 7, 2}, {10, 1, 1}}, {{400, 3, 1}, {610, 5, 2}}};
  Link link;
  link.link_bytes_per_s = 100;
  link.step_latency_s = 0.5;
  expect_close(sync_seconds(traffic, link, DType::bf16, SyncMessages::per_copy), 20 + 3.5);
  expect_close(sync_seconds(traffic, link, DType::f32, SyncMessages::per_peer), 40 + 1.0);
  // With few bytes the rank with most messages is the busiest, on whichever side it is.
  const SyncTraffic chatty{{{10, 1, 1}}, {{1, 9, 4}}};
  expect_close(sync_seconds(chatty, link, DType::f32, SyncMessages::per_copy), 0.04 + 4.5);
  link.step_latency_s = 0.0;
  expect_close(sync_seconds(traffic, link, DType::f32, SyncMessages::per_copy), 40);
  EXPECT_EQ(sync_seconds({}, link, DType::f32, SyncMessages::per_copy), 0.0);
}

TEST(SyncSeconds, OfLlama3AreBoundByItsBytes) {
  const Geometry geometry = llama3_8b();
  const Layout source = make_layout(parse_layout_name("hf-llama"), geometry);
  const Layout target = make_layout(parse_layout_name("vllm-llama:tp4"), geometry);
  const SyncTraffic traffic = sync_traffic(make_plan(source, target), 1, 4, SyncDevices::separate);
  // 8.03e9 parameters in bf16, and norms once per target rank, through one link of 25e9 B/s.
  const double bytes = 2.0 * static_cast<double>(held_by(source, 0) + 3 * 65 * 4096);
  expect_close(sync_seconds(traffic, Link{}, DType::bf16, SyncMessages::per_peer), bytes / 25e9 + 4 * 15e-6);
}

TEST(LinkText, ParsesBackAndKeepsDefaults) {
  EXPECT_EQ(to_string(Link{}), "hbm:1.5e+12,flops:3.12e+14,bw:2.5e+10,latency:1.5e-05");
  Link link{1.0, 1e21, 0.1e18, 0.0};
  EXPECT_EQ(parse_link(to_string(link)), link);
  link = {};
  link.link_bytes_per_s = 3e11;
  EXPECT_EQ(parse_link("bw:3e11"), link);
  EXPECT_EQ(parse_link("latency:15e-6,bw:300000000000"), link);
}

TEST(LinkText, RefusalsNameKeyValueAndWhatIsAllowed) {
  expect_refused([] { parse_link(""); }, "link key ''");
  expect_refused([] { parse_link("bw"); }, "bw:NUMBER");
  expect_refused([] { parse_link("bw:"); }, "bw:''");
  expect_refused([] { parse_link("bw:1e9,"); }, "allowed: hbm, flops, bw, latency");
  expect_refused([] { parse_link("latancy:1"); }, "did you mean 'latency'");
  expect_refused([] { parse_link("bw:1,bw:1"); }, "bw is given twice");
  for (const char* value : {"0", "-1", "1e19", "inf", "nan", "1e9x", " 1", "1e999"})
    expect_refused([&] { parse_link(fmt::format("hbm:{}", value)); }, "in 1..1e+18");
  expect_refused([] { parse_link("latency:1.5"); }, "latency:'1.5' is not a number in 0..1");
  expect_refused([] { parse_link(std::string(100000, ':')); }, "link key ''");
}

TEST(CostInputs, OutOfRangeIsRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto with = [](const std::function<void(CostInputs&)>& change) {
    CostInputs inputs;
    change(inputs);
    return [inputs] { validate(inputs); };
  };
  validate(CostInputs{});
  expect_refused(with([](auto& i) { i.geometry.ffn = 0; }), "ffn=0");
  expect_refused(with([](auto& i) { i.chunks = 0; }), "chunks=0");
  expect_refused(with([&](auto& i) { i.link.link_bytes_per_s = nan; }), "bw=nan");
  expect_refused(with([](auto& i) { i.link.hbm_bytes_per_s = 0; }), "hbm=0");
  expect_refused(with([](auto& i) { i.storage = DType::i64; }), "dtype=i64");
  expect_refused(with([](auto& i) { i.partials = DType::f16; }), "partials=f16");
  for (const std::int64_t tokens : {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 20) + 1}) {
    expect_refused([&] { single_rank_extra({}, tokens); }, fmt::format("tokens={}", tokens));
    expect_refused([&] { CostInputs{}.output_bytes(tokens); }, "allowed 1..1048576");
  }
  for (const int degree : {-1, 0, 1, 1025}) {
    expect_refused([&] { ring_all_reduce(degree); }, "allowed 2..1024");
    expect_refused([&] { all_gather_and_fold(degree); }, "allowed 2..1024");
    expect_refused([&] { two_shot(degree); }, "allowed 2..1024");
  }
}

TEST(CoverTraffic, OutOfRangeIsRefusedByName) {
  expect_refused([] { cover_sizes(TreeShape::halving, 0, 2); }, "leaves=0");
  expect_refused([] { cover_sizes(TreeShape::halving, (1 << 20) + 1, 2); }, "allowed 1..1048576");
  expect_refused([] { cover_sizes(TreeShape::halving, 4, 0); }, "degree=0");
  const CoverSizes sizes = cover_sizes(TreeShape::halving, 4, 2);
  const std::int64_t most = std::int64_t{1} << 40;
  expect_refused([&] { one_shot_traffic(sizes, 0, 4); }, "elements=0");
  expect_refused([&] { one_shot_traffic(sizes, most + 1, 4); }, "elements=");
  expect_refused([&] { two_shot_traffic(sizes, 1, 0, 2); }, "node_bytes=0");
  expect_refused([&] { two_shot_traffic(sizes, 1, 4, 9); }, "storage_bytes=9");
  expect_refused([&] { one_shot_traffic({}, 1, 4); }, "degree=0");
  expect_refused([&] { one_shot_traffic({{1 << 20, 1 << 20}}, most, 4); }, "2^62");
  EXPECT_EQ(busiest_bytes(one_shot_traffic(sizes, most, 8)), 8 * most);
}

TEST(SyncTraffic, RanksBeyondTheDegreesAreRefused) {
  const Geometry geometry = small::geometry(4, 4, 8, 12);
  const std::vector<Layout> layouts = small::layouts(geometry, 2);
  const Plan plan = make_plan(layouts.front(), layouts.back());
  ASSERT_EQ(layouts.back().degree, 2);
  EXPECT_THROW(sync_traffic(plan, 1, 1, SyncDevices::separate), std::out_of_range);
  expect_refused([&] { sync_traffic(plan, 0, 2, SyncDevices::separate); }, "source_degree=0");
  expect_refused([] { sync_seconds({}, Link{}, DType::f4, SyncMessages::per_peer); }, "dtype=f4");
}

}  // namespace
}  // namespace shardcheck
