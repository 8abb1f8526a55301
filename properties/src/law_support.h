// What law files share: digests, comparisons that name what differs, and draws with a condition.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout_probe.h"
#include "shardcheck/properties/generator.h"
#include "shardcheck/properties/law.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {

/// Digest of everything a law computed, in the order it was added.
class Digest {
 public:
  Digest& add(std::string_view bytes);
  Digest& add(double value);
  Digest& add(const Tensor& tensor);
  Digest& add(const TensorMap& tensors);
  Digest& add(const ShardedTensors& shards);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// `outcome` with a digest.
Outcome with_digest(Outcome outcome, const Digest& digest);

/// Fingerprint weights of the case's geometry in its dtype.
TensorMap fingerprints_of(const Case& c);

/// Passed when every shard is byte-equal, else a failure that says `claim`, names parameter and rank, and,
/// for f32 fingerprints, where the expected and the actual element came from.
Outcome same_shards(std::string_view claim, const Layout& layout, const ShardedTensors& expected,
                    const ShardedTensors& actual);

/// The same for logical tensors.
Outcome same_tensors(std::string_view claim, const Layout& layout, const TensorMap& expected,
                     const TensorMap& actual);

/// How often each code of an f32 fingerprint of the geometry stands in the shards; code 0, and every value
/// that is no code, is padding or memory that nobody wrote.
std::vector<std::int64_t> count_codes(const Geometry& geometry, const ShardedTensors& shards);

/// Resharding the case's fingerprints against gathering and splitting them again, by the subject.
Outcome reshard_equals_detour(std::string_view claim, const Case& c, Subject& subject);

/// Passed when the logits are equal bit for bit.
Outcome same_logits(std::string_view claim, const Case& c, const Tensor& expected, const Tensor& actual);

/// Why a bias stored as equal shares keeps the case from being judged, or nullopt: a share of `degree` ranks
/// is exact for powers of two only, and of a fingerprint, whose bits are no number, never.
std::optional<std::string> why_shares_are_inexact(const Case& c, bool fingerprints);

/// The oracle that judges logits under an arithmetic.
Oracle oracle_of(Arithmetic arithmetic);

/// A drawn case of a law.
Case draw_for(std::string_view law, Stream& stream, const DrawOptions& options);
/// The first of at most 16 draws that `wanted` accepts, else the last one.
Case draw_where(std::string_view law, Stream& stream, const DrawOptions& options,
                bool (*wanted)(const Case&));
bool target_is_sharded(const Case& c);

/// 0..count-1 in random order.
std::vector<std::int64_t> shuffled(Stream& stream, std::int64_t count);

/// Adds what the weights themselves show: "norms_spread" where norm weights are no ones, "nonzero_biases"
/// where there are biases and none is zero. Default initialisation has neither and hides bugs of both.
void label_weights(const TensorMap& weights, std::vector<std::string>& labels);

/// Label shares every byte law and every forward law needs to mean something.
std::vector<LabelShare> byte_shares();
std::vector<LabelShare> forward_shares();

using PrintCase = std::function<std::string(const Case&)>;
using ParseCase = std::function<Case(std::string_view)>;
/// The law about text, over any printer and parser: printed_case_parses_back with its own.
Outcome text_round_trips(const Case& c, const PrintCase& print, const ParseCase& parse);

}  // namespace shardcheck
