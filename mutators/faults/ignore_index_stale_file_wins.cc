// An index that only says that there are files.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

Tensor from_all_files(const effective::StoredFolder& folder, std::string_view name) {
  return effective::last_copy(folder, name, effective::FilesRead::all);
}

}  // namespace

// Never equivalent: two versions are drawn independently.
const Fault& ignore_index_stale_file_wins() {
  static const Fault fault{.name = "ignore_index_stale_file_wins",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim =
                               "Every file of the folder is read, and the last one in the order of names "
                               "wins, although the index does not name it.",
                           .reports = {"A108"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::none, from_all_files);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
