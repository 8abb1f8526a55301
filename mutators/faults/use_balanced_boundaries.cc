// Boundaries of another rule of division than the shapes follow.
#include <algorithm>

#include "taken.h"

namespace shardcheck::faults {
namespace {

std::int64_t other_begin(std::string_view rule, std::int64_t length, int degree, int rank) {
  if (rule == "floor") return length / degree * rank;
  return part_of(SplitPolicy::balanced, length, degree, rank).first;
}

std::optional<Taken> taken(const Case&, const LayoutEntry& entry, int rank, std::string_view rule) {
  const Shard* shard = sharded(entry);
  if (shard == nullptr || shard->policy != SplitPolicy::chunk || shard->unit != 1) return std::nullopt;
  const std::int64_t length = entry.placed.shape()[static_cast<std::size_t>(shard->dim)];
  const int degree = entry.placed.degree();
  if (length % degree == 0) return std::nullopt;
  const std::int64_t own = length_of(owned(entry, rank, shard->dim));
  Taken taken{shard->dim, {}};
  append_run(taken.runs, {std::min(other_begin(rule, length, degree, rank), length - own), own});
  return taken;
}

}  // namespace

const Fault& use_balanced_boundaries() {
  static const Fault fault{
      .name = "use_balanced_boundaries",
      .family = 'U',
      .level = FaultLevel::plan,
      .claim =
          "The vocabulary is cut by torch.chunk and a rank's rows begin where another rule of division puts "
          "them.",
      .reports = {"faults.md", "A90"},
      .oracles = {Oracle::layout, Oracle::tree, Oracle::native},
      .arguments = {"balanced", "floor"},
      .not_applicable = [](const Case& c, std::string_view argument) -> std::optional<std::string> {
        return unless_taken(c, argument, Side::target, taken,
                            "the ranks divide the vocabulary, or it is not cut by torch.chunk");
      },
      .equivalent = equal_index_maps<taken>,
      .inject = takes<taken>};
  return fault;
}

}  // namespace shardcheck::faults
