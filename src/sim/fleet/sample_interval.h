// Figures over time: what changed since the last sample was taken.
#pragma once

#include <algorithm>
#include <utility>

#include "sim/event_queue.h"
#include "sim/fleet/fleet_result.h"

namespace fathom {

struct SampleInterval {
    // As they stand, since the beginning of the run.
    struct Sums {
        SimTime now_ns = 0;
        std::int64_t prefill_step_ns = 0, decode_step_ns = 0;  // of all cards
        std::int64_t input_tokens = 0, hit_tokens = 0;
    };
    LogHistogram ttft_ms;
    std::int64_t output_tokens = 0;
    Sums before;

    // The sample of the interval that ends now; the next one begins.
    FleetSample close(const Sums& now, std::int64_t prefill_cards, std::int64_t decode_cards) {
        FleetSample sample;
        sample.at_s = static_cast<double>(now.now_ns) / 1e9;
        const auto span_ns = static_cast<double>(now.now_ns - before.now_ns);
        const auto use = [&](std::int64_t step_ns, std::int64_t cards) {
            return std::min(1.0,
                            static_cast<double>(step_ns) / (span_ns * static_cast<double>(cards)));
        };
        sample.prefill_use = use(now.prefill_step_ns - before.prefill_step_ns, prefill_cards);
        sample.decode_use = use(now.decode_step_ns - before.decode_step_ns, decode_cards);
        sample.input_tokens = now.input_tokens - before.input_tokens;
        const auto input = static_cast<double>(sample.input_tokens);
        if (input > 0)
            sample.hit_share = static_cast<double>(now.hit_tokens - before.hit_tokens) / input;
        sample.tokens_in_s = input / span_ns * 1e9;
        sample.tokens_out_s = static_cast<double>(output_tokens) / span_ns * 1e9;
        sample.first_tokens = ttft_ms.count();
        sample.ttft_p50_ms = ttft_ms.percentile(0.5);
        sample.ttft_p99_ms = ttft_ms.percentile(0.99);
        *this = {};
        before = now;
        return sample;
    }
};

}  // namespace fathom
