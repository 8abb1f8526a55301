// Which layout tables fit the tensors of files of unknown origin, by names and shapes alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shardcheck/layout/layout_table.h"

namespace shardcheck {

/// Names and shapes of one file's tensors.
struct FileTensors {
  std::string file;
  std::map<std::string, Shape, std::less<>> shapes;
};

/// How well one table explains the files.
struct TableMatch {
  LayoutName layout;                 // the table and the mesh that was tried
  std::optional<Geometry> geometry;  // what the shapes were compared with, when there is one
  std::vector<std::string> guessed;  // its keys that the files do not determine and nobody gave
  std::size_t matched = 0;           // tensors of the expected name and shape, over all ranks
  std::size_t missing = 0;           // expected, not there
  std::size_t extra = 0;             // there, not expected
  std::size_t misshapen = 0;
  std::string problem;  // what does not fit, the first of it; empty when everything does

  bool fits() const { return problem.empty(); }
  /// Share of the tensors, expected or there, that match.
  double share() const;
};

/// One element per rank: each file where `ranks` is the number of files or where a tensor's name is in
/// several; else all of them together, as a checkpoint cut by size. "...rotary_emb.inv_freq" is dropped.
std::vector<FileTensors> join_files(std::vector<FileTensors> files, int ranks);

/// Compares with the table on `mesh` (its table name is ignored; without axes: tp over the ranks). Shapes are
/// compared with `geometry`, else with one that is inferred from them. A head that is stored though
/// `geometry` is tied, or is not stored though it is untied, does not keep files from fitting.
TableMatch match_table(const LayoutTable& table, const std::vector<FileTensors>& ranks,
                       const LayoutName& mesh, const std::optional<Geometry>& geometry);

/// Best first: those that fit, then by share, tables that a consumer here executes before others, by name.
void sort_matches(std::vector<TableMatch>& matches);

}  // namespace shardcheck
