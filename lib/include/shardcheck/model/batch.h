// What one pass of an engine works on: new tokens of some sequences. Prefill, chunked prefill, decoding and
// ragged batches are all steps of this one kind, over a cache of the keys and values of earlier steps.
#pragma once

#include <cstdint>
#include <vector>

#include "shardcheck/model/weights.h"

namespace shardcheck {

/// Tokens that a step adds to one sequence, at absolute positions first, first + 1, ...
struct SequenceChunk {
  std::int64_t sequence = 0;  // any number from 0 on; names its place in the cache
  std::int64_t first = 0;     // tokens of the sequence that earlier steps added
  std::vector<std::int32_t> ids;

  bool operator==(const SequenceChunk&) const = default;
};

/// Chunks of different sequences. Row i of a step's output belongs to its i-th token, chunks one after
/// the other.
using BatchStep = std::vector<SequenceChunk>;

/// Every sequence of `tokens` as a whole, sequences numbered from 0.
BatchStep whole_step(const Tokens& tokens);

/// Tokens of all chunks.
std::int64_t row_count(const BatchStep& step);

/// Throws InvalidInput naming the chunk: an empty step or chunk, a token outside the vocabulary, a
/// sequence twice, a number below 0, positions beyond the geometry's learned ones or 2^20.
void require_step_of(const Geometry& geometry, const BatchStep& step);

}  // namespace shardcheck
