// What targets over cases share: reading them, bounds of their work, and what a law says about one. Private
// to the room.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/subject.h"
#include "shardcheck/fuzz/target.h"
#include "shardcheck/properties/law.h"

namespace shardcheck::fuzz {

/// The case of a line or of a case file; nullopt for text that is refused.
std::optional<Case> read_case(std::string_view input);

/// What one input may cost.
struct Bounds {
  std::int64_t width = 128;  // of every extent but the vocabulary and the positions
  std::int64_t layers = 6;
  std::int64_t ranks = 16;          // of a layout
  std::int64_t elements = 1 << 17;  // of the model, times the ranks of its largest layout
  std::int64_t tokens = 1 << 16;
  double multiply_adds = 0x1p40;  // of a forward pass
};
bool is_within(const Bounds& bounds, const Case& c);

/// What `draw` draws until it is within the bounds, the last of eight tries at worst.
template <typename Draw>
Case drawn_within(const Bounds& bounds, const Draw& draw) {
  Case c = draw();
  for (int attempt = 1; attempt < 8 && !is_within(bounds, c); ++attempt) c = draw();
  return c;
}

/// Makes the engine that a law judges: anew for every answer, because an engine may remember.
using MakeSubject = std::function<std::shared_ptr<Subject>(const Case&)>;

/// What `check_case` says, without its labels where the law passes: in half the time.
Outcome outcome_of(const Law& law, const Case& c, const MakeSubject& subject);

/// Whether the law fails, or fails to answer without refusing the case.
bool says_failed(const Outcome& outcome);
/// Throws Finding with what the law says.
[[noreturn]] void report(const Law& law, const Outcome& outcome);
/// Both.
void require_holds(const Law& law, const Case& c, const MakeSubject& subject);

/// The first of `laws` that the case names; nullptr where it names another one.
const Law* law_of(const Case& c, const std::vector<std::string_view>& laws);

/// The value of SHARDCHECK_PLANTED_FAULT, NAME or NAME:ARGUMENT; empty where it is not set.
std::string planted_fault();

/// The engine of the library, with the planted fault where that acts. Throws InvalidInput for an unknown
/// fault.
std::shared_ptr<Subject> engine_under_test(const Case& c);

/// Whether a value that goes into the layout and out of it keeps its bits: nothing is shifted, no bias stored
/// as shares.
bool keeps_bits(const Layout& layout);

}  // namespace shardcheck::fuzz
