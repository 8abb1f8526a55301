// A file that the index names and that nobody misses.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

Tensor zeros_where_missing(const effective::StoredFolder& folder, std::string_view name) {
  const auto file = folder.index.find(name);
  if (file != folder.index.end() && !folder.files.contains(file->second))
    return effective::tensor_of(folder, {});
  return effective::indexed_tensor(folder, name);
}

}  // namespace

// Never equivalent: random tensors are not zero.
const Fault& zeros_for_missing_shard() {
  static const Fault fault{.name = "zeros_for_missing_shard",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim = "Tensors of a file that the index names and that is not there stay zero.",
                           .reports = {"A109"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::missing_shard,
                                                           zeros_where_missing);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
