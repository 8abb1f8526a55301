#include "shardcheck/mutators/explain.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "shardcheck/checkpoint/hugging_face.h"

namespace shardcheck {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// 24 query and 24 KV heads.
Geometry many_heads(std::int64_t vocab) {
  Geometry g;
  g.d_model = 48, g.n_layers = 2, g.n_heads = g.n_kv_heads = 24, g.head_dim = 2, g.ffn = 48, g.vocab = vocab;
  return g;
}

Geometry with_biases(std::int64_t vocab) {
  Geometry g = many_heads(vocab);
  g.qkv_bias = g.o_bias = g.qk_norm = true;
  g.rope = Rope::half;
  return g;
}

/// The first source on which the fault acts on the case's target.
std::optional<Case> acting_case(const FaultChoice& choice, const Layout& target) {
  for (const int degree : {1, 2, 4}) {
    LayoutName source{target.name.table, {}};
    if (degree > 1) source.axes = {{"tp", degree}};
    const Case c = delivery_case(target, source, DType::f32, 0);
    if (!choice.fault->why_inapplicable(c, choice.argument)) return c;
  }
  return std::nullopt;
}

std::optional<Delivery> delivery_of(const FaultChoice& choice, const Layout& target,
                                    const TensorMap& weights) {
  const auto c = acting_case(choice, target);
  if (!c) return std::nullopt;
  try {
    return deliver(choice, *c, weights);
  } catch (const InvalidInput&) {
    return std::nullopt;  // equivalent here
  }
}

std::vector<std::string> texts(const std::vector<KnownCause>& causes) {
  std::vector<std::string> list;
  for (const KnownCause& cause : causes) list.push_back(cause.text());
  return list;
}

OriginBox::Index shape_index(const Shape& shape) {
  OriginBox::Index index{1, 1, 1, 1};
  std::ranges::copy(shape, index.begin());
  return index;
}

std::int64_t flat_in(const OriginBox::Index& shape, const OriginBox::Index& at) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < at.size(); ++d) flat = flat * shape[d] + at[d];
  return flat;
}

/// Elements of the shard that are not what the boxes say, or that no box or several boxes speak of, those
/// left out apart.
std::int64_t wrong_elements(const Layout& layout, const TensorMap& weights, const Misplacement& m,
                            const Tensor& shard) {
  const auto local_shape = shape_index(shard.shape());
  std::vector<int> told(static_cast<std::size_t>(shard.elements()));
  std::int64_t wrong = 0;
  for (const OriginBox& box : m.found.boxes) {
    const bool is_element = box.kind == OriginBox::Kind::element;
    Tensor full;
    OriginBox::Index full_shape{};
    if (is_element) {
      full = fuse(layout.entries[static_cast<std::size_t>(box.entry)], weights);
      full_shape = shape_index(full.shape());
    }
    for (std::int64_t i = 0; i < box.size[0] * box.size[1] * box.size[2] * box.size[3]; ++i) {
      OriginBox::Index into{}, local = box.local, origin = box.origin;
      std::int64_t rest = i;
      for (std::size_t d = 4; d-- > 0; rest /= box.size[d]) into[d] = rest % box.size[d];
      for (std::size_t d = 0; d < 4; ++d) {
        local[d] += into[d];
        if (const int step = box.step[d]; step != 0)
          origin[static_cast<std::size_t>(std::abs(step) - 1)] += step > 0 ? into[d] : -into[d];
      }
      const std::int64_t at = flat_in(local_shape, local);
      ++told[static_cast<std::size_t>(at)];
      if (is_element) wrong += shard.bits(at) != full.bits(flat_in(full_shape, origin)) ? 1 : 0;
      if (box.kind == OriginBox::Kind::zero) wrong += shard.bits(at) != 0 ? 1 : 0;
    }
  }
  for (const std::int64_t left_out : m.found.elements_left_out) wrong -= left_out;
  return wrong + std::ranges::count_if(told, [](int times) { return times != 1; });
}

struct Tally {
  std::int64_t acting = 0, named = 0;
  std::set<std::string> unnamed;
};

/// Delivers every fault that acts and asks for its name; by level.
void explain_everything(const Geometry& geometry, const std::string& table, int degree,
                        std::map<FaultLevel, Tally>& tallies) {
  const TensorMap weights = make_weights(geometry, WeightStyle::fingerprint, 0, DType::f32);
  const Layout layout = LayoutTable::built_in(table).instantiate(geometry, degree);
  for (const FaultChoice& choice : every_choice()) {
    // Of an earlier version of the model no element is a fingerprint: there is nothing to trace.
    if (!acts_on_shards(*choice.fault) || choice.fault->name == "skip_update") continue;
    const auto delivery = delivery_of(choice, layout, weights);
    if (!delivery) continue;
    SCOPED_TRACE(choice.text() + " on " + to_string(layout.name));
    const Explanation explanation = explain_shards(layout, delivery->faulty, nullptr);
    ASSERT_EQ(explanation.misplaced.size(), delivery->touched.size());
    for (const Misplacement& m : explanation.misplaced) {
      const std::string& name = layout.entries[static_cast<std::size_t>(m.entry)].name;
      const Tensor& shard = delivery->faulty.at(name)[static_cast<std::size_t>(m.rank)];
      EXPECT_EQ(wrong_elements(layout, weights, m, shard), 0) << sentence_of(layout, m);
    }
    Tally& tally = tallies[choice.fault->level];
    ++tally.acting;
    const auto causes = texts(explanation.causes);
    if (std::ranges::find(causes, choice.text()) != causes.end()) {
      ++tally.named;
    } else {
      tally.unnamed.insert(choice.text() + " on " + to_string(layout.name));
    }
  }
}

// Every cause that is listed leaves the very bytes, so several of them are one index map.
TEST(Explain, NamesEveryFaultOfShardsAtEveryDegree) {
  std::map<FaultLevel, Tally> tallies;
  for (const int degree : {2, 3, 4, 8}) {
    // Remainders, padding to 192 rows, and neither.
    explain_everything(many_heads(49), "seed", degree, tallies);
    explain_everything(with_biases(48), "seed", degree, tallies);
    explain_everything(with_biases(180), "vllm-llama", degree, tallies);
    explain_everything(many_heads(48), "hf-llama", degree, tallies);
  }
  for (const auto& [level, tally] : tallies) {
    RecordProperty(std::string(to_string(level)) + "_acting", static_cast<int>(tally.acting));
    RecordProperty(std::string(to_string(level)) + "_named", static_cast<int>(tally.named));
  }
  const Tally& plan = tallies[FaultLevel::plan];
  EXPECT_GE(plan.acting, 300);
  EXPECT_GE(plan.named, plan.acting * 95 / 100) << testing::PrintToString(plan.unnamed);
  // What draws depends on more than the layout.
  for (const FaultLevel level : {FaultLevel::value, FaultLevel::sync})
    EXPECT_GE(tallies[level].named, tallies[level].acting * 8 / 10)
        << testing::PrintToString(tallies[level].unnamed);
}

std::string sentence(const std::string& fault, const Layout& layout, std::size_t which) {
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const auto delivery = delivery_of(parse_fault(fault), layout, weights);
  if (!delivery) return "not delivered";
  const Explanation explanation = explain_shards(layout, delivery->faulty, nullptr);
  return which < explanation.misplaced.size() ? sentence_of(layout, explanation.misplaced[which]) : "no more";
}

Geometry small_toy() {
  Geometry g = toy();
  g.vocab = 64;
  return g;
}

TEST(Explain, TellsTheSeedDocumentsFaultsInItsOwnWords) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  EXPECT_EQ(
      sentence("slice_fused_qkv_contiguously", layout, 1),
      "rank 1 of layers.0.qkv holds source rows 192-383 in order; expected 128-255, 288-319, 352-383: the "
      "fused tensor was cut as one block");
  EXPECT_EQ(
      sentence("reverse_rank_order:o_proj", layout, 0),
      "rank 0 of layers.0.o_proj holds source columns 128-255 in order; expected 0-127: the shard of rank 1");
  EXPECT_EQ(
      sentence("reverse_rank_order:down", layout, 1),
      "rank 1 of layers.0.down holds source columns 0-351 in order; expected 352-703: the shard of rank 0");
  EXPECT_EQ(
      sentence("rotate_norm_by_rank", layout, 0),
      "rank 1 of layers.0.attn_norm holds source elements 128-255, 0-127 in this order; expected 0-255: the "
      "right elements, rolled by 128");
}

TEST(Explain, TellsWhatKindOfWrongItLooksLike) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  EXPECT_THAT(sentence("transpose_square_o_proj", layout, 0), HasSubstr("transposed before it was cut"));
  EXPECT_THAT(
      sentence("wrong_dim_square", layout, 1),
      AllOf(HasSubstr("elements 32768-65535 in memory order"), HasSubstr("cut along another dimension")));
  EXPECT_THAT(sentence("shift_layer_offset", layout, 0), HasSubstr("of layers.1.qkv"));
  EXPECT_THAT(sentence("zero_norm_tail", layout, 0), HasSubstr("128 elements of zeros"));
  EXPECT_THAT(sentence("skip_parameter:down", layout, 0), HasSubstr("it was never written"));
  EXPECT_THAT(sentence("flip_one_bit", layout, 0), HasSubstr("source block"));
  EXPECT_THAT(sentence("interleave_gate_and_up", layout, 0),
              AllOf(HasSubstr("0, 704, 1, 705"), HasSubstr("the right rows in another order")));
}

TEST(Explain, DrawsWhatIsExpectedBesideWhatIsFound) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const auto delivery = delivery_of(parse_fault("slice_fused_qkv_contiguously"), layout, weights);
  const Explanation explanation = explain_shards(layout, delivery.value().faulty, nullptr);
  ASSERT_GE(explanation.misplaced.size(), 2U);
  EXPECT_EQ(origin_map(layout, {explanation.misplaced.data(), explanation.misplaced.data() + 1}),
            "         rows               expected  found\n"
            "       +---------+\n"
            "    q  |   0-255 |  rank 0:  0-127     0-191\n"
            "       |         |  rank 1:  128-255   192-255\n"
            "    k  | 256-319 |  rank 0:  256-287   -\n"
            "       |         |  rank 1:  288-319   256-319\n"
            "    v  | 320-383 |  rank 0:  320-351   -\n"
            "       |         |  rank 1:  352-383   320-383\n"
            "       +---------+\n");
}

ShardedTensors after(const std::vector<std::string>& faults, const Layout& layout, const TensorMap& weights) {
  const LayoutName one{layout.name.table, {}};
  const Layout source = make_layout(one, layout.geometry);
  auto subject = std::make_shared<Subject>();
  for (const std::string& fault : faults) {
    const FaultChoice choice = parse_fault(fault);
    subject = choice.fault->inject(subject, delivery_case(layout, one, DType::f32, 0), choice.argument);
  }
  return subject->reshard(split(weights, source), source, layout);
}

TEST(Explain, NamesCompositionsOfTwo) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(many_heads(49), 4);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const auto named = [&](const std::vector<std::string>& faults) {
    return texts(explain_shards(layout, after(faults, layout, weights), nullptr).causes);
  };
  EXPECT_THAT(named({"slice_fused_qkv_contiguously", "rotate_rank_order:down"}),
              ElementsAre("rotate_rank_order:down and slice_fused_qkv_contiguously in any order"));
  // The same tensors twice: the order counts.
  EXPECT_THAT(named({"swap_k_and_v", "slice_fused_qkv_contiguously"}),
              testing::Contains("swap_k_and_v, then slice_fused_qkv_contiguously"));
  EXPECT_THAT(named({"rotate_norm_by_rank", "reverse_rank_order:o_proj"}), SizeIs(1));
}

TEST(Explain, SaysWhatNoKnownFaultExplains) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  ShardedTensors shards = after({"slice_fused_qkv_contiguously"}, layout, weights);
  std::swap(shards.at("layers.2.down")[0], shards.at("layers.2.down")[1]);
  shards.at("final_norm")[1].mutable_f32()[7] = 1.5F;
  const Explanation explanation = explain_shards(layout, shards, nullptr);
  EXPECT_THAT(explanation.causes, IsEmpty());
  ASSERT_TRUE(explanation.nearest.has_value());
  EXPECT_EQ(explanation.nearest->fault.text(), "slice_fused_qkv_contiguously");
  EXPECT_EQ(explanation.nearest->places, 8);
  EXPECT_THAT(explanation.misplaced, SizeIs(11));
  EXPECT_THAT(sentence_of(layout, explanation.misplaced.back()),
              AllOf(HasSubstr("rank 1 of final_norm"), HasSubstr("1 value changed on the way")));
}

TEST(Explain, RightShardsNeedNoCause) {
  const Layout layout = LayoutTable::built_in("vllm-llama").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 3, DType::bf16);
  const Explanation explanation = explain_shards(layout, split(weights, layout), &weights);
  EXPECT_THAT(explanation.misplaced, IsEmpty());
  EXPECT_THAT(explanation.causes, IsEmpty());
  EXPECT_GT(explanation.places, 0);
}

TEST(Explain, RefusesWeightsThatAreNoFingerprints) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(many_heads(49), 2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 3, dtype);
    try {
      explain_shards(layout, split(weights, layout), nullptr);
      ADD_FAILURE() << "accepted";
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr("the shards hold no fingerprints of d_model=48"));
    }
  }
}

// Minus one is all that a shift leaves of a small fingerprint, whichever element it was of.
TEST(Explain, RefusesFingerprintsWhereALayoutStoresValuesShifted) {
  const Layout layout = LayoutTable::built_in("megatron-llama-zero-centered").instantiate(small_toy(), 2);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, dtype);
    try {
      explain_shards(layout, split(weights, layout), nullptr);
      ADD_FAILURE() << "accepted";
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("holds every value -1"), HasSubstr("--source=DIR")));
    }
  }
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 3, DType::f32);
  const auto delivery = delivery_of(parse_fault("rotate_norm_by_rank"), layout, weights);
  const Explanation explanation = explain_shards(layout, delivery.value().faulty, &weights);
  EXPECT_THAT(texts(explanation.causes), testing::Contains("rotate_norm_by_rank"));
  EXPECT_EQ(explanation.misplaced.at(0).symptom, Symptom::rolled);
}

TEST(Explain, DescribesAddendsByTheirValue) {
  Geometry geometry = small_toy();
  geometry.o_bias = true;
  const auto told = [&](const std::string& table, const std::string& fault) {
    return sentence(fault, LayoutTable::built_in(table).instantiate(geometry, 2), 0);
  };
  EXPECT_EQ(
      told("seed-bias-divided", "row_bias_not_divided:equal_share"),
      "rank 0 of layers.0.o_bias holds the whole tensor; expected 1/2 of the tensor: the sum over ranks "
      "has more of it than it should");
  EXPECT_EQ(
      told("seed-bias-divided", "bias_divided_twice:share"),
      "rank 0 of layers.0.o_bias holds 1/4 of the tensor; expected 1/2 of the tensor: the sum over ranks "
      "has less of it than it should");
  EXPECT_EQ(
      told("seed-bias-on-first-rank", "row_bias_not_divided:first_rank"),
      "rank 1 of layers.0.o_bias holds the whole tensor; expected zeros: the sum over ranks has more of "
      "it than it should");
}

TEST(Explain, KeepsSoManyBoxesOfEveryShard) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  ShardedTensors shards = split(weights, layout);
  Tensor& shard = shards.at("embed")[0];
  const Tensor right = shard;
  for (std::int64_t i = 0; i < right.elements(); ++i)
    shard.set_bits(i, right.bits(i * 12345 % right.elements()));
  const Explanation explanation = explain_shards(layout, shards, nullptr);
  ASSERT_THAT(explanation.misplaced, SizeIs(1));
  const DecodedShard& found = explanation.misplaced[0].found;
  EXPECT_LE(found.boxes.size(), 1000U);
  EXPECT_GT(found.boxes_left_out, 1000);
  EXPECT_EQ(found.elements(OriginBox::Kind::element), shard.elements());
}

// Sixteen bits number no model: their fingerprints are found again by lines.
TEST(Explain, SixteenBitFingerprintsAreMatchedByLines) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::bf16);
  const auto c = delivery_case(layout, {"seed", {}}, DType::bf16, 0);
  const Delivery delivery = deliver(parse_fault("slice_fused_qkv_contiguously"), c, weights);
  const Explanation explanation = explain_shards(layout, delivery.faulty, nullptr);
  EXPECT_THAT(texts(explanation.causes), ElementsAre("slice_fused_qkv_contiguously"));
  EXPECT_THAT(sentence_of(layout, explanation.misplaced[1]),
              HasSubstr("holds source rows 192-383 in order; expected"));
}

// Real weights of a trained model, with a tied head.
TEST(Explain, NamesFaultsOnATrainedCheckpoint) {
  const auto folder =
      std::filesystem::path(SHARDCHECK_SOURCE_DIR).parent_path() / "shared/checkpoints/stories260K";
  const Checkpoint checkpoint = load_checkpoint(folder);
  const Layout layout = LayoutTable::built_in("vllm-llama").instantiate(checkpoint.config.geometry, 4);
  std::int64_t acting = 0;
  for (const FaultChoice& choice : every_choice()) {
    if (choice.fault->level != FaultLevel::plan || !acts_on_shards(*choice.fault)) continue;
    const auto delivery = delivery_of(choice, layout, checkpoint.logical);
    if (!delivery) continue;
    ++acting;
    const Explanation explanation = explain_shards(layout, delivery->faulty, &checkpoint.logical);
    EXPECT_THAT(texts(explanation.causes), testing::Contains(choice.text()));
  }
  EXPECT_GE(acting, 12);
}

TEST(Explain, FindsRowsOfRealWeightsAgain) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 3, DType::f32);
  const auto told = [&](const std::string& fault) {
    const Explanation explanation = explain_shards(layout, after({fault}, layout, weights), &weights);
    return sentence_of(layout, explanation.misplaced.at(1));
  };
  EXPECT_EQ(
      told("slice_fused_qkv_contiguously"),
      "rank 1 of layers.0.qkv holds source rows 192-383 in order; expected 128-255, 288-319, 352-383: the "
      "fused tensor was cut as one block");
  EXPECT_THAT(told("reverse_rank_order:o_proj"),
              HasSubstr("holds source columns 0-127 in order; expected 128-255"));
  EXPECT_THAT(told("stale_layer"), HasSubstr("192 rows that are in no tensor of the checkpoint"));
}

TEST(Explain, SaysWhereEqualRowsMakeTheOriginAGuess) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  TensorMap weights = make_weights(layout.geometry, WeightStyle::powered, 3, DType::f32);
  // Rows 0 and 40 of the head are equal and the only ones that change places with others.
  Tensor& head = weights.at("lm_head");
  const auto row = [&](std::size_t i) { return head.mutable_f32().subspan(i * 256, 256); };
  std::ranges::copy(row(40), row(0).begin());
  ShardedTensors shards = split(weights, layout);
  Tensor& first = shards.at("lm_head")[0];
  const Tensor right = first;
  const auto move = [&](std::int64_t from, std::int64_t to) {
    std::ranges::copy(right.rows(from, 1).f32(), first.mutable_f32().begin() + to * 256);
  };
  move(0, 5), move(5, 0);
  const Explanation explanation = explain_shards(layout, shards, &weights);
  ASSERT_THAT(explanation.misplaced, SizeIs(1));
  EXPECT_EQ(explanation.misplaced[0].found.ambiguous_lines, 1);
  EXPECT_THAT(sentence_of(layout, explanation.misplaced[0]),
              HasSubstr("(1 of these occur several times in the checkpoint: their origin is a guess)"));
}

TEST(Deliver, RefusesWhatLeavesShardsRight) {
  const Layout layout = LayoutTable::built_in("seed").instantiate(small_toy(), 2);
  const TensorMap weights = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const auto refusal = [&](const std::string& fault, int degree) -> std::string {
    const Layout target = LayoutTable::built_in("seed").instantiate(small_toy(), degree);
    try {
      deliver(parse_fault(fault), delivery_case(target, {"seed", {}}, DType::f32, 0), weights);
    } catch (const InvalidInput& error) {
      return error.what();
    }
    return "delivered";
  };
  EXPECT_EQ(refusal("missing_all_reduce:down", 2),
            "fault missing_all_reduce:down cannot be delivered: it acts on the forward level, the shards it "
            "runs on "
            "are right");
  EXPECT_THAT(refusal("reverse_gather_order", 2), HasSubstr("collective level"));
  EXPECT_THAT(refusal("slice_fused_qkv_contiguously", 1),
              HasSubstr("no tensor stacks q, k and v over several ranks"));
  EXPECT_THAT(refusal("order_qkv_per_kv_group", 2), HasSubstr("one KV head on each rank"));
  EXPECT_EQ(refusal("slice_fused_qkv_contiguously", 2), "delivered");
}

}  // namespace
}  // namespace shardcheck
