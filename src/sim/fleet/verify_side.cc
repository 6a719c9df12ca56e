#include "sim/fleet/verify_side.h"

#include <algorithm>

#include "base/check.h"
#include "sim/sim_random.h"

namespace fathom {
namespace {

constexpr double kHopeless = -30;  // a logit: confidences far below every floor
constexpr float kUnknown = -1;

VerifyModel model_of(const DraftConfig& drafts) {
    VerifyModel model;
    model.drafts = drafts.count;
    model.logit_mean = drafts.logit_mean;
    model.logit_spread = drafts.logit_spread;
    model.logit_noise = drafts.logit_noise;
    model.persistence = drafts.persistence;
    return model;
}

VerifyRules rules_of(const DraftConfig& drafts) {
    return {.path_ms = drafts.path_us / 1000,
            .draft_ms = drafts.draft_us / 1000,
            .gain_min = drafts.gain_min,
            .patience = static_cast<int>(drafts.patience),
            .probe_every = static_cast<int>(drafts.probe_every),
            .probe_age = static_cast<int>(drafts.age_steps)};
}

// As measured at start, with contexts that cost nothing and the same rows on every rank. What
// experts take is in a rank's own curve; for a common budget it is told apart.
VerifyCost start_cost(const DecodeSideConfig& config) {
    const DecodeCost& cost = config.policy.cost;
    const double experts_us = config.drafts.is_group_wide ? 0
                                                          : cost.moe_us * cost.moe_balance *
                                                                static_cast<double>(config.ranks);
    std::vector<CurvePoint> points;
    const std::int64_t rows_max = config.sequences_max * (config.drafts.count + 1);
    for (std::int64_t rows = 1; rows <= rows_max; ++rows) {
        const double us =
            cost.c0_us + cost.a0_us + (cost.verify_us + experts_us) * static_cast<double>(rows);
        points.push_back({rows, std::max(us, 1e-3) / 1000});
    }
    Result<VerifyCurve> curve = VerifyCurve::make(points);
    FATHOM_CHECK(curve.ok());
    return VerifyCost(*std::move(curve));
}

double ratio(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

std::string_view verification_name(Verification verification) {
    constexpr std::string_view kNames[] = {"table", "all", "budget"};
    return kNames[static_cast<std::size_t>(verification)];
}

void DraftFigures::add(const DraftFigures& other) {
    for (std::size_t i = 0; i < kVerifyReasons; ++i)
        rank_steps[i] += other.rank_steps[i];
    sequence_steps += other.sequence_steps;
    rows += other.rows;
    tokens += other.tokens;
}

std::int64_t DraftFigures::all_rank_steps() const {
    std::int64_t sum = 0;
    for (const std::int64_t steps : rank_steps)
        sum += steps;
    return sum;
}

double DraftFigures::share(std::size_t reason) const {
    return ratio(rank_steps[reason], all_rank_steps());
}

double DraftFigures::rows_each() const {
    return ratio(rows, sequence_steps);
}

double DraftFigures::tokens_each() const {
    return ratio(tokens, sequence_steps);
}

double DraftFigures::rows_of_rank() const {
    return ratio(rows, all_rank_steps());
}

VerifyBatch VerifySide::Rank::batch(const std::vector<float>& survivals,
                                    std::int64_t drafts) const {
    return {.requests = static_cast<std::int64_t>(caps.size()),
            .drafts = drafts,
            .survivals = survivals,
            .caps = caps};
}

VerifySide::VerifySide(const DecodeSideConfig& config, std::uint64_t seed)
    : drafts_(config.drafts),
      ranks_(config.ranks),
      seed_(seed),
      model_(model_of(config.drafts)),
      groups_(static_cast<std::size_t>(config.groups)) {
    const bool is_scheduled = drafts_.verification == Verification::budget;
    const Decider decider{VerifyScheduler(rules_of(drafts_)),
                          is_scheduled ? start_cost(config) : VerifyCost()};
    for (Group& group : groups_) {
        group.ranks.resize(static_cast<std::size_t>(ranks_));
        if (is_scheduled)
            group.deciders.assign(drafts_.is_group_wide ? 1 : group.ranks.size(), decider);
    }
}

void VerifySide::join(std::uint32_t slot) {
    if (slot >= by_slot_.size()) by_slot_.resize(std::size_t{slot} + 1);
    // By the slot and how often it was taken, so that a sequence of a closed population is the same
    // one whatever others verify.
    const std::uint64_t turn = by_slot_[slot] ? by_slot_[slot]->turn + 1 : 0;
    SimRandom random(seed_, std::uint64_t{slot} << 32 | turn, SimPurpose::draft);
    by_slot_[slot] = std::make_unique<Sequence>(model_, random.next_u64());
    by_slot_[slot]->turn = turn;
    by_slot_[slot]->blocks.assign(static_cast<std::size_t>((drafts_.age_steps + 1) * drafts_.count),
                                  kUnknown);
}

VerifySide::Decider& VerifySide::decider(Group& group, std::size_t rank) const {
    return group.deciders[drafts_.is_group_wide ? 0 : rank];
}

// The next block of every sequence, and the old one that the scheduler knows. What is not known
// counts as sure where there is a draft, else as hopeless, as the deployed engine has it.
void VerifySide::draw(Rank& rank, std::span<const Seat> seats, bool is_drafting) {
    const auto count = static_cast<std::size_t>(drafts_.count);
    const auto ring = static_cast<std::size_t>(drafts_.age_steps + 1);
    rank.stale.clear();
    rank.current.clear();
    rank.caps.clear();
    for (const Seat& seat : seats) {
        Sequence& sequence = *by_slot_[seat.slot];
        sequence.drafter.set_logit_mean(is_failing_ ? kHopeless : drafts_.logit_mean);
        sequence.drafter.next(block_);
        sequence.would_accept = block_.accepted[0];
        rank.current.insert(rank.current.end(), block_.survivals.begin(), block_.survivals.end());
        const bool has_draft = sequence.steps > 0;
        rank.caps.push_back(static_cast<std::int32_t>(
            has_draft ? std::clamp<std::int64_t>(seat.left_tokens - 1, 0, drafts_.count) : 0));
        // With age 0 it is the block itself, if it is drafted.
        const std::size_t at = (static_cast<std::size_t>(sequence.steps) + 1) % ring * count;
        const bool is_own = drafts_.age_steps == 0 && has_draft && is_drafting;
        for (std::size_t k = 0; k < count; ++k) {
            const float known = is_own ? block_.survivals[k] : sequence.blocks[at + k];
            const float missing = has_draft && is_drafting ? 1.0f : 0.0f;
            rank.stale.push_back(known < 0 ? missing : known);
        }
    }
}

// Of all ranks of a group that begins a step.
void VerifySide::decide(std::size_t index, SimTime now_ns, const DecodeCost& cost) {
    Group& group = groups_[index];
    decisions_.assign(group.ranks.size(), {});
    batches_.clear();
    for (const Rank& rank : group.ranks)
        batches_.push_back(rank.batch(rank.stale, drafts_.count));
    if (drafts_.verification == Verification::all) {
        for (std::size_t r = 0; r < batches_.size(); ++r)
            if (batches_[r].requests > 0) decisions_[r].reason = VerifyReason::plain;
        return;
    }
    if (drafts_.is_group_wide) {
        Decider& one = group.deciders.front();
        one.scheduler.decide_group(batches_, one.cost, cost.moe_us * cost.moe_balance / 1000,
                                   decisions_);
    } else {
        for (std::size_t r = 0; r < batches_.size(); ++r)
            decisions_[r] = group.deciders[r].scheduler.decide(batches_[r], group.deciders[r].cost);
    }
    for (std::size_t r = 0; r < batches_.size(); ++r) {
        if (batches_[r].requests == 0) continue;
        const auto actor = static_cast<std::uint32_t>(index * static_cast<std::size_t>(ranks_) + r);
        log_.record(decisions_[r].record(now_ns / 1000, actor, batches_[r]));
    }
}

// Rows of each sequence, and what it accepts of them.
void VerifySide::verify(Rank& rank, std::span<const Seat> seats, const VerifyDecision& decision) {
    rank.is_drafting = drafts_.count > 0 && decision.reason != VerifyReason::no_drafts &&
                       decision.reason != VerifyReason::no_requests;
    rank.lengths.assign(seats.size(), 1);
    if (decision.variable()) {
        solver_.allocate(rank.batch(rank.current, drafts_.count), decision.choice.drafts,
                         rank.lengths);
    } else if (rank.is_drafting) {
        for (std::size_t i = 0; i < seats.size(); ++i)
            rank.lengths[i] += rank.caps[i];
    }
    const auto count = static_cast<std::size_t>(drafts_.count);
    const auto ring = static_cast<std::size_t>(drafts_.age_steps + 1);
    rank.rows = 0;
    for (std::size_t i = 0; i < seats.size(); ++i) {
        Sequence& sequence = *by_slot_[seats[i].slot];
        sequence.accepted = 1 + std::min<std::int64_t>(sequence.would_accept, rank.lengths[i] - 1);
        rank.rows += rank.lengths[i];
        const auto step = static_cast<std::size_t>(sequence.steps++);
        if (step == 0 || count == 0) continue;
        // The scheduler goes on with the newest block that was drafted.
        float* const to = sequence.blocks.data() + step % ring * count;
        const float* const from = rank.is_drafting
                                      ? rank.current.data() + i * count
                                      : sequence.blocks.data() + (step - 1) % ring * count;
        if (to != from) std::copy_n(from, count, to);
    }
}

void VerifySide::add_to(FleetSample& sample) {
    sample.draft_rows = interval_.rows_each();
    sample.draft_tokens = interval_.tokens_each();
    interval_ = {};
}

double VerifySide::plan(std::size_t index, SimTime now_ns, const DecodeCost& cost,
                        std::span<const std::vector<Seat>> ranks, std::span<DecodeLoad> loads) {
    Group& group = groups_[index];
    FATHOM_CHECK(ranks.size() == group.ranks.size() && loads.size() == ranks.size());
    const double now_s = static_cast<double>(now_ns) / 1e9;
    is_failing_ = now_s >= drafts_.fail_at_s && now_s < drafts_.fail_at_s + drafts_.fail_s;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const bool is_drafting =
            group.deciders.empty() || decider(group, r).scheduler.mode() != VerifyMode::no_drafts;
        draw(group.ranks[r], ranks[r], is_drafting);
    }
    decide(index, now_ns, cost);
    group.step = {};
    bool is_variable = false, is_drafting = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        Rank& rank = group.ranks[r];
        verify(rank, ranks[r], decisions_[r]);
        loads[r].verify_tokens = rank.rows;
        if (ranks[r].empty()) continue;
        is_variable = is_variable || decisions_[r].variable();
        is_drafting = is_drafting || rank.is_drafting;
        ++group.step.rank_steps[static_cast<std::size_t>(decisions_[r].reason)];
        group.step.sequence_steps += static_cast<std::int64_t>(ranks[r].size());
        group.step.rows += rank.rows;
        for (const Seat& seat : ranks[r])
            group.step.tokens += by_slot_[seat.slot]->accepted;
    }
    group.extra_us = (is_variable ? drafts_.path_us : 0) - (is_drafting ? 0 : drafts_.draft_us);
    group.shared_us = cost.moe_us * cost.moe_balance * static_cast<double>(group.step.rows);
    return group.extra_us;
}

void VerifySide::finish_step(std::size_t index, double step_us) {
    Group& group = groups_[index];
    counted_.add(group.step);
    all_.add(group.step);
    interval_.add(group.step);
    if (group.deciders.empty()) return;
    // What the scheduler adds itself is no part of what a size takes.
    const double forward_us = step_us - group.extra_us;
    std::int64_t most_rows = 0, requests = 0;
    for (std::size_t r = 0; r < group.ranks.size(); ++r) {
        const Rank& rank = group.ranks[r];
        const auto own = static_cast<std::int64_t>(rank.caps.size());
        most_rows = std::max(most_rows, rank.rows);
        requests = std::max(requests, own);
        if (!drafts_.is_group_wide && own > 0)
            group.deciders[r].cost.observe(own, rank.rows, forward_us / 1000, 0);
    }
    if (drafts_.is_group_wide)
        group.deciders.front().cost.observe(requests, most_rows,
                                            (forward_us - group.shared_us) / 1000, 0);
}

}  // namespace fathom
