#include "../../src/reshard/copy_parts.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "mesh_layouts.h"

namespace shardcheck {
namespace {

using ::testing::Le;
using ::testing::SizeIs;

/// Flat indices of a box in row-major order.
std::vector<std::int64_t> indices_of(const Shape& shape, std::span<const std::int64_t> origin,
                                     std::span<const std::int64_t> size) {
  std::vector<std::int64_t> indices = {0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t index : indices) {
      for (std::int64_t i = 0; i < size[d]; ++i) finer.push_back(index * shape[d] + origin[d] + i);
    }
    indices = std::move(finer);
  }
  return indices;
}

TEST(BoxesOfRange, ListEveryElementOnceInOrder) {
  for (const Shape& shape : {Shape{7}, Shape{3, 4}, Shape{1, 5}, Shape{2, 3, 4}, Shape{2, 1, 3, 2}}) {
    const std::int64_t all = element_count(shape);
    for (std::int64_t begin = 0; begin <= all; ++begin) {
      for (std::int64_t end = begin; end <= all; ++end) {
        std::vector<std::int64_t> expected(static_cast<std::size_t>(end - begin));
        std::iota(expected.begin(), expected.end(), begin);
        std::vector<std::int64_t> listed;
        const std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        for (const Box& box : boxes) {
          const auto indices = indices_of(shape, box.origin, box.size);
          ASSERT_EQ(indices.front(), box.first);
          listed.insert(listed.end(), indices.begin(), indices.end());
        }
        ASSERT_EQ(listed, expected) << to_string(shape) << " " << begin << ".." << end;
        ASSERT_THAT(boxes, SizeIs(Le(2 * shape.size() + 1)));
      }
    }
  }
}

TEST(BoxesOfRange, OfNothingAreNone) {
  EXPECT_THAT(boxes_of_range({3, 0}, 0, 0), SizeIs(0));
  EXPECT_THAT(boxes_of_range({3, 4}, 5, 5), SizeIs(0));
}

using Move = std::pair<std::int64_t, std::int64_t>;

/// Target element <- source element, for every element of a copy.
std::set<Move> moves_of(const Copy& copy, const Shape& source, const Shape& target) {
  std::set<Move> moves;
  const auto dims = static_cast<std::size_t>(copy.dims);
  const Shape size(copy.size.begin(), copy.size.begin() + copy.dims), zero(dims, 0);
  for (std::int64_t i = 0; i < element_count(size); ++i) {
    Shape from(copy.source_origin.begin(), copy.source_origin.begin() + std::ssize(source)), to(dims, 0);
    std::int64_t rest = i;
    for (std::size_t d = dims; d-- > 0;) {
      const std::int64_t index = rest % size[d];
      rest /= size[d];
      to[d] = copy.target_origin[d] + index;
      if (copy.source_dim[d] >= 0) from[static_cast<std::size_t>(copy.source_dim[d])] += index;
    }
    const Shape ones_from(source.size(), 1), ones_to(dims, 1);
    moves.emplace(indices_of(target, to, ones_to).front(), indices_of(source, from, ones_from).front());
  }
  return moves;
}

/// Calls `use(copy, source shape, target shape)` for copies of every kind: cut, transposed, stacked.
template <typename Use>
void for_each_copy(Use use) {
  const std::vector<std::tuple<Geometry, std::string, std::string>> pairs = {
      {meshes::gpt2(), "hf-gpt2:tp2", "hf-gpt2"},
      {meshes::llama(), "hf-llama", "megatron-llama:tp2"},
      {meshes::experts(), "hf-moe", "vllm-moe:tp2"},
      {meshes::experts(), "vllm-moe:tp2", "megatron-moe:ep2,tp2"}};
  for (const auto& [geometry, from, to] : pairs) {
    const Layout source = meshes::layout(from, geometry), target = meshes::layout(to, geometry);
    for (const Copy& copy : make_plan(source, target).copies) {
      use(copy,
          source.entries[static_cast<std::size_t>(copy.source_entry)].placed.local_shape(copy.source_rank),
          target.entries[static_cast<std::size_t>(copy.target_entry)].placed.local_shape(copy.target_rank));
    }
  }
}

TEST(PartIn, PartsOverTheBoxesOfATensorAreTheWholeCopy) {
  for_each_copy([](const Copy& copy, const Shape& source, const Shape& target) {
    std::set<Move> moves;
    for (std::int64_t begin = 0, all = element_count(target); begin < all; begin += 29) {
      for (const Box& box : boxes_of_range(target, begin, std::min(begin + 29, all))) {
        const auto part = part_in(copy, box);
        if (!part) continue;
        for (const Move& move : moves_of(*part, source, target)) {
          ASSERT_GE(move.first, begin);
          ASSERT_LT(move.first, begin + 29);
          ASSERT_TRUE(moves.insert(move).second);
        }
      }
    }
    ASSERT_EQ(moves, moves_of(copy, source, target));
  });
}

TEST(ForEachPart, PartsAreTheWholeCopyAndKeepTheirSpan) {
  constexpr std::int64_t kLimit = 6;
  for_each_copy([](const Copy& copy, const Shape& source, const Shape& target) {
    std::set<Move> moves;
    for_each_part(copy, source, kLimit, [&](const Copy& part) {
      const auto [first, end] = source_span(part, source);
      ASSERT_TRUE(end - first <= kLimit || part.elements() == 1);
      for (const Move& move : moves_of(part, source, target)) {
        ASSERT_GE(move.second, first);
        ASSERT_LT(move.second, end);
        ASSERT_TRUE(moves.insert(move).second);
      }
    });
    ASSERT_EQ(moves, moves_of(copy, source, target));
  });
}

}  // namespace
}  // namespace shardcheck
