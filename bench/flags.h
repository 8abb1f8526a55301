// Flags of the programs that measure models: --name=VALUE, each at most once.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/text/errors.h"

namespace shardcheck::bench {

class Flags {
 public:
  /// Throws InvalidInput on an argument that is not --NAME=VALUE with one of `names`, or comes twice.
  Flags(int argc, const char* const* argv, const std::vector<std::string_view>& names) {
    std::string allowed;
    for (const std::string_view name : names) allowed += fmt::format(" --{}=", name);
    for (int i = 1; i < argc; ++i) {
      const std::string_view argument = argv[i];
      const std::size_t equals = argument.find('=');
      bool known = false;
      for (const std::string_view name : names) {
        known |= equals != std::string_view::npos && argument.substr(0, equals) == fmt::format("--{}", name);
      }
      if (!known) throw InvalidInput(fmt::format("{} is not allowed: allowed are{}", argument, allowed));
      const auto [at, is_new] = values_.emplace(argument.substr(2, equals - 2), argument.substr(equals + 1));
      if (!is_new) throw InvalidInput(fmt::format("--{} is given twice", at->first));
    }
  }

  std::string text(std::string_view name, std::string_view otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::string(otherwise) : found->second;
  }

  /// Throws InvalidInput unless the value is a whole number in [low, high].
  std::int64_t integer(std::string_view name, std::int64_t otherwise, std::int64_t low,
                       std::int64_t high) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    const std::string& value = found->second;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < low || number > high)
      throw InvalidInput(fmt::format("--{}={} is not allowed: {}..{}", name, value, low, high));
    return number;
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

/// Exit code of a program: what `body` returns, 2 for refused input, 4 for any other exception.
inline int exit_code_of(std::string_view program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const InvalidInput& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 4;
  }
}

}  // namespace shardcheck::bench
