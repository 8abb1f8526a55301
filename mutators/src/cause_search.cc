#include "cause_search.h"

#include <algorithm>
#include <atomic>

#include "shardcheck/mutators/workers.h"
#include "shards_match.h"

namespace shardcheck {
namespace {

constexpr int kMostSourceRanks = 8;
constexpr std::int64_t kPairBytes = std::int64_t{2}
                                    << 30;  // moved by compositions that need to be carried out

/// The right subject, which knows the answer to one move and works out others: of a damaged source.
class KnownMove final : public Subject {
 public:
  KnownMove(const ShardedTensors& source, const ShardedTensors& right) : source_(source), right_(right) {}
  ShardedTensors reshard(const ShardedTensors& shards, const Layout& source, const Layout& target) override {
    return is_known(shards) ? right_ : Subject::reshard(shards, source, target);
  }

 private:
  /// Copies share their bytes, and a write clones them.
  bool is_known(const ShardedTensors& shards) const {
    return std::ranges::equal(shards, source_, [](const auto& a, const auto& b) {
      return a.first == b.first &&
             std::ranges::equal(a.second, b.second, [](const Tensor& x, const Tensor& y) {
               return x.bytes().data() == y.bytes().data() && x.shape() == y.shape();
             });
    });
  }

  const ShardedTensors& source_;
  const ShardedTensors& right_;
};

/// Where the weights come from, and the case that faults are asked about.
struct Origin {
  Case value;
  Layout layout;
  ShardedTensors shards;
  bool matters = false;
};

/// The same model with a small vocabulary, on which a look at a fault costs little: the vocabulary keeps its
/// remainder by every padding and degree, so that a fault touches the same file tensors.
class SmallStandIn {
 public:
  static constexpr std::int64_t kPadding = 64;

  SmallStandIn(const Layout& layout, DType dtype) : layout_(make_layout(layout.name, small(layout))) {
    right_ = split(make_weights(layout_.geometry, WeightStyle::fingerprint, 0, dtype), layout_);
  }

  static Geometry small(const Layout& layout) {
    Geometry geometry = layout.geometry;
    const std::int64_t step = kPadding * layout.degree;
    geometry.vocab = std::min(geometry.vocab, 4 * step + geometry.vocab % step);
    return geometry;
  }
  static bool pays(const Layout& layout) { return 4 * small(layout).vocab < layout.geometry.vocab; }

  /// Whether the fault touches a tensor of which no shard is to differ. False where that cannot be told.
  bool touches_other(const FaultChoice& choice, const Case& real,
                     const std::vector<bool>& differing_entries) const {
    Case c = real;
    c.geometry = layout_.geometry;
    try {
      if (choice.fault->why_inapplicable(c, choice.argument)) return false;
      const Layout source = make_layout(c.source, c.geometry);
      const ShardedTensors none;
      const auto subject =
          choice.fault->inject(std::make_shared<KnownMove>(none, right_), c, choice.argument);
      // Sources of one rank hold the whole tensors, which no fault of a delivery asks for.
      const ShardedTensors shards = subject->reshard(none, source, layout_);
      if (!are_shards_of(layout_, right_, shards)) return false;
      return std::ranges::any_of(differing_places(layout_, right_, shards), [&](const ShardPlace& place) {
        return !differing_entries[static_cast<std::size_t>(place.entry)];
      });
    } catch (const std::exception&) {
      return false;
    }
  }

 private:
  Layout layout_;
  ShardedTensors right_;
};

/// A fault's shards compared with the right and the found ones, place by place.
struct Image {
  FaultChoice choice;
  const Origin* origin = nullptr;
  std::vector<bool> touched;  // by place: not as right
  std::vector<bool> agrees;   // as found

  bool touches(std::size_t place) const { return touched[place]; }
};

class CauseSearch {
 public:
  CauseSearch(const SearchProblem& problem, const ExplainOptions& options, Explanation& result)
      : problem_(problem),
        options_(options),
        result_(result),
        differing_entries_(problem.layout.entries.size(), false) {
    for (std::size_t e = 0; e < problem.layout.entries.size(); ++e) {
      for (const int rank : problem.layout.entries[e].placed.holders()) {
        places_.push_back({static_cast<std::int64_t>(e), rank});
        differs_.push_back(std::ranges::binary_search(problem.differing, places_.back()));
        if (differs_.back()) differing_entries_[e] = true;
        bytes_ += differs_.back() ? std::ssize(found_at(places_.back()).bytes()) : 0;
      }
    }
  }

  void run() {
    for (const FaultChoice& choice : every_choice()) {
      if (acts_on_shards(*choice.fault)) todo_.push_back(choice);
    }
    try_origin(options_.source ? *options_.source : LayoutName{problem_.layout.name.table, {}}, false);
    for (int degree = 2; degree <= kMostSourceRanks && !options_.source && !todo_.empty(); ++degree) {
      try_origin(LayoutName{problem_.layout.name.table, {{"tp", degree}}}, true);
    }
    for (const Image& image : images_) {
      if (leaves_found(image)) result_.causes.push_back(cause({image.choice}, *image.origin, true));
    }
    // Fingerprints are no numbers: what computes with them may leave a map of indices by accident.
    std::stable_partition(result_.causes.begin(), result_.causes.end(), [](const KnownCause& one) {
      return one.faults.front().fault->level != FaultLevel::value;
    });
    if (result_.causes.empty()) search_pairs();
    if (result_.causes.empty()) find_nearest();
  }

 private:
  const Tensor& found_at(const ShardPlace& place) const { return at_place(problem_.found, place); }
  const Tensor& at_place(const ShardedTensors& shards, const ShardPlace& place) const {
    const std::string& name = problem_.layout.entries[static_cast<std::size_t>(place.entry)].name;
    return shards.at(name)[static_cast<std::size_t>(place.rank)];
  }

  static KnownCause cause(std::vector<FaultChoice> faults, const Origin& origin, bool any_order) {
    return {std::move(faults), any_order, origin.value.source, origin.matters};
  }

  // Images of single faults.

  /// Takes the images of the faults of the list that act on weights from this source. Where the source does
  /// not matter they are done with; the others are tried on every source.
  void try_origin(const LayoutName& source, bool matters) {
    auto origin = std::make_unique<Origin>();
    try {
      origin->value = delivery_case(problem_.layout, source, problem_.dtype, options_.seed);
      origin->layout = make_layout(source, problem_.layout.geometry);
    } catch (const InvalidInput&) {
      return;  // a table of the user's: faults find layouts by name
    } catch (const UnsupportedLayout&) {
      return;
    }
    origin->matters = matters;
    std::vector<FaultChoice> acting, resting;
    for (const FaultChoice& choice : todo_)
      (acts(choice, origin->value) ? acting : resting).push_back(choice);
    result_.faults_tried += std::ssize(acting);
    leave_out_others(acting, origin->value);
    if (!acting.empty()) {
      origin->shards = split(problem_.weights, origin->layout);
      take_images(acting, *origin);
      origins_.push_back(std::move(origin));
    }
    if (!matters) todo_ = std::move(resting);
  }

  /// A fault that changes a tensor which is right explains nothing.
  void leave_out_others(std::vector<FaultChoice>& acting, const Case& c) {
    if (!SmallStandIn::pays(problem_.layout)) return;
    if (!small_) small_.emplace(problem_.layout, problem_.dtype);
    std::vector<char> others(acting.size());
    std::atomic<std::size_t> next{0};
    run_on_workers(options_.jobs, [&] {
      for (std::size_t i = next++; i < acting.size(); i = next++)
        others[i] = small_->touches_other(acting[i], c, differing_entries_) ? 1 : 0;
    });
    std::vector<FaultChoice> kept;
    for (std::size_t i = 0; i < acting.size(); ++i) {
      if (others[i] == 0) kept.push_back(acting[i]);
    }
    acting = std::move(kept);
  }

  static bool acts(const FaultChoice& choice, const Case& c) {
    try {
      return !choice.fault->why_inapplicable(c, choice.argument);
    } catch (const InvalidInput&) {
      return false;
    }
  }

  void take_images(const std::vector<FaultChoice>& choices, const Origin& origin) {
    std::vector<std::optional<Image>> images(choices.size());
    std::atomic<std::size_t> next{0};
    run_on_workers(options_.jobs, [&] {
      for (std::size_t i = next++; i < choices.size(); i = next++) images[i] = image_of(choices[i], origin);
    });
    for (auto& image : images) {
      if (image) images_.push_back(std::move(*image));
    }
  }

  ShardedTensors faulty_shards(const std::vector<FaultChoice>& faults, const Origin& origin) const {
    std::shared_ptr<Subject> subject = std::make_shared<KnownMove>(origin.shards, problem_.right);
    for (const FaultChoice& choice : faults) {
      subject = choice.fault->inject(std::move(subject), origin.value, choice.argument);
    }
    return subject->reshard(origin.shards, origin.layout, problem_.layout);
  }

  /// nullopt for a fault that leaves the shards right or raises, as faults of other models may.
  std::optional<Image> image_of(const FaultChoice& choice, const Origin& origin) const {
    Image image{choice, &origin, {}, {}};
    try {
      const ShardedTensors shards = faulty_shards({choice}, origin);
      if (!are_shards_of(problem_.layout, problem_.right, shards)) return std::nullopt;
      for (std::size_t p = 0; p < places_.size(); ++p) {
        const Tensor& shard = at_place(shards, places_[p]);
        image.touched.push_back(!same_shard(at_place(problem_.right, places_[p]), shard));
        // What is right agrees where right is found; what is not, nowhere else.
        image.agrees.push_back(image.touched[p] ? differs_[p] && same_shard(found_at(places_[p]), shard)
                                                : !differs_[p]);
      }
    } catch (const std::exception&) {
      return std::nullopt;
    }
    if (std::ranges::find(image.touched, true) == image.touched.end()) return std::nullopt;
    return image;
  }

  static bool leaves_found(const Image& image) {
    return std::ranges::find(image.agrees, false) == image.agrees.end();
  }

  // Compositions of two.

  enum class Pairing : std::uint8_t { impossible, apart, overlapping };

  /// Each touches a differing place, and where one acts alone it leaves what was found.
  Pairing pairing(const Image& first, const Image& second) const {
    bool overlaps = false, first_helps = false, second_helps = false;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      const bool a = first.touches(p), b = second.touches(p);
      if (a && b) {
        overlaps = true;
      } else if (!(a ? first.agrees[p] : b ? second.agrees[p] : !differs_[p])) {
        return Pairing::impossible;
      }
      first_helps |= a && differs_[p];
      second_helps |= b && differs_[p];
    }
    if (!first_helps || !second_helps) return Pairing::impossible;
    return overlaps ? Pairing::overlapping : Pairing::apart;
  }

  static const Origin* joint_origin(const Image& first, const Image& second) {
    if (first.origin == second.origin || !second.origin->matters) return first.origin;
    return first.origin->matters ? nullptr : second.origin;
  }

  bool pair_leaves_found(const Image& first, const Image& second, const Origin& origin) const {
    try {
      const ShardedTensors shards = faulty_shards({first.choice, second.choice}, origin);
      return are_shards_of(problem_.layout, problem_.right, shards) &&
             std::ranges::all_of(places_, [&](const ShardPlace& place) {
               return same_shard(found_at(place), at_place(shards, place));
             });
    } catch (const std::exception&) {
      return false;
    }
  }

  struct Pair {
    const Image* first = nullptr;
    const Image* second = nullptr;
    const Origin* origin = nullptr;
    bool forward = false, backward = false;
  };

  std::vector<Pair> possible_pairs() {
    std::vector<Pair> pairs, overlapping;
    for (std::size_t i = 0; i < images_.size(); ++i) {
      for (std::size_t j = i + 1; j < images_.size(); ++j) {
        const Origin* origin = joint_origin(images_[i], images_[j]);
        const Pairing kind = origin == nullptr ? Pairing::impossible : pairing(images_[i], images_[j]);
        if (kind == Pairing::impossible) continue;
        (kind == Pairing::apart ? pairs : overlapping).push_back({&images_[i], &images_[j], origin});
      }
    }
    const auto affordable = static_cast<std::size_t>(kPairBytes / std::max<std::int64_t>(1, 2 * bytes_));
    const std::size_t kept = std::min(overlapping.size(), affordable);
    result_.pairs_left_out = std::ssize(overlapping) - static_cast<std::int64_t>(kept);
    pairs.insert(pairs.end(), overlapping.begin(), overlapping.begin() + static_cast<std::ptrdiff_t>(kept));
    return pairs;
  }

  void search_pairs() {
    std::vector<Pair> pairs = possible_pairs();
    result_.pairs_tried = std::ssize(pairs);
    std::atomic<std::size_t> next{0};
    run_on_workers(options_.jobs, [&] {
      for (std::size_t i = next++; i < pairs.size(); i = next++) {
        Pair& pair = pairs[i];
        pair.forward = pair_leaves_found(*pair.first, *pair.second, *pair.origin);
        pair.backward = pair_leaves_found(*pair.second, *pair.first, *pair.origin);
      }
    });
    for (const Pair& pair : pairs) {
      const FaultChoice &a = pair.first->choice, &b = pair.second->choice;
      if (pair.forward) result_.causes.push_back(cause({a, b}, *pair.origin, pair.backward));
      if (pair.backward && !pair.forward) result_.causes.push_back(cause({b, a}, *pair.origin, false));
    }
  }

  void find_nearest() {
    for (const Image& image : images_) {
      std::int64_t places = 0;
      bool touches_right = false;
      for (std::size_t p = 0; p < places_.size(); ++p) {
        touches_right |= image.touches(p) && !differs_[p];
        places += image.touches(p) && image.agrees[p] ? 1 : 0;
      }
      const std::int64_t best = result_.nearest ? result_.nearest->places : 0;
      if (!touches_right && places > best) result_.nearest = PartialCause{image.choice, places};
    }
  }

  const SearchProblem& problem_;
  const ExplainOptions& options_;
  Explanation& result_;
  std::vector<ShardPlace> places_;
  std::vector<bool> differs_;  // by place
  std::int64_t bytes_ = 0;     // of the places that differ
  std::vector<bool> differing_entries_;
  std::optional<SmallStandIn> small_;
  std::vector<FaultChoice> todo_;
  std::vector<std::unique_ptr<Origin>> origins_;
  std::vector<Image> images_;
};

}  // namespace

void search_causes(const SearchProblem& problem, const ExplainOptions& options, Explanation& result) {
  CauseSearch(problem, options, result).run();
}

}  // namespace shardcheck
