// A case made concrete: weights, tokens, layouts, reference logits and threshold, each computed once and
// shared by every subject and oracle that judges the case.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/case/subject.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/tolerance/comparator.h"

namespace shardcheck {

/// A way to decide equal or different, sharpest first.
enum class Oracle : std::uint8_t { layout, exact, tree, native };
std::string_view to_string(Oracle oracle) noexcept;
std::optional<Oracle> oracle_from(std::string_view text) noexcept;

struct Threshold {
  double value = 0.0;    // comparison is strict: deviation < value
  double floor = 0.0;    // worst deviation it was derived from
  double control = 0.0;  // deviation of a model whose attention adds nothing: what no threshold may admit
  std::string source;    // "tolerance/in_process.json" or "10x the worst of 19 legal orders"

  /// Finite and above 0: a deviation that is not below such a value is a failure.
  bool is_usable() const;
  /// Why a deviation below the value is no evidence: the value is not usable, or the control deviates by
  /// less than kLeastMargin times the value. Empty when it is evidence.
  std::string mistrusted() const;
};

/// A bug worth finding stands at least this many times above the threshold, or the threshold is mistrusted.
inline constexpr double kLeastMargin = 10.0;

class Workbench {
 public:
  /// Draws weights and tokens from the case's seed. Throws UnsupportedLayout or InvalidInput when the case
  /// cannot be made concrete.
  explicit Workbench(Case c);
  /// A real checkpoint: the given logical weights and tokens instead of random ones.
  Workbench(Case c, TensorMap weights, Tokens tokens);
  ~Workbench();
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  const Case& value() const;
  const TensorMap& weights() const;
  const TensorMap& fingerprints();
  const Tokens& tokens() const;
  const Layout& source() const;
  const Layout& target() const;
  const Contract& contract() const;
  const Tensor& reference(Arithmetic arithmetic);
  /// Threshold for `native`: the recorded floor for TOY and TOY_KV4 with recorded weights and tokens 2 x 16,
  /// else 10x the worst of 19 runs of the reference with random K cuts and fold orders at the target degree.
  const Threshold& threshold();

  /// Shards of the target layout as the subject produces them: split to the source, reshard to the target.
  ShardedTensors moved(Subject& subject, const TensorMap& full);
  /// The sharded forward on given target shards; logits of every local rank.
  std::vector<Tensor> execute(Subject& subject, const ShardedTensors& shards, Arithmetic arithmetic);

  /// layout: bytes of the moved fingerprint shards against this library's, by coordinates, and of the model's
  /// own weights where fingerprints do not tell every element: 16 bits, shifted values, equal shares of a
  /// sum. exact and tree: logits bit for bit. native: max |difference| < threshold, of every rank; a pass
  /// under a threshold that is mistrusted is Verdict::mistrusted. Any rank that disagrees with rank 0 fails.
  /// An exception of the library about the subject's shards is a failure with its message.
  Outcome judge(Oracle oracle, Subject& subject);
  /// The same on shards produced elsewhere (verify --shards).
  Outcome judge_shards(Oracle oracle, Subject& subject, const ShardedTensors& shards);

  /// First byte difference between two shard sets of one layout, as a Difference that names parameter and
  /// rank.
  static std::optional<Difference> first_difference(const Layout& layout, const ShardedTensors& expected,
                                                    const ShardedTensors& actual);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Threshold of a case without a recorded floor (also serves real checkpoints).
Threshold threshold_for(const Case& c, const TensorMap& weights, const Tokens& tokens,
                        const Tensor& reference);

}  // namespace shardcheck
