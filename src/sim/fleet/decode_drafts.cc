// Sequences of a decode group whose drafts are modelled. A rank's clock then counts steps: each
// sequence goes on by one with it, and by what it accepts of its drafts on its own. All are whole
// numbers, so that answers end exactly.
#include <algorithm>
#include <cmath>

#include "sim/fleet/decode_side.h"

namespace fathom {

void DecodeSide::finish(FleetResult& result) {
    result.decode_decisions = balancer_.log().hash();
    if (!verify_) return;
    result.decode_decisions =
        Digest().add(result.decode_decisions).add(verify_->decision_hash()).value();
    result.drafts = verify_->counted();
    result.drafts_all = verify_->all();
}

// Rows of the step that begins; microseconds beyond its formula.
double DecodeSide::plan_drafts(std::size_t index) {
    const Group& group = groups_[index];
    for (std::size_t r = 0; r < group.ranks.size(); ++r) {
        const Rank& rank = group.ranks[r];
        seats_[r].clear();
        for (const Sequence& sequence : rank.running.items())
            seats_[r].push_back({sequence.slot, std::llround(sequence.end - rank.clock)});
    }
    return verify_->plan(index, events_.now_ns(), config_.policy.cost, seats_, loads_);
}

void DecodeSide::advance_drafted(Rank& rank) {
    for (Sequence& sequence : rank.running.items()) {
        const auto drafts = static_cast<double>(verify_->accepted(sequence.slot) - 1);
        sequence.end -= drafts;
        host_.entry_of(sequence.slot).begin -= drafts;
        rank.base_kv += drafts;
    }
    rank.clock += 1;
    order_ends(rank);
}

std::int64_t DecodeSide::generated_drafted(const Rank& rank, const DecodeEntry& entry) {
    return std::clamp<std::int64_t>(std::llround(rank.clock - entry.begin), 0,
                                    entry.left_tokens - 1);
}

}  // namespace fathom
