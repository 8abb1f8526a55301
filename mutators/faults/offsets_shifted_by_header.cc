// Offsets counted from the wrong byte.
#include <algorithm>

#include "containers.h"
#include "plan_fault.h"

namespace shardcheck::faults {
namespace {

Tensor eight_bytes_early(const effective::StoredFolder& folder, std::string_view name) {
  const std::string_view stored = name == "head" ? "embed" : name;
  const auto& file = folder.files.find(folder.index.find(stored)->second)->second;
  const std::vector<std::byte> image = effective::image_of(folder, file);
  const std::size_t header = image.size() - file.buffer.size() - sizeof(std::uint64_t);
  const std::size_t begin = std::ranges::find(file.ranges, stored, &effective::StoredRange::name)->begin;
  return effective::tensor_of(folder, std::span(image).subspan(header + begin));
}

}  // namespace

// Never equivalent: the header, then values of other elements, lie in the place of random ones.
const Fault& offsets_shifted_by_header() {
  static const Fault fault{.name = "offsets_shifted_by_header",
                           .family = 'C',
                           .level = FaultLevel::container,
                           .claim =
                               "The eight bytes in front of the header are forgotten, so that every tensor "
                               "begins eight bytes early.",
                           .reports = {"faults.md"},
                           .oracles = {Oracle::layout},
                           .arguments = {},
                           .not_applicable = nowhere_inapplicable,
                           .equivalent = nullptr,
                           .kind = EffectiveKind::container,
                           .effective = [](const Case& c, std::string_view) {
                             return effective::read_stored(c, effective::FolderDamage::none,
                                                           eight_bytes_early);
                           }};
  return fault;
}

}  // namespace shardcheck::faults
