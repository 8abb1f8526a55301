#include "tokenizer.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "shardcheck/checkpoint/safetensors.h"

namespace shardcheck {
namespace {

constexpr std::size_t kLargestFileBytes = std::size_t{64} << 20;

/// Reads little-endian values off the front of a file image.
class Reader {
 public:
  Reader(std::string_view bytes, std::string origin) : bytes_(bytes), origin_(std::move(origin)) {}

  template <typename T>
  T value(const std::string& what) {
    T result;
    std::memcpy(&result, take(sizeof(T), what).data(), sizeof(T));
    return result;
  }

  std::string_view take(std::size_t count, const std::string& what) {
    if (count > bytes_.size()) throw InvalidCheckpoint(fmt::format("{}: ends inside {}", origin_, what));
    const std::string_view result = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return result;
  }

  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  std::string origin_;
};

std::optional<char> byte_of(std::string_view piece) {
  unsigned value = 0;
  if (piece.size() != 6 || std::sscanf(std::string(piece).c_str(), "<0x%2X>", &value) != 1)
    return std::nullopt;
  return static_cast<char>(value);
}

std::size_t code_point_bytes(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && length < 4 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
    ++length;
  return length;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& file, std::int64_t vocab) {
  const std::string bytes = read_text(file, kLargestFileBytes);
  Reader reader(bytes, file.string());
  reader.value<std::int32_t>("its header");
  Tokenizer result;
  for (std::int32_t id = 0; id < vocab; ++id) {
    const std::string what = fmt::format("token {} of {}", id, vocab);
    result.scores_.push_back(reader.value<float>(what));
    const auto length = reader.value<std::int32_t>(what);
    if (length < 0) throw InvalidCheckpoint(fmt::format("{}: {} has length {}", file.string(), what, length));
    result.pieces_.emplace_back(reader.take(static_cast<std::size_t>(length), what));
    result.ids_.emplace(result.pieces_.back(), id);
  }
  if (reader.left() != 0)
    throw InvalidCheckpoint(
        fmt::format("{}: {} bytes follow the last of {} tokens", file.string(), reader.left(), vocab));
  return result;
}

std::int32_t Tokenizer::find(std::string_view piece) const {
  const auto it = ids_.find(piece);
  return it == ids_.end() ? -1 : it->second;
}

std::vector<std::int32_t> Tokenizer::pieces_of(std::string_view text) const {
  std::vector<std::int32_t> ids;
  while (!text.empty()) {
    const std::string_view point = text.substr(0, code_point_bytes(text));
    text.remove_prefix(point.size());
    if (const std::int32_t id = find(point); id >= 0) {
      ids.push_back(id);
      continue;
    }
    for (const char c : point) {
      const std::string name = fmt::format("<0x{:02X}>", static_cast<unsigned char>(c));
      const std::int32_t id = find(name);
      if (id < 0) throw InvalidInput(fmt::format("prompt: the tokenizer has no token for byte {}", name));
      ids.push_back(id);
    }
  }
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = {kBegin};
  if (text.empty()) return ids;
  // SentencePiece puts a space before the text.
  const std::vector<std::int32_t> pieces = pieces_of(fmt::format(" {}", text));
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  while (true) {
    std::size_t best_at = 0;
    std::int32_t best_id = -1;
    for (std::size_t i = 1; i + 1 < ids.size(); ++i) {
      const std::int32_t merged =
          find(pieces_[static_cast<std::size_t>(ids[i])] + pieces_[static_cast<std::size_t>(ids[i + 1])]);
      if (merged < 0) continue;
      if (best_id >= 0 &&
          scores_[static_cast<std::size_t>(merged)] <= scores_[static_cast<std::size_t>(best_id)])
        continue;
      best_at = i;
      best_id = merged;
    }
    if (best_id < 0) return ids;
    ids[best_at] = best_id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kBegin || ids[i] == kEnd) {
      if (i == 0) continue;
      break;
    }
    std::string_view piece = pieces_.at(static_cast<std::size_t>(ids[i]));
    if (const auto byte = byte_of(piece)) {
      text += *byte;
      continue;
    }
    if (i > 0 && ids[i - 1] == kBegin && piece.starts_with(' ')) piece.remove_prefix(1);
    text += piece;
  }
  return text;
}

}  // namespace shardcheck
