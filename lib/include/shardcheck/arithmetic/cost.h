// What bit-exact agreement across degrees costs, in closed form: partial sums written out on one rank,
// collectives that move partial sums instead of adding them, the covers of a reduction tree, and weight
// sync between two layouts. A model, not a measurement: nominal rates, no overlap, no contention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/arithmetic/tree.h"
#include "shardcheck/model/geometry.h"
#include "shardcheck/reshard/plan.h"
#include "shardcheck/tensor/dtype.h"

namespace shardcheck {

/// Rates of one rank and of its connection to the others; full duplex. The default is the nominal A100 PCIe
/// of the seed document.
struct Link {
  double hbm_bytes_per_s = 1.5e12;
  double flops_per_s = 312e12;
  double link_bytes_per_s = 25e9;
  double step_latency_s = 15e-6;
  bool operator==(const Link&) const = default;
};

/// Throws InvalidInput naming the key unless hbm and bw are in 1..1e18 B/s, flops in 1..1e21 FLOP/s and
/// latency in 0..1 s (NaN is refused).
void validate(const Link& link);

/// "hbm:1.5e12,flops:312e12,bw:25e9,latency:15e-6": any of the keys, each at most once; absent ones keep
/// their default. Throws InvalidInput naming the key, its value and what is allowed.
Link parse_link(std::string_view text);
/// Every key; parse_link(to_string(link)) == link.
std::string to_string(const Link& link);

/// Llama-3-8B: d_model 4096, 32 layers, 32 heads of 128, 8 KV heads, ffn 14336, vocab 128256, untied.
Geometry llama3_8b();

/// What the cost of the two row-parallel projections of a layer depends on. `partials` is what partial sums
/// are written and shipped in: the storage dtype, or f32.
struct CostInputs {
  Geometry geometry = llama3_8b();
  Link link;
  std::int64_t chunks = 4;  // global pieces of K that one rank writes a partial sum of
  DType storage = DType::bf16;
  DType partials = DType::bf16;
  bool operator==(const CostInputs&) const = default;

  /// Bytes of a partial sum per byte of the stored output: 1, or 2 for f32 partials of a 16-bit dtype.
  double partial_ratio() const;
  /// Bytes of one row-parallel output, tokens x d_model in the storage dtype.
  double output_bytes(std::int64_t tokens) const;
};

/// Throws InvalidInput: a geometry or link out of range, chunks outside 1..65536, storage not f32, bf16 or
/// f16, partials neither f32 nor the storage dtype.
void validate(const CostInputs& inputs);

/// Seconds of o_proj (K = heads*head_dim) and down (K = ffn), N = d_model, on one rank: each the larger of
/// memory time (weights, input and output once through HBM) and 2*M*K*N operations. tokens M in 1..2^20,
/// else InvalidInput.
double row_parallel_seconds(const CostInputs& inputs, std::int64_t tokens);

/// Seconds to write `chunks` partial sums of both outputs to HBM and read them back, not overlapped with the
/// GEMMs. 0 would be a kernel that keeps them in registers. tokens as above.
double partial_sums_seconds(const CostInputs& inputs, std::int64_t tokens);

/// partial_sums_seconds / row_parallel_seconds: 0.0868 %, 5.43 % and 18.06 % at 1, 64 and 8192 tokens of the
/// default inputs.
double single_rank_extra(const CostInputs& inputs, std::int64_t tokens);

/// Cost of a collective, linear in the message (the stored output): each rank puts `volume` bytes per byte of
/// it on its link and waits for `steps` latencies.
struct CollectiveCost {
  double volume = 0.0;
  double steps = 0.0;
  double seconds(const Link& link, double message_bytes) const;
};

/// Reduce-scatter and all-gather around a ring: 2(p-1)/p bytes per byte, 2(p-1) steps. All three refuse a
/// degree p outside 2..1024 with InvalidInput.
CollectiveCost ring_all_reduce(int degree);

/// Every rank's partial sum to every rank around a ring, folded there in a fixed order: (p-1)*partial_ratio
/// bytes per byte, p-1 steps.
CollectiveCost all_gather_and_fold(int degree, double partial_ratio = 1.0);

/// Each rank is sent the partial sums of its slice, completes the tree there, and sends the rounded slice to
/// all: (p-1)/p*(partial_ratio + 1) bytes per byte. Both legs are direct exchanges, one step each; around a
/// ring they would take p-1 steps each, and with partial_ratio 1 exactly the time of the ring all-reduce.
CollectiveCost two_shot(int degree, double partial_ratio = 1.0);

/// Message size in bytes above which `cost` takes longer than `ring`: 0 when at every size, nullopt when at
/// none. Throws std::invalid_argument when `cost` takes more steps than `ring`: then it is not the cheap one
/// of small messages.
std::optional<double> crossover_bytes(const Link& link, const CollectiveCost& cost,
                                      const CollectiveCost& ring);

/// How many tree nodes each rank ships. A rank owns the balanced part of the leaves (the first leaves %
/// degree ranks one more); with one node on every rank the traffic is that of `all_gather_and_fold` and
/// `two_shot`.
struct CoverSizes {
  std::vector<std::int64_t> nodes;  // by rank; 0 for a rank without leaves
  int degree() const { return static_cast<int>(nodes.size()); }
  std::int64_t most() const;
  std::int64_t total() const;
};

/// Sizes of `cover` for every rank of a tree over `leaves` leaves. Throws InvalidInput unless leaves are in
/// 1..2^20 and the degree in 1..1024.
CoverSizes cover_sizes(TreeShape shape, std::int64_t leaves, int degree);

/// Bytes through one rank's link.
struct RankTraffic {
  std::int64_t sent = 0;
  std::int64_t received = 0;
  bool operator==(const RankTraffic&) const = default;
};

/// One-shot: rank r sends its nodes of all `elements` outputs to each other rank; around a ring, where every
/// step lasts as long as the largest cover, the busiest rank's bytes are the same. By rank. Throws
/// InvalidInput unless elements are in 1..2^40, node_bytes in 1..8 and no rank can move more than 2^62 bytes.
std::vector<RankTraffic> one_shot_traffic(const CoverSizes& sizes, std::int64_t elements, int node_bytes);

/// Two-shot: rank r sends its nodes of slice s of the outputs (balanced parts) to rank s, then its own
/// completed slice in `storage_bytes` an element to each other rank. By rank. Throws as `one_shot_traffic`.
std::vector<RankTraffic> two_shot_traffic(const CoverSizes& sizes, std::int64_t elements, int node_bytes,
                                          int storage_bytes);

/// Most bytes any rank sends or receives, whichever is more: the two directions overlap. 0 for no ranks.
std::int64_t busiest_bytes(const std::vector<RankTraffic>& traffic);

/// Whether the source and target ranks of a weight sync are different devices, or rank r of one is rank r of
/// the other, so that copies from rank r to rank r stay off the link.
enum class SyncDevices : std::uint8_t { separate, shared };

/// What one rank sends or receives in a sync.
struct SyncShare {
  std::int64_t elements = 0;
  std::int64_t copies = 0;  // boxes of the plan
  std::int64_t peers = 0;   // ranks it exchanges at least one box with
  bool operator==(const SyncShare&) const = default;
};

struct SyncTraffic {
  std::vector<SyncShare> sent;      // by source rank
  std::vector<SyncShare> received;  // by target rank
};

/// Adds up the copies of a plan. On separate devices every target rank receives exactly the elements it
/// holds. Throws InvalidInput unless both degrees are in 1..1024, std::out_of_range when a copy names a rank
/// beyond them.
SyncTraffic sync_traffic(const Plan& plan, int source_degree, int target_degree, SyncDevices devices);

/// One message per box of the plan, or all boxes of two ranks packed into one.
enum class SyncMessages : std::uint8_t { per_copy, per_peer };

/// Seconds until the busiest rank is done: the most over all shares of bytes / bandwidth + latency *
/// messages. A rank of `shared` devices sends and receives at the same time. Throws InvalidInput for a dtype
/// of less than a byte and for a link out of range.
double sync_seconds(const SyncTraffic& traffic, const Link& link, DType dtype, SyncMessages messages);

}  // namespace shardcheck
