#include "sim/fleet/request.h"

#include <algorithm>

namespace fathom {

void OutputGuess::learn(std::int64_t output_tokens) {
    constexpr double kStep = 0.002;
    const auto output = static_cast<double>(output_tokens);
    mean += kStep * (output - mean);
    p90 += kStep * mean * (output > p90 ? 0.9 : -0.1);
    p90 = std::max(p90, mean);
}

void count_admitted(const Request& request, const PoolHit& hit, FleetTotals& totals) {
    const std::int64_t computed = request.work.tokens;
    // What begins again is not asked for again.
    if (!request.is_redone) {
        totals.input_tokens += request.arrival.input_tokens;
        totals.hit_tokens += hit.tokens;
    }
    totals.replayed_tokens += computed - (request.arrival.input_tokens - hit.tokens);
    totals.window_wanted += hit.tokens > 0 ? 1 : 0;
    totals.window_hits += hit.is_window_found ? 1 : 0;
    totals.computed_tokens += computed;
}

void count_finished(const Request& request, SimTime now_ns, const SloConfig& slo,
                    RequestFigures& figures) {
    const double decode_ms = static_cast<double>(now_ns - request.first_token_ns) / 1e6;
    const double ttft_ms = static_cast<double>(request.first_token_ns - request.arrived_ns) / 1e6;
    const double tpot_ms =
        request.output_tokens > 1 ? decode_ms / static_cast<double>(request.output_tokens - 1) : 0;
    const bool is_within =
        ttft_ms <= 1000 * slo.ttft_s[prefill_class(request.first_input_tokens)] &&
        tpot_ms <= slo.tpot_ms;
    ++figures.finished;
    figures.within_slo += is_within ? 1 : 0;
    figures.e2e_ms.add(static_cast<double>(now_ns - request.arrived_ns) / 1e6);
    if (request.output_tokens > 1) figures.tpot_ms.add(tpot_ms);
}

}  // namespace fathom
