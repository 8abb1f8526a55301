// Public bug reports behind the catalogue: facts and mechanisms of threads about sharded weights, and the
// classes they fall into (mutators/reports.json).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/mutators/fault.h"

namespace shardcheck {

/// What a user saw: nothing, an error, or one of both by geometry.
enum class ReportEffect : std::uint8_t { silent, raises, mixed };
std::string_view to_string(ReportEffect effect) noexcept;

struct PublicReport {
  std::string id;           // "A5": what Fault::reports names
  std::string thread;       // "vllm-project/vllm#42803"
  int year = 0;             // of the text
  std::string fault_class;  // "F1"
  ReportEffect effect = ReportEffect::silent;
  std::string geometry;   // what it was seen on
  std::string mechanism;  // what went wrong
};

struct FaultClass {
  std::string code;  // "F1"
  std::string what;
};

/// Every report, in the order of their numbers; every class, sorted by code.
const std::vector<PublicReport>& public_reports();
const std::vector<FaultClass>& fault_classes();
/// nullptr when there is none.
const PublicReport* find_report(std::string_view id);

/// Faults that stand for a report of the class, sorted by name.
std::vector<const Fault*> faults_of_class(std::string_view code);
/// Faults that stand for the report, sorted by name.
std::vector<const Fault*> faults_of_report(std::string_view id);

}  // namespace shardcheck
