// Plain words to bytes and back, in the byte order of the machine: ranks of one run share it.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace shardcheck {

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}
  template <typename T>
  void put(std::span<const T> values) {
    const std::size_t size = out_.size();
    out_.resize(size + values.size_bytes());
    if (!values.empty()) std::memcpy(out_.data() + size, values.data(), values.size_bytes());
  }
  void put(std::uint64_t value) { put(std::span<const std::uint64_t>(&value, 1)); }

 private:
  std::vector<std::byte>& out_;
};

/// Refuses, with std::invalid_argument, to read what is not there.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, const char* what) : bytes_(bytes), what_(what) {}

  template <typename T>
  void get(std::span<T> values) {
    const auto bytes = take(values.size_bytes());
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  std::uint64_t get() {
    std::uint64_t value = 0;
    get(std::span<std::uint64_t>(&value, 1));
    return value;
  }
  /// A count of things of `size` bytes each, all of which are here.
  std::int64_t count(std::size_t size) {
    const std::uint64_t value = get();
    require(value <= bytes_.size() / size, "ends early");
    return static_cast<std::int64_t>(value);
  }
  void require(bool condition, std::string_view complaint) const {
    if (!condition) throw std::invalid_argument(fmt::format("{}: {}", what_, complaint));
  }
  std::size_t left() const { return bytes_.size(); }
  /// The next `size` bytes, which are here.
  std::span<const std::byte> take(std::size_t size) {
    require(size <= bytes_.size(), "ends early");
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  const char* what_;
};

}  // namespace shardcheck
