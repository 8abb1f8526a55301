#include "shardcheck/model/batch.h"

#include <fmt/format.h>

#include <set>

namespace shardcheck {
namespace {

constexpr std::int64_t kMaxPositions = std::int64_t{1} << 20;

}  // namespace

BatchStep whole_step(const Tokens& tokens) {
  BatchStep step;
  for (std::int64_t i = 0; i < tokens.batch; ++i) {
    const auto begin = tokens.ids.begin() + i * tokens.length;
    step.push_back({i, 0, {begin, begin + tokens.length}});
  }
  return step;
}

std::int64_t row_count(const BatchStep& step) {
  std::int64_t rows = 0;
  for (const SequenceChunk& chunk : step) rows += std::ssize(chunk.ids);
  return rows;
}

void require_step_of(const Geometry& geometry, const BatchStep& step) {
  const std::int64_t limit = geometry.positions > 0 ? geometry.positions : kMaxPositions;
  std::set<std::int64_t> seen;
  if (step.empty()) throw InvalidInput("step: no chunk; allowed: at least one");
  for (std::size_t i = 0; i < step.size(); ++i) {
    const SequenceChunk& chunk = step[i];
    const auto refuse = [i](std::string_view field, std::int64_t value, std::string_view allowed) {
      throw InvalidInput(fmt::format("step: chunk {}: {}={}; allowed: {}", i, field, value, allowed));
    };
    if (chunk.sequence < 0) refuse("sequence", chunk.sequence, "0 and above");
    if (!seen.insert(chunk.sequence).second) refuse("sequence", chunk.sequence, "each once in a step");
    if (chunk.ids.empty()) refuse("tokens", 0, "at least one");
    if (std::ssize(chunk.ids) > limit)
      refuse("tokens", std::ssize(chunk.ids), fmt::format("at most {}, one a position", limit));
    if (chunk.first < 0 || chunk.first > limit - std::ssize(chunk.ids))
      refuse("first", chunk.first,
             fmt::format("0..{} for {} tokens and {} positions", limit - std::ssize(chunk.ids),
                         chunk.ids.size(), limit));
    for (const std::int32_t id : chunk.ids) {
      if (id < 0 || id >= geometry.vocab) refuse("token id", id, fmt::format("0..{}", geometry.vocab - 1));
    }
  }
}

}  // namespace shardcheck
