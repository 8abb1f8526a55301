// Edits of a case. Private to the room.
#pragma once

#include "shardcheck/case/case.h"
#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz {

/// A case that parses back and differs from `c` in one respect: toward simpler, by a step of a number, or in
/// a key or a coupled group of keys taken from a drawn case. A drawn case where no try parses back.
Case edit_case(const Target& target, const Case& c, Stream& stream);

/// `first` with keys and groups of keys of `second`, parsing back; `second` where no try does.
Case cross_cases(const Case& first, const Case& second, Stream& stream);

/// A case that the target draws; one of a thousand that are remembered, for drawing costs more than most
/// checks.
const Case& drawn_case(const Target& target, Stream& stream);

}  // namespace shardcheck::fuzz
