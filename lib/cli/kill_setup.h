// What `run` and `kill` have in common about the kill matrix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/mutators/kill_matrix.h"

namespace shardcheck {

/// The recorded configurations and `random_cases` further cases per fault, drawn from the seed.
KillOptions kill_options(std::uint64_t seed, std::int64_t random_cases, int jobs);

/// Every fault with every legal argument whose name or "NAME:ARGUMENT" matches the glob. Throws InvalidInput
/// naming the nearest fault when none does.
std::vector<FaultChoice> faults_matching(const std::string& glob);

/// "layout,tree" as oracles. Throws InvalidInput listing them.
std::vector<Oracle> parse_oracles(const std::string& text);

/// "38 faults in 56 forms": a fault with an argument has one form per argument.
std::string describe_faults(const KillReport& report);

/// 0 passed; 1 a baseline, a score or a control missed; 3 when only evidence is missing.
int exit_code_of(const KillReport& report, double minimum_score = 1.0);

/// "not scored: ORACLES need not see FAULT" or why else, one per fault without evidence.
std::vector<std::string> not_scored(const KillReport& report);

/// What the columns of the kill table mean.
inline constexpr std::string_view kKillTableNote =
    "killed / applicable under each oracle, in parentheses where it need not see the fault; deviations on "
    "TOY and "
    "TOY_KV4";

}  // namespace shardcheck
