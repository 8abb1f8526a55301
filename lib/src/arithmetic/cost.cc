#include "shardcheck/arithmetic/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <stdexcept>

#include "shardcheck/case/case.h"
#include "shardcheck/layout/placement.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
constexpr std::int64_t kMaxChunks = std::int64_t{1} << 16;
constexpr std::int64_t kMaxLeaves = std::int64_t{1} << 20;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
constexpr double kMaxRankBytes = 0x1p62;  // sums of two such figures still fit int64
constexpr int kMaxDegree = 1024;

struct LinkKey {
  std::string_view name;
  double Link::*member;
  double low, high;
};
constexpr std::array<LinkKey, 4> kLinkKeys = {{{"hbm", &Link::hbm_bytes_per_s, 1.0, 1e18},
                                               {"flops", &Link::flops_per_s, 1.0, 1e21},
                                               {"bw", &Link::link_bytes_per_s, 1.0, 1e18},
                                               {"latency", &Link::step_latency_s, 0.0, 1.0}}};

void require_range(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    throw InvalidInput(fmt::format("{}={} is out of range: allowed {}..{}", field, value, low, high));
}

// Written so that NaN is out of range.
bool in_range(const LinkKey& key, double value) { return value >= key.low && value <= key.high; }

const LinkKey& link_key(std::string_view name) {
  std::vector<std::string> known;
  for (const LinkKey& key : kLinkKeys) {
    if (key.name == name) return key;
    known.emplace_back(key.name);
  }
  const std::string nearest = nearest_name(name, known);
  throw InvalidInput(fmt::format("link key '{:.40}' is unknown{}; allowed: {}", name,
                                 nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest),
                                 fmt::join(known, ", ")));
}

void set_link_key(Link& link, const LinkKey& key, std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !in_range(key, value))
    throw InvalidInput(
        fmt::format("{}:'{:.40}' is not a number in {}..{}", key.name, text, key.low, key.high));
  link.*key.member = value;
}

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

double bytes_of(DType dtype) { return static_cast<double>(size_bits(dtype)) / 8.0; }

std::array<std::int64_t, 2> row_parallel_lengths(const Geometry& g) { return {g.attention_width(), g.ffn}; }

std::int64_t part_length(std::int64_t length, int degree, int rank) {
  const auto [begin, end] = part_of(SplitPolicy::balanced, length, degree, rank);
  return end - begin;
}

void require_traffic_inputs(const CoverSizes& sizes, std::int64_t elements, int node_bytes) {
  require_range("degree", sizes.degree(), 1, kMaxDegree);
  require_range("elements", elements, 1, kMaxElements);
  require_range("node_bytes", node_bytes, 1, 8);
  const double most = static_cast<double>(sizes.most()) * sizes.degree();
  if (!(most * static_cast<double>(elements) * node_bytes <= kMaxRankBytes))
    throw InvalidInput(
        fmt::format("elements={} with {} nodes on each of {} ranks: allowed are at most 2^62 bytes", elements,
                    sizes.most(), sizes.degree()));
}

void add_copy(SyncShare& share, std::int64_t elements) {
  share.elements += elements;
  ++share.copies;
}

}  // namespace

void validate(const Link& link) {
  for (const LinkKey& key : kLinkKeys) {
    if (!in_range(key, link.*key.member))
      throw InvalidInput(fmt::format("link {}={} is out of range: allowed {}..{}", key.name, link.*key.member,
                                     key.low, key.high));
  }
}

Link parse_link(std::string_view text) {
  Link link;
  std::set<std::string_view> seen;
  for (std::size_t begin = 0, comma = 0; comma != std::string_view::npos; begin = comma + 1) {
    comma = text.find(',', begin);
    const std::string_view word = text.substr(begin, comma == std::string_view::npos ? comma : comma - begin);
    const std::size_t colon = word.find(':');
    const LinkKey& key = link_key(word.substr(0, colon));
    if (colon == std::string_view::npos)
      throw InvalidInput(fmt::format("link key {} lacks its value: allowed is {}:NUMBER", word, word));
    if (!seen.insert(key.name).second)
      throw InvalidInput(fmt::format("link key {} is given twice: allowed is once", key.name));
    set_link_key(link, key, word.substr(colon + 1));
  }
  return link;
}

std::string to_string(const Link& link) {
  std::string text;
  for (const LinkKey& key : kLinkKeys)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", key.name, shortest(link.*key.member));
  return text;
}

Geometry llama3_8b() {
  Geometry g;
  g.d_model = 4096;
  g.n_layers = 32;
  g.n_heads = 32;
  g.n_kv_heads = 8;
  g.head_dim = 128;
  g.ffn = 14336;
  g.vocab = 128256;
  g.norm_eps = 1e-5;
  g.rope = Rope::half;
  g.rope_theta = 500000.0;
  return g;
}

double CostInputs::partial_ratio() const { return bytes_of(partials) / bytes_of(storage); }

double CostInputs::output_bytes(std::int64_t tokens) const {
  require_range("tokens", tokens, 1, kMaxTokens);
  return static_cast<double>(tokens) * static_cast<double>(geometry.d_model) * bytes_of(storage);
}

void validate(const CostInputs& inputs) {
  validate(inputs.geometry);
  validate(inputs.link);
  require_range("chunks", inputs.chunks, 1, kMaxChunks);
  if (!is_forward_dtype(inputs.storage))
    throw InvalidInput(fmt::format("dtype={}: allowed is one of f32, bf16, f16", short_name(inputs.storage)));
  if (inputs.partials != inputs.storage && inputs.partials != DType::f32)
    throw InvalidInput(fmt::format("partials={}: allowed is f32 or the storage dtype {}",
                                   short_name(inputs.partials), short_name(inputs.storage)));
}

double row_parallel_seconds(const CostInputs& inputs, std::int64_t tokens) {
  validate(inputs);
  require_range("tokens", tokens, 1, kMaxTokens);
  const auto m = static_cast<double>(tokens), n = static_cast<double>(inputs.geometry.d_model);
  double seconds = 0.0;
  for (const std::int64_t length : row_parallel_lengths(inputs.geometry)) {
    const auto k = static_cast<double>(length);
    const double memory = bytes_of(inputs.storage) * (k * n + m * (k + n)) / inputs.link.hbm_bytes_per_s;
    const double compute = 2.0 * m * k * n / inputs.link.flops_per_s;
    seconds += std::max(memory, compute);
  }
  return seconds;
}

double partial_sums_seconds(const CostInputs& inputs, std::int64_t tokens) {
  validate(inputs);
  constexpr double kGemms = 2.0, kWriteAndRead = 2.0;
  return kGemms * static_cast<double>(inputs.chunks) * inputs.output_bytes(tokens) * inputs.partial_ratio() *
         kWriteAndRead / inputs.link.hbm_bytes_per_s;
}

double single_rank_extra(const CostInputs& inputs, std::int64_t tokens) {
  return partial_sums_seconds(inputs, tokens) / row_parallel_seconds(inputs, tokens);
}

double CollectiveCost::seconds(const Link& link, double message_bytes) const {
  return volume * message_bytes / link.link_bytes_per_s + steps * link.step_latency_s;
}

CollectiveCost ring_all_reduce(int degree) {
  require_range("degree", degree, 2, kMaxDegree);
  const double others = degree - 1;
  return {2.0 * others / degree, 2.0 * others};
}

CollectiveCost all_gather_and_fold(int degree, double partial_ratio) {
  require_range("degree", degree, 2, kMaxDegree);
  const double others = degree - 1;
  return {others * partial_ratio, others};
}

CollectiveCost two_shot(int degree, double partial_ratio) {
  require_range("degree", degree, 2, kMaxDegree);
  const double others = degree - 1;
  return {(partial_ratio + 1.0) * others / degree, 2.0};
}

std::optional<double> crossover_bytes(const Link& link, const CollectiveCost& cost,
                                      const CollectiveCost& ring) {
  if (cost.steps > ring.steps)
    throw std::invalid_argument(
        fmt::format("crossover: {} steps are more than the ring's {}", cost.steps, ring.steps));
  if (cost.volume <= ring.volume) return std::nullopt;
  const double saved_seconds = (ring.steps - cost.steps) * link.step_latency_s;
  return saved_seconds * link.link_bytes_per_s / (cost.volume - ring.volume);
}

std::int64_t CoverSizes::most() const { return nodes.empty() ? 0 : *std::ranges::max_element(nodes); }

std::int64_t CoverSizes::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t count : nodes) sum += count;
  return sum;
}

CoverSizes cover_sizes(TreeShape shape, std::int64_t leaves, int degree) {
  require_range("leaves", leaves, 1, kMaxLeaves);
  require_range("degree", degree, 1, kMaxDegree);
  CoverSizes sizes;
  for (int rank = 0; rank < degree; ++rank) {
    const auto [first, last] = part_of(SplitPolicy::balanced, leaves, degree, rank);
    sizes.nodes.push_back(static_cast<std::int64_t>(cover(shape, leaves, first, last).size()));
  }
  return sizes;
}

std::vector<RankTraffic> one_shot_traffic(const CoverSizes& sizes, std::int64_t elements, int node_bytes) {
  require_traffic_inputs(sizes, elements, node_bytes);
  const std::int64_t total = sizes.total();
  std::vector<RankTraffic> traffic;
  for (const std::int64_t own : sizes.nodes)
    traffic.push_back(
        {(sizes.degree() - 1) * own * elements * node_bytes, (total - own) * elements * node_bytes});
  return traffic;
}

std::vector<RankTraffic> two_shot_traffic(const CoverSizes& sizes, std::int64_t elements, int node_bytes,
                                          int storage_bytes) {
  require_traffic_inputs(sizes, elements, node_bytes);
  require_range("storage_bytes", storage_bytes, 1, 8);
  const std::int64_t total = sizes.total();
  std::vector<RankTraffic> traffic;
  for (int rank = 0; rank < sizes.degree(); ++rank) {
    const std::int64_t own = sizes.nodes[static_cast<std::size_t>(rank)];
    const std::int64_t slice = part_length(elements, sizes.degree(), rank), rest = elements - slice;
    traffic.push_back({own * rest * node_bytes + (sizes.degree() - 1) * slice * storage_bytes,
                       (total - own) * slice * node_bytes + rest * storage_bytes});
  }
  return traffic;
}

std::int64_t busiest_bytes(const std::vector<RankTraffic>& traffic) {
  std::int64_t most = 0;
  for (const RankTraffic& rank : traffic) most = std::max({most, rank.sent, rank.received});
  return most;
}

SyncTraffic sync_traffic(const Plan& plan, int source_degree, int target_degree, SyncDevices devices) {
  require_range("source_degree", source_degree, 1, kMaxDegree);
  require_range("target_degree", target_degree, 1, kMaxDegree);
  SyncTraffic traffic;
  traffic.sent.resize(static_cast<std::size_t>(source_degree));
  traffic.received.resize(static_cast<std::size_t>(target_degree));
  std::set<std::pair<int, int>> pairs;
  for (const Copy& copy : plan.copies) {
    SyncShare& sender = traffic.sent.at(static_cast<std::size_t>(copy.source_rank));
    SyncShare& receiver = traffic.received.at(static_cast<std::size_t>(copy.target_rank));
    if (devices == SyncDevices::shared && copy.source_rank == copy.target_rank) continue;
    add_copy(sender, copy.elements());
    add_copy(receiver, copy.elements());
    if (pairs.emplace(copy.source_rank, copy.target_rank).second) {
      ++sender.peers;
      ++receiver.peers;
    }
  }
  return traffic;
}

double sync_seconds(const SyncTraffic& traffic, const Link& link, DType dtype, SyncMessages messages) {
  validate(link);
  if (size_bits(dtype) < 8)
    throw InvalidInput(fmt::format("dtype={}: allowed is a dtype of whole bytes", short_name(dtype)));
  double seconds = 0.0;
  for (const auto* side : {&traffic.sent, &traffic.received}) {
    for (const SyncShare& share : *side) {
      const std::int64_t count = messages == SyncMessages::per_copy ? share.copies : share.peers;
      seconds =
          std::max(seconds, static_cast<double>(share.elements) * bytes_of(dtype) / link.link_bytes_per_s +
                                static_cast<double>(count) * link.step_latency_s);
    }
  }
  return seconds;
}

}  // namespace shardcheck
