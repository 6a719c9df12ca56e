// Non-negative least squares: the x >= 0 that minimises Σ_i w_i (a_i·x − b_i)², by the active-set
// method of Lawson and Hanson on normal equations with columns scaled to unit length. For a handful
// of unknowns. Columns that are zero, or that the others explain, get 0.
#pragma once

#include <span>
#include <vector>

namespace fathom {

// `rows` holds one row of `unknowns` values an equation; `weights` and `targets` lie beside it.
std::vector<double> solve_nnls(std::span<const double> rows, std::span<const double> targets,
                               std::span<const double> weights, std::size_t unknowns);

}  // namespace fathom
