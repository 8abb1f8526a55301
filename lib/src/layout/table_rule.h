// One rule of a layout table: which logical tensors a file tensor holds, how they are arranged in it and how
// it is placed. Checked when the table is parsed, evaluated for every geometry and mesh.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "expression.h"
#include "json_field.h"
#include "placement_rule.h"
#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Where a role's tensors are: once, in every layer, in every expert of a layer.
enum class RoleScope : std::uint8_t { model, layer, expert };

/// Scope of a role, nullopt for a text that is none.
std::optional<RoleScope> scope_of_role(std::string_view role);
std::vector<std::string> role_names();

/// One step of an order: a part of the stacked rows rearranged, or padding between rows.
class OrderStep {
 public:
  static OrderStep parse(const JsonField& json);
  /// The step's order of `length` rows.
  std::vector<Run> evaluate(const Geometry& geometry, const Mesh& mesh, std::int64_t length) const;

 private:
  struct Grouped {
    Expression groups;
    std::vector<Expression> units;
  };
  struct Rotary {
    Expression heads, head_dim, rotary;
  };
  struct Pad {
    Expression multiple;
  };
  using Kind = std::variant<Grouped, Rotary, Pad>;
  OrderStep(Expression begin, Kind kind, bool inverse)
      : begin_(std::move(begin)), kind_(std::move(kind)), inverse_(inverse) {}

  static Grouped parse_grouped(const JsonField& json);
  static Rotary parse_rotary(const JsonField& json);
  /// What the step puts at its first row, counted from there.
  std::vector<Run> moved(const Geometry& geometry, const Mesh& mesh) const;

  Expression begin_;  // first row that the step moves, or that padding stands before
  Kind kind_;
  bool inverse_ = false;
};

/// Which layers a rule speaks of, where a model has dense layers and layers of experts.
enum class LayerKind : std::uint8_t { every, dense, experts };

/// Which ranks along pp hold a tensor outside layers.
enum class Stage : std::uint8_t { every, first, last };

/// Where a rule applies; -1 where its pattern has no place for the number.
struct RulePlace {
  std::int64_t layer = -1, expert = -1;
};

class TableRule {
 public:
  /// Throws InvalidLayout naming the field.
  static TableRule parse(const JsonField& json);

  const std::string& pattern() const noexcept { return pattern_; }
  const std::vector<std::string>& roles() const noexcept { return roles_; }
  RoleScope scope() const;
  bool optional() const noexcept { return optional_; }
  bool tied() const noexcept { return tied_; }
  bool stacks_experts() const noexcept { return stacks_experts_; }
  /// Roles that a layer must have, or lack, for the rule to speak of it; empty: no matter.
  const std::string& with() const noexcept { return with_; }
  const std::string& without() const noexcept { return without_; }
  Stage stage() const noexcept { return stage_; }
  LayerKind layers() const noexcept { return layers_; }
  const std::vector<PlacementRule>& placements() const noexcept { return placements_; }

  bool transposed() const noexcept { return transposed_; }
  /// Whether the file tensor may have rows behind those of its roles.
  bool pads() const noexcept { return !pad_multiple_.empty(); }

  /// Layer and expert of a file tensor that the pattern names, nullopt for another name.
  std::optional<RulePlace> match(std::string_view name) const;
  /// The file tensor's name; numbers that its pattern has no place for are ignored.
  std::string name(std::int64_t layer, std::int64_t expert) const;
  Arrangement arrangement(const Geometry& geometry, const Mesh& mesh,
                          const std::vector<LogicalTensor>& parts) const;

 private:
  std::string pattern_;  // "layers.{layer}.qkv"
  std::vector<std::string> roles_;
  std::vector<PlacementRule> placements_;
  std::vector<OrderStep> order_;
  std::string with_, without_;
  std::vector<Expression> pad_multiple_;  // one or none
  bool optional_ = false;                 // present only when the geometry has the roles
  bool tied_ = false;
  bool stacks_experts_ = false;
  bool transposed_ = false;
  int dim_ = -1;  // -1: the first dimension of the parts
  Stage stage_ = Stage::every;
  LayerKind layers_ = LayerKind::every;
  float shift_ = 0;
};

}  // namespace shardcheck
