// How prompts leave a prefill engine that drains.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/fleet/prefill_side.h"

namespace fathom {

void PrefillSide::list(std::size_t index, std::vector<DrainSequence>* out) const {
    const Engine& engine = engines_[index];
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        for (const Loading& loading : engine.ranks[r].loading)
            out->push_back({loading.job.id, loading.job.rest.context, false});
        for (std::size_t j = 0; j < engine.jobs[r].size(); ++j) {
            const PrefillJob& job = engine.jobs[r][j];
            const bool is_in_step =
                engine.is_stepping &&
                std::any_of(engine.slices.begin(), engine.slices.end(),
                            [&](const PlannedSlice& s) { return s.rank == r && s.job == j; });
            out->push_back({job.id, job.rest.context, is_in_step || !job.rest.first});
        }
    }
}

std::int64_t PrefillSide::ranks_holding(std::size_t index) const {
    const std::span<const Rank> ranks = engines_[index].ranks;
    return std::count_if(ranks.begin(), ranks.end(),
                         [](const Rank& rank) { return rank.held_blocks > 0; });
}

bool PrefillSide::has_room_elsewhere(std::size_t index) const {
    for (std::size_t e = 0; e < engines_.size(); ++e)
        if (e != index && engines_[e].mode == Mode::works) return true;
    return false;
}

std::int64_t PrefillSide::hand_back(std::size_t index, std::uint64_t id) {
    Engine& engine = engines_[index];
    const auto give_back = [&](Rank& rank, const Granted& granted, const PrefillJob& job) {
        rank.free_blocks += granted.blocks;
        FATHOM_CHECK(balancer_.give_back(id, granted.attempt, now_us()));
        const std::size_t length_class = job.length_class;
        const std::int64_t left = job.rest.tokens;
        return std::pair(length_class, left);
    };
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        Rank& rank = engine.ranks[r];
        const auto loading = std::find_if(rank.loading.begin(), rank.loading.end(),
                                          [&](const Loading& l) { return l.job.id == id; });
        if (loading != rank.loading.end()) {
            const auto [length_class, left] = give_back(rank, loading->granted, loading->job);
            rank.loading.erase(loading);
            ask_idle(length_class);
            return left;
        }
        std::vector<PrefillJob>& jobs = engine.jobs[r];
        const auto job =
            std::find_if(jobs.begin(), jobs.end(), [&](const PrefillJob& j) { return j.id == id; });
        if (job == jobs.end()) continue;
        const auto at = static_cast<std::size_t>(job - jobs.begin());
        for (PlannedSlice& slice : engine.slices) {
            if (slice.rank != r) continue;
            if (slice.job == at && engine.is_stepping) {
                drop_step(engine);
                close_span(engine);
            }
            if (slice.job > at) --slice.job;
        }
        const auto [length_class, left] = give_back(rank, rank.granted[at], *job);
        rank.granted.erase(rank.granted.begin() + static_cast<std::ptrdiff_t>(at));
        jobs.erase(job);
        ask_idle(length_class);
        return left;
    }
    FATHOM_CHECK(false, "a prompt that is handed back is here");
    return 0;
}

}  // namespace fathom
