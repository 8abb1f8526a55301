// The two ways in which the library refuses its input. Everything else it throws is an internal error or an
// environment that does not work.
#pragma once

#include <stdexcept>

namespace shardcheck {

/// A value that is out of range or contradicts another. The message names field, value and what is allowed.
class InvalidInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A (tensor, degree) pair with no valid rank-local representation, or a degree a consumer cannot run at. The
/// message names the parameter or extent, the sizes and the degree.
class UnsupportedLayout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace shardcheck
