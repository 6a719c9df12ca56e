// What became of the experts of one role of a simulated fleet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/expert_placement.h"

namespace fathom {

inline constexpr std::size_t kExpertRoles = 2;  // prefill, decode

struct SwitchFigures {
    std::int64_t begun = 0, completed = 0, aborted = 0;
    std::int64_t chunks = 0;            // that came into force
    std::int64_t fetched = 0;           // experts, those of dropped chunks as well
    double total_s = 0, longest_s = 0;  // of those that were completed
    double mean_s() const { return completed > 0 ? total_s / static_cast<double>(completed) : 0; }
};

struct ExpertFigures {
    Balance realised;                   // of recorded steps behind the warm-up
    std::int64_t plans = 0, gated = 0;  // gated: no layer passed
    std::int64_t deferred = 0;          // samples at which one was due and could not be made
    std::int64_t layers_passed = 0, layers_held = 0;
    std::int64_t slots_passed = 0, slots_held = 0;  // to fetch for them
    Balance before, after;                          // each plan, of the loads that it foretold
    SwitchFigures switches;
    std::uint64_t decisions = 0;  // a hash
};

}  // namespace fathom
