#include "policy/decode_balancer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "policy/cost_model.h"

namespace fathom {

namespace {

constexpr std::size_t kGroupsMax = 1 << 16, kRanksMax = 1 << 12;
constexpr double kSequencesFloor = 1, kKvFloor = 4096;
constexpr std::int64_t kMost = std::int64_t{1} << 50;

double power(double base, int exponent) {
    if (exponent == 8) {  // the default, and much of the time of a placement; the same bits
        const double square = base * base;
        const double fourth = square * square;
        return fourth * fourth;
    }
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if ((exponent & 1) != 0) result *= base;
    return result;
}

std::int64_t blocks_of(std::int64_t tokens) {
    return (std::max<std::int64_t>(tokens, 0) + kBlockTokens - 1) / kBlockTokens;
}

std::int64_t expected_kv(const DecodeRequest& request) {
    return std::clamp<std::int64_t>(request.context_tokens, 0, kMost) +
           std::clamp<std::int64_t>(request.output_tokens, 0, kMost) / 2;
}

}  // namespace

double DecodeCost::rank_us(std::int64_t sequences, std::int64_t kv_tokens) const {
    return a0_us + a1_us * static_cast<double>(sequences) + a2_us * static_cast<double>(kv_tokens);
}

double decode_step_us(const DecodeCost& cost, std::span<const DecodeLoad> ranks) {
    double slowest = 0, verify_most = 0, verify_all = 0;
    for (const DecodeLoad& rank : ranks) {
        slowest = std::max(slowest, cost.rank_us(rank.sequences, rank.kv_tokens));
        verify_most = std::max(verify_most, static_cast<double>(rank.verify_tokens));
        verify_all += static_cast<double>(rank.verify_tokens);
    }
    return cost.c0_us + slowest + cost.verify_us * verify_most +
           cost.moe_us * verify_all * cost.moe_balance;
}

bool should_bind(bool is_last_slice_planned, double rest_us, double decode_step_us) {
    return is_last_slice_planned || rest_us < 2 * decode_step_us;
}

std::string_view decode_reason_name(DecodeReason reason) {
    switch (reason) {
        case DecodeReason::placed:
            return "placed";
        case DecodeReason::no_live_rank:
            return "no_live_rank";
        case DecodeReason::no_slot:
            return "no_slot";
        case DecodeReason::no_blocks:
            return "no_blocks";
        case DecodeReason::withdrawn:
            return "withdrawn";
        case DecodeReason::moved:
            return "moved";
        case DecodeReason::below_reserve:
            return "below_reserve";
    }
    return "unknown";
}

Status DecodeSettings::check() const {
    if (power < 1 || power > 16) return invalid_argument("power: {}, expected 1 to 16", power);
    for (const double x : {kv_weight, growth_share, reserve_share, pressure_share, excess_share,
                           cost.a0_us, cost.a1_us, cost.a2_us}) {
        if (!std::isfinite(x) || x < 0)
            return invalid_argument("decode settings: {}, expected a number >= 0", x);
    }
    if (excess_steps < 1 || move_every_us < 0)
        return invalid_argument("excess_steps: {}, expected at least 1", excess_steps);
    return {};
}

DecodeBalancer::DecodeBalancer(const DecodeSettings& settings, std::size_t log_records)
    : settings_(settings), log_(log_records) {
    FATHOM_CHECK(settings.check().ok());
}

void DecodeBalancer::note(DecisionKind kind, DecodeReason reason, std::size_t group,
                          std::int64_t now_us, std::uint64_t digest,
                          const std::array<std::int64_t, 5>& fields) {
    log_.record({.kind = kind,
                 .reason = static_cast<std::uint16_t>(reason),
                 .actor = static_cast<std::uint32_t>(group),
                 .now_us = now_us,
                 .input_digest = digest,
                 .fields = fields});
}

void DecodeBalancer::add_group(std::size_t group, std::size_t ranks) {
    FATHOM_CHECK(group < kGroupsMax && ranks <= kRanksMax);
    if (group >= groups_.size()) groups_.resize(group + 1);
    groups_[group] = Group{};
    groups_[group].ranks.resize(ranks);
    for (Rank& rank : groups_[group].ranks)
        rank.report.is_live = false;
}

void DecodeBalancer::set_draining(std::size_t group, bool is_draining) {
    groups_[group].is_draining = is_draining;
}

void DecodeBalancer::refresh(Group& group, Rank& rank) {
    if (!rank.report.is_live) rank.ledger.clear();
    while (!rank.ledger.empty() && rank.ledger.front().number <= rank.report.acked)
        rank.ledger.pop_front();
    rank.view = {.sequences = rank.report.sequences, .kv_tokens = rank.report.kv_tokens};
    rank.pending_blocks = rank.pending_growth = 0;
    if (!rank.report.is_live) return;
    ++group.live;
    group.sum.sequences += rank.view.sequences;
    group.sum.kv_tokens += rank.view.kv_tokens;
    for (const Pending& pending : rank.ledger)
        add(group, rank, pending);
    if (!has_slot(rank)) return;
    ++group.open;
    group.room_blocks = std::max(group.room_blocks, room_blocks(rank));
}

void DecodeBalancer::add(Group& group, Rank& rank, const Pending& pending) {
    for (DecodeLoad* load : {&rank.view, &group.sum}) {
        ++load->sequences;
        load->kv_tokens += pending.kv_tokens;
    }
    rank.pending_blocks += pending.blocks;
    rank.pending_growth += pending.growth_tokens;
}

void DecodeBalancer::promise(Group& group, Rank& rank, const Pending& pending) {
    const bool was_open = is_open(rank);
    rank.ledger.push_back(pending);
    add(group, rank, pending);
    if (was_open && !is_open(rank)) --group.open;
}

std::optional<std::uint64_t> DecodeBalancer::report(std::size_t group_index, std::size_t rank_index,
                                                    const DecodeRankReport& report,
                                                    std::int64_t now_us) {
    Group& group = groups_[group_index];
    Rank& rank = group.ranks[rank_index];
    if (rank.report.is_live && report.is_live && report.step < rank.report.step)
        return std::nullopt;
    if (rank.report.is_live) {
        if (has_slot(rank)) --group.open;
        --group.live;
        group.sum.sequences -= rank.view.sequences;
        group.sum.kv_tokens -= rank.view.kv_tokens;
    }
    const std::int64_t steps = report.step - rank.report.step;
    rank.report = report;
    rank.report.sequences = std::clamp<std::int64_t>(report.sequences, 0, kMost);
    rank.report.kv_tokens = std::clamp<std::int64_t>(report.kv_tokens, 0, kMost);
    rank.report.growth_tokens = std::clamp<std::int64_t>(report.growth_tokens, 0, kMost);
    // A balancer that lost its state goes on behind the numbers that ranks have seen.
    rank.number_last = std::max(rank.number_last, std::clamp<std::int64_t>(report.acked, 0, kMost));
    refresh(group, rank);
    if (!report.is_live) return std::nullopt;

    double all_us = 0;
    if (settings_.is_rebalancing) {
        for (const Rank& other : group.ranks)
            if (other.report.is_live)
                all_us += settings_.cost.rank_us(other.view.sequences, other.view.kv_tokens);
        const double mine_us = settings_.cost.rank_us(rank.view.sequences, rank.view.kv_tokens);
        const double mean_us = all_us / static_cast<double>(group.live);
        const bool is_slow = mine_us > mean_us * (1 + settings_.excess_share);
        rank.slow_steps = is_slow ? rank.slow_steps + std::max<std::int64_t>(steps, 0) : 0;
    }
    const double total = static_cast<double>(report.total_blocks);
    const bool is_short =
        static_cast<double>(report.free_blocks) < settings_.pressure_share * total;
    if (!is_short || report.sequences < 1) return std::nullopt;
    const std::uint64_t digest =
        Digest().add(report.free_blocks).add(report.total_blocks).add(report.step).value();
    note(DecisionKind::decode_pressure, DecodeReason::below_reserve, group_index, now_us, digest,
         {static_cast<std::int64_t>(rank_index), static_cast<std::int64_t>(report.newest_id),
          report.free_blocks, 0, 0});
    return report.newest_id;
}

// Placement

DecodeBalancer::Means DecodeBalancer::means_of(const DecodeLoad& sum, std::int64_t live) {
    const auto ranks = static_cast<double>(std::max<std::int64_t>(live, 1));
    return {.sequences = std::max(static_cast<double>(sum.sequences) / ranks, kSequencesFloor),
            .kv_tokens = std::max(static_cast<double>(sum.kv_tokens) / ranks, kKvFloor)};
}

double DecodeBalancer::score(const DecodeLoad& load, double kv_tokens, const Means& means) const {
    const auto n = static_cast<double>(load.sequences);
    const auto kv = static_cast<double>(load.kv_tokens);
    const double more =
        power((n + 1) / means.sequences, settings_.power) +
        settings_.kv_weight * power((kv + kv_tokens) / means.kv_tokens, settings_.power);
    if (settings_.rule != DecodeRule::marginal) return more;
    return more - power(n / means.sequences, settings_.power) -
           settings_.kv_weight * power(kv / means.kv_tokens, settings_.power);
}

bool DecodeBalancer::has_slot(const Rank& rank) const {
    return rank.view.sequences < rank.report.sequences_max;
}

bool DecodeBalancer::has_blocks(const Rank& rank, std::int64_t blocks) const {
    const std::int64_t free = rank.report.free_blocks - rank.pending_blocks;
    const auto growth = static_cast<double>(rank.report.growth_tokens + rank.pending_growth);
    const double growth_blocks =
        settings_.growth_share * growth / static_cast<double>(kBlockTokens);
    const double reserve = settings_.reserve_share * static_cast<double>(rank.report.total_blocks);
    return static_cast<double>(free) >= reserve &&
           static_cast<double>(blocks) + growth_blocks <= static_cast<double>(free);
}

// Not below the blocks for which has_blocks() holds: more than doubles could be off by.
double DecodeBalancer::room_blocks(const Rank& rank) const {
    const auto free = static_cast<double>(rank.report.free_blocks - rank.pending_blocks);
    if (free < settings_.reserve_share * static_cast<double>(rank.report.total_blocks)) return -1;
    const auto growth = static_cast<double>(rank.report.growth_tokens + rank.pending_growth);
    const double growth_blocks =
        settings_.growth_share * growth / static_cast<double>(kBlockTokens);
    return free - growth_blocks + 1 + 0x1p-40 * (std::abs(free) + growth_blocks);
}

// None: the group is full for so many blocks from now on.
std::optional<std::size_t> DecodeBalancer::best_rank(Group& group, double kv_tokens,
                                                     std::int64_t blocks) const {
    const Means means = means_of(group.sum, group.live);
    const bool is_short = kv_tokens <= means.kv_tokens / means.sequences;
    std::optional<std::size_t> best;
    double best_score = 0, best_second = 0, most_blocks = -1;
    const std::size_t ranks = group.ranks.size();
    std::size_t next = ranks > 0 ? rotation_ % ranks : 0;
    for (std::size_t i = 0; i < ranks; ++i) {
        const std::size_t r = next;
        next = next + 1 == ranks ? 0 : next + 1;
        const Rank& rank = group.ranks[r];
        if (!is_open(rank)) continue;
        if (!has_blocks(rank, blocks)) {
            most_blocks = std::max(most_blocks, room_blocks(rank));
            continue;
        }
        // No better in either respect: no lower score, since rounding keeps the order.
        if (best && settings_.rule == DecodeRule::joint &&
            rank.view.sequences >= group.ranks[*best].view.sequences &&
            rank.view.kv_tokens >= group.ranks[*best].view.kv_tokens)
            continue;
        double first = 0, second = 0;
        if (settings_.rule == DecodeRule::split) {
            const auto n = static_cast<double>(rank.view.sequences);
            const auto kv = static_cast<double>(rank.view.kv_tokens);
            first = is_short ? n : kv;
            second = is_short ? -kv : n;
        } else {
            first = score(rank.view, kv_tokens, means);
        }
        if (!best || first < best_score || (first == best_score && second < best_second)) {
            best = r;
            best_score = first;
            best_second = second;
        }
    }
    if (!best) group.room_blocks = std::min(static_cast<double>(blocks) - 1, most_blocks);
    return best;
}

// By the same score on sums a rank; full groups are left out.
std::optional<std::size_t> DecodeBalancer::best_group(double kv_tokens, std::int64_t blocks) const {
    const Means means = means_of(all_, all_live_);
    std::optional<std::size_t> best;
    double best_score = 0;
    std::size_t next = groups_.empty() ? 0 : rotation_ % groups_.size();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        const std::size_t g = next;
        next = next + 1 == groups_.size() ? 0 : next + 1;
        const Group& group = groups_[g];
        if (group.is_draining || group.live == 0 || is_full(g, blocks)) continue;
        // No better in any respect: no lower score, since rounding keeps the order.
        if (best && group.live == groups_[*best].live &&
            group.sum.sequences >= groups_[*best].sum.sequences &&
            group.sum.kv_tokens >= groups_[*best].sum.kv_tokens)
            continue;
        const auto ranks = static_cast<double>(group.live);
        const double n = static_cast<double>(group.sum.sequences + 1) / ranks;
        const double kv = (static_cast<double>(group.sum.kv_tokens) + kv_tokens) / ranks;
        const double value = power(n / means.sequences, settings_.power) +
                             settings_.kv_weight * power(kv / means.kv_tokens, settings_.power);
        if (!best || value < best_score) {
            best = g;
            best_score = value;
        }
    }
    return best;
}

// Why nothing was placed, when every group is full.
DecodeReason DecodeBalancer::refusal() const {
    DecodeReason reason = DecodeReason::no_live_rank;
    for (const Group& group : groups_) {
        if (group.is_draining || group.live == 0) continue;
        if (group.open > 0) return DecodeReason::no_blocks;
        reason = DecodeReason::no_slot;
    }
    return reason;
}

DecodePlacement DecodeBalancer::place_one(const DecodeRequest& request, std::int64_t now_us) {
    DecodePlacement placement;
    placement.id = request.id;
    const std::int64_t kv = expected_kv(request);
    const std::int64_t blocks = blocks_of(std::min(request.context_tokens, kMost) + 1);
    while (const auto g = best_group(static_cast<double>(kv), blocks)) {
        Group& group = groups_[*g];
        const auto r = best_rank(group, static_cast<double>(kv), blocks);
        if (!r) continue;
        Rank& rank = group.ranks[*r];
        const Pending pending{
            .number = ++rank.number_last,
            .kv_tokens = kv,
            .blocks = blocks,
            .growth_tokens = std::clamp<std::int64_t>(request.output_p90_tokens, 0, kMost)};
        promise(group, rank, pending);
        ++all_.sequences;
        all_.kv_tokens += kv;
        ++rotation_;
        placement.group = static_cast<std::int64_t>(*g);
        placement.rank = static_cast<std::int64_t>(*r);
        placement.number = pending.number;
        break;
    }
    placement.reason = placement.rank < 0 ? refusal() : DecodeReason::placed;
    const std::uint64_t digest = Digest()
                                     .add(request.id)
                                     .add(request.context_tokens)
                                     .add(request.output_tokens)
                                     .add(request.output_p90_tokens)
                                     .value();
    const auto actor = static_cast<std::size_t>(std::max<std::int64_t>(placement.group, 0));
    note(DecisionKind::decode_place, placement.reason, actor, now_us, digest,
         {static_cast<std::int64_t>(request.id), placement.group, placement.rank, placement.number,
          kv});
    return placement;
}

void DecodeBalancer::place(std::span<const DecodeRequest> batch, std::int64_t now_us,
                           std::vector<DecodePlacement>* out) {
    order_.resize(batch.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
        const std::int64_t x = expected_kv(batch[a]), y = expected_kv(batch[b]);
        return x != y ? x > y : a < b;
    });
    all_ = {};
    all_live_ = 0;
    for (const Group& group : groups_) {
        all_.sequences += group.sum.sequences;
        all_.kv_tokens += group.sum.kv_tokens;
        all_live_ += group.live;
    }
    for (const std::size_t i : order_)
        out->push_back(place_one(batch[i], now_us));
}

bool DecodeBalancer::withdraw(std::size_t group_index, std::size_t rank_index, std::int64_t number,
                              std::int64_t now_us) {
    Group& group = groups_[group_index];
    Rank& rank = group.ranks[rank_index];
    const auto found = std::find_if(rank.ledger.begin(), rank.ledger.end(),
                                    [&](const Pending& p) { return p.number == number; });
    if (found == rank.ledger.end()) return false;
    if (is_open(rank)) --group.open;
    for (DecodeLoad* load : {&rank.view, &group.sum}) {
        --load->sequences;
        load->kv_tokens -= found->kv_tokens;
    }
    rank.pending_blocks -= found->blocks;
    rank.pending_growth -= found->growth_tokens;
    rank.ledger.erase(found);
    if (is_open(rank)) {
        ++group.open;
        group.room_blocks = std::max(group.room_blocks, room_blocks(rank));
    }
    note(DecisionKind::decode_place, DecodeReason::withdrawn, group_index, now_us, 0,
         {0, static_cast<std::int64_t>(group_index), static_cast<std::int64_t>(rank_index), number,
          0});
    return true;
}

std::optional<DecodeMove> DecodeBalancer::rebalance(std::size_t group_index, std::size_t rank_index,
                                                    std::span<const DecodeSequence> sequences,
                                                    std::int64_t now_us) {
    Group& group = groups_[group_index];
    Rank& rank = group.ranks[rank_index];
    if (!settings_.is_rebalancing || rank.slow_steps < settings_.excess_steps ||
        sequences.empty() || now_us - rank.moved_us < settings_.move_every_us)
        return std::nullopt;
    const double excess =
        static_cast<double>(rank.view.kv_tokens) - means_of(group.sum, group.live).kv_tokens;
    const DecodeSequence* best = nullptr;
    for (const DecodeSequence& sequence : sequences) {
        const auto distance = [&](const DecodeSequence& s) {
            return std::abs(static_cast<double>(s.kv_tokens) - excess / 2);
        };
        if (best == nullptr || distance(sequence) < distance(*best)) best = &sequence;
    }
    std::optional<std::size_t> to;
    double least_us = settings_.cost.rank_us(rank.view.sequences, rank.view.kv_tokens);
    const std::int64_t blocks = blocks_of(best->kv_tokens + 1);
    for (std::size_t r = 0; r < group.ranks.size(); ++r) {
        const Rank& other = group.ranks[r];
        if (!other.report.is_live || r == rank_index || !has_slot(other) ||
            !has_blocks(other, blocks))
            continue;
        const double us = settings_.cost.rank_us(other.view.sequences + 1,
                                                 other.view.kv_tokens + best->kv_tokens);
        if (us < least_us) {
            least_us = us;
            to = r;
        }
    }
    if (!to) return std::nullopt;
    Rank& target = group.ranks[*to];
    const Pending pending{.number = ++target.number_last,
                          .kv_tokens = best->kv_tokens,
                          .blocks = blocks,
                          .growth_tokens = 0};
    promise(group, target, pending);
    rank.moved_us = now_us;
    rank.slow_steps = 0;
    note(DecisionKind::decode_move, DecodeReason::moved, group_index, now_us,
         Digest().add(rank.view.kv_tokens).add(rank.view.sequences).value(),
         {static_cast<std::int64_t>(best->id), static_cast<std::int64_t>(rank_index),
          static_cast<std::int64_t>(*to), pending.number, best->kv_tokens});
    return DecodeMove{.id = best->id,
                      .group = static_cast<std::int64_t>(group_index),
                      .from = static_cast<std::int64_t>(rank_index),
                      .to = static_cast<std::int64_t>(*to),
                      .number = pending.number};
}

DecodeLoad DecodeBalancer::view(std::size_t group, std::size_t rank) const {
    return groups_[group].ranks[rank].view;
}

std::int64_t DecodeBalancer::free_blocks(std::size_t group, std::size_t rank) const {
    const Rank& of = groups_[group].ranks[rank];
    return of.report.free_blocks - of.pending_blocks;
}

// State

std::vector<std::uint8_t> DecodeBalancer::save() const {
    StateWriter out("DCOD", 1);
    out.add(rotation_).add(log_.hash()).add(log_.count()).add(std::uint64_t{groups_.size()});
    for (const Group& group : groups_) {
        out.add(group.is_draining).add(std::uint64_t{group.ranks.size()});
        for (const Rank& rank : group.ranks) {
            const DecodeRankReport& report = rank.report;
            out.add(report.acked).add(report.is_live).add(report.sequences).add(report.kv_tokens);
            out.add(report.free_blocks).add(report.total_blocks).add(report.growth_tokens);
            out.add(report.sequences_max).add(report.step).add(report.newest_id);
            out.add(rank.number_last).add(rank.slow_steps).add(rank.moved_us);
            out.add(std::uint64_t{rank.ledger.size()});
            for (const Pending& p : rank.ledger)
                out.add(p.number).add(p.kv_tokens).add(p.blocks).add(p.growth_tokens);
        }
    }
    return out.take();
}

Status DecodeBalancer::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "DCOD", 1);
    const std::uint64_t rotation = in.u64(), hash = in.u64(), count = in.u64();
    std::vector<Group> groups(in.count(kGroupsMax));
    for (Group& group : groups) {
        group.is_draining = in.flag();
        group.ranks.resize(in.count(kRanksMax));
        for (Rank& rank : group.ranks) {
            DecodeRankReport& report = rank.report;
            report.acked = in.i64();
            report.is_live = in.flag();
            report.sequences = in.in_range(0, kMost);
            report.kv_tokens = in.in_range(0, kMost);
            report.free_blocks = in.in_range(-kMost, kMost);
            report.total_blocks = in.in_range(-kMost, kMost);
            report.growth_tokens = in.in_range(0, kMost);
            report.sequences_max = in.i64();
            report.step = in.i64();
            report.newest_id = in.u64();
            rank.number_last = in.in_range(0, kMost);
            rank.slow_steps = in.in_range(0, kMost);
            rank.moved_us = in.i64();
            rank.ledger.resize(in.count(bytes.size()));
            for (Pending& p : rank.ledger) {
                p.number = in.in_range(0, kMost);
                p.kv_tokens = in.in_range(0, kMost);
                p.blocks = in.in_range(0, kMost);
                p.growth_tokens = in.in_range(0, kMost);
            }
        }
    }
    FATHOM_RETURN_IF_ERROR(in.finish());
    groups_ = std::move(groups);
    for (Group& group : groups_)
        for (Rank& rank : group.ranks)
            refresh(group, rank);
    rotation_ = rotation;
    log_.resume(hash, count);
    return {};
}

}  // namespace fathom
