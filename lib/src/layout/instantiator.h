// Turns the rules of a table into the entries of a layout, for one geometry and mesh.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "layout/logical_index.h"
#include "table_rule.h"

namespace shardcheck {

class Instantiator {
 public:
  /// Throws InvalidLayout when the mesh has an axis that the table does not carry, UnsupportedLayout when the
  /// layers do not spread over the pipeline stages.
  Instantiator(const LayoutTable& table, const Geometry& geometry, const LayoutName& name);

  Layout layout() const;
  /// Whether the first entry that a rule makes can be represented; true for a rule that makes none.
  bool is_representable(const TableRule& rule) const;

 private:
  /// A layer and an expert of it, -1 where the rule has none.
  struct Place {
    std::int64_t layer = -1, expert = -1;
  };
  /// What entries of one rule and one shape of parts share.
  struct Form {
    std::shared_ptr<const Arrangement> arranged;  // null for the default
    PlacedTensor placed;
  };

  [[noreturn]] void fail(const TableRule& rule, const std::string& why) const;
  void require_all_held(const Layout& layout) const;

  std::vector<Place> places_of(const TableRule& rule) const;
  bool has(const std::string& role, const Place& place) const;
  /// Whether the rule's conditions hold at a place.
  bool applies(const TableRule& rule, const Place& place) const;
  /// The logical tensors of a place, empty when the geometry has none of them there. Throws InvalidLayout
  /// when it has some only.
  std::vector<LogicalTensor> parts_of(const TableRule& rule, const Place& place) const;
  LayoutEntry entry(const TableRule& rule, const Place& place, std::vector<LogicalTensor> parts,
                    std::vector<Form>& forms) const;
  Form form(const TableRule& rule, const std::string& name, const std::vector<LogicalTensor>& parts) const;
  Coordinates held(const TableRule& rule, const Place& place) const;
  std::string local_name(const TableRule& rule, const Place& place) const;

  int stage_of(std::int64_t layer) const;
  int expert_rank(std::int64_t expert) const;

  const LayoutTable& table_;
  const Geometry& geometry_;
  const LayoutName& name_;
  Mesh mesh_;
  LogicalIndex logical_;
  std::vector<std::int64_t> first_layer_;   // of each stage, and the number of layers
  std::vector<std::int64_t> first_expert_;  // of each rank along the expert axis, and their number
};

}  // namespace shardcheck
