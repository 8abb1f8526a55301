#include "shardcheck/arithmetic/contract.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace shardcheck {
namespace {

constexpr std::int64_t kLargestDegree = 1024;  // what a layout name can say

std::vector<int> default_degrees(const Geometry& geometry) {
  std::vector<int> degrees;
  std::int64_t common = std::gcd(std::gcd(geometry.n_heads, geometry.n_kv_heads), geometry.ffn);
  if (geometry.n_experts > 0) common = std::gcd(common, std::gcd(geometry.expert_ffn, geometry.shared_ffn));
  for (int degree = 1; degree <= std::min(common, kLargestDegree); ++degree) {
    if (common % degree == 0) degrees.push_back(degree);
  }
  return degrees;
}

// What a rank boundary cuts under tensor parallelism: whole query heads, and single FFN channels.
void require_divides(int degree, std::string_view extent, std::int64_t value) {
  if (degree < 1 || value % degree != 0) {
    throw std::invalid_argument(fmt::format(
        "contract: degree {} does not divide {}={}; allowed are its divisors", degree, extent, value));
  }
}

std::int64_t largest_divisor(std::int64_t value, std::int64_t limit) {
  std::int64_t divisor = std::min(value, limit);
  while (value % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

std::int64_t leaf_width(std::int64_t k, const std::vector<int>& degrees, std::int64_t limit) {
  if (k < 1) throw std::invalid_argument(fmt::format("leaf width: a sum of length {} has no leaves", k));
  if (limit < 1) throw std::invalid_argument(fmt::format("leaf width: limit {} is below 1", limit));
  std::int64_t common = k;
  for (const int degree : degrees) {
    if (degree < 1 || k % degree != 0) {
      throw std::invalid_argument(
          fmt::format("leaf width: degree {} does not divide the sum of length {}", degree, k));
    }
    common = std::gcd(common, k / degree);
  }
  return largest_divisor(common, limit);
}

Contract contract_for(const Geometry& geometry, const ContractChoice& choice) {
  if (choice.key_block < 1)
    throw std::invalid_argument(fmt::format("contract: key_block {} is below 1", choice.key_block));
  if (!is_forward_dtype(choice.storage)) {
    throw std::invalid_argument(
        fmt::format("contract: storage {} is not one activations are kept in: allowed f32, bf16, f16",
                    short_name(choice.storage)));
  }
  std::vector<int> degrees = choice.degrees.empty() ? default_degrees(geometry) : choice.degrees;
  std::sort(degrees.begin(), degrees.end());
  degrees.erase(std::unique(degrees.begin(), degrees.end()), degrees.end());
  for (const int degree : degrees) {
    require_divides(degree, "n_heads", geometry.n_heads);
    require_divides(degree, "ffn", geometry.ffn);
    if (geometry.n_experts > 0) require_divides(degree, "expert_ffn", geometry.expert_ffn);
    if (geometry.n_experts > 0) require_divides(degree, "shared_ffn", geometry.shared_ffn);
  }
  Contract contract;
  contract.shape = choice.shape;
  contract.leaf_d_model =
      leaf_width(geometry.d_model, {1}, choice.leaf);  // never cut: every rank holds all of it
  contract.leaf_attention = leaf_width(geometry.attention_width(), degrees, choice.leaf);
  contract.leaf_ffn = leaf_width(geometry.ffn, degrees, choice.leaf);
  if (geometry.n_experts > 0) {
    contract.leaf_expert_ffn = leaf_width(geometry.expert_ffn, degrees, choice.leaf);
    if (geometry.shared_ffn > 0)
      contract.leaf_shared_ffn = leaf_width(geometry.shared_ffn, degrees, choice.leaf);
  }
  contract.key_block = choice.key_block;
  contract.storage = choice.storage;
  contract.degrees = std::move(degrees);
  return contract;
}

std::string Contract::text() const {
  std::string list;
  for (const int degree : degrees) list += fmt::format("{}{}", list.empty() ? "" : ",", degree);
  std::string experts;
  if (leaf_expert_ffn > 0) experts += fmt::format(" leaf.expert_ffn={}", leaf_expert_ffn);
  if (leaf_shared_ffn > 0) experts += fmt::format(" leaf.shared_ffn={}", leaf_shared_ffn);
  return fmt::format("{} degrees={} leaf.d_model={} leaf.attention={} leaf.ffn={}{} key_block={} storage={}",
                     to_string(shape), list, leaf_d_model, leaf_attention, leaf_ffn, experts, key_block,
                     short_name(storage));
}

std::uint64_t Contract::hash() const {
  const std::string line = text();
  return XXH3_64bits(line.data(), line.size());
}

}  // namespace shardcheck
