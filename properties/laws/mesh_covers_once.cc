#include <fmt/format.h>

#include <algorithm>

#include "law_support.h"

namespace shardcheck::laws {
namespace {

Outcome check(const Case& c, Subject& subject) {
  const Layout layout = make_layout(c.target, c.geometry);
  const std::vector<LogicalTensor> tensors = logical_tensors(c.geometry);
  const ShardedTensors shards =
      subject.split(make_weights(c.geometry, WeightStyle::fingerprint, c.seed, DType::f32), layout);
  require_shards_of(layout, shards);
  const std::vector<std::int64_t> holders = count_codes(c.geometry, shards);
  std::size_t code = 1;
  for (const LogicalTensor& tensor : tensors) {
    const std::int64_t expected = holders[code];
    for (std::int64_t i = 0; i < element_count(tensor.shape); ++i, ++code) {
      if (holders[code] == expected && expected > 0) continue;
      Difference d;
      d.parameter = tensor.name;
      d.target_degree = layout.degree;
      d.worst_index = i;
      d.worst_place = tensor.name + coordinates(tensor.shape, i);
      d.expected = fmt::format("{} ranks", std::max<std::int64_t>(expected, 1));
      d.actual = fmt::format("{} ranks", holders[code]);
      return Outcome::fail(fmt::format("{} is held by {} of {} ranks, expected {}", d.worst_place,
                                       holders[code], layout.degree, d.expected),
                           d);
    }
  }
  return with_digest(Outcome::pass(), Digest().add(shards));
}

Case draw(Stream& stream) { return draw_for("mesh_covers_once", stream, {.forward = false, .meshes = true}); }

}  // namespace

const Law& mesh_covers_once() {
  static const Law law{
      .name = "mesh_covers_once",
      .claim =
          "Over any mesh every element of a logical tensor is held, and by as many ranks as every other "
          "element of it.",
      .check = check,
      .draw = draw,
      .shares = {{"mesh", 0.3}, {"experts", 0.15}, {"latent", 0.05}},
      .smoke_cases = 200};
  return law;
}

}  // namespace shardcheck::laws
