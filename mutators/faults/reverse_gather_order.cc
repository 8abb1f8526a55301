// A gather that returns the ranks' parts last rank first.
#include <algorithm>

#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

class ReversedGather final : public CollectiveDecorator {
 public:
  using CollectiveDecorator::CollectiveDecorator;
  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                          std::vector<std::size_t>& sizes) override {
    const std::vector<std::byte> right = inner().all_gather_bytes(sends, sizes);
    std::vector<std::byte> reversed;
    reversed.reserve(right.size());
    auto end = right.end();
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      const auto begin = end - static_cast<std::ptrdiff_t>(*size);
      reversed.insert(reversed.end(), begin, end);
      end = begin;
    }
    std::ranges::reverse(sizes);
    return reversed;
  }
};

class ReversedRanks final : public SubjectDecorator {
 public:
  using SubjectDecorator::SubjectDecorator;
  std::unique_ptr<Collective> collective(int degree) override {
    return std::make_unique<ReversedGather>(inner().collective(degree));
  }
};

std::optional<std::string> not_applicable(const Case& c, std::string_view) {
  return unless_any(c, is_head_of_two_ranks, "the logits are not gathered from several ranks");
}

}  // namespace

// Never equivalent: two ranks or more own logits, and the first columns become those of a later rank.
const Fault& reverse_gather_order() {
  static const Fault fault{.name = "reverse_gather_order",
                           .family = 'R',
                           .level = FaultLevel::collective,
                           .claim = "A gather returns the parts of the ranks last rank first.",
                           .reports = {"A42"},
                           .oracles = {Oracle::tree, Oracle::native},
                           .arguments = {},
                           .not_applicable = not_applicable,
                           .equivalent = nullptr,
                           .inject = [](std::shared_ptr<Subject> inner, const Case&,
                                        std::string_view) -> std::shared_ptr<Subject> {
                             return std::make_shared<ReversedRanks>(std::move(inner));
                           }};
  return fault;
}

}  // namespace shardcheck::faults
