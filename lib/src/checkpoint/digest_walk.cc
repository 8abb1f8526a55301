#include "checkpoint/digest_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "checkpoint/page_window.h"
#include "reshard/copy_parts.h"
#include "reshard/run_copy.h"
#include "shardcheck/reshard/plan.h"
#include "shardcheck/reshard/reshard.h"
#include "tensor/at.h"
#include "text/messages.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{8} << 20;  // read, or brought into logical order, at a time
constexpr std::size_t kDims = 2;                            // of logical tensors

/// A box of a logical tensor between neighbouring cuts, so that every copy of the tensor holds all or none of
/// it.
struct Cell {
  std::array<std::int64_t, kDims> begin{}, size{1, 1};
};

using Cuts = std::array<std::vector<std::int64_t>, kDims>;

/// Begins and ends of what copies of a tensor hold, along its dimensions.
Cuts cuts_of(std::span<const Copy> held) {
  Cuts cuts;
  for (const Copy& copy : held) {
    for (int d = 0; d < copy.dims; ++d) {
      const int along = copy.source_dim[at(d)];
      if (along < 0) continue;
      const std::int64_t begin = copy.source_origin[at(along)];
      cuts.at(at(along)).insert(cuts.at(at(along)).end(), {begin, begin + copy.size[at(d)]});
    }
  }
  for (std::vector<std::int64_t>& cut : cuts) {
    std::sort(cut.begin(), cut.end());
    cut.erase(std::unique(cut.begin(), cut.end()), cut.end());
  }
  return cuts;
}

/// Calls `use(begin, size)` for the stretches between cuts in [begin, begin + size).
template <typename Use>
void between_cuts(const std::vector<std::int64_t>& cuts, std::int64_t begin, std::int64_t size, Use use) {
  for (auto cut = std::lower_bound(cuts.begin(), cuts.end(), begin); *cut < begin + size; ++cut) {
    use(*cut, *(cut + 1) - *cut);
  }
}

std::vector<Cell> cells_of(const Copy& held, const Cuts& cuts) {
  std::vector<Cell> cells(1);
  for (int d = 0; d < held.dims; ++d) {
    if (held.source_dim[at(d)] < 0) continue;
    const std::size_t along = at(held.source_dim[at(d)]);
    std::vector<Cell> finer;
    for (const Cell& cell : cells) {
      between_cuts(cuts.at(along), held.source_origin[along], held.size[at(d)],
                   [&](std::int64_t begin, std::int64_t size) {
                     finer.push_back(cell);
                     finer.back().begin.at(along) = begin;
                     finer.back().size.at(along) = size;
                   });
    }
    cells = std::move(finer);
  }
  return cells;
}

/// The copy that reads a cell back into the logical tensor.
Copy reading(const Copy& held, const Cell& cell, int dims) {
  Copy copy;
  copy.dims = static_cast<std::int8_t>(dims);
  copy.size.fill(1);
  copy.source_dim.fill(-1);
  copy.source_origin = held.target_origin;
  copy.shift = -held.shift;
  for (int d = 0; d < held.dims; ++d) {
    const int along = held.source_dim[at(d)];
    if (along < 0) continue;
    copy.source_dim[at(along)] = static_cast<std::int8_t>(d);
    copy.size[at(along)] = cell.size.at(at(along));
    copy.target_origin[at(along)] = cell.begin.at(at(along));
    copy.source_origin[at(d)] += cell.begin.at(at(along)) - held.source_origin[at(along)];
  }
  return copy;
}

class DigestWalk {
 public:
  DigestWalk(const SourceFolder& folder, const Layout& layout, const ProgressSink& progress)
      : folder_(folder),
        layout_(layout),
        progress_(progress),
        logical_(logical_tensors(layout.geometry)),
        held_(make_plan(logical_layout(layout.geometry), layout).copies) {}

  FolderDigest take() { return std::move(result_); }

  /// Padding counts nowhere; to be called before `walk`, which sorts the copies.
  void check_padding() {
    for (std::size_t e = 0; e < layout_.entries.size(); ++e) {
      for (const int rank : layout_.entries[e].placed.holders()) check_padding_of(e, rank);
    }
  }

  void walk(bool only_replicated) {
    std::stable_sort(held_.begin(), held_.end(),
                     [this](const Copy& a, const Copy& b) { return key(a) < key(b); });
    for (auto first = held_.begin(); first != held_.end();) {
      const auto last = std::find_if(
          first, held_.end(), [first](const Copy& copy) { return copy.source_entry != first->source_entry; });
      const std::span<const Copy> copies(first, last);
      if (!only_replicated || is_replicated(copies)) walk_tensor(copies);
      first = last;
    }
    check_tied_head();
    window_.release();
  }

 private:
  /// Tied copies after what they are tied to, ranks ascending.
  std::tuple<std::int32_t, bool, std::int32_t> key(const Copy& copy) const {
    return {copy.source_entry, layout_.entries[at(copy.target_entry)].tied, copy.target_rank};
  }

  bool is_replicated(std::span<const Copy> held) const {
    std::int64_t elements = 0;
    for (const Copy& copy : held) elements += copy.elements();
    return elements > element_count(logical_[at(held.front().source_entry)].shape);
  }

  void walk_tensor(std::span<const Copy> held) {
    const LogicalTensor& tensor = logical_[at(held.front().source_entry)];
    const DType dtype = folder_.dtype(at(held.front().target_entry));
    report(tensor, held.front().source_entry);
    WeightDigest sum = digest_of_header(tensor.name, dtype, tensor.shape);
    result_.tensors += 1;
    result_.bytes += static_cast<std::uint64_t>(element_count(tensor.shape) * size_bits(dtype)) / 8;
    const Cuts cuts = cuts_of(held);
    std::map<std::array<std::int64_t, kDims>, std::pair<WeightDigest, const Copy*>> known;
    const Copy* reported = nullptr;
    for (const Copy& copy : held) {
      for (const Cell& cell : cells_of(copy, cuts)) {
        const WeightDigest digest = digest_of_cell(tensor, copy, cell);
        const auto [owner, fresh] = known.try_emplace(cell.begin, digest, &copy);
        if (fresh) sum += digest;
        const bool repeats = reported != nullptr && reported->target_rank == copy.target_rank &&
                             reported->target_entry == copy.target_entry;
        if (owner->second.first == digest || repeats) continue;
        reported = &copy;
        disagree(tensor, *owner->second.second, copy);
      }
    }
    result_.digest += sum;
    result_.by_tensor.emplace(tensor.name, sum);
  }

  void disagree(const LogicalTensor& tensor, const Copy& owner, const Copy& other) {
    const LayoutEntry& one = layout_.entries[at(owner.target_entry)];
    const LayoutEntry& two = layout_.entries[at(other.target_entry)];
    result_.disagreements.push_back(fmt::format("{}: {} on rank {} differs from {} on rank {}", tensor.name,
                                                quote(two.name), other.target_rank, quote(one.name),
                                                owner.target_rank));
  }

  WeightDigest digest_of_cell(const LogicalTensor& tensor, const Copy& held, const Cell& cell) {
    const auto entry = at(held.target_entry);
    const DType dtype = folder_.dtype(entry);
    const Shape file = layout_.entries[entry].placed.local_shape(held.target_rank);
    const StoredTensor stored = folder_.tensor(entry, held.target_rank);
    TensorDigest digest(tensor.name, dtype, tensor.shape);
    const Copy whole = reading(held, cell, static_cast<int>(tensor.shape.size()));
    for_each_part(whole, file, kPartBytes * 8 / size_bits(dtype), [&](const Copy& part) {
      const auto [first, last] = source_span(part, file);
      const int bits = size_bits(dtype);
      window_.touch(stored.bytes + first * bits / 8, at((last - first) * bits + 7) / 8);
      add_part(digest, tensor, dtype, part, file, stored.bytes);
    });
    return digest.sum();
  }

  /// Adds a part row by row, rearranged first where its rows do not lie in the file as they are.
  void add_part(TensorDigest& digest, const LogicalTensor& tensor, DType dtype, const Copy& part,
                const Shape& file, const std::byte* bytes) {
    const auto dims = at(part.dims);
    const std::int64_t rows = dims == 2 ? part.size[0] : 1, columns = part.size[dims - 1];
    const std::int64_t width = tensor.shape.back();
    const std::int64_t first =
        dims == 2 ? part.target_origin[0] * width + part.target_origin[1] : part.target_origin[0];
    const int bits = size_bits(dtype);
    std::int64_t stride = columns;
    Tensor rearranged;
    if (part.shift == 0 && at(part.source_dim[dims - 1]) == file.size() - 1) {
      bytes += source_span(part, file).first * bits / 8;
      if (dims == 2)
        stride = file.back() * (at(part.source_dim[0]) + 2 == file.size() ? 1 : file[file.size() - 2]);
    } else {
      rearranged = read_copy(tensor.name, dtype, part, bytes, file);
      bytes = rearranged.bytes().data();
    }
    if (columns == width && stride == columns) return digest.add_run(first, bytes, rows * columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      digest.add_run(first + r * width, bytes + r * stride * bits / 8, columns);
    }
  }

  /// What is copied into an entry of a rank; nothing where it holds padding alone.
  std::span<const Copy> copies_into(std::size_t entry, int rank) const {
    const auto [first, last] = std::equal_range(
        held_.begin(), held_.end(),
        Copy{.target_entry = static_cast<std::int32_t>(entry), .target_rank = rank},
        [](const Copy& a, const Copy& b) {
          return std::tie(a.target_rank, a.target_entry) < std::tie(b.target_rank, b.target_entry);
        });
    return {first, last};
  }

  void check_padding_of(std::size_t entry, int rank) {
    const std::span<const Copy> held = copies_into(entry, rank);
    const int bits = size_bits(folder_.dtype(entry));
    const Shape file = layout_.entries[entry].placed.local_shape(rank);
    std::int64_t elements = 0;
    for (const Copy& copy : held) elements += copy.elements();
    const std::int64_t all = element_count(file);
    if (elements == all) return;
    constexpr std::int64_t kStep = std::int64_t{1} << 20;
    for (std::int64_t begin = 0; begin < all; begin += kStep) {
      for (const Box& box : boxes_of_range(file, begin, std::min(begin + kStep, all))) {
        if (is_zero_outside(held, box, folder_.dtype(entry),
                            folder_.tensor(entry, rank).bytes + box.first * bits / 8)) {
          continue;
        }
        result_.disagreements.push_back(
            fmt::format("{}: the padding on rank {} is not zero", layout_.entries[entry].name, rank));
        return;
      }
    }
  }

  bool is_zero_outside(std::span<const Copy> held, const Box& box, DType dtype, const std::byte* bytes) {
    std::vector<Copy> parts;
    std::int64_t covered = 0;
    for (const Copy& copy : held) {
      if (const auto part = part_in(copy, box)) {
        covered += parts.emplace_back(*part).elements();
      }
    }
    const std::int64_t elements = element_count(box.size);
    if (covered == elements) return true;
    const std::size_t size = at((elements * size_bits(dtype) + 7) / 8);
    window_.touch(bytes, size);
    std::vector<std::byte> rest(bytes, bytes + size);
    const std::vector<std::byte> zeros(size);
    for (const Copy& part : parts) {
      const auto dims = at(part.dims);
      const std::span extents = std::span(part.size).first(dims);
      Shape origin(dims, 0);
      const Shape none(dims, 0);
      for (std::size_t d = 0; d < dims; ++d) origin[d] = part.target_origin[d] - box.origin[d];
      copy_box("padding", dtype, extents, zeros.data(), {extents, none}, rest.data(), {box.size, origin});
    }
    return rest == zeros;
  }

  void check_tied_head() {
    const auto& tied = folder_.tied_head();
    if (!tied) return;
    for (std::size_t begin = 0; begin < tied->head.size_bytes; begin += at(kPartBytes)) {
      const std::size_t size = std::min(at(kPartBytes), tied->head.size_bytes - begin);
      window_.touch(tied->head.bytes + begin, size);
      window_.touch(tied->embed.bytes + begin, size);
      if (std::memcmp(tied->head.bytes + begin, tied->embed.bytes + begin, size) == 0) continue;
      result_.disagreements.push_back(
          fmt::format("{} differs from {} in a tied checkpoint; allowed: absent, or equal in every byte",
                      quote(tied->name), quote(tied->embed_name)));
      return;
    }
  }

  void report(const LogicalTensor& tensor, std::int32_t index) const {
    if (!progress_) return;
    progress_({ProgressEvent::Kind::step, "reading " + tensor.name,
               static_cast<double>(index + 1) / static_cast<double>(logical_.size())});
  }

  const SourceFolder& folder_;
  const Layout& layout_;
  const ProgressSink& progress_;
  std::vector<LogicalTensor> logical_;
  std::vector<Copy> held_;  // from logical tensors into the folder's
  PageWindow window_{kWindowBytes};
  FolderDigest result_;
};

}  // namespace

FolderDigest digest_of(const SourceFolder& folder, const Layout& layout, const ProgressSink& progress) {
  DigestWalk walk(folder, layout, progress);
  walk.check_padding();
  walk.walk(false);
  return walk.take();
}

void require_agreement(const SourceFolder& folder, const Layout& layout, const ProgressSink& progress) {
  DigestWalk walk(folder, layout, progress);
  walk.walk(true);
  const FolderDigest found = walk.take();
  if (found.disagreements.empty()) return;
  throw DivergentCopies(fmt::format("{}: {}", folder.path().string(), found.disagreements.front()));
}

FolderDigest digest_folder(const std::filesystem::path& folder, const Layout& layout,
                           const ProgressSink& progress) {
  return digest_of(SourceFolder(folder, layout), layout, progress);
}

}  // namespace shardcheck
