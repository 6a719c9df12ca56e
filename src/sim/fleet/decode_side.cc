#include "sim/fleet/decode_side.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "sim/fleet/fleet_event.h"

namespace fathom {
namespace {

constexpr std::size_t kAhead = 4;  // of what is fetched early

// What a sequence accepts in a step varies by `sigma`, cut at 1 and as far above the mean, and is
// whole: the variance that is left.
double accepted_variance(double mean, double sigma) {
    if (sigma <= 0 || mean <= 1) return 0;
    const double b = (mean - 1) / sigma;  // of the cut, in deviations
    const double beyond = 0.5 * std::erfc(b / std::numbers::sqrt2);
    const double density = std::exp(-b * b / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    const double kept = 1 - 2 * beyond - 2 * b * density + 2 * b * b * beyond;
    return sigma * sigma * kept + 1.0 / 12;
}

}  // namespace

SimTime DecodeSide::ns_of(double us) {
    return static_cast<SimTime>(std::llround(us * 1000));
}

SpeculationPoint DecodeSide::speculation_at(const DecodeSideConfig& config, double sequences) {
    const auto& points = config.speculation;
    if (points.empty()) return {sequences, 1, 1};
    if (sequences <= points.front().sequences) return points.front();
    for (std::size_t i = 1; i < points.size(); ++i) {
        const SpeculationPoint &a = points[i - 1], &b = points[i];
        if (sequences > b.sequences) continue;
        const double share = (sequences - a.sequences) / (b.sequences - a.sequences);
        return {sequences, a.rows + share * (b.rows - a.rows),
                a.accepted + share * (b.accepted - a.accepted)};
    }
    return points.back();
}

double DecodeSide::bound_us_per_token(const DecodeSideConfig& config, double kv_tokens_each) {
    const auto n = static_cast<double>(config.sequences_max);
    const SpeculationPoint point = speculation_at(config, n);
    const DecodeCost& cost = config.policy.cost;
    const double rows = n * point.rows;
    const double step_us = cost.c0_us + cost.a0_us + cost.a1_us * n +
                           cost.a2_us * n * kv_tokens_each + cost.verify_us * rows +
                           cost.moe_us * rows * static_cast<double>(config.ranks);
    return step_us / (n * point.accepted);
}

double DecodeSide::sequences_within(const DecodeSideConfig& config, double tpot_ms) {
    const DecodeCost& cost = config.policy.cost;
    for (std::int64_t n = config.sequences_max; n > 1; --n) {
        const auto count = static_cast<double>(n);
        const SpeculationPoint point = speculation_at(config, count);
        const double rows = count * point.rows;
        const double us = cost.c0_us + cost.a0_us + cost.a1_us * count + cost.verify_us * rows +
                          cost.moe_us * cost.moe_balance * rows * static_cast<double>(config.ranks);
        if (us / point.accepted <= tpot_ms * 1000) return count;
    }
    return 1;
}

double DecodeSide::load_share(const DecodeSideConfig& config, double sequences) {
    const DecodeCost& cost = config.policy.cost;
    const double rows = sequences * speculation_at(config, sequences).rows;
    const double us = cost.a1_us * sequences + cost.verify_us * rows +
                      cost.moe_us * cost.moe_balance * rows * static_cast<double>(config.ranks);
    const double all_us = us + cost.c0_us + cost.a0_us;
    return all_us > 0 ? std::min(us / all_us, 0.99) : 0;
}

DecodeSide::DecodeSide(const DecodeSideConfig& config, std::uint64_t seed, EventQueue& events,
                       Host& host, const std::function<bool()>& goes_on)
    : config_(config),
      events_(events),
      host_(host),
      balancer_(config.policy),
      groups_(static_cast<std::size_t>(config.groups)) {
    std::uint64_t entity = 0;
    for (std::size_t g = 0; g < groups_.size() && goes_on(); ++g) {
        Group& group = groups_[g];
        group.ranks.resize(static_cast<std::size_t>(config.ranks));
        for (Rank& rank : group.ranks)
            rank.acceptance = SimRandom(seed, entity++, SimPurpose::acceptance);
        group.noise = SimRandom(seed, std::uint64_t{1} << 32 | g, SimPurpose::step_noise);
        balancer_.add_group(g, group.ranks.size());
        report(g, true);
    }
    if (!config.drafts.is_modelled()) return;
    config_.is_per_sequence = true;
    verify_ = std::make_unique<VerifySide>(config, seed);
    seats_.resize(static_cast<std::size_t>(config.ranks));
}

void DecodeSide::place(const std::vector<DecodeRequest>& batch, std::vector<DecodePlacement>* out) {
    const std::size_t before = out->size();
    balancer_.place(batch, events_.now_ns() / 1000, out);
    for (std::size_t i = before; i < out->size(); ++i) {
        const DecodePlacement& placement = (*out)[i];
        if (placement.rank < 0) continue;
        Rank& rank = groups_[static_cast<std::size_t>(placement.group)]
                         .ranks[static_cast<std::size_t>(placement.rank)];
        rank.acked = placement.number;
    }
}

void DecodeSide::prefetch(const DecodePlacement& placement) const {
    if (placement.rank < 0) return;
    const auto& ranks = groups_[static_cast<std::size_t>(placement.group)].ranks;
    const auto* rank =
        reinterpret_cast<const char*>(&ranks[static_cast<std::size_t>(placement.rank)]);
    for (std::size_t at = 0; at < sizeof(Rank); at += 64)
        __builtin_prefetch(rank + at, 1);
}

void DecodeSide::promise(const DecodeSeat& seat, const DecodeEntry& entry) {
    Rank& rank = groups_[seat.group].ranks[seat.rank];
    ++rank.promised;
    rank.promised_kv += entry.context_tokens;
    rank.used_blocks += entry.blocks();
    rank.growth_tokens += entry.growth_tokens;
}

void DecodeSide::adopt(const DecodeSeat& seat, std::uint32_t slot) {
    Group& group = groups_[seat.group];
    group.joining.emplace_back(seat.rank, slot);
    ++sequences_;
    if (!group.is_stepping && group.is_up()) {
        close_span(group);
        begin_step(seat.group);
    }
}

double DecodeSide::kv_of(const Rank& rank) const {
    return std::max(0.0, rank.base_kv + static_cast<double>(rank.running.size()) * rank.clock);
}

DecodeSide::Pace DecodeSide::pace_at(std::int64_t sequences) const {
    const auto n = static_cast<double>(sequences);
    const SpeculationPoint point = speculation_at(config_, n);
    const double variance = accepted_variance(point.accepted, config_.accepted_sigma);
    return {.rows = point.rows,
            .accepted = point.accepted,
            .variance = variance,
            .deviation = sequences > 0 ? std::sqrt(variance / n) : 0,
            .least = std::min(1.0, point.accepted),
            .most = std::max(1 + std::max(0.0, point.rows - 1), point.accepted)};
}

const DecodeSide::Pace& DecodeSide::pace_of(std::size_t sequences) {
    while (paces_.size() <= sequences)
        paces_.push_back(pace_at(static_cast<std::int64_t>(paces_.size())));
    return paces_[sequences];
}

// How far the rank's clock goes on while a sequence makes `tokens`. The clock has the mean's luck;
// the sequence's own, over all its steps, is drawn here at once.
double DecodeSide::clock_tokens(Rank& rank, std::int64_t tokens) {
    const auto wanted = static_cast<double>(tokens);
    if (config_.is_per_sequence) return wanted;
    const auto n = static_cast<double>(rank.running.size()) + 1;
    const Pace& pace = pace_of(rank.running.size() + 1);
    const double variance = pace.variance * (1 - 1 / n) * wanted / pace.accepted;
    return std::max(1.0, wanted + std::sqrt(variance) * rank.acceptance.normal());
}

void DecodeSide::begin_step(std::size_t index) {
    Group& group = groups_[index];
    for (std::size_t i = 0; i < group.joining.size(); ++i) {
        if (i + kAhead < group.joining.size()) {
            host_.prefetch(group.joining[i + kAhead].second);
            group.ranks[group.joining[i + kAhead].first].running.prefetch();
        }
        const auto [r, slot] = group.joining[i];
        Rank& rank = group.ranks[r];
        DecodeEntry& entry = host_.entry_of(slot);
        --rank.promised;
        rank.promised_kv -= entry.context_tokens;
        entry.begin = rank.clock;
        const double end = rank.clock + clock_tokens(rank, entry.left_tokens);
        rank.base_kv += static_cast<double>(entry.context_tokens) - entry.begin;
        rank.running.push({.end = end, .slot = slot});
        rank.next_end = rank.running.top().end;
        if (verify_) verify_->join(slot);
    }
    group.joining.clear();
    loads_.clear();
    std::int64_t sequences = 0;
    for (const Rank& rank : group.ranks) {
        const auto n = static_cast<double>(rank.running.size());
        loads_.push_back({.sequences = static_cast<std::int64_t>(rank.running.size()),
                          .kv_tokens = static_cast<std::int64_t>(kv_of(rank)),
                          .verify_tokens = std::llround(n * pace_of(rank.running.size()).rows)});
        sequences += loads_.back().sequences;
    }
    if (sequences == 0) {
        group.is_stepping = false;
        report(index, true);
        return;
    }
    const double extra_us = verify_ ? plan_drafts(index) : 0;
    const double us = (decode_step_us(config_.policy.cost, loads_) + extra_us) *
                      group.noise.log_normal(1, config_.noise_sigma);
    const SimTime duration_ns = std::max<SimTime>(1, ns_of(us));
    count_step(group, duration_ns, extra_us);
    group.is_stepping = true;
    events_.push(events_.now_ns() + duration_ns,
                 static_cast<std::uint32_t>(FleetEvent::decode_step),
                 static_cast<std::uint32_t>(index), group.epoch);
}

// In integers that add up to ranks × duration. The bound has the same rows and KV on equal ranks
// and as much of the fixed cost as the step is full, and no more than there is; what drafts do to
// it is fixed cost.
void DecodeSide::count_step(Group& group, SimTime duration_ns, double extra_us) {
    group.step = {};
    const DecodeCost& cost = config_.policy.cost;
    const auto ranks = static_cast<std::int64_t>(group.ranks.size());
    double rows = 0, longest_us = 0, most_rows = 0, sequences = 0;
    works_us_.clear();
    for (const DecodeLoad& load : loads_) {
        const double us = cost.a1_us * static_cast<double>(load.sequences) +
                          cost.a2_us * static_cast<double>(load.kv_tokens);
        works_us_.push_back(us);
        longest_us = std::max(longest_us, us);
        most_rows = std::max(most_rows, static_cast<double>(load.verify_tokens));
        rows += static_cast<double>(load.verify_tokens);
        sequences += static_cast<double>(load.sequences);
    }
    const SimTime moe_ns = ns_of(cost.moe_us * rows);
    const SimTime moe_real_ns = ns_of(cost.moe_us * rows * cost.moe_balance);
    const SimTime slowest_ns = ns_of(longest_us + cost.verify_us * most_rows);
    const SimTime fixed_ns = ns_of(cost.c0_us + cost.a0_us + extra_us);
    const double fill =
        sequences / (static_cast<double>(ranks) * static_cast<double>(config_.sequences_max));
    const SimTime bound_fixed_ns =
        std::min(fixed_ns, ns_of((cost.c0_us + cost.a0_us) * std::min(1.0, fill)));
    for (std::size_t r = 0; r < loads_.size(); ++r) {
        const double us =
            works_us_[r] + cost.verify_us * static_cast<double>(loads_[r].verify_tokens);
        group.step.add(CardTime::work, ns_of(us) + moe_ns + bound_fixed_ns);
        group.step.add(CardTime::dp_imbalance, slowest_ns - ns_of(us));
        rank_us_ += us;
        max_us_ += static_cast<double>(slowest_ns) / 1000;
    }
    group.step.add(CardTime::moe_imbalance, ranks * (moe_real_ns - moe_ns));
    group.step.add(CardTime::step_fixed, ranks * (fixed_ns - bound_fixed_ns));
    group.step.add(CardTime::noise, ranks * (duration_ns - slowest_ns - fixed_ns - moe_real_ns));
    if (verify_) count_rejected(group, moe_ns, bound_fixed_ns);
    group.step.total_ns = ranks * duration_ns;
    step_ns_ += ranks * duration_ns;
    sequence_steps_ += sequences;
    rank_steps_ += static_cast<double>(ranks);
}

void DecodeSide::on_step(std::size_t index, std::uint32_t epoch) {
    Group& group = groups_[index];
    if (group.epoch != epoch) return;
    if (group.span_ns >= count_from_ns_) ledger_.add(group.step);
    group.span_ns = events_.now_ns();
    ++steps_;
    ++group.step_number;
    if (verify_) verify_->finish_step(index, step_us(index));
    for (std::size_t r = 0; r < group.ranks.size(); ++r) {
        if (r + kAhead < group.ranks.size()) fetch_heap(group.ranks[r + kAhead]);
        Rank& rank = group.ranks[r];
        if (rank.running.empty()) continue;
        advance(rank);
        take_ended(rank);
    }
    end_sequences(group);
    if (!group.leaving.empty()) send_off(index);
    report(index, false);
    begin_step(index);
}

void DecodeSide::advance(Rank& rank) {
    const Pace& pace = pace_of(rank.running.size());
    const double mean = pace.accepted;
    if (!config_.is_per_sequence) {
        const double drawn = mean + pace.deviation * rank.acceptance.normal();
        rank.clock += std::clamp(drawn, pace.least, pace.most);
        return;
    }
    if (verify_) {
        advance_drafted(rank);
        return;
    }
    // Each goes on by its own number; the clock by one step's mean, and ends move against it.
    for (Sequence& sequence : rank.running.items()) {
        const double drawn = std::round(mean + config_.accepted_sigma * rank.acceptance.normal());
        const double accepted = std::clamp(drawn, 1.0, std::max(1.0, 2 * mean - 1));
        sequence.end -= accepted - mean;
        host_.entry_of(sequence.slot).begin -= accepted - mean;
        rank.base_kv += accepted - mean;
    }
    rank.clock += mean;
    order_ends(rank);
}

void DecodeSide::order_ends(Rank& rank) {
    rank.running.rebuild();
    if (!rank.running.empty()) rank.next_end = rank.running.top().end;
    // An empty rank starts anew: no error of sums outlives its sequences.
    if (rank.running.empty()) rank.clock = rank.base_kv = 0;
}

// If one of its sequences is about to end.
void DecodeSide::fetch_heap(const Rank& rank) {
    if (rank.running.empty() || rank.next_end > rank.clock + pace_of(rank.running.size()).most)
        return;
    rank.running.prefetch();
}

// Their requests lie anywhere in memory: all are asked for before the first is needed.
void DecodeSide::take_ended(Rank& rank) {
    while (!rank.running.empty() && rank.next_end <= rank.clock) {
        const std::uint32_t slot = rank.running.top().slot;
        host_.prefetch(slot);
        ended_.emplace_back(&rank, slot);
        rank.running.pop();
        if (!rank.running.empty()) rank.next_end = rank.running.top().end;
    }
}

void DecodeSide::end_sequences(Group& group) {
    for (const auto& [rank, slot] : ended_) {
        const DecodeEntry& entry = host_.entry_of(slot);
        rank->base_kv -= static_cast<double>(entry.context_tokens) - entry.begin;
        rank->used_blocks -= entry.blocks();
        rank->growth_tokens -= entry.growth_tokens;
        generated_tokens_ += entry.left_tokens;
        --sequences_;
        host_.decoded(slot);
    }
    ended_.clear();
    // An empty rank starts anew: no error of sums outlives its sequences.
    for (Rank& rank : group.ranks)
        if (rank.running.empty()) rank.clock = rank.base_kv = 0;
}

DecodeRankReport DecodeSide::report_of(const Group& group, const Rank& rank) const {
    return {.acked = rank.acked,
            .is_live = group.is_up(),
            .sequences = static_cast<std::int64_t>(rank.running.size()) + rank.promised,
            .kv_tokens = static_cast<std::int64_t>(kv_of(rank)) + rank.promised_kv,
            .free_blocks = std::max<std::int64_t>(0, config_.blocks_per_rank - rank.used_blocks),
            .total_blocks = config_.blocks_per_rank,
            .growth_tokens = rank.growth_tokens,
            .sequences_max = config_.sequences_max,
            .step = group.step_number};
}

// The balancer sees what a step left `report_age_steps` steps later; a group at rest at once.
void DecodeSide::report(std::size_t index, bool is_now) {
    Group& group = groups_[index];
    std::vector<DecodeRankReport> reports;
    if (!group.reports.empty() &&
        static_cast<std::int64_t>(group.reports.size()) > config_.report_age_steps) {
        reports = std::move(group.reports.front());
        group.reports.pop_front();
    }
    reports.clear();
    for (const Rank& rank : group.ranks)
        reports.push_back(report_of(group, rank));
    group.reports.push_back(std::move(reports));
    if (is_now) {
        while (group.reports.size() > 1)
            group.reports.pop_front();
    } else if (static_cast<std::int64_t>(group.reports.size()) <= config_.report_age_steps) {
        return;
    }
    const std::int64_t now_us = events_.now_ns() / 1000;
    for (std::size_t r = 0; r < group.ranks.size(); ++r)
        (void)balancer_.report(index, r, group.reports.front()[r], now_us);
}

std::int64_t DecodeSide::generated_by(const Rank& rank, const Sequence& sequence) const {
    const DecodeEntry& entry = host_.entry_of(sequence.slot);
    if (verify_) return generated_drafted(rank, entry);
    const double part = (rank.clock - entry.begin) / (sequence.end - entry.begin) *
                        static_cast<double>(entry.left_tokens);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(part), 0, entry.left_tokens - 1);
}

// Takes all sequences off the group.
void DecodeSide::empty(std::size_t index) {
    Group& group = groups_[index];
    group.is_stepping = false;
    ++group.epoch;
    ++group.step_number;
    const auto lose = [&](std::uint32_t slot, std::int64_t generated) {
        generated_tokens_ += generated;
        --sequences_;
        host_.lost(slot, generated);
    };
    for (const auto& [r, slot] : group.joining)
        lose(slot, 0);
    group.joining.clear();
    group.leaving.clear();
    for (Rank& rank : group.ranks) {
        for (const Sequence& sequence : rank.running.items())
            lose(sequence.slot, generated_by(rank, sequence));
        rank.running.clear();
        rank.clock = rank.base_kv = 0;
        rank.promised = rank.promised_kv = rank.used_blocks = rank.growth_tokens = 0;
    }
}

void DecodeSide::break_down(std::size_t index) {
    Group& group = groups_[index];
    close_span(group);
    group.mode = Mode::broken;
    empty(index);
    report(index, true);
}

void DecodeSide::start(std::size_t index) {
    Group& group = groups_[index];
    close_span(group);
    group.mode = Mode::works;
    ++group.step_number;
    balancer_.set_draining(index, false);
    report(index, true);
}

void DecodeSide::drain(std::size_t index) {
    Group& group = groups_[index];
    if (!group.is_stepping) close_span(group);
    group.mode = Mode::drains;
    balancer_.set_draining(index, true);
}

void DecodeSide::stop(std::size_t index) {
    Group& group = groups_[index];
    close_span(group);
    group.mode = Mode::off;
    empty(index);
    report(index, true);
}

void DecodeSide::prepare(std::size_t index) {
    close_span(groups_[index]);
    groups_[index].mode = Mode::prepares;
}

void DecodeSide::close_span(Group& group) {
    const SimTime card_ns =
        (events_.now_ns() - group.span_ns) * static_cast<std::int64_t>(group.ranks.size());
    if (group.span_ns >= count_from_ns_ && group.mode != Mode::off) {
        const CardTime kind = group.is_stepping            ? CardTime::redone
                              : group.mode == Mode::broken ? CardTime::failed
                              : group.mode == Mode::works  ? CardTime::idle
                                                           : CardTime::lifecycle;
        ledger_.add(kind, card_ns);
        ledger_.total_ns += card_ns;
    }
    group.span_ns = events_.now_ns();
}

void DecodeSide::count_from(SimTime from_ns) {
    count_from_ns_ = from_ns;
    ledger_ = {};
    if (verify_) verify_->count_from_here();
    for (Group& group : groups_)
        if (!group.is_stepping) group.span_ns = from_ns;
}

void DecodeSide::close_spans() {
    for (Group& group : groups_)
        if (!group.is_stepping) close_span(group);
}

std::int64_t DecodeSide::used_blocks() const {
    std::int64_t sum = 0;
    for (const Group& group : groups_)
        for (const Rank& rank : group.ranks)
            sum += rank.used_blocks;
    return sum;
}

}  // namespace fathom
