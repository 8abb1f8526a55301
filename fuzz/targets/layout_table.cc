// Layout tables as users write them, and their instances for small models.
#include <fmt/format.h>

#include <span>

#include "case_input.h"
#include "json_editor.h"
#include "shardcheck/layout/embedded.h"
#include "shardcheck/model/weights.h"
#include "shardcheck/properties/generator.h"
#include "shardcheck/reshard/reshard.h"

namespace shardcheck {

std::span<const EmbeddedFile> embedded_layout_tables();

namespace fuzz::targets {
namespace {

/// One of sixteen small models of all families, chosen by the input.
Geometry geometry_for(std::string_view input) {
  Stream stream(stream_key(0, input) % 16, "layout_table");
  return draw_mesh_case(stream, {.forward = false}).geometry;
}

/// One rank, and two along each axis that the table has.
std::vector<LayoutName> names_of(const LayoutTable& table) {
  std::vector<LayoutName> names = {{table.name(), {}}};
  for (const Axis axis : table.axes()) names.push_back({table.name(), {{std::string(to_string(axis)), 2}}});
  return names;
}

void require_every_tensor_once(const Layout& layout) {
  std::map<std::string, int, std::less<>> holders;
  for (const LogicalTensor& tensor : logical_tensors(layout.geometry)) holders[tensor.name] = 0;
  for (const LayoutEntry& entry : layout.entries) {
    if (entry.tied) continue;
    for (const LogicalTensor& part : entry.parts) ++holders[part.name];
  }
  for (const auto& [name, count] : holders)
    if (count != 1)
      throw Finding(fmt::format("{} is held by {} file tensors of {}", name, count, to_string(layout.name)));
}

void require_bytes_back(const Layout& layout) {
  if (!keeps_bits(layout)) return;
  const TensorMap full = make_weights(layout.geometry, WeightStyle::fingerprint, 0, DType::f32);
  const TensorMap back = gather(split(full, layout), layout);
  for (const auto& [name, tensor] : full) {
    const auto found = back.find(name);
    if (found == back.end() || !found->second.same_bytes(tensor))
      throw Finding(fmt::format("{} comes back with other bytes from {}", name, to_string(layout.name)));
  }
}

void check_layout(const LayoutTable& table, const Geometry& geometry, const LayoutName& name) {
  std::optional<Layout> layout;
  try {
    layout = table.instantiate(geometry, name);
  } catch (const InvalidInput&) {
    return;
  } catch (const UnsupportedLayout&) {
    return;
  }
  require_every_tensor_once(*layout);
  try {
    require_bytes_back(*layout);
  } catch (const UnsupportedLayout&) {
    // File tensors of more dimensions than a plan copies.
  }
}

void check(std::string_view input) {
  std::optional<LayoutTable> table;
  try {
    table = LayoutTable::parse(input, "input");
  } catch (const InvalidLayout&) {
    return;
  }
  const Geometry geometry = geometry_for(input);
  for (const LayoutName& name : names_of(*table)) check_layout(*table, geometry, name);
}

std::string draw(Stream& stream) {
  const auto tables = embedded_layout_tables();
  const auto chosen = static_cast<std::size_t>(stream.integer(0, std::ssize(tables) - 1));
  Json document = parse_json(tables[chosen].text).value_or(Json::object());
  for (std::int64_t edits = stream.integer(0, 3); edits > 0; --edits) edit_json(document, stream);
  return print_json(document);
}

}  // namespace

const Target& layout_table() {
  static const Target target{.name = "layout_table",
                             .claim =
                                 "A table that is accepted holds every tensor of a model once and gives "
                                 "back the bytes it is given, or refuses the model.",
                             .format = InputFormat::json,
                             .max_bytes = 16384,
                             .check = check,
                             .draw = draw};
  return target;
}

}  // namespace fuzz::targets
}  // namespace shardcheck
