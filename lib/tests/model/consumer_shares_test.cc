// Tables and conventions were written apart: for random models of every family and every mesh that both
// accept, what the ranks read together is the model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "shardcheck/model/consumer.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/reshard/reshard.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {
namespace {

using ::testing::HasSubstr;

enum class Family { llama, experts, mixtral, gpt2, neox, everything };

const char* to_string(Family family) {
  switch (family) {
    case Family::llama:
      return "llama";
    case Family::experts:
      return "experts";
    case Family::mixtral:
      return "mixtral";
    case Family::gpt2:
      return "gpt2";
    case Family::neox:
      return "neox";
    case Family::everything:
      return "everything";
  }
  return "";
}

struct Subject {
  std::string table;
  Family family;
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = {{"seed", Family::llama},
                                           {"seed", Family::experts},
                                           {"seed", Family::gpt2},
                                           {"seed", Family::neox},
                                           {"seed", Family::everything},
                                           {"hf-llama", Family::llama},
                                           {"hf-moe", Family::experts},
                                           {"hf-mixtral", Family::mixtral},
                                           {"hf-gpt2", Family::gpt2},
                                           {"hf-neox", Family::neox},
                                           {"megatron-llama", Family::llama},
                                           {"megatron-moe", Family::experts},
                                           {"vllm-llama", Family::llama},
                                           {"vllm-moe", Family::experts},
                                           {"sglang-llama", Family::llama},
                                           {"torchtitan-llama", Family::llama}};
  return all;
}

void make_layer_norms(Geometry& g) {
  g.norm = Norm::layer;
  g.gated = g.qk_norm = false;
  g.mlp_bias = g.qkv_bias = g.o_bias = true;
}

void make_experts(Stream& stream, std::int64_t unit, Geometry& g) {
  g.n_experts = stream.pick<std::int64_t>({2, 4, 6});
  g.expert_ffn = unit * stream.integer(1, 4);
  g.shared_ffn = stream.chance(1, 2) ? unit * stream.integer(1, 3) : 0;
  g.dense_layers = stream.integer(0, g.n_layers);
  g.router_bias = stream.chance(1, 2);
}

Geometry random_geometry(Family family, std::uint64_t seed) {
  Stream stream(seed, "consumer shares");
  Geometry g;
  g.n_layers = stream.pick<std::int64_t>({1, 2, 2, 4});
  g.n_kv_heads = std::array{2, 3, 4, 1, 3, 4}.at(seed % 6);
  g.n_heads = g.n_kv_heads * stream.integer(1, 3);
  g.head_dim = 2 * stream.integer(1, 3);
  g.d_model = stream.integer(3, 12);
  const std::int64_t unit = g.n_kv_heads == 3 ? 6 : 4;
  g.ffn = unit * stream.integer(1, 5) + (stream.chance(1, 4) ? 2 : 0);
  g.vocab = stream.chance(1, 2) ? 12 * stream.integer(1, 6) : stream.integer(9, 120);
  g.tied = stream.chance(1, 3);
  g.qkv_bias = stream.chance(1, 2);
  g.o_bias = stream.chance(1, 2);
  g.qk_norm = stream.chance(1, 2);
  if (family == Family::experts || family == Family::everything) make_experts(stream, unit, g);
  if (family == Family::mixtral) g.n_experts = 4, g.expert_ffn = unit * stream.integer(1, 4);
  if (family == Family::experts) g.dense_layers = std::min(g.dense_layers, g.n_layers - 1);
  if (family == Family::gpt2 || family == Family::neox) {
    make_layer_norms(g);
    g.n_kv_heads = g.n_heads;
  }
  if (family == Family::gpt2) g.positions = stream.integer(3, 9);
  if (family == Family::everything) {
    g.norm = stream.chance(1, 2) ? Norm::layer : Norm::rms;
    g.gated = stream.chance(1, 2);
    g.mlp_bias = g.sinks = true;
    g.positions = stream.integer(0, 5);
  }
  return g;
}

/// Meshes of the axes that the table carries and its consumer runs over.
std::vector<LayoutName> meshes_of(const LayoutTable& table) {
  const Consumer& consumer = consumer_named(table.consumer());
  const auto degrees = [&](Axis axis, const std::vector<int>& wanted) {
    const auto& carried = table.axes();
    const bool usable = std::ranges::find(carried, axis) != carried.end() && consumer.runs_over(axis);
    return usable ? wanted : std::vector<int>{1};
  };
  std::vector<LayoutName> all;
  for (const int tp : {1, 2, 3, 4}) {
    for (const int ep : degrees(Axis::ep, {1, 2, 3})) {
      for (const int pp : degrees(Axis::pp, {1, 2})) {
        for (const int cp : degrees(Axis::cp, {1, 2})) {
          all.push_back({table.name(), {{"pp", pp}, {"ep", ep}, {"cp", cp}, {"tp", tp}}});
          std::erase_if(all.back().axes, [](const auto& axis) { return axis.second == 1; });
        }
      }
    }
  }
  return all;
}

std::optional<Layout> executable_layout(const LayoutName& name, const Geometry& g) {
  try {
    Layout layout = make_layout(name, g);
    require_executable(layout);
    return layout;
  } catch (const UnsupportedLayout&) {
    return std::nullopt;
  }
}

/// How a tensor-parallel group shares a role.
enum class Share { whole, rows, columns };

Share share_of(const Consumer& consumer, const Geometry& g, std::string_view role) {
  static const std::set<std::string_view> columns = {"o_proj", "down", "expert_down", "shared_down"};
  static const std::set<std::string_view> whole = {"positions", "router", "router_bias", "o_bias",
                                                   "down_bias"};
  if (columns.contains(role)) return Share::columns;
  if (whole.contains(role) || role.find("norm") != std::string_view::npos) return Share::whole;
  if (role == "embed" && consumer.embedding_is_whole(g)) return Share::whole;
  if (role == "lm_head" && consumer.head_is_whole(g)) return Share::whole;
  return Share::rows;
}

/// Parts one after the other along a dimension of a matrix, or of a vector.
Tensor joined(const std::vector<Tensor>& parts, int dim) {
  Shape shape = parts.front().shape();
  const std::int64_t outer = dim == 0 ? 1 : shape[0];
  std::int64_t along = 0;
  for (const Tensor& part : parts) along += part.dim(dim);
  shape[static_cast<std::size_t>(dim)] = along;
  Tensor all = Tensor::uninitialized(parts.front().dtype(), shape);
  std::byte* out = all.mutable_bytes().data();
  for (std::int64_t row = 0; row < outer; ++row) {
    for (const Tensor& part : parts) {
      const std::size_t bytes = part.bytes().size() / static_cast<std::size_t>(outer);
      std::memcpy(out, part.bytes().data() + static_cast<std::size_t>(row) * bytes, bytes);
      out += bytes;
    }
  }
  return all;
}

/// Reads a layout's shards through its consumer.
class Reader {
 public:
  explicit Reader(const Layout& layout)
      : layout_(layout),
        consumer_(consumer_named(layout.consumer)),
        weights_(make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32)),
        shards_(split(weights_, layout)) {}

  LocalRows locate(const LogicalTensor& t, int rank) const {
    return consumer_.locate(layout_.geometry, layout_.mesh.degree(Axis::tp),
                            layout_.mesh.coordinate(rank, Axis::tp), t.role, t.layer, t.expert);
  }

  Tensor read(const LogicalTensor& t, int rank) const {
    const LocalRows where = locate(t, rank);
    return read_rows(shards_.at(where.tensor).at(static_cast<std::size_t>(rank)), where,
                     layout_.geometry.head_dim);
  }

  bool is_held(const LogicalTensor& t, int rank) const {
    return shards_.at(locate(t, rank).tensor).at(static_cast<std::size_t>(rank)).elements() > 0;
  }

  /// What a tensor-parallel group that starts at `rank` reads is the tensor, each element once where the
  /// group shares it.
  void expect_whole(const LogicalTensor& t, int rank) const {
    std::vector<Tensor> parts;
    for (int r = 0; r < layout_.mesh.degree(Axis::tp); ++r) {
      parts.push_back(read(t, rank + r * layout_.mesh.stride(Axis::tp)));
    }
    const Tensor& expected = weights_.at(t.name);
    const Share share = share_of(consumer_, layout_.geometry, t.role);
    if (share != Share::whole) {
      ASSERT_TRUE(joined(parts, share == Share::rows ? 0 : 1).same_bytes(expected)) << t.name;
      return;
    }
    for (const Tensor& part : parts) ASSERT_TRUE(part.same_bytes(expected)) << t.name;
  }

  void expect_every_group_reads_its_tensors() const {
    const Mesh& mesh = layout_.mesh;
    for (const LogicalTensor& t : logical_tensors(layout_.geometry)) {
      std::set<int> stages;
      for (const int rank : mesh.ranks_at({{Axis::tp, 0}})) {
        const auto [first, last] =
            consumer_.local_experts(layout_.geometry, mesh.degree(Axis::ep), mesh.coordinate(rank, Axis::ep));
        const bool is_local = t.expert < 0 || (first <= t.expert && t.expert < last);
        if (is_local && is_held(t, rank)) {
          stages.insert(mesh.coordinate(rank, Axis::pp));
          ASSERT_NO_FATAL_FAILURE(expect_whole(t, rank));
        } else if (mesh.degree(Axis::pp) == 1) {
          ASSERT_FALSE(is_local) << t.name << " is not on rank " << rank;
        }
      }
      // Of a layer one stage has every rank, of what lies outside all do.
      ASSERT_EQ(static_cast<int>(stages.size()), t.layer < 0 ? mesh.degree(Axis::pp) : 1) << t.name;
    }
  }

  /// The shapes that the roles of a tensor ask for together are those of the rank's shards.
  void expect_shapes(int rank) const {
    std::map<std::string, Shape> shapes;
    for (const LogicalTensor& t : logical_tensors(layout_.geometry)) {
      if (!is_held(t, rank)) continue;
      const LocalRows where = locate(t, rank);
      Shape& shape = shapes.try_emplace(where.tensor, where.shape()).first->second;
      for (std::size_t d = 0; d < shape.size(); ++d) shape[d] = std::max(shape[d], where.shape().at(d));
    }
    for (const auto& [tensor, shape] : shapes) {
      ASSERT_EQ(shards_.at(tensor).at(static_cast<std::size_t>(rank)).shape(), shape)
          << tensor << " rank " << rank;
    }
  }

 private:
  const Layout& layout_;
  const Consumer& consumer_;
  TensorMap weights_;
  ShardedTensors shards_;
};

class ConsumerShares : public ::testing::TestWithParam<Subject> {};

TEST_P(ConsumerShares, AreTogetherTheModel) {
  const LayoutTable& table = LayoutTable::built_in(GetParam().table);
  std::set<std::string> executed;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Geometry g = random_geometry(GetParam().family, seed);
    for (const LayoutName& name : meshes_of(table)) {
      const auto layout = executable_layout(name, g);
      if (!layout) continue;
      SCOPED_TRACE(to_string(name) + " " + to_string(g));
      const Reader reader(*layout);
      ASSERT_NO_FATAL_FAILURE(reader.expect_every_group_reads_its_tensors());
      for (int rank = 0; rank < layout->degree; ++rank) ASSERT_NO_FATAL_FAILURE(reader.expect_shapes(rank));
      for (const auto& [axis, degree] : name.axes) executed.insert(fmt::format("{}{}", axis, degree));
    }
  }
  EXPECT_THAT(executed, ::testing::IsSupersetOf({"tp2", "tp4"}));
  // vLLM's padded vocabulary of these models never divides by 3.
  EXPECT_EQ(executed.contains("tp3"), table.framework() != "vllm" && table.framework() != "sglang");
  for (const Axis axis : table.axes()) {
    if (axis == Axis::tp || !consumer_named(table.consumer()).runs_over(axis)) continue;
    EXPECT_TRUE(executed.contains(fmt::format("{}2", to_string(axis)))) << to_string(axis);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, ConsumerShares, ::testing::ValuesIn(subjects()), [](const auto& subject) {
  std::string name = fmt::format("{}_{}", subject.param.table, to_string(subject.param.family));
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(Consumer, EveryTableThatIsExecutedHasASubject) {
  std::set<std::string> named;
  for (const Subject& subject : subjects()) named.insert(subject.table);
  for (const std::string& table : LayoutTable::built_in_names()) {
    if (LayoutTable::built_in(table).consumer() == "none" || table.starts_with("seed-bias")) continue;
    EXPECT_TRUE(named.contains(table)) << table;
  }
}

/// An addend per rank: the sum is the bias, at degrees that divide without rounding.
TEST(Consumer, SummedBiasesOfRowParallelLayersAddUp) {
  Geometry g;
  g.d_model = 6, g.n_layers = 2, g.n_heads = 4, g.n_kv_heads = 4, g.head_dim = 2, g.ffn = 8, g.vocab = 8;
  g.o_bias = g.mlp_bias = true;
  const TensorMap weights = make_weights(g, WeightStyle::recorded, 3, DType::f32);
  for (const char* table : {"seed-bias-on-first-rank", "seed-bias-divided"}) {
    for (const int degree : {1, 2, 4}) {
      const Layout layout = LayoutTable::built_in(table).instantiate(g, degree);
      const Consumer& consumer = consumer_named(layout.consumer);
      EXPECT_EQ(consumer.row_bias(), RowBias::summed);
      const ShardedTensors shards = split(weights, layout);
      for (const char* role : {"o_bias", "down_bias"}) {
        const LocalRows where = consumer.locate(g, degree, 0, role, 1);
        std::vector<float> sum(static_cast<std::size_t>(g.d_model), 0.0F);
        for (const Tensor& addend : shards.at(where.tensor)) {
          const Tensor rows = read_rows(addend, where, g.head_dim);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += rows.f32()[i];
        }
        const auto expected = weights.at(logical_name(role, 1)).f32();
        EXPECT_THAT(sum, ::testing::ElementsAreArray(expected)) << table << degree << role;
      }
    }
  }
}

std::string refusal(const std::string& layout, const Geometry& g) {
  const LayoutName name = parse_layout_name(layout);
  try {
    require_executable(consumer_named(LayoutTable::built_in(name.table).consumer()), g, name);
  } catch (const UnsupportedLayout& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ConsumerRefusals, NameTheExtentAndTheDegree) {
  Geometry g;
  g.n_heads = g.n_kv_heads = 4, g.vocab = 12, g.ffn = 6, g.n_layers = 2;
  g.n_experts = 4, g.expert_ffn = 8, g.shared_ffn = 8;
  EXPECT_EQ(refusal("seed:tp4", g), "accepted") << "no layer has a dense MLP";
  g.dense_layers = 1;
  EXPECT_THAT(refusal("seed:tp4", g), HasSubstr("ffn=6 is not divisible by TP degree 4"));
  g.ffn = 8, g.expert_ffn = 6;
  EXPECT_THAT(refusal("hf-moe:tp4", g), HasSubstr("expert_ffn=6 is not divisible by TP degree 4"));
  EXPECT_THAT(refusal("vllm-moe:tp4", g), HasSubstr("expert_ffn=6 is not divisible by TP degree 4"));
  g.expert_ffn = 8, g.shared_ffn = 6;
  EXPECT_THAT(refusal("megatron-moe:tp4", g), HasSubstr("shared_ffn=6 is not divisible by TP degree 4"));
  g.dense_layers = 2;
  EXPECT_EQ(refusal("seed:tp4", g), "accepted") << "no layer has experts";
  EXPECT_THAT(refusal("seed:ep3", g), HasSubstr("n_experts=4 is not divisible by EP degree 3"));
}

TEST(ConsumerRefusals, NameTheAxisAndTheConsumer) {
  Geometry g;
  g.n_experts = 4, g.expert_ffn = 8;
  EXPECT_EQ(refusal("seed:pp2,ep2,cp2,tp2", g), "accepted");
  EXPECT_THAT(refusal("seed:dp2", g),
              HasSubstr("consumer seed runs over the axis dp; allowed: tp, pp, cp, ep"));
  EXPECT_EQ(refusal("megatron-moe:ep2,tp2", g), "accepted");
  EXPECT_THAT(refusal("megatron-moe:pp2", g), HasSubstr("consumer megatron-moe runs over the axis pp"));
  EXPECT_THAT(refusal("megatron-moe:tp2,etp1", g), HasSubstr("megatron-moe runs over the axis etp"));
  EXPECT_THAT(refusal("vllm-moe:ep2", g), HasSubstr("consumer vllm-moe runs over the axis ep"));
  EXPECT_EQ(refusal("megatron-llama:cp2,tp2", Geometry{}), "accepted");
  EXPECT_THAT(refusal("megatron-llama:pp2,tp2", Geometry{}), HasSubstr("allowed: tp, cp"));
}

TEST(ConsumerRefusals, NameARoleThatTheConventionDoesNotHold) {
  Geometry g;
  g.n_kv_heads = g.n_heads;
  g.sinks = true;
  EXPECT_EQ(refusal("seed", g), "accepted");
  EXPECT_THAT(refusal("hf-llama", g), HasSubstr("the hf convention holds no tensor of the role sinks"));
  g.sinks = false, g.gated = false;
  EXPECT_EQ(refusal("hf-gpt2", g), "accepted");
  g.n_kv_heads = g.n_heads / 2;
  EXPECT_THAT(refusal("hf-gpt2", g), HasSubstr("a KV head for each query head; allowed: 8"));
  g = Geometry{};
  g.kv_lora = 4, g.nope_dim = g.rope_dim = g.v_dim = 2;
  EXPECT_THAT(refusal("seed", g), HasSubstr("the seed convention holds no tensor of the role kv_down"));
}

TEST(ReadRows, OutsideTheTensorIsAnError) {
  const Tensor matrix = Tensor::zeros(DType::f32, {3, 4});
  EXPECT_EQ(
      read_rows(matrix, {.tensor = "t", .first = 1, .count = 3, .columns = 3, .transposed = true}, 1).shape(),
      (Shape{3, 3}));
  EXPECT_THROW(
      read_rows(matrix, {.tensor = "t", .first = 2, .count = 3, .columns = 3, .transposed = true}, 1),
      std::out_of_range);
  EXPECT_THROW(read_rows(matrix, {.tensor = "t", .count = 4, .stack = 3, .in_stack = 3}, 1),
               std::out_of_range);
  EXPECT_THROW(read_rows(Tensor::zeros(DType::f32, {4}), {.tensor = "t", .count = 4, .stack = 1}, 1),
               std::out_of_range);
}

}  // namespace
}  // namespace shardcheck
