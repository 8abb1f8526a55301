// The keys of the case line: how each is read, printed and limited.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"

namespace shardcheck {

constexpr std::int64_t kMaxTokens = 65536;
constexpr std::int64_t kMaxExactLength = 8192;  // a forward pass then takes seconds and less than 1 GiB

/// One key of the grammar: how a field is read and printed.
struct Field {
  std::string key;
  std::string allowed;
  std::function<std::string(const Case&)> get;
  std::function<void(Case&, std::string_view)> set;
};

/// Every key, in print order.
const std::vector<Field>& fields();

/// Throws InvalidCase for an unknown key, naming the nearest one.
const Field& field_named(std::string_view key);

}  // namespace shardcheck
