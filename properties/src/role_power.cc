// Detection rates per parameter role: small changes to one rank's part of a parameter.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "sees_shards.h"
#include "shardcheck/model/consumer.h"
#include "shardcheck/mutators/counted_work.h"
#include "shardcheck/properties/detection_power.h"

namespace shardcheck {
namespace {

constexpr std::string_view kUnused = ", unused";

/// Rows of the embedding and experts may be there without a token that needs them.
bool may_be_unused(std::string_view role) { return role == "embed" || role.starts_with("expert_"); }

/// A family of models; every role of it is measured.
struct Family {
  std::string_view name;
  void (*shape)(Stream& stream, Geometry& geometry) = nullptr;
};

void shape_llama(Stream& stream, Geometry& g) {
  g.qkv_bias = g.o_bias = g.qk_norm = g.sinks = true;
  g.ffn = g.n_kv_heads * stream.integer(6, 14);
}

void shape_moe(Stream& stream, Geometry& g) {
  g.n_experts = 8;
  g.expert_ffn = g.n_kv_heads * stream.integer(3, 7);
  g.shared_ffn = g.n_kv_heads * stream.integer(3, 7);
  g.dense_layers = 1;
  g.router_bias = true;
}

void shape_gpt(Stream& stream, Geometry& g) {
  g.norm = Norm::layer;
  g.activation = Activation::gelu;
  g.gated = false;
  g.qkv_bias = g.o_bias = g.mlp_bias = true;
  g.ffn = g.n_kv_heads * stream.integer(6, 14);
}

constexpr std::array<Family, 3> kFamilies = {
    {{"llama", shape_llama}, {"moe", shape_moe}, {"gpt", shape_gpt}}};

/// RoPE in every family: without it attention does not depend on the bias of the keys.
Case drawn(const Family& family, std::uint64_t seed, std::int64_t trial) {
  Stream stream = Stream(seed, "role power").child(fmt::format("{} {}", family.name, trial));
  Case c;
  c.law = "sharded_equals_reference";
  Geometry& g = c.geometry;
  g.n_layers = 2;
  g.n_kv_heads = stream.pick<std::int64_t>({2, 4});
  g.n_heads = g.n_kv_heads * stream.pick<std::int64_t>({2, 3});
  g.head_dim = stream.pick<std::int64_t>({4, 6});
  g.d_model = stream.integer(17, 31);
  g.ffn = g.n_kv_heads * 8;
  g.vocab = stream.integer(80, 110);
  g.rope = Rope::half;
  family.shape(stream, g);
  c.length = stream.integer(32, 36);
  if (family.name == "gpt") g.positions = c.length;
  c.target.axes = {{"tp", 2}};
  c.seed = stream.next_u64() >> 40;
  return c;
}

/// One rank's part of a parameter: rows of a local tensor.
struct Part {
  std::string tensor;
  std::size_t rank = 0;
  std::int64_t first = 0, count = 0;
};

std::span<float> row_of(Tensor& tensor, std::int64_t row) {
  const auto width = static_cast<std::size_t>(tensor.elements() / tensor.dim(0));
  return tensor.mutable_f32().subspan(static_cast<std::size_t>(row) * width, width);
}

class Trial {
 public:
  Trial(const Case& c, Stream stream)
      : bench_(c), right_(bench_.moved(subject_, bench_.weights())), stream_(stream) {
    looked_up_ = {bench_.tokens().ids.begin(), bench_.tokens().ids.end()};
  }

  /// Counts what the oracles say about each change to a parameter of the role.
  void measure(RolePower& power) {
    for (const Change change : kChanges) {
      const auto shards = changed(power, change);
      if (!shards) continue;
      count(power.layout[static_cast<std::size_t>(change)], Oracle::layout, *shards);
      count(power.exact[static_cast<std::size_t>(change)], Oracle::exact, *shards);
    }
  }

 private:
  void count(Rate& rate, Oracle oracle, const ShardedTensors& shards) {
    ++rate.trials;
    if (sees(oracle, shards)) ++rate.detected;
  }

  bool sees(Oracle oracle, const ShardedTensors& shards) {
    return sees_shards(bench_, oracle, subject_, shards);
  }

  /// nullopt where there is nothing to change.
  std::optional<ShardedTensors> changed(const RolePower& power, Change change) {
    const auto parameter = any_of(power);
    const bool is_embedding = power.role.starts_with("embed");
    if (!parameter || (is_embedding && !power.reaches_logits && change == Change::shard)) return std::nullopt;
    const int degree = bench_.target().degree;
    const auto rank = static_cast<int>(stream_.integer(0, degree - 1));
    const Part part = part_of(*parameter, rank);
    ShardedTensors shards = right_;
    Tensor& held = shards.at(part.tensor)[part.rank];
    if (change == Change::shard) {
      replace(held, part, part_of(*parameter, (rank + 1) % degree));
      return shards;
    }
    std::vector<std::int64_t> rows = rows_of(part);
    if (is_embedding)
      std::erase_if(
          rows, [&](std::int64_t row) { return looks_up(rank, row - part.first) != power.reaches_logits; });
    if (rows.empty() || part.count < 2) return std::nullopt;
    const std::int64_t row = stream_.pick(rows);
    change == Change::element ? nudge_one(held, row) : become_another(held, part, row);
    return shards;
  }

  /// A parameter of the role, of an expert that is used or is not.
  std::optional<LogicalTensor> any_of(const RolePower& power) {
    const std::string_view role = std::string_view(power.role).substr(0, power.role.find(','));
    std::vector<LogicalTensor> found;
    for (LogicalTensor& tensor : logical_tensors(bench_.value().geometry)) {
      const bool wanted =
          tensor.role == role &&
          (tensor.expert < 0 || uses_expert(tensor.layer, tensor.expert) == power.reaches_logits);
      if (wanted) found.push_back(std::move(tensor));
    }
    if (found.empty()) return std::nullopt;
    return stream_.pick(found);
  }

  /// Whether the unsharded model computes something else without the expert.
  bool uses_expert(std::int64_t layer, std::int64_t expert) {
    const auto [known, is_new] = used_experts_.try_emplace({layer, expert}, false);
    if (!is_new) return known->second;
    TensorMap without = bench_.weights();
    Tensor& down = without.find(logical_name("expert_down", layer, expert))->second;
    down = Tensor::zeros(down.dtype(), down.shape());
    const ReferenceModel model(bench_.value().geometry, without, Arithmetic::native, bench_.contract());
    return known->second = !model.forward(bench_.tokens()).same_bytes(bench_.reference(Arithmetic::native));
  }

  /// Where the consumer of `seed` reads it: one block of rows.
  Part part_of(const LogicalTensor& parameter, int rank) const {
    const LocalRows rows = consumer_named(bench_.target().consumer)
                               .locate(bench_.value().geometry, bench_.target().degree, rank, parameter.role,
                                       parameter.layer, parameter.expert);
    return {rows.tensor, static_cast<std::size_t>(rank), rows.first, rows.count};
  }

  static std::vector<std::int64_t> rows_of(const Part& part) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(part.count));
    std::iota(rows.begin(), rows.end(), part.first);
    return rows;
  }

  /// Whether a token looks up the rank's embedding row `row`.
  bool looks_up(int rank, std::int64_t row) const {
    const LocalExtent extent = consumer_named(bench_.target().consumer)
                                   .extent(bench_.value().geometry, bench_.target().degree, rank);
    return looked_up_.contains(static_cast<std::int32_t>(extent.embed_begin + row));
  }

  void nudge_one(Tensor& held, std::int64_t row) {
    const auto values = row_of(held, row);
    float& value = values[static_cast<std::size_t>(stream_.integer(0, std::ssize(values) - 1))];
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + 1U);
  }

  void become_another(Tensor& held, const Part& part, std::int64_t row) {
    const std::int64_t other =
        part.first + (row - part.first + stream_.integer(1, part.count - 1)) % part.count;
    std::ranges::copy(row_of(held, other), row_of(held, row).begin());
  }

  /// Ranks that hold the same, or parts of other sizes, have nothing to mix up: then the rows are reversed.
  void replace(Tensor& held, const Part& part, const Part& next) const {
    Tensor source = right_.at(next.tensor)[next.rank];
    Tensor own = held;
    const Tensor before = held;
    for (std::int64_t i = 0; i < std::min(part.count, next.count); ++i)
      std::ranges::copy(row_of(source, next.first + i), row_of(held, part.first + i).begin());
    if (!held.same_bytes(before)) return;
    for (std::int64_t i = 0; i < part.count; ++i)
      std::ranges::copy(row_of(own, part.first + part.count - 1 - i), row_of(held, part.first + i).begin());
  }

  Subject subject_;
  Workbench bench_;
  ShardedTensors right_;
  Stream stream_;
  std::set<std::int32_t> looked_up_;
  std::map<std::pair<std::int64_t, std::int64_t>, bool> used_experts_;  // by layer and expert
};

/// A row per role, in the order of the logical tensors, and one for what of it may be unused.
std::vector<RolePower> roles_of(const Family& family, const Geometry& geometry) {
  std::vector<RolePower> rows;
  for (const LogicalTensor& tensor : logical_tensors(geometry)) {
    if (std::ranges::find(rows, tensor.role, &RolePower::role) != rows.end()) continue;
    rows.push_back({.family = family.name, .role = tensor.role});
    if (may_be_unused(tensor.role))
      rows.push_back(
          {.family = family.name, .role = tensor.role + std::string(kUnused), .reaches_logits = false});
  }
  return rows;
}

void add(Rate& sum, const Rate& rate) {
  sum.detected += rate.detected;
  sum.trials += rate.trials;
}

void add(RolePower& sum, const RolePower& power) {
  for (std::size_t i = 0; i < kChanges.size(); ++i) {
    add(sum.layout[i], power.layout[i]);
    add(sum.exact[i], power.exact[i]);
  }
}

std::vector<RolePower> measure_trial(const Family& family, const PowerOptions& options, std::int64_t number) {
  const Case c = drawn(family, options.seed, number);
  std::vector<RolePower> rows = roles_of(family, c.geometry);
  Trial trial(c, Stream(options.seed, "role changes").child(fmt::format("{} {}", family.name, number)));
  for (RolePower& row : rows) trial.measure(row);
  return rows;
}

std::string describe(const RolePower& power, Change change, std::string_view oracle) {
  const Rate& rate = (oracle == "layout" ? power.layout : power.exact)[static_cast<std::size_t>(change)];
  return fmt::format("{} {}: {} sees {} of {} changes of one {}", power.family, power.role, oracle,
                     rate.detected, rate.trials, to_string(change));
}

}  // namespace

std::string_view to_string(Change change) noexcept {
  switch (change) {
    case Change::element:
      return "element";
    case Change::row:
      return "row";
    case Change::shard:
      return "shard";
  }
  return "unknown";
}

std::vector<std::string> RolePower::problems() const {
  std::vector<std::string> found;
  for (const Change change : kChanges) {
    const auto i = static_cast<std::size_t>(change);
    if (layout[i].detected != layout[i].trials) found.push_back(describe(*this, change, "layout"));
    const bool must_see = reaches_logits && change == Change::shard;
    if (must_see && exact[i].detected != exact[i].trials) found.push_back(describe(*this, change, "exact"));
    if (!reaches_logits && exact[i].detected > 0) found.push_back(describe(*this, change, "exact"));
  }
  return found;
}

std::vector<std::string> RolePower::gaps() const {
  std::vector<std::string> found;
  for (const Change change : kChanges) {
    // No shard holds unused rows alone.
    const bool exists = reaches_logits || change != Change::shard;
    if (exists && layout[static_cast<std::size_t>(change)].trials == 0)
      found.push_back(fmt::format("{}: no trial had a {} of {} to change", family, to_string(change), role));
  }
  return found;
}

std::vector<RolePower> measure_roles(const PowerOptions& options) {
  const auto trials = static_cast<std::size_t>(options.trials);
  std::vector<std::vector<RolePower>> measured(kFamilies.size() * trials);
  do_counted(measured.size(), options.jobs, options.progress, "models", [&](std::size_t i) {
    measured[i] = measure_trial(kFamilies[i / trials], options, static_cast<std::int64_t>(i % trials));
  });
  std::vector<RolePower> rows;
  for (std::size_t first = 0; first < measured.size(); first += trials) {
    std::vector<RolePower> sums = measured[first];
    for (std::size_t i = first + 1; i < first + trials; ++i) {
      for (std::size_t row = 0; row < sums.size(); ++row) add(sums[row], measured[i][row]);
    }
    std::ranges::move(sums, std::back_inserter(rows));
  }
  return rows;
}

}  // namespace shardcheck
