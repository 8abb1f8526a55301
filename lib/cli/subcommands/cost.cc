// shardcheck cost: the closed-form cost of bit-exact agreement across degrees, and of weight sync.
#include "shardcheck/arithmetic/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "exit_code.h"
#include "options.h"
#include "shardcheck/case/case.h"
#include "shardcheck/checkpoint/safetensors.h"
#include "subcommand.h"
#include "terminal.h"

namespace shardcheck::subcommands {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMaxDegree = 64;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 20;
constexpr std::int64_t kMaxLeafWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMaxLeaves = std::int64_t{1} << 16;
constexpr std::size_t kMaxListed = 64;
constexpr int kNodeBytes = 4;  // tree nodes are f32, also on the wire

// Keys of the case line that a cost depends on: layers and what follows for --sync alone, rope because it
// forbids an odd head_dim.
constexpr std::array kGeometryKeys = {"d_model", "heads", "kv_heads", "head_dim", "ffn", "layers",
                                      "vocab",   "tied",  "qkv_bias", "qk_norm",  "rope"};
constexpr std::array kModelOptions = {"tp", "tokens", "chunks", "partials", "leaf", "shape"};
constexpr std::array kSyncOptions = {"source", "target", "devices"};

/// The seed document's figures for its own case, rounded as it prints them.
struct Original {
  std::int64_t tokens;
  const char* extra;
  const char* ratio;
};
constexpr std::array<Original, 3> kOriginals = {
    {{1, "0.1 %", "0.51"}, {64, "5 %", "0.89"}, {8192, "18 %", "about 2"}}};
constexpr std::int64_t kOriginalDegree = 4;
constexpr std::ptrdiff_t kOriginalColumn = 4;  // after the all-gather, the only collective it costs

Cell original_cell(std::int64_t tokens, const char* Original::*figure) {
  const auto* found = std::ranges::find(kOriginals, tokens, &Original::tokens);
  return {found == kOriginals.end() ? "" : found->*figure, Tone::faint};
}

struct Request {
  CostInputs inputs;
  std::vector<std::int64_t> degrees = {kOriginalDegree};
  std::vector<std::int64_t> tokens = {1, 64, 8192};
  std::int64_t leaf = 128;
  TreeShape shape = TreeShape::halving;
  LayoutName source, target;
  SyncDevices devices = SyncDevices::separate;

  /// Whether the seed document has figures for this.
  bool is_original(std::int64_t degree = kOriginalDegree) const {
    return inputs == CostInputs{} && degree == kOriginalDegree;
  }
};

Case default_case() {
  Case c;
  c.geometry = llama3_8b();
  return c;
}

CommandLine command_line() {
  CommandLine line(
      "cost", "[OPTIONS]",
      "The closed-form cost of agreeing bit for bit across degrees, for the row-parallel projections of one\n"
      "layer: partial sums on one rank, an all-gather with a fixed fold or a two-shot collective instead of\n"
      "the ring all-reduce, and the covers of the reduction tree. Without options the case of the seed\n"
      "document: Llama-3-8B, 4 chunks, TP 4, A100 PCIe. --sync costs a weight sync instead.",
      "cost --tp=3,4,8 --tokens=1,64,8192 --link=bw:300e9,latency:2e-6");
  line.value("tp", "LIST", "degrees, each in 2..64 (default 4)")
      .value("tokens", "LIST", "tokens M, each in 1..1048576 (default 1,64,8192)")
      .value("chunks", "N", "partial sums that one rank writes (default 4)")
      .value("dtype", "NAME", "of weights and outputs: bf16 (default), f16 or f32")
      .value("partials", "NAME", "partial sums in the storage dtype (storage, default) or in f32")
      .value("link", "KEY:NUMBER,...",
             "hbm (bytes/s, default 1.5e12), flops (of the dtype, per s, 312e12), bw (bytes/s between ranks, "
             "25e9), latency (s per step, 15e-6); absent keys keep their default")
      .value("leaf", "N", "leaf width of the reduction tree (default 128)")
      .value("shape", "NAME", "of the reduction tree: halving (default) or linear")
      .flag("sync", "cost of moving the weights from one layout to another")
      .value("source", "LAYOUT", "of --sync (default vllm-llama:tp4)")
      .value("target", "LAYOUT", "of --sync (default vllm-llama:tp2)")
      .value("devices", "NAME",
             "of --sync: source and target ranks are separate (default) or shared devices");
  const Case defaults = default_case();
  for (const CaseKey& key : case_keys()) {
    if (std::ranges::find(kGeometryKeys, key.key) == kGeometryKeys.end()) continue;
    const std::string help = fmt::format("{} (default {})", key.allowed, get_case_key(defaults, key.key));
    line.value(key.key.c_str(), "VALUE", help.c_str());
  }
  return line.reports("docs/cost_report.schema.json");
}

// Reading the command line.

Geometry read_geometry(const Arguments& arguments) {
  Case c = default_case();
  for (const char* key : kGeometryKeys) {
    const auto value = arguments.text(key);
    if (!value) continue;
    try {
      set_case_key(c, key, *value);
    } catch (const InvalidInput& error) {
      throw InvalidInput(fmt::format("--{}", error.what()));
    }
  }
  validate(c.geometry);
  return c.geometry;
}

std::vector<std::int64_t> read_list(const Arguments& arguments, const char* option, std::int64_t low,
                                    std::int64_t high, std::vector<std::int64_t> absent) {
  const auto text = arguments.text(option);
  if (!text) return absent;
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0, comma = 0; comma != std::string::npos; begin = comma + 1) {
    comma = text->find(',', begin);
    const std::string word = text->substr(begin, comma == std::string::npos ? comma : comma - begin);
    values.push_back(parse_integer(fmt::format("--{}", option), word, low, high));
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() > kMaxListed)
    throw InvalidInput(
        fmt::format("--{} lists {} values: allowed are at most {}", option, values.size(), kMaxListed));
  return values;
}

CostInputs read_inputs(const Arguments& arguments) {
  CostInputs inputs;
  inputs.geometry = read_geometry(arguments);
  inputs.chunks = arguments.integer("chunks", 1, 65536).value_or(inputs.chunks);
  inputs.storage = *dtype_from_short_name(arguments.choice("dtype", {"bf16", "f16", "f32"}).value_or("bf16"));
  const bool wide = arguments.choice("partials", {"storage", "f32"}).value_or("storage") == "f32";
  inputs.partials = wide ? DType::f32 : inputs.storage;
  if (const auto link = arguments.text("link")) {
    try {
      inputs.link = parse_link(*link);
    } catch (const InvalidInput& error) {
      throw InvalidInput(fmt::format("--link='{}': {}", *link, error.what()));
    }
  }
  validate(inputs);
  return inputs;
}

LayoutName read_layout(const Arguments& arguments, const char* option, const char* absent) {
  const std::string text = arguments.text(option).value_or(absent);
  try {
    LayoutName name = parse_layout_name(text);
    if (name.tp_degree() > kMaxDegree)
      throw InvalidInput(
          fmt::format("TP degree {} is out of range: allowed 1..{}", name.tp_degree(), kMaxDegree));
    return name;
  } catch (const InvalidInput& error) {
    throw InvalidInput(fmt::format("--{}='{}': {}", option, text, error.what()));
  }
}

void require_options_belong(const Arguments& arguments) {
  const bool sync = arguments.flag("sync");
  const auto refuse = [&](const char* option) {
    if (arguments.has(option))
      throw InvalidInput(fmt::format("--{} has no meaning {} --sync", option, sync ? "with" : "without"));
  };
  if (sync) {
    for (const char* option : kModelOptions) refuse(option);
  } else {
    for (const char* option : kSyncOptions) refuse(option);
  }
}

struct Reduction {
  const char* name;
  std::int64_t length;
};

std::array<Reduction, 2> reductions(const Geometry& g) {
  return {{{"o_proj", g.attention_width()}, {"down", g.ffn}}};
}

std::int64_t leaves_of(const Request& request, const Reduction& reduction) {
  const std::int64_t leaves = (reduction.length + request.leaf - 1) / request.leaf;
  if (leaves > kMaxLeaves)
    throw InvalidInput(fmt::format("--leaf='{}': {} with K={} has {} leaves, allowed are at most {}",
                                   request.leaf, reduction.name, reduction.length, leaves, kMaxLeaves));
  return leaves;
}

Request read_request(const Arguments& arguments) {
  require_options_belong(arguments);
  Request request;
  request.inputs = read_inputs(arguments);
  request.degrees = read_list(arguments, "tp", 2, kMaxDegree, request.degrees);
  request.tokens = read_list(arguments, "tokens", 1, kMaxTokens, request.tokens);
  request.leaf = arguments.integer("leaf", 1, kMaxLeafWidth).value_or(request.leaf);
  if (arguments.choice("shape", {"halving", "linear"}).value_or("halving") == "linear")
    request.shape = TreeShape::linear;
  request.source = read_layout(arguments, "source", "vllm-llama:tp4");
  request.target = read_layout(arguments, "target", "vllm-llama:tp2");
  if (arguments.choice("devices", {"separate", "shared"}).value_or("separate") == "shared")
    request.devices = SyncDevices::shared;
  for (const Reduction& reduction : reductions(request.inputs.geometry)) leaves_of(request, reduction);
  return request;
}

// Spelling numbers.

std::string format_time(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  if (seconds < 1.0) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string format_percent(double share) {
  const double percent = share * 100.0;
  return percent < 1.0 ? fmt::format("{:.3g} %", percent) : fmt::format("{:.2f} %", percent);
}

std::string format_ratio(double ratio) { return fmt::format("{:.3f}", ratio); }

const char* devices_name(SyncDevices devices) {
  return devices == SyncDevices::shared ? "shared" : "separate";
}

Column number(std::string header) { return {std::move(header), Align::right}; }

// One rank: partial sums written and read back.

void cost_single_rank(const Request& request, bool quiet, ordered_json& rows) {
  std::vector<Column> columns = {number("tokens"), number("GEMMs"), number("partial sums"), number("extra")};
  if (request.is_original()) columns.push_back(number("original"));
  Table table(columns);
  for (const std::int64_t tokens : request.tokens) {
    const double gemms = row_parallel_seconds(request.inputs, tokens);
    const double partials = partial_sums_seconds(request.inputs, tokens);
    const double extra = single_rank_extra(request.inputs, tokens);
    std::vector<Cell> cells = {format_count(tokens), format_time(gemms), format_time(partials),
                               format_percent(extra)};
    if (request.is_original()) cells.push_back(original_cell(tokens, &Original::extra));
    table.row(std::move(cells));
    rows.push_back({{"kind", "single_rank"},
                    {"tokens", tokens},
                    {"gemm_seconds", gemms},
                    {"partial_sum_seconds", partials},
                    {"extra", extra}});
  }
  if (quiet) return;
  print_section("One rank", fmt::format("o_proj and down: {} in {} written and read back; none when fused",
                                        format_noun(request.inputs.chunks, "partial sum"),
                                        short_name(request.inputs.partials)));
  print(table.text());
}

// A group: collectives that move partial sums.

struct NamedCost {
  std::string key, title;
  CollectiveCost cost;
};

/// The collectives compared with the ring all-reduce of the storage dtype.
std::vector<NamedCost> collectives(const CostInputs& inputs, int degree) {
  const double ratio = inputs.partial_ratio();
  std::vector<NamedCost> list = {
      {"all_gather", fmt::format("all-gather {} + fold", short_name(inputs.partials)),
       all_gather_and_fold(degree, ratio)},
      {"two_shot", fmt::format("two-shot {}", short_name(inputs.storage)), two_shot(degree)}};
  if (inputs.storage != DType::f32)
    list.push_back({"two_shot_f32", "two-shot f32 first leg", two_shot(degree, 2.0)});
  return list;
}

std::string crossover_text(const NamedCost& named, const std::optional<double>& bytes, double token_bytes) {
  if (!bytes) return fmt::format("{}: longer than the ring at no size", named.title);
  if (*bytes == 0.0) return fmt::format("{}: longer than the ring at every size", named.title);
  const std::string size = *bytes < 1e15 ? format_count(std::llround(*bytes)) : fmt::format("{:.4g}", *bytes);
  return fmt::format("{}: longer than the ring above {} bytes = {:.1f} tokens", named.title, size,
                     *bytes / token_bytes);
}

/// Crossovers as the last lines of the table; `list` are the collectives of one degree.
void cost_crossovers(const CostInputs& inputs, int degree, const std::vector<NamedCost>& list, Table& table,
                     ordered_json& rows) {
  const double token_bytes = inputs.output_bytes(1);
  for (const NamedCost& named : list) {
    const auto bytes = crossover_bytes(inputs.link, named.cost, ring_all_reduce(degree));
    table.note(crossover_text(named, bytes, token_bytes));
    rows.push_back({{"kind", "crossover"},
                    {"degree", degree},
                    {"collective", named.key},
                    {"bytes", bytes ? ordered_json(*bytes) : ordered_json(nullptr)},
                    {"tokens", bytes ? ordered_json(*bytes / token_bytes) : ordered_json(nullptr)}});
  }
}

void cost_collectives(const Request& request, int degree, bool quiet, ordered_json& rows) {
  const CostInputs& inputs = request.inputs;
  const std::vector<NamedCost> list = collectives(inputs, degree);
  std::vector<Column> columns = {number("tokens"), number("bytes"), number("ring all-reduce")};
  for (const NamedCost& named : list) columns.push_back(number(named.title));
  const bool original = request.is_original(degree);
  if (original) columns.insert(columns.begin() + kOriginalColumn, number("original"));
  Table table(columns);
  for (const std::int64_t tokens : request.tokens) {
    const double bytes = inputs.output_bytes(tokens);
    const double ring = ring_all_reduce(degree).seconds(inputs.link, bytes);
    const auto whole_bytes = static_cast<std::int64_t>(bytes);
    std::vector<Cell> cells = {format_count(tokens), format_count(whole_bytes), format_time(ring)};
    ordered_json row = {{"kind", "collective"},
                        {"degree", degree},
                        {"tokens", tokens},
                        {"bytes", whole_bytes},
                        {"ring_seconds", ring}};
    for (const NamedCost& named : list) {
      const double seconds = named.cost.seconds(inputs.link, bytes);
      cells.emplace_back(format_ratio(seconds / ring));
      row[named.key + "_seconds"] = seconds;
      row[named.key + "_ratio"] = seconds / ring;
    }
    if (original) cells.insert(cells.begin() + kOriginalColumn, original_cell(tokens, &Original::ratio));
    table.row(std::move(cells));
    rows.push_back(std::move(row));
  }
  cost_crossovers(inputs, degree, list, table, rows);
  if (quiet) return;
  print_section(
      fmt::format("TP {}", degree),
      "one row-parallel output, time over the ring's; all-gather around a ring, two-shot as two direct "
      "exchanges");
  print(table.text());
}

// Covers: what the ranks of a reduction tree ship.

/// A row per token count for one reduction at one degree.
void cost_cover(const Request& request, int degree, const Reduction& reduction, Table& table,
                ordered_json& rows) {
  const CostInputs& inputs = request.inputs;
  const std::int64_t leaves = leaves_of(request, reduction);
  const CoverSizes sizes = cover_sizes(request.shape, leaves, degree);
  for (const std::int64_t tokens : request.tokens) {
    const std::int64_t elements = tokens * inputs.geometry.d_model;
    const double ring = ring_all_reduce(degree).seconds(inputs.link, inputs.output_bytes(tokens));
    const auto ratio = [&](std::int64_t bytes, double steps) {
      return CollectiveCost{1.0, steps}.seconds(inputs.link, static_cast<double>(bytes)) / ring;
    };
    const std::int64_t one = busiest_bytes(one_shot_traffic(sizes, elements, kNodeBytes));
    const std::int64_t two =
        busiest_bytes(two_shot_traffic(sizes, elements, kNodeBytes, size_bits(inputs.storage) / 8));
    const double one_ratio = ratio(one, all_gather_and_fold(degree).steps);
    const double two_ratio = ratio(two, two_shot(degree).steps);
    table.row({fmt::format("tp{}", degree), reduction.name, format_count(leaves), format_count(sizes.most()),
               format_count(sizes.total()), format_count(tokens), format_count(one), format_ratio(one_ratio),
               format_count(two), format_ratio(two_ratio)});
    rows.push_back({{"kind", "cover"},
                    {"degree", degree},
                    {"reduction", reduction.name},
                    {"leaves", leaves},
                    {"nodes", sizes.nodes},
                    {"tokens", tokens},
                    {"one_shot_bytes", one},
                    {"one_shot_ratio", one_ratio},
                    {"two_shot_bytes", two},
                    {"two_shot_ratio", two_ratio}});
  }
}

void cost_covers(const Request& request, bool quiet, ordered_json& rows) {
  Table table({{"degree"},
               {"reduction"},
               number("leaves"),
               number("nodes, most"),
               number("in all"),
               number("tokens"),
               number("one-shot bytes"),
               number("ratio"),
               number("two-shot bytes"),
               number("ratio")});
  for (const std::int64_t degree : request.degrees)
    for (const Reduction& reduction : reductions(request.inputs.geometry))
      cost_cover(request, static_cast<int>(degree), reduction, table, rows);
  if (quiet) return;
  print_section("Covers",
                fmt::format("{} tree, leaves of {}, f32 nodes; bytes of the busiest rank, time over "
                            "the ring's",
                            to_string(request.shape), request.leaf));
  print(table.text());
}

// Weight sync.

const SyncShare& busiest(const std::vector<SyncShare>& shares) {
  return *std::ranges::max_element(shares, {}, &SyncShare::elements);
}

Layout layout_for(const char* option, const LayoutName& name, const Geometry& geometry) {
  try {
    return make_layout(name, geometry);
  } catch (const std::runtime_error& error) {  // unknown table, or a tensor that cannot be cut so
    throw InvalidInput(fmt::format("--{}='{}': {}", option, to_string(name), error.what()));
  }
}

struct SyncSide {
  const char* kind;
  const LayoutName& name;
  const std::vector<SyncShare>& shares;
};

void print_sync(const Request& request, const std::vector<SyncSide>& sides, std::int64_t bytes_per_element,
                double per_copy, double per_peer) {
  const Link& link = request.inputs.link;
  print_section("Weight sync", fmt::format("{}, {} devices, {:.4g} bytes/s, {} a message",
                                           short_name(request.inputs.storage), devices_name(request.devices),
                                           link.link_bytes_per_s, format_time(link.step_latency_s)));
  Table table({{"side"},
               {"layout"},
               number("ranks"),
               number("busiest rank, bytes"),
               number("copies"),
               number("peers")});
  for (const SyncSide& side : sides) {
    const SyncShare& share = busiest(side.shares);
    table.row({side.kind, to_string(side.name), format_count(static_cast<std::int64_t>(side.shares.size())),
               format_count(share.elements * bytes_per_element), format_count(share.copies),
               format_count(share.peers)});
  }
  table.note(fmt::format("a message per copy: {}", format_time(per_copy)));
  table.note(fmt::format("a message per pair of ranks: {}", format_time(per_peer)));
  print(table.text());
}

void cost_sync(const Request& request, bool quiet, ordered_json& rows) {
  const CostInputs& inputs = request.inputs;
  const Layout source = layout_for("source", request.source, inputs.geometry);
  const Layout target = layout_for("target", request.target, inputs.geometry);
  const SyncTraffic traffic =
      sync_traffic(make_plan(source, target), source.degree, target.degree, request.devices);
  const std::int64_t bytes_per_element = size_bits(inputs.storage) / 8;
  const std::vector<SyncSide> sides = {{"source", request.source, traffic.sent},
                                       {"target", request.target, traffic.received}};
  const double per_copy = sync_seconds(traffic, inputs.link, inputs.storage, SyncMessages::per_copy);
  const double per_peer = sync_seconds(traffic, inputs.link, inputs.storage, SyncMessages::per_peer);
  for (const SyncSide& side : sides) {
    for (std::size_t rank = 0; rank < side.shares.size(); ++rank) {
      const SyncShare& share = side.shares[rank];
      rows.push_back({{"kind", "sync_rank"},
                      {"side", side.kind},
                      {"rank", rank},
                      {"bytes", share.elements * bytes_per_element},
                      {"copies", share.copies},
                      {"peers", share.peers}});
    }
  }
  rows.push_back({{"kind", "sync"}, {"seconds_per_copy", per_copy}, {"seconds_per_peer", per_peer}});
  if (!quiet) print_sync(request, sides, bytes_per_element, per_copy, per_peer);
}

// The command.

ordered_json inputs_json(const Request& request, bool sync) {
  const CostInputs& inputs = request.inputs;
  ordered_json document = {{"geometry", to_string(inputs.geometry)},
                           {"dtype", short_name(inputs.storage)},
                           {"link",
                            {{"hbm_bytes_per_s", inputs.link.hbm_bytes_per_s},
                             {"flops_per_s", inputs.link.flops_per_s},
                             {"link_bytes_per_s", inputs.link.link_bytes_per_s},
                             {"step_latency_s", inputs.link.step_latency_s}}}};
  if (sync) {
    document["source"] = to_string(request.source);
    document["target"] = to_string(request.target);
    document["devices"] = devices_name(request.devices);
  } else {
    document["partials"] = short_name(inputs.partials);
    document["chunks"] = inputs.chunks;
    document["degrees"] = request.degrees;
    document["tokens"] = request.tokens;
    document["leaf"] = request.leaf;
    document["shape"] = to_string(request.shape);
  }
  return document;
}

void cost_model(const Request& request, bool quiet, ordered_json& rows) {
  const Geometry& g = request.inputs.geometry;
  if (!quiet)
    print_line(fmt::format("d_model {}, heads*head_dim {}, ffn {}, {}, {}", g.d_model, g.attention_width(),
                           g.ffn, short_name(request.inputs.storage), to_string(request.inputs.link)));
  cost_single_rank(request, quiet, rows);
  for (const std::int64_t degree : request.degrees)
    cost_collectives(request, static_cast<int>(degree), quiet, rows);
  cost_covers(request, quiet, rows);
}

int run(const std::vector<std::string>& words) {
  const auto arguments = command_line().parse(words);
  if (!arguments) return kPassed;
  const Request request = read_request(*arguments);
  const bool sync = arguments->flag("sync");
  ordered_json rows = ordered_json::array();
  (sync ? cost_sync : cost_model)(request, arguments->common().quiet, rows);
  const ordered_json report = {{"format", 1},  // changes when a key changes its meaning
                               {"version", SHARDCHECK_VERSION},
                               {"command", "cost"},
                               {"inputs", inputs_json(request, sync)},
                               {"rows", std::move(rows)}};
  for (const auto& file : arguments->common().json_reports)
    write_text_atomically(file, report.dump(2) + "\n");
  return kPassed;
}

}  // namespace

const Subcommand& cost() {
  static const Subcommand command{"cost", "closed-form cost of agreement across degrees and of weight sync",
                                  run};
  return command;
}

}  // namespace shardcheck::subcommands
