// A tensor in two files of the index, of which the index names one.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

Tensor from_last_indexed_file(const effective::StoredFolder& folder, std::string_view name) {
  return effective::last_copy(folder, name, effective::FilesRead::indexed);
}

}  // namespace

// Never equivalent: two versions are drawn independently.
const Fault& duplicate_name_last_wins() {
  static const Fault fault{.name = "duplicate_name_last_wins",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim =
                               "Of a tensor that two indexed files hold, the copy read last wins, not the "
                               "one that the index names.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::none,
                                                           from_last_indexed_file);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
