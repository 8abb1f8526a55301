// The determinism axes as text: one row per axis, and every fault against every axis's law.
#pragma once

#include <string>
#include <vector>

#include "shardcheck/properties/axes.h"

namespace shardcheck {

/// One row per axis, its problems and gaps below it.
std::string axes_table(const std::vector<AxisRow>& rows);

/// One row per fault, one column per axis, numbered as the rows of axes_table: the first case whose law saw
/// the fault, "-" where none did, "n/a" where the fault could act in no case.
std::string axes_matrix(const std::vector<AxisRow>& rows);

/// "0 differing bits", "2 of 40 differ, worst 1.2e-07".
std::string describe_bitwise(const AxisCount& count);
/// "31 of 40 differ, worst 1.9e-06", "0 of 40, one fixed order".
std::string describe_native(const AxisRow& row);
/// "case 1 by LAW", "not in 50 cases".
std::string describe_kill(const AxisKill& kill);
/// A cell of axes_matrix.
std::string matrix_cell(const AxisKill& kill);
/// The row's fault against the law of each axis, in the order of the rows; nullptr where it was not asked.
std::vector<const AxisKill*> matrix_row(const AxisRow& row, const std::vector<AxisRow>& rows);

}  // namespace shardcheck
