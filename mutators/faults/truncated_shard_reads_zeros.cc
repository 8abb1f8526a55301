// A file that ends too early, mapped as if it did not.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
// Never equivalent: random values are not zero.
const Fault& truncated_shard_reads_zeros() {
  static const Fault fault{.name = "truncated_shard_reads_zeros",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim = "What lies beyond the end of a truncated file is read as zeros.",
                           .reports = {"A110"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::truncated_shard,
                                                           effective::indexed_tensor);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
