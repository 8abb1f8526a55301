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

#include "shardcheck/layout/arrangement.h"
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
  /// Layers of the first and the last pipeline stage where they differ from the others (Megatron's
  /// num_layers_in_first/last_pipeline_stage), 0 where they do not.
  int first_stage_layers = 0, last_stage_layers = 0;

  /// Degree of an axis, 1 when it is not named.
  int degree(std::string_view axis) const;
  int tp_degree() const { return degree("tp"); }
  /// Throws InvalidLayout for more ranks than a mesh has.
  Mesh mesh() const;
  bool operator==(const LayoutName&) const = default;
};

/// "seed:tp2", "megatron-moe:pp16,ep8,tp8,first3,last2"; axes of degree 1 are omitted ("seed") but for etp:
/// experts are cut over tp where etp is not named.
std::string to_string(const LayoutName& name);

/// Throws InvalidLayout: unknown axis (allowed: tp ep etp pp dp cp, and first and last for the layers of the
/// end stages), a degree outside 1..1024, an axis twice, first or last without pp. The table's existence is
/// not checked here.
LayoutName parse_layout_name(std::string_view text);

/// First layer of every pipeline stage of a layout, then the number of layers: equal stages but for the end
/// stages that the name gives. Throws UnsupportedLayout when layers do not spread so.
std::vector<std::int64_t> stage_bounds(std::int64_t layers, const LayoutName& name);

/// One tensor of a framework's files: its name there, the logical tensors in it and how they are arranged,
/// and how it lies over the ranks.
struct LayoutEntry {
  std::string name;  // unique in the layout, e.g. "layers.3.qkv"
  std::vector<LogicalTensor>
      parts;  // e.g. q, k, v of layer 3; stacked experts one after the other; never empty
  PlacedTensor placed;
  std::shared_ptr<const Arrangement> arranged = nullptr;  // null: parts one after the other along dimension 0
  std::string local_name = {};  // where layers and experts are counted per rank; empty: `name`
  bool tied = false;            // a further copy of tensors that other entries hold

  const Arrangement& arrangement() const;
  /// Name in the file of a rank that holds it.
  const std::string& file_name() const { return local_name.empty() ? name : local_name; }
};

/// A table instantiated for a geometry and a mesh. Every logical tensor of the geometry appears in exactly
/// one entry that is not tied.
struct Layout {
  LayoutName name;
  std::string consumer;  // "seed", "hf", "vllm": whose convention executes it; "none": no forward pass here
  Geometry geometry;
  int degree = 1;                    // ranks of the mesh
  std::vector<LayoutEntry> entries;  // table order, layers ascending
  Mesh mesh = {};

  /// Entry that holds a logical tensor, the first one when there are copies. Throws std::out_of_range.
  const LayoutEntry& entry_of(std::string_view logical_name) const;
  /// Entry by name, nullptr when absent.
  const LayoutEntry* find(std::string_view entry_name) const;
};

/// The layout of the logical tensors themselves, whole on one rank.
Layout logical_layout(const Geometry& geometry);

class TableRule;

class LayoutTable {
 public:
  /// Parses and checks a table. `origin` is the file name used in messages. Throws InvalidLayout: not JSON,
  /// unknown key, missing key, unknown placement, policy, axis or role, bad expression, two rules for one
  /// tensor, a role that two rules hold without being tied.
  static LayoutTable parse(std::string_view json, const std::string& origin);
  /// Reads a file (at most 4 MiB) and parses it. Throws also for a table that differs from the built-in one
  /// of its name.
  static LayoutTable load(const std::filesystem::path& file);
  /// A built-in table by name. Throws InvalidLayout listing the known names, the nearest first.
  static const LayoutTable& built_in(std::string_view name);
  /// Names of the built-in tables, sorted.
  static std::vector<std::string> built_in_names();

  const std::string& name() const noexcept { return name_; }
  const std::string& framework() const noexcept { return framework_; }
  const std::string& family() const noexcept { return family_; }
  /// What the table follows (source and version), may be empty.
  const std::string& description() const noexcept { return description_; }
  const std::string& consumer() const noexcept { return consumer_; }

  /// Axes that a mesh of this table may have.
  const std::vector<Axis>& axes() const noexcept { return axes_; }
  /// The axis that experts are dealt out over, and how.
  Axis expert_axis() const noexcept { return expert_axis_; }
  SplitPolicy expert_policy() const noexcept { return expert_policy_; }
  /// Whether the files of a rank count its layers and experts from 0 (Megatron).
  bool local_numbers() const noexcept { return local_numbers_; }
  /// The axis that a placement over `axis` has in a layout: etp is tp where the layout does not name etp, as
  /// in Megatron; in tables that keep experts whole under expert parallelism (vLLM, SGLang) it stays etp, of
  /// degree 1, where the layout has ep.
  Axis axis_in(const LayoutName& name, Axis axis) const;
  const std::vector<TableRule>& rules() const noexcept { return *rules_; }

  /// Throws UnsupportedLayout naming the first parameter that cannot be represented, InvalidLayout when a
  /// logical tensor of the geometry has no rule or the mesh has an axis that the table does not carry.
  Layout instantiate(const Geometry& geometry, const LayoutName& name) const;
  /// At a TP degree, on no other axis.
  Layout instantiate(const Geometry& geometry, int degree) const;

  /// Roles whose placement cannot be constructed at this degree (probing each placement), sorted. A role here
  /// is the tensor pattern without everything up to "{layer}.": "qkv" for TOY at degree 4 of the seed's
  /// table.
  std::vector<std::string> unrepresentable(const Geometry& geometry, int degree) const;

 private:
  friend class Instantiator;

  std::string name_, framework_, family_, description_, consumer_, origin_;
  std::vector<Axis> axes_;
  Axis expert_axis_ = Axis::ep;
  SplitPolicy expert_policy_ = SplitPolicy::even;
  bool local_numbers_ = false;
  bool whole_experts_with_ep_ = false;
  std::shared_ptr<const std::vector<TableRule>> rules_;
};

/// Degrees of `candidates`, of those in 1..1024, at which every placement of the table can be constructed:
/// derived by probing, never listed.
std::vector<int> supported_degrees(const LayoutTable& table, const Geometry& geometry,
                                   const std::vector<int>& candidates);

/// `LayoutTable::built_in(name.table).instantiate(geometry, name)`.
Layout make_layout(const LayoutName& name, const Geometry& geometry);

}  // namespace shardcheck
