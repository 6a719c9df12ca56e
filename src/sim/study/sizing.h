// Which fleet for so many cards: how many prefill and decode cards, in engines of what size, and
// what drafts, a pool and the rest bring (serving.md 4.7). Answers come from runs of the fleet
// simulator; a candidate's *capacity* is the most requests a second at which `slo_share` of all
// requests are within the SLO, found by halving.
//
//   sizes × splits ──balanced bound──▶ the best few ──runs──▶ best split ──▶ its neighbours
//                                                                │
//                                                                └──▶ the same without each feature
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/fleet/fleet_config.h"

namespace fathom {

struct SizingQuestion {
    FleetConfig base;  // traffic, step curves, hardware, SLO, prices
    std::int64_t cards = 16;
    std::vector<std::int64_t> prefill_ranks = {2, 4, 8}, decode_ranks = {4, 8, 16, 32, 64};
    double slo_share = 0.95;
    std::int64_t candidates = 6;  // that are run
};

struct SizingRow {
    std::string name;
    std::int64_t prefill_ranks = 0, engines = 0, decode_ranks = 0, groups = 0;
    double bound = 0;     // requests a second, of the balanced bound
    double capacity = 0;  // requests a second; 0: not even the least that was tried
    // At capacity.
    double tokens_s = 0, usd_per_million = 0, usd_revenue_hour = 0;  // revenue of the whole fleet
    double ttft_p99_ms = 0, tpot_p99_ms = 0, hit_share = 0, efficiency = 0;
};

struct SizingAnswer {
    std::vector<SizingRow> candidates;  // best first
    std::vector<SizingRow> without;  // the best one without something; capacity says what it gains
    std::vector<std::string> impossible;  // sizes, and why
    std::int64_t runs = 0;
    const SizingRow& best() const { return candidates.front(); }
};

// `progress` is told of each run; false ends it as cancelled. resource_exhausted when no size fits.
Result<SizingAnswer> size_fleet(const SizingQuestion& question,
                                const std::function<bool(std::int64_t runs)>& progress = {});

}  // namespace fathom
