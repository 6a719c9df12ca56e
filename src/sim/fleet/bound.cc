#include "sim/fleet/bound.h"

#include "sim/fleet/decode_side.h"

namespace fathom {

BoundRates bound_rates(const FleetConfig& config, const std::vector<SessionCall>& book) {
    PrefillCosts even = config.prefill.policy.costs;
    for (PrefillCost& cost : even)
        cost.moe_balance = 1;
    double prefill_us = 0;
    for (const SessionCall& call : book) {
        const double ttl_us = config.pool.ttl_s[static_cast<std::size_t>(call.traffic)] * 1e6;
        const std::int32_t kept =
            call.reusable_tokens - (config.pool.is_output_persisted ? 0 : call.answer_tokens);
        const std::int64_t hit = !config.pool.keeps(call.traffic)             ? 0
                                 : static_cast<double>(call.gap_us) <= ttl_us ? kept
                                                                              : call.shared_tokens;
        const bool has_window = static_cast<double>(call.gap_us) <= config.pool.window_ttl_s * 1e6;
        const PrefillWork work = prefill_work(call.input_tokens, hit, has_window);
        prefill_us +=
            even[prefill_class(call.input_tokens)].request_us(work.context, work.tokens, true);
    }
    prefill_us /= static_cast<double>(book.size());
    // A full step's share of what it costs to begin one.
    prefill_us *= 1 + even[0].fixed_us() / config.prefill.policy.tau_us[0];
    const WorkloadMeans means = session_means(book, config.pool);
    const double decode_us =
        means.output_tokens * DecodeSide::bound_us_per_token(config.decode, means.input_tokens);
    return {.prefill = static_cast<double>(config.prefill_cards()) * 1e6 / prefill_us,
            .decode = static_cast<double>(config.decode_cards()) * 1e6 / decode_us};
}

}  // namespace fathom
