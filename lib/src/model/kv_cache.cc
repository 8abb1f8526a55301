#include "model/kv_cache.h"

namespace shardcheck {

KvCache::KvCache() = default;
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

std::int64_t KvCache::length(std::int64_t sequence) const {
  if (state_ == nullptr) return 0;
  const auto found = state_->lengths.find(sequence);
  return found == state_->lengths.end() ? 0 : found->second;
}

void KvCache::forget(std::int64_t sequence) {
  if (state_ == nullptr) return;
  state_->lengths.erase(sequence);
  for (auto& layers : state_->slots) {
    for (auto& sequences : layers) sequences.erase(sequence);
  }
}

std::int64_t KvCache::bytes() const {
  if (state_ == nullptr) return 0;
  std::size_t floats = 0;
  for (const auto& layers : state_->slots) {
    for (const auto& sequences : layers) {
      for (const auto& [number, rows] : sequences) floats += rows.keys.size() + rows.values.size();
    }
  }
  return static_cast<std::int64_t>(floats * sizeof(float));
}

}  // namespace shardcheck
