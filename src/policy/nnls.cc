#include "policy/nnls.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace fathom {

namespace {

constexpr double kTolerance = 1e-10;  // of unit columns

struct NormalEquations {
    std::size_t n = 0;
    std::vector<double> gram, moment;  // AᵀWA and AᵀWb of the scaled columns
    std::vector<double> scale;         // length of each column before

    double entry(std::size_t i, std::size_t j) const { return gram[i * n + j]; }
};

NormalEquations normal_equations(std::span<const double> rows, std::span<const double> targets,
                                 std::span<const double> weights, std::size_t n) {
    NormalEquations eq{n, std::vector<double>(n * n), std::vector<double>(n),
                       std::vector<double>(n)};
    double length = 0;
    for (std::size_t r = 0; r < targets.size(); ++r) {
        const double* a = rows.data() + r * n;
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j)
                eq.gram[i * n + j] += weights[r] * a[i] * a[j];
            eq.moment[i] += weights[r] * a[i] * targets[r];
        }
        length += weights[r] * targets[r] * targets[r];
    }
    length = length > 0 ? std::sqrt(length) : 1;
    for (std::size_t i = 0; i < n; ++i)
        eq.scale[i] = std::sqrt(eq.gram[i * n + i]);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
            const double product = eq.scale[i] * eq.scale[j];
            eq.gram[i * n + j] = product > 0 ? eq.gram[i * n + j] / product : 0;
        }
        eq.moment[i] = eq.scale[i] > 0 ? eq.moment[i] / (eq.scale[i] * length) : 0;
    }
    for (double& scale : eq.scale)  // back to the caller's units
        scale = scale > 0 ? length / scale : 0;
    return eq;
}

// Cholesky on the passive set. False when its last column is explained by the others.
bool solve_passive(const NormalEquations& eq, const std::vector<std::size_t>& passive,
                   std::vector<double>& x) {
    const std::size_t m = passive.size();
    std::vector<double> l(m * m), y(m);
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            double sum = eq.entry(passive[i], passive[j]);
            for (std::size_t k = 0; k < j; ++k)
                sum -= l[i * m + k] * l[j * m + k];
            if (i == j) {
                if (sum < kTolerance) return false;
                l[i * m + i] = std::sqrt(sum);
            } else {
                l[i * m + j] = sum / l[j * m + j];
            }
        }
    }
    for (std::size_t i = 0; i < m; ++i) {
        y[i] = eq.moment[passive[i]];
        for (std::size_t k = 0; k < i; ++k)
            y[i] -= l[i * m + k] * y[k];
        y[i] /= l[i * m + i];
    }
    for (std::size_t i = m; i-- > 0;) {
        for (std::size_t k = i + 1; k < m; ++k)
            y[i] -= l[k * m + i] * y[k];
        y[i] /= l[i * m + i];
    }
    x.assign(eq.n, 0.0);
    for (std::size_t i = 0; i < m; ++i)
        x[passive[i]] = y[i];
    return true;
}

double gradient(const NormalEquations& eq, const std::vector<double>& x, std::size_t i) {
    double sum = eq.moment[i];
    for (std::size_t j = 0; j < eq.n; ++j)
        sum -= eq.entry(i, j) * x[j];
    return sum;
}

// Moves from x towards the unconstrained solution until the first value becomes 0, drops what did,
// and again, until the solution is not negative.
void settle(const NormalEquations& eq, std::vector<std::size_t>& passive, std::vector<double>& x) {
    std::vector<double> free;
    while (solve_passive(eq, passive, free)) {
        double step = 1;
        std::size_t first = eq.n;  // to become 0
        for (const std::size_t i : passive) {
            if (free[i] > 0) continue;
            const double until_zero = x[i] > 0 ? x[i] / (x[i] - free[i]) : 0;
            if (until_zero < step || first == eq.n) {
                step = until_zero;
                first = i;
            }
        }
        if (first == eq.n) {
            x = free;
            return;
        }
        std::vector<std::size_t> kept;
        for (const std::size_t i : passive) {
            x[i] += step * (free[i] - x[i]);
            if (i != first && x[i] > 0)
                kept.push_back(i);
            else
                x[i] = 0;
        }
        passive = kept;
    }
}

}  // namespace

std::vector<double> solve_nnls(std::span<const double> rows, std::span<const double> targets,
                               std::span<const double> weights, std::size_t unknowns) {
    FATHOM_CHECK(rows.size() == targets.size() * unknowns && weights.size() == targets.size());
    const NormalEquations eq = normal_equations(rows, targets, weights, unknowns);
    std::vector<double> x(unknowns, 0.0);
    std::vector<bool> refused(unknowns, false);  // explained by the passive set
    std::vector<std::size_t> passive;
    for (std::size_t round = 0; round < 30 * unknowns; ++round) {
        std::size_t best = unknowns;
        double steepest = kTolerance;
        for (std::size_t i = 0; i < unknowns; ++i) {
            if (refused[i] || std::find(passive.begin(), passive.end(), i) != passive.end())
                continue;
            const double slope = gradient(eq, x, i);
            if (slope > steepest) {
                steepest = slope;
                best = i;
            }
        }
        if (best == unknowns) break;
        passive.push_back(best);
        std::vector<double> unused;
        if (!solve_passive(eq, passive, unused) || unused[best] <= 0) {
            passive.pop_back();
            refused[best] = true;
            continue;
        }
        settle(eq, passive, x);
        refused.assign(unknowns, false);
    }
    for (std::size_t i = 0; i < unknowns; ++i)
        x[i] *= eq.scale[i];
    return x;
}

}  // namespace fathom
