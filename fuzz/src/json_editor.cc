#include "json_editor.h"

#include <array>
#include <cstdint>
#include <vector>

namespace shardcheck::fuzz {
namespace {

constexpr std::size_t kMostNodes = 4096;

struct Place {
  Json* node = nullptr;
  Json* parent = nullptr;
};

/// Every node, the document first, at most kMostNodes.
std::vector<Place> places_of(Json& document) {
  std::vector<Place> places = {{&document, nullptr}};
  for (std::size_t i = 0; i < places.size() && places.size() < kMostNodes; ++i) {
    Json* const node = places[i].node;
    if (!node->is_structured()) continue;
    for (Json& child : *node) places.push_back({&child, node});
  }
  return places;
}

/// Not the document itself, unless it is all there is.
const Place& pick_place(const std::vector<Place>& places, Stream& stream) {
  return places[static_cast<std::size_t>(stream.integer(places.size() > 1 ? 1 : 0, std::ssize(places) - 1))];
}

Json interesting_number(Stream& stream) {
  static const std::vector<Json> numbers = {
      0,          1,           -1,          2,          3,
      7,          8,           16,          64,         65,
      127,        128,         255,         256,        1024,
      32000,      65535,       65536,       16777216,   16777217,
      2147483647, 2147483648U, 4294967295U, 4294967296, 9007199254740993,
      INT64_MAX,  INT64_MIN,   UINT64_MAX,  0.5,        -0.0,
      1e-6,       1e-300,      1e300,       1.0,        1.5e308};
  return stream.pick(numbers);
}

Json number_near(const Json& value, Stream& stream) {
  if (!value.is_number_integer()) return interesting_number(stream);
  const auto number = static_cast<std::uint64_t>(value.get<std::int64_t>());
  const std::uint64_t near =
      stream.pick<std::uint64_t>({number + 1, number - 1, number * 2, number / 2, 0 - number});
  return static_cast<std::int64_t>(near);
}

Json other_type(const Json& value, Stream& stream) {
  switch (stream.integer(0, 7)) {
    case 0:
      return nullptr;
    case 1:
      return stream.chance(1, 2);
    case 2:
      return Json::array();
    case 3:
      return Json::object();
    case 4:
      return Json::array({value});
    case 5:
      return Json{{"", value}};
    case 6:
      return value.is_string() ? Json(1) : Json(value.dump(-1, ' ', true, Json::error_handler_t::replace));
    default:
      return interesting_number(stream);
  }
}

Json text_near(const std::string& text, Stream& stream) {
  static const std::vector<std::string> texts = {"",     "a", "..",      "/",  "\u00e9", "NaN",
                                                 "null", "0", "{layer}", "tp", "-1"};
  const auto length = static_cast<std::int64_t>(text.size());
  switch (stream.integer(0, 4)) {
    case 0:
      return stream.pick(texts);
    case 1:
      return text + stream.pick(texts);
    case 2:
      return text + text;
    case 3:
      return text.substr(0, static_cast<std::size_t>(stream.integer(0, length)));
    default:
      return stream.pick(texts) + text;
  }
}

void remove(const Place& place) {
  for (auto child = place.parent->begin(); child != place.parent->end(); ++child) {
    if (&*child != place.node) continue;
    place.parent->erase(child);
    return;
  }
}

/// A second one in the same array, or under a key beside its own.
void duplicate(const Place& place, Stream& stream) {
  Json copy = *place.node;
  if (place.parent->is_array()) {
    place.parent->insert(place.parent->begin() + stream.integer(0, std::ssize(*place.parent)),
                         std::move(copy));
    return;
  }
  for (const auto& [key, value] : place.parent->items()) {
    if (&value != place.node) continue;
    (*place.parent)[key + stream.pick<std::string>({"_", "2", ".", "s"})] = std::move(copy);
    return;
  }
}

void change_value(Json& node, Stream& stream) {
  if (stream.chance(1, 4)) {
    node = other_type(Json(node), stream);
  } else if (node.is_number()) {
    node = stream.chance(1, 2) ? number_near(node, stream) : interesting_number(stream);
  } else if (node.is_string()) {
    node = text_near(node.get<std::string>(), stream);
  } else if (node.is_boolean()) {
    node = !node.get<bool>();
  } else {
    node = other_type(Json(node), stream);
  }
}

}  // namespace

std::optional<Json> parse_json(std::string_view text) {
  // The parser takes a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return document.is_discarded() ? std::nullopt : std::optional(std::move(document));
}

std::string print_json(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void edit_json(Json& document, Stream& stream) {
  const std::vector<Place> places = places_of(document);
  const Place& place = pick_place(places, stream);
  switch (stream.integer(0, 7)) {
    case 0:
      if (place.parent != nullptr) remove(place);
      break;
    case 1:
      if (place.parent != nullptr) duplicate(place, stream);
      break;
    case 2:
      *place.node = Json(*pick_place(places, stream).node);
      break;
    default:
      change_value(*place.node, stream);
      break;
  }
}

void cross_json(Json& document, const Json& other, Stream& stream) {
  Json copy = other;
  const Json taken = *pick_place(places_of(copy), stream).node;
  *pick_place(places_of(document), stream).node = taken;
}

}  // namespace shardcheck::fuzz
