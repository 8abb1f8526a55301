// Edits of a JSON document, node by node. Private to the room.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "shardcheck/tensor/stream.h"

namespace shardcheck::fuzz {

/// Keys keep their order.
using Json = nlohmann::ordered_json;

/// nullopt for text that is no JSON.
std::optional<Json> parse_json(std::string_view text);
/// Text of the document, whatever bytes its strings hold.
std::string print_json(const Json& document);

/// Changes one node: another number, text or type, away, twice, or a copy of another node.
void edit_json(Json& document, Stream& stream);
/// Puts a node of `other` in the place of one of `document`.
void cross_json(Json& document, const Json& other, Stream& stream);

}  // namespace shardcheck::fuzz
