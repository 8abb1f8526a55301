// Verifying a real checkpoint: against golden logits, at several degrees, and against shards another tool
// made of it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "golden.h"
#include "shardcheck/arithmetic/contract.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/checkpoint/hugging_face.h"
#include "shardcheck/layout/layout_table.h"
#include "shardcheck/model/reference_model.h"
#include "shardcheck/reshard/reshard.h"
#include "shardcheck/text/progress.h"

namespace shardcheck {

/// How given shards differ from the right ones.
struct ShardDifference {
  std::string parameter;
  int rank = 0;
  std::string detail;  // "rank 0 holds the shard of rank 1"
};

struct DegreeCheck {
  int degree = 1;
  double deviation = 0.0;  // native, against the reference
  double threshold = 0.0;
  std::string threshold_source;
  bool native_holds = false;
  std::int64_t tree_differing = 0;  // logits whose bits differ from the reference's under tree
  std::filesystem::path shards;     // folder that was checked, empty: our own split
  std::string refused;              // why the shards in the folder are not shards of this layout
  std::vector<ShardDifference> differences;
  std::filesystem::path written;  // folder our shards were written to

  std::string vacuous;     // why the logits decide nothing
  std::string mistrusted;  // why a deviation below the threshold is no evidence

  Verdict verdict() const;  // failed; vacuous or mistrusted when nothing differs but nothing is shown; passed
  bool holds() const { return verdict() == Verdict::passed; }
};

struct Verification {
  std::filesystem::path folder;
  std::string model_type;
  Geometry geometry;
  DType dtype = DType::f32;
  std::int64_t parameters = 0;
  std::string layout;
  Contract contract;
  std::int64_t tokens = 0;  // of the forward comparison
  std::optional<GoldenCheck> golden;
  std::vector<DegreeCheck> degrees;

  bool holds() const;
  Verdict verdict() const;  // the worst of its parts: failed, vacuous, mistrusted, passed
};

struct VerifyOptions {
  std::filesystem::path folder;
  std::string layout = "vllm-llama";  // built-in name or file
  std::optional<std::string> from;    // layout of `folder`; absent: what it records, or Hugging Face
  std::vector<int> degrees;           // empty: those of the shard folder, else every supported one up to 8
  std::filesystem::path golden, shards, write_shards;
  std::optional<std::int64_t> tokens;
  std::uint64_t seed = 0;
  ProgressSink progress;
};

/// A checkpoint with everything its checks share.
class Verifier {
 public:
  /// Loads the checkpoint, the layout and the golden file. Throws InvalidInput, UnsupportedLayout or IoError.
  explicit Verifier(VerifyOptions options);
  ~Verifier();

  /// Facts about the checkpoint, known before anything runs.
  const Verification& result() const;
  void check_golden();
  void check_degrees();

  /// Greedy decoding with the reference. Throws InvalidInput when `count` exceeds the positions of the model.
  std::vector<std::int32_t> decode(const std::vector<std::int32_t>& prompt, std::int64_t count) const;
  const std::optional<Golden>& golden() const;
  std::int64_t max_positions() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shardcheck
