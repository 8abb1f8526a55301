// A header that gives two tensors the same bytes.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
// Never equivalent: the tensors are drawn independently.
const Fault& two_names_one_byte_range() {
  static const Fault fault{
      .name = "two_names_one_byte_range",
      .family = 'C',
      .level = FaultLevel::container,
      .claim = "Two tensors of a file name one range of bytes, so that the second one holds the first.",
      .reports = {"faults.md"},
      .oracles = {Oracle::layout},
      .arguments = {},
      .not_applicable = nowhere_inapplicable,
      .equivalent = nullptr,
      .kind = EffectiveKind::container,
      .effective = [](const Case& c, std::string_view) {
        return effective::read_stored(c, effective::FolderDamage::shared_range, effective::indexed_tensor);
      }};
  return fault;
}

}  // namespace shardcheck::faults
