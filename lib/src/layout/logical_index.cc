#include "layout/logical_index.h"

namespace shardcheck {

LogicalIndex::LogicalIndex(const Geometry& geometry) : tensors_(logical_tensors(geometry)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

std::optional<std::size_t> LogicalIndex::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

}  // namespace shardcheck
