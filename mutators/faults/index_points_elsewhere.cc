// An index that names files which lack the tensors.
#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

Tensor by_position(const effective::StoredFolder& folder, std::string_view name) {
  const std::string_view stored = name == "head" ? "embed" : name;
  const std::string& file = folder.index.find(stored)->second;
  std::size_t position = 0;
  for (const auto& [other, its_file] : folder.index) position += its_file == file && other < stored ? 1 : 0;
  const auto& ranges = folder.files.find(file)->second.ranges;
  return effective::tensor_in(folder, file, ranges.at(position).name);
}

}  // namespace

// Never equivalent: the tensors are drawn independently.
const Fault& index_points_elsewhere() {
  static const Fault fault{.name = "index_points_elsewhere",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim =
                               "A tensor that is not in the file the index names for it is taken from there "
                               "by its position among those that the index gives to the file.",
                           .reports = {"A111"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::exchanged_index,
                                                           by_position);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
