#include "shardcheck/reshard/misplacement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "addend.h"
#include "layout/file_blocks.h"
#include "origin_lines.h"
#include "tensor/at.h"

namespace shardcheck {
namespace {

using Kind = OriginBox::Kind;

constexpr std::array<std::string_view, 14> kSymptoms = {
    "other_rank", "other_tensor",  "other_addend",   "one_block",     "transposed",
    "reshaped",   "never_written", "values_changed", "rolled",        "reversed",
    "reordered",  "displaced",     "repeated",       "other_elements"};
constexpr std::size_t kMaxBoxes = 3;  // that a sentence lists

std::string count_text(std::int64_t count, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? plural.substr(0, plural.size() - 1) : plural);
}

std::string run_text(const LineRun& run) {
  if (run.length == 1) return fmt::to_string(run.begin);
  return fmt::format("{}-{}", run.begin, run.falling ? run.lowest() : run.begin + run.length - 1);
}

std::string list_text(const LineRuns& runs) {
  std::string text;
  for (std::size_t i = 0; i < std::min(runs.size(), kMaxRanges); ++i) {
    text += (i == 0 ? "" : ", ") + run_text(runs[i]);
  }
  if (runs.size() > kMaxRanges) text += fmt::format(" and {} more ranges", runs.size() - kMaxRanges);
  return text;
}

std::int64_t total(const LineRuns& runs, std::optional<Kind> kind = {}) {
  std::int64_t lines = 0;
  for (const LineRun& run : runs) lines += !kind || run.kind == *kind ? run.length : 0;
  return lines;
}

bool rises(const LineRuns& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].falling && runs[i].length > 1) return false;
    if (i > 0 && runs[i].begin < runs[i - 1].begin + runs[i - 1].length) return false;
  }
  return true;
}

/// Every line on its own, in ascending order of (entry, line) where `sorted`.
std::vector<std::pair<std::int64_t, std::int64_t>> single_lines(const LineRuns& runs, bool sorted) {
  std::vector<std::pair<std::int64_t, std::int64_t>> lines;
  for (const LineRun& run : runs) {
    for (std::int64_t i = 0; i < run.length; ++i) {
      const std::int64_t line = run.kind == Kind::element ? run.begin + (run.falling ? -i : i) : -1;
      lines.emplace_back(run.entry, line);
    }
  }
  if (sorted) std::ranges::sort(lines);
  return lines;
}

/// What one shard holds, beside what it should.
class Describer {
 public:
  Describer(const Layout& layout, Misplacement& result, const ShardedTensors& right, const Tensor& shard)
      : layout_(layout),
        result_(result),
        own_(layout.entries[at(result.entry)]),
        right_(right),
        shard_(shard),
        dim_(line_dim(own_, result.rank)) {
    choose_lines();
  }

  void describe() {
    result_.expected = lines_ ? lines_text(expected_) : box_text(expected_box());
    result_.holds = lines_ ? lines_text(*lines_) + order_text() : boxes_text();
    if (!looks_like_another_shard() && !looks_like_other_values()) {
      lines_ ? look_at_lines() : look_at_boxes();
    }
  }

 private:
  /// Along the dimension that is cut where that is possible, else along another.
  void choose_lines() {
    const std::size_t dims = std::max<std::size_t>(own_.placed.shape().size(), 1);
    for (std::size_t i = 0; i < dims && !lines_; ++i) {
      const std::size_t d = i == 0 ? dim_ : (i <= dim_ ? i - 1 : i);
      lines_ = lines_along(layout_, result_.entry, result_.rank, d, result_.found);
      if (lines_ && i > 0) dim_ = d;
    }
    expected_ = expected_lines(layout_, result_.entry, result_.rank, dim_);
    word_ = line_word(own_, dim_);
  }

  void look(Symptom symptom, std::string text) {
    result_.symptom = symptom;
    result_.looks_like = std::move(text);
  }

  std::string_view name_of(std::int64_t entry) const { return layout_.entries[at(entry)].name; }

  // What it holds.

  /// Lines of one kind and tensor together, kinds in order of their first line.
  std::string lines_text(const LineRuns& runs) const {
    std::vector<LineRuns> groups;
    for (const LineRun& run : runs) {
      const auto same = std::ranges::find_if(groups, [&](const LineRuns& group) {
        return group.front().kind == run.kind && group.front().entry == run.entry;
      });
      if (same == groups.end()) {
        groups.push_back({run});
      } else {
        same->push_back(run);
      }
    }
    std::string text;
    for (const LineRuns& group : groups)
      text += (text.empty() ? "" : " and ") + group_text(group, &runs != &expected_);
    return text.empty() ? "nothing" : text;
  }

  std::string group_text(const LineRuns& group, bool is_found) const {
    const std::int64_t lines = total(group);
    if (group.front().kind == Kind::unknown) {
      return count_text(lines, word_) + (lines == 1 ? " that is" : " that are") +
             " in no tensor of the checkpoint";
    }
    if (group.front().kind == Kind::zero) {
      return is_found ? fmt::format("{} of zeros", count_text(lines, word_))
                      : fmt::format("{} of padding", count_text(lines, word_));
    }
    if (!is_found) return list_text(group);
    if (group.front().entry == result_.entry) return fmt::format("source {} {}", word_, list_text(group));
    return fmt::format("{} {} of {}", word_, list_text(group), name_of(group.front().entry));
  }

  std::string order_text() const {
    const bool one_tensor = std::ranges::all_of(*lines_, [&](const LineRun& run) {
      return run.kind == Kind::element && run.entry == lines_->front().entry;
    });
    if (!one_tensor || lines_->empty()) return "";
    return rises(*lines_) ? " in order" : lines_->size() == 1 ? "" : " in this order";
  }

  static std::string box_text(const OriginBox& box, std::size_t dims) {
    std::string text = "[";
    for (std::size_t o = 0; o < dims; ++o) {
      std::int64_t begin = box.origin[o], length = 1;
      for (std::size_t d = 0; d < dims; ++d) {
        if (std::abs(box.step[d]) != static_cast<int>(o) + 1) continue;
        length = box.size[d];
        if (box.step[d] < 0) begin -= length - 1;
      }
      text += (o == 0 ? "" : ", ") + range_text(begin, length);
    }
    return text + "]";
  }
  std::string box_text(const OriginBox& box) const { return box_text(box, own_.placed.shape().size()); }

  /// The hull of what the rank should hold.
  OriginBox expected_box() const {
    OriginBox box;
    for (std::size_t d = 0; d < own_.placed.shape().size(); ++d) {
      std::int64_t first = -1, last = -1;
      for (const LineRun& run : expected_lines(layout_, result_.entry, result_.rank, d)) {
        if (run.kind != Kind::element) continue;
        first = first < 0 ? run.begin : std::min(first, run.begin);
        last = std::max(last, run.begin + run.length - 1);
      }
      box.origin[d] = std::max<std::int64_t>(first, 0);
      box.size[d] = last - first + 1;
      box.step[d] = static_cast<std::int8_t>(d + 1);
    }
    return box;
  }

  static bool is_transposed(const OriginBox& box) {
    for (std::size_t d = 0; d < box.step.size(); ++d) {
      if (box.step[d] != 0 && std::abs(box.step[d]) != static_cast<int>(d) + 1) return true;
    }
    return false;
  }

  std::string one_box_text(const OriginBox& box) const {
    const std::int64_t elements = box.elements();
    if (box.kind == Kind::zero) return count_text(elements, "zeros");
    if (box.kind == Kind::unknown)
      return count_text(elements, "elements") + " of no tensor of the checkpoint";
    const std::size_t dims = layout_.entries[at(box.entry)].placed.shape().size();
    return fmt::format(
        "{} {}{}",
        box.entry == result_.entry ? "source block" : fmt::format("block of {}", name_of(box.entry)),
        box_text(box, dims), is_transposed(box) ? " transposed" : "");
  }

  std::string boxes_text() const {
    if (const auto first = flat_run()) {
      return fmt::format("source elements {}-{} in memory order", *first, *first + shard_.elements() - 1);
    }
    const auto& boxes = result_.found.boxes;
    std::string text;
    for (std::size_t i = 0; i < std::min(boxes.size(), kMaxBoxes); ++i) {
      text += (i == 0 ? "" : ", ") + one_box_text(boxes[i]);
    }
    const std::int64_t all = std::ssize(boxes) + result_.found.boxes_left_out;
    if (const auto more = all - static_cast<std::int64_t>(kMaxBoxes); more > 0)
      text += fmt::format(" and {} more blocks", more);
    return text;
  }

  // Consecutive elements in another shape.

  /// Flat index of the first element of the source when the shard is consecutive elements of its tensor.
  std::optional<std::int64_t> flat_run() const {
    std::optional<std::int64_t> first;
    if (result_.found.boxes_left_out > 0) return std::nullopt;
    for (const OriginBox& box : result_.found.boxes) {
      if (box.kind != Kind::element || box.entry != result_.entry) return std::nullopt;
      const auto local = flat_begin(box, box.local, shard_.shape());
      const auto origin = flat_begin(box, box.origin, own_.placed.shape());
      if (!local || !origin || is_transposed(box)) return std::nullopt;
      if (first && *origin - *local != *first) return std::nullopt;
      first = *origin - *local;
    }
    return first;
  }

  /// Where the box begins in memory, nullopt when it is not consecutive there.
  static std::optional<std::int64_t> flat_begin(const OriginBox& box, const OriginBox::Index& begin,
                                                const Shape& shape) {
    std::int64_t flat = 0, stride = 1;
    bool full = true;  // the dimensions inside are
    for (std::size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
      if (box.step[d] < 0 || (box.size[d] > 1 && !full)) return std::nullopt;
      full = full && box.size[d] == shape[d];
      flat += begin[d] * stride;
    }
    return flat;
  }

  // What it looks like.

  bool looks_like_another_shard() {
    const std::vector<Tensor>& ranks = right_.at(own_.name);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!own_.placed.held_by(static_cast<int>(rank)) || !shard_.same_bytes(ranks[rank])) continue;
      look(Symptom::other_rank, fmt::format("the shard of rank {}", rank));
      return true;
    }
    const auto& boxes = result_.found.boxes;
    const std::int64_t other = boxes.empty() || result_.found.boxes_left_out > 0 ? -1 : boxes.front().entry;
    if (other < 0 || other == result_.entry) return false;
    if (!std::ranges::all_of(boxes, [&](const OriginBox& box) { return box.entry == other; })) return false;
    const LayoutEntry& entry = layout_.entries[at(other)];
    const bool whole =
        entry.placed.held_by(result_.rank) && shard_.same_bytes(right_.at(entry.name)[at(result_.rank)]);
    look(Symptom::other_tensor, fmt::format("{} of {}", whole ? "the shard" : "a part", entry.name));
    return true;
  }

  bool looks_like_other_values() {
    const std::int64_t unknown = result_.found.elements(Kind::unknown),
                       zero = result_.found.elements(Kind::zero);
    if (unknown == shard_.elements()) {
      look(Symptom::values_changed, "its values changed on the way, or are of another checkpoint");
    } else if (unknown > 0) {
      look(Symptom::values_changed, fmt::format("{} changed on the way", count_text(unknown, "values")));
    } else if (zero == shard_.elements()) {
      look(Symptom::never_written, "it was never written");
    } else if (zero > (lines_ ? total(expected_, Kind::zero) * line_elements() : 0)) {
      look(Symptom::never_written, "a part was never written");
    } else {
      return false;
    }
    return true;
  }
  std::int64_t line_elements() const {
    return shard_.elements() / std::max<std::int64_t>(total(expected_), 1);
  }

  void look_at_boxes() {
    const auto& boxes = result_.found.boxes;
    if (std::ranges::any_of(boxes, is_transposed)) {
      look(Symptom::transposed, "transposed before it was cut");
    } else if (flat_run()) {
      look(Symptom::reshaped, "cut along another dimension, and its bytes read in this shape");
    } else {
      look(Symptom::other_elements, "elements of other places");
    }
  }

  void look_at_lines() {
    const auto found = single_lines(*lines_, false), wanted = single_lines(expected_, false);
    if (single_lines(*lines_, true) == single_lines(expected_, true)) return look_at_order(found, wanted);
    const bool all_own =
        std::ranges::all_of(*lines_, [&](const LineRun& run) { return run.entry == result_.entry; });
    auto sorted = single_lines(*lines_, true);
    if (!all_own) {
      look(Symptom::other_tensor, "elements of several tensors");
    } else if (lines_->size() == 1 && !lines_->front().falling && expected_.size() > 1) {
      look(Symptom::one_block,
           fmt::format("the {}tensor was cut as one block", own_.parts.size() > 1 ? "fused " : ""));
    } else if (std::ranges::adjacent_find(sorted) != sorted.end()) {
      look(Symptom::repeated, fmt::format("{} arrive more than once", word_));
    } else if (lines_->size() == 1 && expected_.size() == 1 && !lines_->front().falling) {
      const std::int64_t by = lines_->front().begin - expected_.front().begin;
      look(Symptom::displaced,
           fmt::format("it begins {} too {}", count_text(std::abs(by), word_), by < 0 ? "early" : "late"));
    } else {
      look(Symptom::other_elements, fmt::format("{} of other ranks", word_));
    }
  }

  void look_at_order(const std::vector<std::pair<std::int64_t, std::int64_t>>& found,
                     const std::vector<std::pair<std::int64_t, std::int64_t>>& wanted) {
    const auto start = std::ranges::find(wanted, found.front());
    const auto by = start - wanted.begin();
    auto rolled = wanted;
    std::rotate(rolled.begin(), rolled.begin() + by, rolled.end());
    if (rolled == found)
      return look(Symptom::rolled, fmt::format("the right {}, rolled by {}", word_, wanted.end() - start));
    if (std::ranges::equal(found.rbegin(), found.rend(), wanted.begin(), wanted.end())) {
      return look(Symptom::reversed, fmt::format("the right {}, last to first", word_));
    }
    look(Symptom::reordered, fmt::format("the right {} in another order", word_));
  }

  const Layout& layout_;
  Misplacement& result_;
  const LayoutEntry& own_;
  const ShardedTensors& right_;
  const Tensor& shard_;
  std::size_t dim_;
  std::string_view word_;
  LineRuns expected_;
  std::optional<LineRuns> lines_;
};

}  // namespace

std::string_view to_string(Symptom symptom) noexcept { return kSymptoms[static_cast<std::size_t>(symptom)]; }

Misplacement describe_shard(const Layout& layout, std::int64_t entry, int rank, const ShardedTensors& right,
                            const Tensor& shard, ShardDecoder& decoder) {
  Misplacement result;
  result.entry = entry;
  result.rank = rank;
  if (layout.entries[at(entry)].placed.is_partial() && describe_addend(layout, right, shard, decoder, result))
    return result;
  result.found = decoder.decode(entry, rank, shard);
  Describer(layout, result, right, shard).describe();
  return result;
}

std::string sentence_of(const Layout& layout, const Misplacement& m) {
  const std::string doubt =
      m.found.ambiguous_lines == 0
          ? ""
          : fmt::format(" ({} of these occur several times in the checkpoint: their origin is a guess)",
                        m.found.ambiguous_lines);
  return fmt::format("rank {} of {} holds {}{}; expected {}: {}", m.rank, layout.entries[at(m.entry)].name,
                     m.holds, doubt, m.expected, m.looks_like);
}

}  // namespace shardcheck
