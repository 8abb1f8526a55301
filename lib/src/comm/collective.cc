#include "shardcheck/comm/collective.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

namespace shardcheck {
namespace {

/// Checks that there is one equally long buffer per rank and returns its length.
template <typename Buffers>
std::size_t common_length(const Buffers& buffers, int degree, const char* call) {
  if (buffers.size() != static_cast<std::size_t>(degree)) {
    throw std::invalid_argument(std::string(call) + ": got " + std::to_string(buffers.size()) +
                                " buffers, expected one for each of " + std::to_string(degree) +
                                " local ranks");
  }
  for (const auto& buffer : buffers) {
    if (buffer.size() != buffers[0].size()) {
      throw CollectiveMismatch(std::string(call) + ": buffers of " + std::to_string(buffers[0].size()) +
                               " and " + std::to_string(buffer.size()) + " elements");
    }
  }
  return buffers[0].size();
}

/// Left fold in rank order into rank 0's buffer, then a copy to the others.
template <typename T, typename Combine = std::plus<T>>
void fold_and_copy(std::span<const std::span<T>> buffers, std::size_t length, Combine combine = {}) {
  const std::span<T> total = buffers[0];
  for (std::size_t rank = 1; rank < buffers.size(); ++rank) {
    for (std::size_t i = 0; i < length; ++i) total[i] = combine(total[i], buffers[rank][i]);
  }
  for (std::size_t rank = 1; rank < buffers.size(); ++rank) std::ranges::copy(total, buffers[rank].begin());
}

class InProcessCollective final : public Collective {
 public:
  explicit InProcessCollective(int degree) : ranks_(static_cast<std::size_t>(degree)) {
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  int degree() const override { return static_cast<int>(ranks_.size()); }
  std::span<const int> local_ranks() const override { return ranks_; }

  void all_reduce_sum(std::span<const std::span<float>> buffers) override {
    fold_and_copy(buffers, common_length(buffers, degree(), "all_reduce_sum"));
  }

  void all_reduce_sum_u32(std::span<const std::span<std::uint32_t>> buffers) override {
    fold_and_copy(buffers, common_length(buffers, degree(), "all_reduce_sum_u32"));
  }

  void all_reduce_max_i32(std::span<const std::span<std::int32_t>> buffers) override {
    const auto larger = [](std::int32_t a, std::int32_t b) { return std::max(a, b); };
    fold_and_copy(buffers, common_length(buffers, degree(), "all_reduce_max_i32"), larger);
  }

  void all_reduce_sum_i64(std::span<const std::span<std::int64_t>> buffers) override {
    fold_and_copy(buffers, common_length(buffers, degree(), "all_reduce_sum_i64"));
  }

  std::vector<std::byte> all_gather_bytes(std::span<const std::span<const std::byte>> sends,
                                          std::vector<std::size_t>& sizes) override {
    require_one_per_rank(sends.size(), "all_gather_bytes");
    sizes.clear();
    std::size_t total = 0;
    for (const auto& send : sends) {
      sizes.push_back(send.size());
      total += send.size();
    }
    std::vector<std::byte> all;
    all.reserve(total);
    for (const auto& send : sends) {
      all.insert(all.end(), send.begin(), send.end());
      traffic_.bytes += static_cast<std::int64_t>(send.size()) * (degree() - 1);
    }
    ++traffic_.calls;
    return all;
  }

  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::span<const std::byte>>> sends) override {
    require_one_per_rank(sends.size(), "all_to_all_bytes");
    std::vector<std::vector<std::byte>> received(ranks_.size());
    for (std::size_t sender = 0; sender < sends.size(); ++sender) {
      require_one_per_rank(sends[sender].size(), "all_to_all_bytes");
      for (std::size_t receiver = 0; receiver < received.size(); ++receiver) {
        const auto& bytes = sends[sender][receiver];
        received[receiver].insert(received[receiver].end(), bytes.begin(), bytes.end());
        if (sender != receiver) traffic_.bytes += static_cast<std::int64_t>(bytes.size());
      }
    }
    ++traffic_.calls;
    return received;
  }

  Traffic traffic() const override { return traffic_; }

 private:
  void require_one_per_rank(std::size_t buffers, const char* call) const {
    if (buffers == ranks_.size()) return;
    throw std::invalid_argument(std::string(call) + ": got " + std::to_string(buffers) +
                                " buffers, expected one for each of " + std::to_string(degree()) + " ranks");
  }

  Traffic traffic_;
  std::vector<int> ranks_;
};

}  // namespace

std::unique_ptr<Collective> make_in_process_collective(int degree) {
  if (degree < 1)
    throw std::invalid_argument("a collective needs at least one rank, got " + std::to_string(degree));
  return std::make_unique<InProcessCollective>(degree);
}

}  // namespace shardcheck
