// Detection power as text, as docs/detection-power.md and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardcheck/properties/detection_power.h"
#include "two_way_table.h"

namespace shardcheck {

struct PowerReport {
  std::vector<FaultPower> faults;
  std::vector<HardPlace> places;
  std::vector<RolePower> roles;
  std::uint64_t seed = 0;
  std::int64_t cases = 0, trials = 0;
  std::string command;  // that measures it again
  std::string commit;

  std::vector<std::string> problems() const;
  /// Faults that acted in no case, or that there is none to measure.
  std::vector<std::string> gaps() const;
  /// 1 with a problem, else 3 with a gap, else 0.
  int exit_code() const;
};

TwoWayTable fault_table(const PowerReport& report);
TwoWayTable place_table(const PowerReport& report);
TwoWayTable role_table(const PowerReport& report);
std::string power_page(const PowerReport& report);
std::string power_json(const PowerReport& report);

}  // namespace shardcheck
