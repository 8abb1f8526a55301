#include <cstdlib>

#include "case_input.h"
#include "shardcheck/mutators/fault.h"

namespace shardcheck::fuzz {

std::string planted_fault() {
  const char* const value = std::getenv("SHARDCHECK_PLANTED_FAULT");
  return value == nullptr ? "" : value;
}

std::shared_ptr<Subject> engine_under_test(const Case& c) {
  const std::string planted = planted_fault();
  auto right = std::make_shared<Subject>();
  if (planted.empty()) return right;
  const FaultChoice choice = parse_fault(planted);
  if (choice.fault->inject == nullptr || !acts_on(choice, c)) return right;
  return choice.fault->inject(std::move(right), c, choice.argument);
}

}  // namespace shardcheck::fuzz
