// RapidCheck's view of the one generator: rc::Gen<Case> wraps draw and shrink. Only case_gen.cc includes
// RapidCheck, so that nobody else pays for it.
#pragma once

#include <cstdint>
#include <functional>

#include "shardcheck/properties/law.h"

namespace rc {
template <typename T>
class Gen;
}  // namespace rc

namespace shardcheck {

/// Cases of a law with their shrinks. Include <rapidcheck.h> to use it.
rc::Gen<Case> case_gen(const Law& law);

/// Case `index` of a run: drawn by case_gen from a state that depends on seed, law name and index alone.
Case draw_case_at(const Law& law, std::uint64_t seed, std::uint64_t index);

/// Walks RapidCheck's shrink tree of a failing case, always into the first shrink that `fails` accepts, until
/// none does or `stop` says so. Returns the last failing case.
Case shrink_while_failing(const Case& failing, const std::function<bool(const Case&)>& fails,
                          const std::function<bool()>& stop);

}  // namespace shardcheck
