#include "policy/prefill_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace fathom {

namespace {

constexpr std::size_t kAxisMax = 256;
constexpr double kTimeMaxUs = 1e12;
constexpr double kNone = -1;  // a cell without a measured time

bool is_time(double time_us) {
    return time_us >= 0 && time_us <= kTimeMaxUs;
}

bool is_axis(const std::vector<std::int64_t>& axis, std::int64_t least) {
    return !axis.empty() && axis.size() <= kAxisMax && axis.front() >= least &&
           std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) == axis.end();
}

// Where x lies on an axis: between cells `low` and `low + 1`, at `part`.
struct Place {
    std::size_t low = 0, high = 0;
    double part = 0;
};
Place place_on(const std::vector<std::int64_t>& axis, std::int64_t x) {
    if (x <= axis.front()) return {};
    if (x >= axis.back()) return {axis.size() - 1, axis.size() - 1, 0};
    const auto above = std::upper_bound(axis.begin(), axis.end(), x);
    const auto high = static_cast<std::size_t>(above - axis.begin());
    const auto width = static_cast<double>(axis[high] - axis[high - 1]);
    return {high - 1, high, static_cast<double>(x - axis[high - 1]) / width};
}

// The nearest monotone table in the sense of the header; `measured` with kNone where nothing was.
std::vector<double> monotone(const std::vector<double>& measured, std::size_t columns) {
    const std::size_t rows = measured.size() / columns;
    std::vector<double> times(measured.size());
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < columns; ++j) {
            double most = kNone, least = std::numeric_limits<double>::max();
            for (std::size_t k = 0; k < rows; ++k) {
                for (std::size_t l = 0; l < columns; ++l) {
                    const double time = measured[k * columns + l];
                    if (time == kNone) continue;
                    if (k <= i && l <= j) most = std::max(most, time);
                    if (k >= i && l >= j) least = std::min(least, time);
                }
            }
            double& cell = times[i * columns + j];
            if (most == kNone) {
                cell = least == std::numeric_limits<double>::max() ? 0 : least;
            } else {
                cell = least == std::numeric_limits<double>::max() ? most : (most + least) / 2;
            }
            // Cells of which one side was never measured may still be out of order.
            if (i > 0) cell = std::max(cell, times[(i - 1) * columns + j]);
            if (j > 0) cell = std::max(cell, times[i * columns + j - 1]);
        }
    }
    return times;
}

}  // namespace

Result<PrefillTable> PrefillTable::make(std::vector<std::int64_t> contexts,
                                        std::vector<std::int64_t> tokens,
                                        std::vector<double> times_us) {
    if (!is_axis(contexts, 0) || !is_axis(tokens, 1))
        return invalid_argument(
            "prefill table: contexts and tokens must rise, from 0 and 1, in at most {} steps",
            kAxisMax);
    const std::size_t columns = tokens.size();
    if (times_us.size() != contexts.size() * columns)
        return invalid_argument("prefill table: {} times, expected {} x {}", times_us.size(),
                                contexts.size(), columns);
    for (std::size_t i = 0; i < times_us.size(); ++i) {
        const bool falls = (i % columns > 0 && times_us[i] < times_us[i - 1]) ||
                           (i >= columns && times_us[i] < times_us[i - columns]);
        if (!is_time(times_us[i]) || falls)
            return invalid_argument(
                "prefill table: time {} us at context {}, tokens {}: expected one that does not "
                "fall",
                times_us[i], contexts[i / columns], tokens[i % columns]);
    }
    PrefillTable table;
    table.contexts_ = std::move(contexts);
    table.tokens_ = std::move(tokens);
    table.times_us_ = std::move(times_us);
    return table;
}

Result<PrefillTable> PrefillTable::fit(std::span<const Point> points) {
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> sums;
    std::set<std::int64_t> contexts, tokens;
    for (const Point& point : points) {
        if (point.context < 0 || point.tokens < 1 || !is_time(point.time_us))
            return invalid_argument("prefill table: time {} us at context {}, tokens {}",
                                    point.time_us, point.context, point.tokens);
        contexts.insert(point.context);
        tokens.insert(point.tokens);
        auto& [sum, count] = sums[{point.context, point.tokens}];
        sum += point.time_us;
        count += 1;
    }
    if (tokens.size() < 2)
        return invalid_argument("prefill table: {} numbers of tokens, expected at least 2",
                                tokens.size());
    std::vector<double> measured;
    for (const std::int64_t c : contexts) {
        for (const std::int64_t q : tokens) {
            const auto found = sums.find({c, q});
            measured.push_back(found == sums.end() ? kNone
                                                   : found->second.first / found->second.second);
        }
    }
    return make({contexts.begin(), contexts.end()}, {tokens.begin(), tokens.end()},
                monotone(measured, tokens.size()));
}

double PrefillTable::slice_us(std::int64_t tokens, std::int64_t context) const {
    const Place row = place_on(contexts_, context), column = place_on(tokens_, tokens);
    const auto at = [&](std::size_t i, std::size_t j) { return times_us_[i * tokens_.size() + j]; };
    const auto between = [&](std::size_t i) {
        return at(i, column.low) + column.part * (at(i, column.high) - at(i, column.low));
    };
    return between(row.low) + row.part * (between(row.high) - between(row.low));
}

double PrefillTable::work_us(std::int64_t tokens, std::int64_t context) const {
    double sum = 0;
    for (; tokens > tokens_.back(); tokens -= tokens_.back(), context += tokens_.back())
        sum += slice_us(tokens_.back(), context);
    return tokens > 0 ? sum + slice_us(tokens, context) : sum;
}

}  // namespace fathom
