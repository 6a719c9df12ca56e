#include "cli/bench/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace fathom {
namespace {

double ms(std::int64_t us) {
    return static_cast<double>(us) / 1e3;
}

double per_second(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

}  // namespace

void RequestRecord::arrive(std::int64_t now_us) {
    if (first_us == 0) {
        first_us = now_us;
    } else {
        gaps_us.push_back(now_us - last_us_);
    }
    last_us_ = now_us;
}

double percentile(std::span<const double> ascending, double p) {
    FATHOM_CHECK(!ascending.empty() && p >= 0 && p <= 100);
    const double rank = p / 100 * static_cast<double>(ascending.size() - 1);
    const auto low = static_cast<std::size_t>(rank);
    const std::size_t high = std::min(low + 1, ascending.size() - 1);
    return ascending[low] + (rank - static_cast<double>(low)) * (ascending[high] - ascending[low]);
}

Distribution distribution_of(std::vector<double> values) {
    Distribution d;
    if (values.empty()) return d;
    std::sort(values.begin(), values.end());
    const auto count = static_cast<double>(values.size());
    d.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values)
        squares += (value - d.mean) * (value - d.mean);
    d.stddev = std::sqrt(squares / count);
    d.median = percentile(values, 50);
    d.p90 = percentile(values, 90);
    d.p95 = percentile(values, 95);
    d.p99 = percentile(values, 99);
    return d;
}

Result<ServiceLevel> parse_service_level(const std::vector<std::string>& bounds) {
    ServiceLevel level;
    for (const std::string& bound : bounds) {
        const std::size_t colon = bound.find(':');
        const std::string_view name = std::string_view(bound).substr(0, colon);
        std::optional<double>* const target = name == "ttft"   ? &level.ttft_ms
                                              : name == "tpot" ? &level.tpot_ms
                                              : name == "e2el" ? &level.e2el_ms
                                                               : nullptr;
        double value = 0;
        const char* const begin = bound.data() + std::min(bound.size(), colon + 1);
        const char* const end = bound.data() + bound.size();
        const auto [stop, failed] = std::from_chars(begin, end, value);
        if (target == nullptr || colon == std::string::npos || failed != std::errc() ||
            stop != end || !(value > 0))
            return invalid_argument(
                "goodput \"{}\": expected ttft:MS, tpot:MS or e2el:MS with a positive number",
                bound);
        *target = value;
    }
    return level;
}

LoadSummary summarise(const std::vector<RequestRecord>& records, const ServiceLevel& level) {
    LoadSummary summary;
    std::vector<double> ttft, tpot, itl, e2el;
    std::int64_t begin_us = 0, end_us = 0, good = 0;
    for (const RequestRecord& record : records) {
        begin_us = begin_us == 0 ? record.start_us : std::min(begin_us, record.start_us);
        end_us = std::max(end_us, record.end_us);
        if (!record.error.empty()) {
            ++summary.failed;
            ++summary.errors[record.error];
            if (summary.first_detail.empty()) summary.first_detail = record.detail;
            continue;
        }
        ++summary.completed;
        summary.input_tokens += record.prompt_tokens;
        summary.cached_tokens += record.cached_tokens;
        summary.output_tokens += record.output_tokens;
        const std::int64_t first_us = record.first_us > 0 ? record.first_us : record.end_us;
        ttft.push_back(ms(first_us - record.start_us));
        e2el.push_back(ms(record.end_us - record.start_us));
        const double own_tpot =
            record.output_tokens > 1
                ? ms(record.end_us - first_us) / static_cast<double>(record.output_tokens - 1)
                : 0;
        if (record.output_tokens > 1) tpot.push_back(own_tpot);
        for (const std::int64_t gap_us : record.gaps_us)
            itl.push_back(ms(gap_us));
        if (ttft.back() <= level.ttft_ms.value_or(ttft.back()) &&
            own_tpot <= level.tpot_ms.value_or(own_tpot) &&
            e2el.back() <= level.e2el_ms.value_or(e2el.back()))
            ++good;
    }
    summary.duration_s = static_cast<double>(end_us - begin_us) / 1e6;
    const double seconds = summary.duration_s;
    summary.request_throughput = per_second(static_cast<double>(summary.completed), seconds);
    summary.output_throughput = per_second(static_cast<double>(summary.output_tokens), seconds);
    summary.total_throughput =
        per_second(static_cast<double>(summary.input_tokens + summary.output_tokens), seconds);
    if (level.any()) summary.goodput = per_second(static_cast<double>(good), seconds);
    summary.ttft_ms = distribution_of(std::move(ttft));
    summary.tpot_ms = distribution_of(std::move(tpot));
    summary.itl_ms = distribution_of(std::move(itl));
    summary.e2el_ms = distribution_of(std::move(e2el));
    return summary;
}

}  // namespace fathom
