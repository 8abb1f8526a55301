// The logical tensors of a geometry, by number and by name. Private to the library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shardcheck/model/geometry.h"

namespace shardcheck {

class LogicalIndex {
 public:
  explicit LogicalIndex(const Geometry& geometry);
  LogicalIndex(const LogicalIndex&) = delete;
  LogicalIndex& operator=(const LogicalIndex&) = delete;

  std::size_t size() const { return tensors_.size(); }
  const LogicalTensor& operator[](std::size_t index) const { return tensors_[index]; }
  /// Number of the tensor of a name, in the order of `logical_tensors`.
  std::optional<std::size_t> find(std::string_view name) const;

 private:
  std::vector<LogicalTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of tensors_
};

}  // namespace shardcheck
