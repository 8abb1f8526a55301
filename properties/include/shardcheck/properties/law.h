// Laws: one file each under properties/laws/. The file name is the law's name. A law file includes no test
// framework: it is a pure function of a case and a subject.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/outcome.h"
#include "shardcheck/case/subject.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {

/// The share of cases that must carry a label, or the law's generator is unhealthy.
struct LabelShare {
  std::string_view label;
  double minimum = 0.0;
};

struct Fault;

struct Law {
  std::string_view name;
  std::string_view claim;  // one present-tense sentence that holds for every case
  Outcome (*check)(const Case& c, Subject& subject) = nullptr;
  Case (*draw)(Stream& stream) = nullptr;  // law name already set in the result
  std::vector<LabelShare> shares;
  std::vector<Arithmetic> arithmetics = {};  // the law speaks of these alone; empty: of any
  int smoke_cases = 50;                      // minimum decided cases of the smoke suite; full: 10x
};

/// Whether the law says anything about an arithmetic.
bool speaks_of(const Law& law, Arithmetic arithmetic);

/// Every law, sorted by name.
const std::vector<const Law*>& all_laws();
/// The law `canary`, which is false on purpose and in no suite: a run in which it does not fail has lost its
/// sight. Known by its name alone; no glob finds it.
const Law& canary_law();
/// The law or the canary. Throws InvalidInput naming the nearest law.
const Law& law_named(std::string_view name);
/// Laws whose name matches a glob (* and ?), sorted. Throws InvalidInput when none does.
std::vector<const Law*> laws_matching(std::string_view glob);

/// The laws that detect a fault, surest first: the one it names; that of effective weights; where a forward
/// pass shows it sharded_equals_reference, which a relabel control must pass; else that of bytes.
std::vector<const Law*> laws_against(const Fault& fault);

/// Runs a law on a case with the case's own fault: fills deviation, labels and digest; turns exceptions into
/// Verdict::error, except UnsupportedLayout, which is Verdict::skipped, and InvalidShards, which is
/// Verdict::failed: the subject made shards that their layout refuses. Verdict::skipped where the case's own
/// fault cannot act: the right subject would be judged in its place.
Outcome check_case(const Law& law, const Case& c);
Outcome check_case(const Law& law, const Case& c, Subject& subject);

}  // namespace shardcheck
