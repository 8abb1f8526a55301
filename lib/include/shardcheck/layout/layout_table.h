// Layout tables: parameter-name pattern -> placement for one framework and model family, as data (JSON),
// and their instances for a geometry at a degree. The tables of lib/layouts/ are embedded at build time;
// a user's file is accepted by path. A table says where bytes lie; it never says how a consumer reads them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardcheck/layout/placement.h"
#include "shardcheck/model/geometry.h"

namespace shardcheck {

/// A layout table, a layout name or an index that is wrong in itself. Names the file, the rule and the field.
class InvalidLayout : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

/// "megatron-moe:pp2,ep4,tp2" as data; axes outermost first.
struct LayoutName {
  std::string table = "seed";
  std::vector<std::pair<std::string, int>> axes;

  /// Degree of an axis, 1 when it is not named.
  int degree(std::string_view axis) const;
  int tp_degree() const { return degree("tp"); }
  bool operator==(const LayoutName&) const = default;
};

/// "seed:tp2"; axes of degree 1 are omitted ("seed").
std::string to_string(const LayoutName& name);

/// Throws InvalidLayout: unknown axis (allowed: tp ep etp pp dp cp), a degree outside 1..1024, an axis twice.
/// The table's existence is not checked here.
LayoutName parse_layout_name(std::string_view text);

/// One tensor of a framework's files: its name there, the logical tensors stacked in it along dimension 0
/// in order, and how it lies over the ranks.
struct LayoutEntry {
  std::string name;                  // e.g. "layers.3.qkv"
  std::vector<LogicalTensor> parts;  // e.g. q, k, v of layer 3; never empty
  PlacedTensor placed;
};

/// A table instantiated for a geometry at a degree. Every logical tensor of the geometry appears in exactly
/// one entry.
struct Layout {
  LayoutName name;
  std::string consumer;  // "seed", "hf", "vllm": whose convention executes it
  Geometry geometry;
  int degree = 1;
  std::vector<LayoutEntry> entries;  // table order, layers ascending

  /// Entry that holds a logical tensor. Throws std::out_of_range.
  const LayoutEntry& entry_of(std::string_view logical_name) const;
  /// Entry by file name, nullptr when absent.
  const LayoutEntry* find(std::string_view entry_name) const;
};

class JsonField;
class PlacementRule;

class LayoutTable {
 public:
  /// Parses and checks a table. `origin` is the file name used in messages. Throws InvalidLayout: not JSON,
  /// unknown key, missing key, unknown placement, policy or role, bad expression, two rules for one tensor.
  static LayoutTable parse(std::string_view json, const std::string& origin);
  /// Reads a file (at most 4 MiB) and parses it.
  static LayoutTable load(const std::filesystem::path& file);
  /// A built-in table by name. Throws InvalidLayout listing the known names, the nearest first.
  static const LayoutTable& built_in(std::string_view name);
  /// Names of the built-in tables, sorted.
  static std::vector<std::string> built_in_names();

  const std::string& name() const noexcept { return name_; }
  const std::string& framework() const noexcept { return framework_; }
  const std::string& family() const noexcept { return family_; }
  const std::string& consumer() const noexcept { return consumer_; }

  /// Throws UnsupportedLayout naming the first parameter that cannot be represented, InvalidLayout when a
  /// logical tensor of the geometry has no rule.
  Layout instantiate(const Geometry& geometry, int degree) const;

  /// Roles whose placement cannot be constructed at this degree (probing each placement), sorted. A role here
  /// is the tensor pattern without everything up to "{layer}.": "qkv" for TOY at degree 4 of the seed's
  /// table.
  std::vector<std::string> unrepresentable(const Geometry& geometry, int degree) const;

 private:
  struct Rule {
    std::string pattern;                             // "layers.{layer}.qkv"
    std::vector<std::string> logical;                // roles stacked in the tensor
    bool optional = false;                           // present only when the geometry has the roles
    std::shared_ptr<const PlacementRule> placement;  // checked at parse time, evaluated at instantiation
  };
  class Instantiator;
  static Rule parse_rule(const JsonField& json);

  std::string name_, framework_, family_, consumer_, origin_;
  std::vector<Rule> rules_;
};

/// Degrees of `candidates` at which every placement of the table can be constructed: derived by probing,
/// never listed.
std::vector<int> supported_degrees(const LayoutTable& table, const Geometry& geometry,
                                   const std::vector<int>& candidates);

/// `LayoutTable::built_in(name.table).instantiate(geometry, name.tp_degree())`; axes other than tp are
/// refused by name until a table carries them.
Layout make_layout(const LayoutName& name, const Geometry& geometry);

}  // namespace shardcheck
