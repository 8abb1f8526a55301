// A tensor under two names, stored under one of them.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

Tensor zeros_where_not_stored(const effective::StoredFolder& folder, std::string_view name) {
  if (!folder.index.contains(name)) return effective::tensor_of(folder, {});
  return effective::indexed_tensor(folder, name);
}

}  // namespace

// Never equivalent: random tensors are not zero.
const Fault& drop_shared_tensor() {
  static const Fault fault{.name = "drop_shared_tensor",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim =
                               "A tensor that shares its memory with another one is stored once, and the "
                               "second name stays zero when it is read.",
                           .reports = {"A60", "A61"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::none,
                                                           zeros_where_not_stored);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
