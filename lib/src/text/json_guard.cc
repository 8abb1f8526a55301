#include "text/json_guard.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "text/messages.h"

namespace shardcheck {
namespace {

using nlohmann::json;

/// Watches the parser build a document and throws as soon as a limit is passed.
class DocumentGuard {
 public:
  explicit DocumentGuard(const std::string& where) : where_(where) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        open(depth);
        keys_.emplace_back();
        break;
      case json::parse_event_t::array_start:
        open(depth);
        break;
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        require_new(parsed.get_ref<const std::string&>());
        break;
      case json::parse_event_t::value:
        count();
        break;
      case json::parse_event_t::array_end:
        break;
    }
    return true;
  }

 private:
  void open(int depth) {
    count();
    if (depth >= kMaxJsonDepth) {
      throw InvalidInput(
          fmt::format("{}: nested deeper than {} levels, which is the limit", where_, kMaxJsonDepth));
    }
  }

  void count() {
    if (++values_ > kMaxJsonValues) {
      throw InvalidInput(
          fmt::format("{}: more than {} JSON values, which is the limit", where_, kMaxJsonValues));
    }
  }

  void require_new(const std::string& key) {
    if (!keys_.back().insert(key).second) {
      throw InvalidInput(
          fmt::format("{}: key {} appears twice in one object; allowed: once", where_, quote(key)));
    }
  }

  const std::string& where_;
  std::vector<std::set<std::string>> keys_;  // of the open objects
  std::size_t values_ = 0;
};

}  // namespace

void json_guard::require_text(std::string_view text, const std::string& where) {
  if (const auto bad = find_invalid_utf8(text)) {
    throw InvalidInput(fmt::format("{}: byte {} (0x{:02x}) is not valid UTF-8; allowed: UTF-8 text", where,
                                   *bad, static_cast<unsigned char>(text[*bad])));
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") {
    throw InvalidInput(fmt::format("{}: starts with a byte order mark; allowed: plain JSON", where));
  }
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    throw InvalidInput(fmt::format("{}: byte {} is NUL; allowed: JSON text", where, nul));
  }
}

json json_guard::parse_object(std::string_view text, const std::string& where, std::size_t limit_bytes) {
  if (text.size() > limit_bytes) {
    throw InvalidInput(
        fmt::format("{}: {} bytes long; allowed: at most {}", where, text.size(), limit_bytes));
  }
  require_text(text, where);
  json document;
  try {
    document = json::parse(text.begin(), text.end(), DocumentGuard(where));
  } catch (const json::exception& error) {
    throw InvalidInput(fmt::format("{}: not valid JSON: {}", where, shown(error)));
  }
  if (!document.is_object()) {
    throw InvalidInput(fmt::format("{}: the document is {}; allowed: a JSON object", where, shown(document)));
  }
  return document;
}

std::string shown(const json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  // Dumping a large container only to cut it would cost memory for nothing.
  if (value.is_structured() && value.size() > 16) {
    return fmt::format("an {} of {} values", value.type_name(), value.size());
  }
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return shorten(text, kShownBytes);
}

std::string shown(const json::exception& error) {
  std::string_view text = error.what();
  if (const auto end = text.find("] "); text.starts_with("[json.exception") && end != text.npos) {
    text.remove_prefix(end + 2);
  }
  return shorten(text, 2 * kShownBytes);
}

}  // namespace shardcheck
