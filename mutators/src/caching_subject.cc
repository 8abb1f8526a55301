#include "caching_subject.h"

#include <algorithm>

namespace shardcheck {
namespace {

bool same_buffer(const Tensor& a, const Tensor& b) {
  return a.bytes().data() == b.bytes().data() && a.shape() == b.shape() && a.dtype() == b.dtype();
}

bool same_buffers(const TensorMap& a, const TensorMap& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && same_buffer(x.second, y.second);
  });
}

bool same_buffers(const ShardedTensors& a, const ShardedTensors& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && std::ranges::equal(x.second, y.second, same_buffer);
  });
}

}  // namespace

ShardedTensors CachingSubject::split(const TensorMap& full, const Layout& target) {
  for (const Split& known : splits_) {
    if (known.target == target.name && same_buffers(known.full, full)) return known.result;
  }
  splits_.push_back({full, target.name, Subject::split(full, target)});
  return splits_.back().result;
}

ShardedTensors CachingSubject::reshard(const ShardedTensors& shards, const Layout& source,
                                       const Layout& target) {
  for (const Reshard& known : reshards_) {
    if (known.source == source.name && known.target == target.name && same_buffers(known.shards, shards)) {
      return known.result;
    }
  }
  reshards_.push_back({shards, source.name, target.name, Subject::reshard(shards, source, target)});
  return reshards_.back().result;
}

}  // namespace shardcheck
