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

/// Only these oracles and no law, also where they need not see a fault.
void judge_under(KillOptions& options, std::vector<Oracle> oracles);

/// Every fault with every legal argument whose name or "NAME:ARGUMENT" matches the glob. Throws InvalidInput
/// naming the nearest fault when none does.
std::vector<FaultChoice> faults_matching(const std::string& glob);

/// "layout,tree" as oracles. Throws InvalidInput listing them.
std::vector<Oracle> parse_oracles(const std::string& text);

/// "38 faults in 56 forms": a fault with an argument has one form per argument. "the control alone". Relabel
/// controls are no faults.
std::string describe_faults(const KillReport& report);

/// 0 passed; 1 failed; 3 inconclusive (KillReport::verdict).
int exit_code_of(const KillReport& report, double minimum_score = 1.0);

/// "not scored: FAULT: REASON", one line per fault without evidence; "not in the matrix: FAULT: ..." per
/// fault that its law was not asked about.
std::vector<std::string> not_scored(const KillReport& report);

/// "100 % killed in the weakest family"; of the control alone, which has no score, in how many cells it was
/// seen.
std::string describe_score(const KillReport& report);

/// What the columns of the kill table mean.
inline constexpr std::string_view kKillTableNote =
    "killed / applicable under each oracle, in parentheses where it need not see the fault; deviations on "
    "TOY and TOY_KV4, weakest of all cases";

/// "first kill: median 1 case", or empty.
std::string describe_first_kills(const KillReport& report);

}  // namespace shardcheck
