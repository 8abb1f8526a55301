#include "model/context_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/group_bytes.h"

namespace shardcheck {
namespace {

/// Keys and values of a sequence on one rank, null where it holds none.
struct Keys {
  const float* keys = nullptr;
  const float* values = nullptr;
};

Keys keys_of(const ContextSlot& member, std::int64_t sequence) {
  const auto found = member.cached.find(sequence);
  if (found == member.cached.end()) return {};
  return {found->second.keys.data(), found->second.values.data()};
}

std::vector<std::int64_t> positions_of(const AttentionShape& shape) {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(shape.keys));
  std::iota(positions.begin(), positions.end(), shape.first_key);
  return positions;
}

}  // namespace

AttentionShape ContextAttention::shape_of(const ContextSlot& member, const RowRun& run, int rank) const {
  const Geometry& geometry = member.site.geometry;
  const bool tree = numerics_.arithmetic == Arithmetic::tree;
  AttentionShape shape;
  shape.rows = run.rows;
  shape.first_query = run.first_position;
  shape.first_key = rows_.first_position(rank);
  shape.keys = std::max<std::int64_t>(0, rows_.last_position(rank, run.length) - shape.first_key);
  shape.heads = member.place.extent.heads;
  shape.kv_heads = member.place.extent.kv_heads;
  shape.head_dim = geometry.head_dim;
  shape.q_stride = shape.out_stride = member.q.width;
  shape.k_stride = shape.v_stride = shape.kv_heads * shape.head_dim;
  shape.key_block = tree ? numerics_.contract.key_block : 0;
  shape.shape = numerics_.contract.shape;
  shape.causal = steps_.causal(member.site);
  shape.all_keys = run.length;
  if (tree && degree() == 1)
    shape.block_offset = steps_.block_offset(member.site, run.first_position, run.rows);
  shape.slopes = member.slopes.empty() ? nullptr : member.slopes.data();
  shape.sinks = member.sinks.empty() ? nullptr : member.sinks.data();
  return shape;
}

RankMatrices ContextAttention::operator()(const std::vector<ContextSlot>& members) const {
  RankMatrices out;
  if (degree() == 1) {
    for (const ContextSlot& member : members) out.push_back(alone(member));
    return out;
  }
  const RankMatrices queries = gathered_queries(members);
  std::vector<std::vector<float>> largest;
  for (const ContextSlot& member : members) largest.push_back(maxima(member, queries));
  if (is_exact() || !steps_.uses_local_maximum(members.front().site)) all_reduce_max(collective_, largest);
  std::vector<std::vector<std::vector<std::byte>>> sent;
  for (std::size_t i = 0; i < members.size(); ++i) sent.push_back(parcels(members[i], queries, largest[i]));
  std::vector<std::vector<std::span<const std::byte>>> sends;
  for (const auto& own : sent) sends.emplace_back(own.begin(), own.end());
  const auto received = collective_.all_to_all_bytes(sends);
  for (std::size_t i = 0; i < members.size(); ++i) out.push_back(completed(members[i], received[i]));
  return out;
}

void ContextAttention::attend_rows(const ContextSlot& member, const RowRun& run, std::int64_t first,
                                   std::int64_t last, bool causal, Matrix& out) const {
  AttentionShape shape = shape_of(member, run, 0);
  shape.rows = last - first;
  shape.first_query += first;
  shape.causal = causal;
  const Keys keys = keys_of(member, run.sequence);
  const auto attend = is_exact() ? exact_attention : attention;
  attend(shape, member.q.row(run.local_row + first), keys.keys, keys.values, member.kv_of_head,
         out.row(run.local_row + first));
}

Matrix ContextAttention::alone(const ContextSlot& member) const {
  Matrix out(member.q.rows, member.q.width);
  for (const RowRun& run : rows_.runs_of(member.place.cp)) {
    const std::int64_t masked = steps_.masked_queries(member.site, run.length);
    const std::int64_t covered = std::clamp<std::int64_t>(masked - run.first_position, 0, run.rows);
    if (covered > 0) attend_rows(member, run, 0, covered, steps_.causal(member.site), out);
    if (covered < run.rows) attend_rows(member, run, covered, run.rows, false, out);
  }
  numerics_.store(out);
  return out;
}

void ContextAttention::require_rows(int rank, std::int64_t rows) const {
  std::int64_t expected = 0;
  for (const RowRun& run : rows_.runs_of(rank)) expected = std::max(expected, run.local_row + run.rows);
  if (rows >= expected) return;
  throw CollectiveMismatch(
      fmt::format("context rank {} of {} sent {} queries, it has {}", rank, degree(), rows, expected));
}

RankMatrices ContextAttention::gathered_queries(const std::vector<ContextSlot>& members) const {
  std::vector<std::span<const std::byte>> sends;
  for (const ContextSlot& member : members) sends.push_back(std::as_bytes(std::span(member.q.values)));
  std::vector<std::size_t> sizes;
  const auto gathered = collective_.all_gather_bytes(sends, sizes);
  RankMatrices queries;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    queries.push_back(matrix_of(std::span(gathered).subspan(at, size), members.front().q.width));
    at += size;
  }
  for (int rank = 0; rank < degree(); ++rank)
    require_rows(rank, queries.at(static_cast<std::size_t>(rank)).rows);
  return queries;
}

std::vector<float> ContextAttention::maxima(const ContextSlot& member, const RankMatrices& queries) const {
  std::vector<float> all;
  for (int rank = 0; rank < degree(); ++rank) {
    for (const RowRun& run : rows_.runs_of(rank)) {
      const AttentionShape shape = shape_of(member, run, member.place.cp);
      const Keys keys = keys_of(member, run.sequence);
      const float* q = queries[static_cast<std::size_t>(rank)].row(run.local_row);
      const std::vector<float> own =
          is_exact() ? exact_attention_maxima(shape, q, {keys.keys, keys.values, positions_of(shape)},
                                              member.kv_of_head)
                     : attention_maxima(shape, q, keys.keys, member.kv_of_head);
      all.insert(all.end(), own.begin(), own.end());
    }
  }
  return all;
}

std::vector<std::vector<std::byte>> ContextAttention::parcels(const ContextSlot& member,
                                                              const RankMatrices& queries,
                                                              std::span<const float> maxima) const {
  std::vector<std::vector<std::byte>> sent;
  const bool global = is_exact() || !steps_.uses_local_maximum(member.site);
  for (int rank = 0; rank < degree(); ++rank) {
    FloatWriter writer;
    for (const RowRun& run : rows_.runs_of(rank)) {
      const AttentionShape shape = shape_of(member, run, member.place.cp);
      const Keys keys = keys_of(member, run.sequence);
      const float* q = queries[static_cast<std::size_t>(rank)].row(run.local_row);
      std::vector<float> own(maxima.begin(), maxima.begin() + shape.heads * shape.rows);
      maxima = maxima.subspan(own.size());
      if (global && shape.sinks != nullptr) {
        for (std::size_t i = 0; i < own.size(); ++i)
          own[i] = std::max(own[i], shape.sinks[i / static_cast<std::size_t>(shape.rows)]);
      }
      if (is_exact()) {
        const auto bytes = exact_attention_partial(shape, q, {keys.keys, keys.values, positions_of(shape)},
                                                   member.kv_of_head, own)
                               .bytes();
        writer.put_count(bytes.size());
        writer.put_bytes(bytes);
      } else {
        const std::vector<float> nodes =
            attention_nodes(shape, q, keys.keys, keys.values, member.kv_of_head, own);
        writer.put_count(nodes.size());
        writer.put(own);
        writer.put(nodes);
      }
    }
    sent.push_back(writer.take());
  }
  return sent;
}

Matrix ContextAttention::completed(const ContextSlot& member, std::span<const std::byte> received) const {
  struct Arrived {
    std::vector<float> maxima, nodes;
  };
  const std::vector<RowRun>& runs = rows_.runs_of(member.place.cp);
  std::vector<std::vector<Arrived>> arrived(runs.size());  // by run, then by rank
  std::vector<ExactAttentionPartial> exact(runs.size());
  FloatReader reader(received);
  for (int rank = 0; rank < degree(); ++rank) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::size_t count = reader.count();
      if (is_exact()) {
        auto part = ExactAttentionPartial::from_bytes(reader.take(count));
        if (rank == 0) {
          exact[i] = std::move(part);
        } else {
          exact[i].merge(part);
        }
        continue;
      }
      const auto queries = static_cast<std::size_t>(member.place.extent.heads * runs[i].rows);
      std::vector<float> maxima = reader.floats(queries);
      arrived[i].push_back({std::move(maxima), reader.floats(count)});
    }
  }
  Matrix out(member.q.rows, member.q.width);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const AttentionShape shape = shape_of(member, runs[i], member.place.cp);
    float* own = out.row(runs[i].local_row);
    if (is_exact()) {
      exact[i].round(shape, own);
      continue;
    }
    std::vector<AttentionPart> parts;
    for (int rank = 0; rank < degree(); ++rank) {
      const AttentionShape held = shape_of(member, runs[i], rank);
      const Arrived& part = arrived[i][static_cast<std::size_t>(rank)];
      parts.push_back({held.first_key, held.keys, part.maxima, part.nodes});
    }
    complete_attention(shape, parts, own);
  }
  numerics_.store(out);
  return out;
}

}  // namespace shardcheck
