// --geometry=KEY=VALUE,...: the shape of a model on the command line.
#pragma once

#include <string_view>

#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// "d_model=64,layers=2,heads=8,...": keys and values as in a case line. Without them kv_heads is
/// heads and head_dim is d_model / heads; the others keep their default. Throws InvalidInput naming key,
/// value and what is allowed, the nearest known key first.
Geometry parse_geometry(std::string_view text);

/// `base` with the keys of the text in place of its own. Throws as above.
Geometry parse_geometry(std::string_view text, Geometry base);

}  // namespace shardcheck
