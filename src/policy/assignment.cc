#include "policy/assignment.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "base/check.h"

namespace fathom {
namespace {

// Rows are added one by one; each addition finds a shortest augmenting path in reduced costs
// cost − row potential − column potential, which stay >= 0.
class Assignment {
  public:
    Assignment(std::span<const std::int64_t> cost, std::size_t n)
        : cost_(cost), n_(n), row_price_(n), column_price_(n + 1), row_of_(n + 1, kNone) {}

    void add_row(std::size_t row) {
        constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
        std::vector<std::int64_t> distance(n_, kFar);
        std::vector<std::size_t> before(n_, n_);
        std::vector<bool> done(n_ + 1, false);
        row_of_[n_] = row;  // a column beyond the last, where the path begins
        std::size_t at = n_;
        while (row_of_[at] != kNone) {
            done[at] = true;
            const std::size_t r = row_of_[at];
            std::int64_t least = kFar;
            std::size_t next = n_;
            for (std::size_t c = 0; c < n_; ++c) {
                if (done[c]) continue;
                const std::int64_t reduced = cost_[r * n_ + c] - row_price_[r] - column_price_[c];
                if (reduced < distance[c]) {
                    distance[c] = reduced;
                    before[c] = at;
                }
                if (distance[c] < least) {
                    least = distance[c];
                    next = c;
                }
            }
            for (std::size_t c = 0; c <= n_; ++c) {
                if (done[c]) {
                    row_price_[row_of_[c]] += least;
                    column_price_[c] -= least;
                } else if (c < n_) {
                    distance[c] -= least;
                }
            }
            at = next;
        }
        for (; at != n_; at = before[at])
            row_of_[at] = row_of_[before[at]];
    }

    std::vector<std::int32_t> columns() const {
        std::vector<std::int32_t> result(n_);
        for (std::size_t c = 0; c < n_; ++c)
            result[row_of_[c]] = static_cast<std::int32_t>(c);
        return result;
    }

  private:
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

    std::span<const std::int64_t> cost_;
    std::size_t n_;
    std::vector<std::int64_t> row_price_, column_price_;
    std::vector<std::size_t> row_of_;
};

}  // namespace

std::vector<std::int32_t> assign_least(std::span<const std::int64_t> cost) {
    auto n = static_cast<std::size_t>(std::llround(std::sqrt(static_cast<double>(cost.size()))));
    FATHOM_CHECK(n * n == cost.size());
    Assignment assignment(cost, n);
    for (std::size_t row = 0; row < n; ++row)
        assignment.add_row(row);
    return assignment.columns();
}

}  // namespace fathom
