#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "matched.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

std::int64_t wanted_length(const std::vector<Overlap>& overlaps) {
  return std::accumulate(overlaps.begin(), overlaps.end(), std::int64_t{0},
                         [](std::int64_t sum, const Overlap& overlap) { return sum + overlap.length; });
}

/// Counts what ranks want and what a process holds of it.
class Counter {
 public:
  explicit Counter(const Matched& matched) : matched_(matched) {}

  /// Elements of one part that a target rank of a class wants.
  std::int64_t wanted(std::size_t entry, const MatchedPart& part, int klass) const {
    const EntryView& view = matched_.target.view(entry);
    if (stack_position(view, klass, part.target_item) < 0) return 0;
    std::int64_t elements = 1;
    for (int dim = view.has_stack() ? 1 : 0; dim < view.dims(); ++dim) {
      elements *= wanted_length(part.match->overlaps(klass, dim));
    }
    return elements;
  }

  /// Of them, those that source rank `process` holds.
  std::int64_t held(std::size_t entry, const MatchedPart& any_part, int klass, int process) const {
    const Layout& source = matched_.source.layout();
    const MatchedPart& part = any_part.nearest(source, process);
    const EntryView& view = matched_.target.view(entry);
    if (process >= source.degree || !source.entries[at(part.source_entry)].placed.held_by(process) ||
        stack_position(view, klass, part.target_item) < 0 ||
        (part.source_stack != nullptr && !holds(part.source_stack->front(), process))) {
      return 0;
    }
    std::int64_t elements = 1;
    for (int dim = view.has_stack() ? 1 : 0; dim < view.dims(); ++dim) {
      std::int64_t length = 0;
      for (const Overlap& overlap : part.match->overlaps(klass, dim)) {
        if (holds(*overlap.interval, process)) length += overlap.length;
      }
      elements *= length;
    }
    return elements;
  }

 private:
  bool holds(const Interval& interval, int process) const {
    return std::any_of(interval.holders.begin(), interval.holders.end(), [&](const auto& holder) {
      return matches(matched_.source.layout().mesh, process, holder.at);
    });
  }

  const Matched& matched_;
};

/// Shortest augmenting paths over a square cost matrix (Jonker and Volgenant 1987): the column of each row.
std::vector<int> assign(const std::vector<std::int64_t>& cost, int n) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> row_price(at(n) + 1, 0), column_price(at(n) + 1, 0);
  std::vector<int> row_of(at(n) + 1, 0), previous(at(n) + 1, 0);
  for (int row = 1; row <= n; ++row) {
    std::vector<std::int64_t> distance(at(n) + 1, kFar);
    std::vector<bool> done(at(n) + 1, false);
    int column = 0;
    row_of[0] = row;
    do {
      done[at(column)] = true;
      const int here = row_of[at(column)];
      std::int64_t step = kFar;
      int next = 0;
      for (int c = 1; c <= n; ++c) {
        if (done[at(c)]) continue;
        const std::int64_t reduced =
            cost[at(here - 1) * at(n) + at(c - 1)] - row_price[at(here)] - column_price[at(c)];
        if (reduced < distance[at(c)]) {
          distance[at(c)] = reduced;
          previous[at(c)] = column;
        }
        if (distance[at(c)] < step) {
          step = distance[at(c)];
          next = c;
        }
      }
      for (int c = 0; c <= n; ++c) {
        if (done[at(c)]) {
          row_price[at(row_of[at(c)])] += step;
          column_price[at(c)] -= step;
        } else if (distance[at(c)] != kFar) {
          distance[at(c)] -= step;
        }
      }
      column = next;
    } while (row_of[at(column)] != 0);
    for (; column != 0; column = previous[at(column)]) row_of[at(column)] = row_of[at(previous[at(column)])];
  }
  std::vector<int> columns(at(n));
  for (int c = 1; c <= n; ++c) columns[at(row_of[at(c)] - 1)] = c - 1;
  return columns;
}

}  // namespace

PlanBound plan_bound(const Layout& source, const Layout& target, const RankMap& map) {
  const Matched matched(source, target);
  const Processes processes(target, map);
  const Counter count(matched);
  PlanBound bound;
  for (std::size_t e = 0; e < target.entries.size(); ++e) {
    const PlacedTensor& placed = target.entries[e].placed;
    for (const int rank : placed.holders()) {
      const int klass = placed.class_of(rank);
      for (const MatchedPart& part : matched.match.parts(e)) {
        bound.elements += count.wanted(e, part, klass);
        bound.held_already += count.held(e, part, klass, processes.of(rank));
      }
    }
  }
  return bound;
}

RankMap best_rank_map(const Layout& source, const Layout& target) {
  constexpr int kMaxProcesses = 1024;
  const int processes = std::max(source.degree, target.degree);
  if (processes > kMaxProcesses) {
    throw InvalidInput(
        fmt::format("an optimal rank map of {} processes; allowed: at most {}", processes, kMaxProcesses));
  }
  const Matched matched(source, target);
  const Counter count(matched);
  std::vector<std::int64_t> cost(at(processes) * at(processes), 0);  // target rank x process, negative
  for (std::size_t e = 0; e < target.entries.size(); ++e) {
    const PlacedTensor& placed = target.entries[e].placed;
    for (const int rank : placed.holders()) {
      const int klass = placed.class_of(rank);
      for (const MatchedPart& part : matched.match.parts(e)) {
        // A process counts once, also where it holds the tensor and a tied copy of it.
        std::set<int> holders;
        const auto add_holders = [&](const MatchedPart& place) {
          const std::vector<int> ranks = source.entries[at(place.source_entry)].placed.holders();
          holders.insert(ranks.begin(), ranks.end());
        };
        add_holders(part);
        std::ranges::for_each(part.copies, add_holders);
        for (const int process : holders) {
          cost[at(rank) * at(processes) + at(process)] -= count.held(e, part, klass, process);
        }
      }
    }
  }
  std::vector<int> map = assign(cost, processes);
  map.resize(at(target.degree));
  return map;
}

}  // namespace shardcheck
