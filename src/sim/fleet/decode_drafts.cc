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

// Work counts what the bound needs for the tokens of the step: the share of a table's step with as
// many sequences on the rank that makes as many tokens. The rest is moved to the rejected drafts.
// Work stays what it is where the table would need more.
void DecodeSide::count_rejected(Group& group, SimTime moe_ns, SimTime bound_fixed_ns) {
    const DecodeCost& cost = config_.policy.cost;
    const auto ranks = static_cast<double>(loads_.size());
    double even_sequences = 0, even_rows = 0;
    needed_us_.clear();
    for (std::size_t r = 0; r < loads_.size(); ++r) {
        const Pace& pace = pace_of(static_cast<std::size_t>(loads_[r].sequences));
        std::int64_t tokens = 0;
        for (const VerifySide::Seat& seat : seats_[r])
            tokens += verify_->accepted(seat.slot);
        // Of the table, that make them.
        const double sequences = static_cast<double>(tokens) / pace.accepted;
        const double rows = sequences * pace.rows;
        const double share = tokens > 0 ? sequences / static_cast<double>(loads_[r].sequences) : 0;
        needed_us_.push_back(works_us_[r] * share + cost.verify_us * rows);
        even_sequences += sequences;
        even_rows += rows;
    }
    const double fill = even_sequences / (ranks * static_cast<double>(config_.sequences_max));
    const double even_us =
        cost.moe_us * even_rows + (cost.c0_us + cost.a0_us) * std::min(1.0, fill);
    for (std::size_t r = 0; r < loads_.size(); ++r) {
        const double us =
            works_us_[r] + cost.verify_us * static_cast<double>(loads_[r].verify_tokens);
        const SimTime spent_ns = ns_of(us) + moe_ns + bound_fixed_ns;
        const SimTime rejected_ns = std::max<SimTime>(0, spent_ns - ns_of(needed_us_[r] + even_us));
        group.step.add(CardTime::work, -rejected_ns);
        group.step.add(CardTime::rejected_drafts, rejected_ns);
    }
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
