#include "shardcheck/mutators/case_search.h"

#include <algorithm>

namespace shardcheck {
namespace {

constexpr std::int64_t kDrawsPerCase = 20;
/// A fault that one draw in fifty suits finds a wanted case all the same.
constexpr std::int64_t kFewestDraws = 400;

class Finder {
 public:
  Finder(const std::vector<FaultChoice>& choices, const CaseSearch& search)
      : choices_(choices), search_(search), witnessed_(choices.size()) {
    result_.found.resize(choices.size());
  }

  FoundCases find() {
    for_each_draw(any_choice, [this](const Case& drawn, std::uint64_t index) { offer(drawn, index); });
    for_each_draw(steers, [this](const Case& drawn, std::uint64_t index) { offer_moved(drawn, index); });
    return std::move(result_);
  }

 private:
  static bool any_choice(const FaultChoice&) { return true; }
  static bool steers(const FaultChoice& choice) { return choice.fault->steer != nullptr; }

  bool is_unfinished(std::size_t i) const { return result_.found[i] < search_.wanted; }

  template <typename Counts, typename Use>
  void for_each_draw(Counts counts, Use use) {
    const std::int64_t draws = std::max(kFewestDraws, search_.wanted * kDrawsPerCase);
    for (std::int64_t number = 0; number < draws; ++number) {
      bool wanted = false;
      for (std::size_t i = 0; i < choices_.size() && !wanted; ++i)
        wanted = is_unfinished(i) && counts(choices_[i]);
      if (!wanted) return;
      const auto index = static_cast<std::uint64_t>(number);
      Case drawn = search_.draw(index);
      drawn.fault.clear();
      use(drawn, index);
    }
  }

  /// Forms of one fault are moved alike: a case is offered once.
  void offer_moved(const Case& drawn, std::uint64_t index) {
    std::vector<Case> offered;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (!is_unfinished(i) || !steers(choices_[i])) continue;
      Case moved = suited_to(choices_[i], drawn, index);
      const bool is_known =
          moved == choices_[i].fault->judged_on(drawn) || std::ranges::find(offered, moved) != offered.end();
      if (is_known) continue;
      offer(moved, index);
      offered.push_back(std::move(moved));
    }
  }

  void offer(const Case& c, std::uint64_t index) {
    SharedCase shared{c, index, {}};
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (takes(i, c)) shared.faults.push_back(choices_[i]);
    }
    if (!shared.faults.empty()) result_.cases.push_back(std::move(shared));
  }

  bool takes(std::size_t i, const Case& c) {
    if (!is_unfinished(i)) return false;
    const Suits suits = search_.suits(choices_[i], choices_[i].fault->judged_on(c));
    if (suits == Suits::no) return false;
    std::int64_t& count = suits == Suits::yes ? result_.found[i] : witnessed_[i];
    if (count >= search_.wanted) return false;
    ++count;
    return true;
  }

  const std::vector<FaultChoice>& choices_;
  const CaseSearch& search_;
  std::vector<std::int64_t> witnessed_;
  FoundCases result_;
};

}  // namespace

FoundCases find_cases(const std::vector<FaultChoice>& choices, const CaseSearch& search) {
  return Finder(choices, search).find();
}

}  // namespace shardcheck
