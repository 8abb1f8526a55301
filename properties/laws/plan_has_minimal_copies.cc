#include <fmt/format.h>

#include <array>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

/// Whether `second` continues `first` along one dimension of both tensors.
bool is_one_box(const Copy& first, const Copy& second) {
  if (first.source_entry != second.source_entry || first.source_rank != second.source_rank) return false;
  if (first.target_entry != second.target_entry || first.target_rank != second.target_rank) return false;
  int along = -1;
  for (int d = 0; d < first.dims; ++d) {
    const auto at = static_cast<std::size_t>(d);
    if (first.size[at] == second.size[at] && first.target_origin[at] == second.target_origin[at]) continue;
    if (along >= 0 || first.target_origin[at] + first.size[at] != second.target_origin[at]) return false;
    along = d;
  }
  if (along < 0) return false;
  const auto dim = static_cast<std::size_t>(along);
  std::array<std::int64_t, Piece::kMaxRank> expected = first.source_origin;
  if (first.source_dim[dim] < 0 || first.source_dim != second.source_dim) return false;
  expected[static_cast<std::size_t>(first.source_dim[dim])] += first.size[dim];
  return expected == second.source_origin;
}

Outcome check(const Case& c, Subject& subject) {
  const Layout source = make_layout(c.source, c.geometry);
  const Layout target = make_layout(c.target, c.geometry);
  const Plan plan = subject.plan(source, target);
  for (std::size_t i = 0; i < plan.copies.size(); ++i) {
    // Copies into one tensor of one rank follow each other.
    for (std::size_t j = i + 1; j < plan.copies.size(); ++j) {
      const Copy &one = plan.copies[i], &other = plan.copies[j];
      if (one.target_rank != other.target_rank || one.target_entry != other.target_entry) break;
      if (!is_one_box(one, other) && !is_one_box(other, one)) continue;
      Difference d;
      d.parameter = target.entries[static_cast<std::size_t>(one.target_entry)].name;
      d.rank = one.target_rank;
      d.source_degree = source.degree;
      d.target_degree = target.degree;
      return Outcome::fail(fmt::format("{}: two copies into rank {} are one box", d.parameter, d.rank), d);
    }
  }
  return with_digest(Outcome::pass(), Digest().add(static_cast<double>(plan.copies.size())));
}

Case draw(Stream& stream) {
  return draw_for("plan_has_minimal_copies", stream, {.forward = false, .meshes = true});
}

}  // namespace

const Law& plan_has_minimal_copies() {
  static const Law law{
      .name = "plan_has_minimal_copies",
      .claim = "No two copies of a plan are one box on both sides.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}, {"source!=target", 0.5}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
