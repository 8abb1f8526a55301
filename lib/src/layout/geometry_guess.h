// What the shapes of files say about the model, read through the rules of a table. Private to the library.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "layout/table_rule.h"
#include "shardcheck/layout/layout_match.h"

namespace shardcheck {

class GeometryGuess {
 public:
  GeometryGuess(const LayoutTable& table, const std::vector<FileTensors>& ranks, const LayoutName& name);

  /// Names, over all ranks, that a rule has a place for, and that none has.
  std::size_t known_names() const { return known_; }
  std::size_t unknown_names() const { return unknown_; }
  const std::string& first_unknown() const { return first_unknown_; }
  bool has(std::string_view role) const { return shapes_.contains(role); }

  /// Valid geometries whose tensors may have these shapes, one per possible head_dim, the usual ones first.
  std::vector<Geometry> geometries() const;

  /// Keys of a geometry that names and shapes do not determine, as `to_string` of a geometry names them.
  std::vector<std::string> guessed() const;

 private:
  /// A tensor that one rule names.
  struct Seen {
    std::string name;
    std::size_t rank = 0;
    RulePlace place;
  };
  void read(const TableRule& rule, const Seen& seen);
  Shape whole_shape(const TableRule& rule, const Seen& seen) const;
  void count(const TableRule& rule, const RulePlace& place, int rank);

  std::int64_t extent(std::string_view role, std::size_t dim) const;
  std::int64_t experts() const;
  Geometry base() const;
  void add_experts(Geometry& g) const;
  bool add_latent_attention(Geometry& g) const;
  std::vector<Geometry> with_heads(const Geometry& g) const;

  const LayoutTable& table_;
  const std::vector<FileTensors>& ranks_;
  const LayoutName& name_;
  Mesh mesh_;
  std::map<std::string, Shape, std::less<>> shapes_;              // by role; of a fused tensor, see fused_
  std::map<std::string, std::int64_t> fused_;                     // rows of the whole by its first role
  std::map<int, std::set<std::int64_t>> layers_, expert_layers_;  // by stage
  std::map<int, std::set<std::int64_t>> experts_;                 // by rank along the expert axis
  std::int64_t stacked_ = 0;
  bool pads_vocab_ = false;
  std::size_t known_ = 0, unknown_ = 0;
  std::string first_unknown_;
};

}  // namespace shardcheck
