#include "policy/decode_balancer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "policy/cost_model.h"

namespace fathom {

namespace {

constexpr std::size_t kGroupsMax = 1 << 16, kRanksMax = 1 << 12;
constexpr double kSequencesFloor = 1, kKvFloor = 4096;
constexpr std::int64_t kMost = std::int64_t{1} << 50;

// Two numbers at a time: what every x86-64 and every arm64 has.
using Lane = double __attribute__((vector_size(16)));
constexpr std::size_t kLanes = sizeof(Lane) / sizeof(double);

Lane lane_of(const double* from) {
    Lane lane;
    std::memcpy(&lane, from, sizeof lane);
    return lane;
}

Lane power(Lane base, int exponent) {
    if (exponent == 8) {  // the default; the same bits, and faster
        const Lane square = base * base;
        const Lane fourth = square * square;
        return fourth * fourth;
    }
    Lane result = Lane{} + 1;
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

void DecodeBalancer::add_group(std::size_t group, std::size_t ranks) {
    FATHOM_CHECK(group < kGroupsMax && ranks <= kRanksMax);
    if (group >= groups_.size()) groups_.resize(group + 1);
    groups_[group] = Group{};
    groups_[group].ranks.resize(ranks);
    groups_[group].views.resize(ranks);
    for (Rank& rank : groups_[group].ranks)
        rank.report.is_live = false;
    for (std::size_t g = 0; g <= group; ++g)
        mirror(g);
}

void DecodeBalancer::set_draining(std::size_t group, bool is_draining) {
    groups_[group].is_draining = is_draining;
    mirror(group);
}

void DecodeBalancer::Views::resize(std::size_t size) {
    const std::size_t whole = (size + kLanes - 1) / kLanes * kLanes;
    for (auto* numbers : {&sequences, &kv_tokens, &scores})
        numbers->resize(whole);
    per_rank.resize(whole, 1.0);
    room_blocks.resize(whole, kClosed);
}

void DecodeBalancer::mirror(std::size_t index) {
    if (views_.room_blocks.size() < groups_.size()) views_.resize(groups_.size());
    const Group& group = groups_[index];
    views_.sequences[index] = static_cast<double>(group.sum.sequences);
    views_.kv_tokens[index] = static_cast<double>(group.sum.kv_tokens);
    views_.per_rank[index] = 1 / static_cast<double>(std::max<std::int64_t>(group.live, 1));
    const bool is_closed = group.is_draining || group.live == 0;
    views_.room_blocks[index] = is_closed ? kClosed : group.room_blocks;
}

DecodeLoad DecodeBalancer::load_of(const Group& group, std::size_t rank) {
    return {.sequences = static_cast<std::int64_t>(group.views.sequences[rank]),
            .kv_tokens = static_cast<std::int64_t>(group.views.kv_tokens[rank])};
}

bool DecodeBalancer::is_open(const Group& group, std::size_t rank) {
    const DecodeRankReport& report = group.ranks[rank].report;
    return report.is_live &&
           group.views.sequences[rank] < static_cast<double>(report.sequences_max);
}

void DecodeBalancer::refresh(Group& group, std::size_t index) {
    Rank& rank = group.ranks[index];
    if (!rank.report.is_live) rank.ledger.clear();
    const auto waits = std::find_if(rank.ledger.begin(), rank.ledger.end(),
                                    [&](const Pending& p) { return p.number > rank.report.acked; });
    rank.ledger.erase(rank.ledger.begin(), waits);
    group.views.sequences[index] = static_cast<double>(rank.report.sequences);
    group.views.kv_tokens[index] = static_cast<double>(rank.report.kv_tokens);
    group.views.room_blocks[index] = kClosed;
    rank.pending_blocks = rank.pending_growth = 0;
    if (!rank.report.is_live) return;
    ++group.live;
    group.sum.sequences += rank.report.sequences;
    group.sum.kv_tokens += rank.report.kv_tokens;
    for (const Pending& pending : rank.ledger)
        add(group, index, pending);
    find_room(group, index);
    if (!is_open(group, index)) return;
    ++group.open;
    group.room_blocks = std::max(group.room_blocks, group.views.room_blocks[index]);
}

void DecodeBalancer::add(Group& group, std::size_t index, const Pending& pending) {
    group.views.sequences[index] += 1;
    group.views.kv_tokens[index] += static_cast<double>(pending.kv_tokens);
    ++group.sum.sequences;
    group.sum.kv_tokens += pending.kv_tokens;
    Rank& rank = group.ranks[index];
    rank.pending_blocks += pending.blocks;
    rank.pending_growth += pending.growth_tokens;
}

void DecodeBalancer::promise(std::size_t index, std::size_t rank, const Pending& pending) {
    Group& group = groups_[index];
    const bool was_open = is_open(group, rank);
    group.ranks[rank].ledger.push_back(pending);
    add(group, rank, pending);
    find_room(group, rank);
    if (was_open && !is_open(group, rank)) --group.open;
    mirror(index);
}

std::optional<std::uint64_t> DecodeBalancer::report(std::size_t group_index, std::size_t rank_index,
                                                    const DecodeRankReport& report,
                                                    std::int64_t now_us) {
    Group& group = groups_[group_index];
    Rank& rank = group.ranks[rank_index];
    if (rank.report.is_live && report.is_live && report.step < rank.report.step)
        return std::nullopt;
    if (rank.report.is_live) {
        if (is_open(group, rank_index)) --group.open;
        --group.live;
        const DecodeLoad before = load_of(group, rank_index);
        group.sum.sequences -= before.sequences;
        group.sum.kv_tokens -= before.kv_tokens;
    }
    const std::int64_t steps = report.step - rank.report.step;
    rank.report = report;
    rank.report.sequences = std::clamp<std::int64_t>(report.sequences, 0, kMost);
    rank.report.kv_tokens = std::clamp<std::int64_t>(report.kv_tokens, 0, kMost);
    rank.report.growth_tokens = std::clamp<std::int64_t>(report.growth_tokens, 0, kMost);
    // A balancer that lost its state goes on behind the numbers that ranks have seen.
    rank.number_last = std::max(rank.number_last, std::clamp<std::int64_t>(report.acked, 0, kMost));
    refresh(group, rank_index);
    mirror(group_index);
    if (!report.is_live) return std::nullopt;

    if (settings_.is_rebalancing) {
        double all_us = 0;
        for (std::size_t r = 0; r < group.ranks.size(); ++r)
            if (group.ranks[r].report.is_live) all_us += us_of(load_of(group, r));
        const double mine_us = us_of(load_of(group, rank_index));
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
    log_.note(DecisionKind::decode_pressure, DecodeReason::below_reserve, group_index, now_us,
              digest,
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

// Room is what is free less a part of what its sequences may grow by; none below the reserve.
void DecodeBalancer::find_room(Group& group, std::size_t index) const {
    const Rank& rank = group.ranks[index];
    double& room_blocks = group.views.room_blocks[index];
    room_blocks = kClosed;
    if (!is_open(group, index)) return;
    const auto free = static_cast<double>(rank.report.free_blocks - rank.pending_blocks);
    if (free < settings_.reserve_share * static_cast<double>(rank.report.total_blocks)) return;
    const auto growth = static_cast<double>(rank.report.growth_tokens + rank.pending_growth);
    room_blocks = std::max(
        kClosed, free - settings_.growth_share * growth / static_cast<double>(kBlockTokens));
}

// Joint and marginal. This is most of a placement in a large fleet.
void DecodeBalancer::score(Views& views, DecodeRule rule, const Means& means,
                           double kv_tokens) const {
    const double per_sequences = 1 / means.sequences, per_kv = 1 / means.kv_tokens;
    const double weight = settings_.kv_weight;
    const int exponent = settings_.power;
    for (std::size_t i = 0; i < views.scores.size(); i += kLanes) {
        const Lane per_rank = lane_of(&views.per_rank[i]);
        const Lane sequences = lane_of(&views.sequences[i]), kv = lane_of(&views.kv_tokens[i]);
        const auto value = [&](Lane n, Lane k) {
            return power(n * per_rank * per_sequences, exponent) +
                   weight * power(k * per_rank * per_kv, exponent);
        };
        Lane score = value(sequences + 1, kv + kv_tokens);
        if (rule == DecodeRule::marginal) score -= value(sequences, kv);
        std::memcpy(&views.scores[i], &score, sizeof score);
    }
}

// Short ones by fewest sequences, then most KV; long ones by least KV, then fewest sequences.
void DecodeBalancer::score_split(Views& views, const Means& means, double kv_tokens) {
    const bool is_short = kv_tokens <= means.kv_tokens / means.sequences;
    double most_kv = 1, most_sequences = 1;
    for (std::size_t i = 0; i < views.scores.size(); ++i) {
        most_kv = std::max(most_kv, views.kv_tokens[i]);
        most_sequences = std::max(most_sequences, views.sequences[i]);
    }
    for (std::size_t i = 0; i < views.scores.size(); ++i)
        views.scores[i] = is_short ? views.sequences[i] - views.kv_tokens[i] / (2 * most_kv)
                                   : views.kv_tokens[i] + views.sequences[i] / (2 * most_sequences);
}

// The lowest score with room; of equal ones the one that comes first from `first` on.
std::optional<std::size_t> DecodeBalancer::best_of(Views& views, std::size_t count,
                                                   std::uint64_t first, DecodeRule rule,
                                                   const Means& means, double kv_tokens,
                                                   double blocks) const {
    if (count == 0) return std::nullopt;
    if (rule == DecodeRule::round_robin)
        std::fill(views.scores.begin(), views.scores.end(), 0.0);
    else if (rule == DecodeRule::split)
        score_split(views, means, kv_tokens);
    else
        score(views, rule, means, kv_tokens);
    std::size_t best = count;
    double best_score = 0;
    const std::size_t begin = first % count;
    const double* scores = views.scores.data();
    const double* room_blocks = views.room_blocks.data();
    const auto look = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            if ((best != count && scores[i] >= best_score) || room_blocks[i] < blocks) continue;
            best = i;
            best_score = scores[i];
        }
    };
    look(begin, count);
    look(0, begin);
    if (best == count) return std::nullopt;
    return best;
}

// None: the group is full for so many blocks from now on.
std::optional<std::size_t> DecodeBalancer::best_rank(std::size_t index, double kv_tokens,
                                                     std::int64_t blocks) {
    Group& group = groups_[index];
    const bool has_turns = settings_.rule == DecodeRule::round_robin;
    const auto best =
        best_of(group.views, group.ranks.size(), has_turns ? group.turn : rotation_, settings_.rule,
                means_of(group.sum, group.live), kv_tokens, static_cast<double>(blocks));
    if (!best) {
        const auto& rooms = group.views.room_blocks;
        group.room_blocks = *std::max_element(rooms.begin(), rooms.end());
        mirror(index);
    } else if (has_turns) {
        group.turn = *best + 1;
    }
    return best;
}

// By the same score on sums a rank; full groups are left out.
std::optional<std::size_t> DecodeBalancer::best_group(double kv_tokens, std::int64_t blocks) {
    const bool has_turns = settings_.rule == DecodeRule::round_robin;
    return best_of(views_, groups_.size(), rotation_,
                   has_turns ? settings_.rule : DecodeRule::joint, means_of(all_, all_live_),
                   kv_tokens, static_cast<double>(blocks));
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
        const auto r = best_rank(*g, static_cast<double>(kv), blocks);
        if (!r) continue;
        const Pending pending{
            .number = ++groups_[*g].ranks[*r].number_last,
            .kv_tokens = kv,
            .blocks = blocks,
            .growth_tokens = std::clamp<std::int64_t>(request.output_p90_tokens, 0, kMost)};
        promise(*g, *r, pending);
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
    log_.note(DecisionKind::decode_place, placement.reason, actor, now_us, digest,
              {static_cast<std::int64_t>(request.id), placement.group, placement.rank,
               placement.number, kv});
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
    if (is_open(group, rank_index)) --group.open;
    group.views.sequences[rank_index] -= 1;
    group.views.kv_tokens[rank_index] -= static_cast<double>(found->kv_tokens);
    --group.sum.sequences;
    group.sum.kv_tokens -= found->kv_tokens;
    rank.pending_blocks -= found->blocks;
    rank.pending_growth -= found->growth_tokens;
    rank.ledger.erase(found);
    find_room(group, rank_index);
    if (is_open(group, rank_index)) {
        ++group.open;
        group.room_blocks = std::max(group.room_blocks, group.views.room_blocks[rank_index]);
    }
    mirror(group_index);
    log_.note(DecisionKind::decode_place, DecodeReason::withdrawn, group_index, now_us, 0,
              {0, static_cast<std::int64_t>(group_index), static_cast<std::int64_t>(rank_index),
               number, 0});
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
        group.views.kv_tokens[rank_index] - means_of(group.sum, group.live).kv_tokens;
    const DecodeSequence* best = nullptr;
    for (const DecodeSequence& sequence : sequences) {
        const auto distance = [&](const DecodeSequence& s) {
            return std::abs(static_cast<double>(s.kv_tokens) - excess / 2);
        };
        if (best == nullptr || distance(sequence) < distance(*best)) best = &sequence;
    }
    std::optional<std::size_t> to;
    const auto needed = static_cast<double>(blocks_of(best->kv_tokens + 1));
    double least_us = us_of(load_of(group, rank_index));
    for (std::size_t r = 0; r < group.ranks.size(); ++r) {
        if (r == rank_index || group.views.room_blocks[r] < needed) continue;
        DecodeLoad other = load_of(group, r);
        ++other.sequences;
        other.kv_tokens += best->kv_tokens;
        const double us = us_of(other);
        if (us < least_us) {
            least_us = us;
            to = r;
        }
    }
    if (!to) return std::nullopt;
    const Pending pending{.number = ++group.ranks[*to].number_last,
                          .kv_tokens = best->kv_tokens,
                          .blocks = blocks_of(best->kv_tokens + 1),
                          .growth_tokens = 0};
    promise(group_index, *to, pending);
    rank.moved_us = now_us;
    rank.slow_steps = 0;
    log_.note(DecisionKind::decode_move, DecodeReason::moved, group_index, now_us,
              Digest()
                  .add(load_of(group, rank_index).kv_tokens)
                  .add(load_of(group, rank_index).sequences)
                  .value(),
              {static_cast<std::int64_t>(best->id), static_cast<std::int64_t>(rank_index),
               static_cast<std::int64_t>(*to), pending.number, best->kv_tokens});
    return DecodeMove{.id = best->id,
                      .group = static_cast<std::int64_t>(group_index),
                      .from = static_cast<std::int64_t>(rank_index),
                      .to = static_cast<std::int64_t>(*to),
                      .number = pending.number};
}

DecodeLoad DecodeBalancer::view(std::size_t group, std::size_t rank) const {
    return load_of(groups_[group], rank);
}

std::int64_t DecodeBalancer::free_blocks(std::size_t group, std::size_t rank) const {
    const Rank& of = groups_[group].ranks[rank];
    return of.report.free_blocks - of.pending_blocks;
}

// State

std::vector<std::uint8_t> DecodeBalancer::save() const {
    StateWriter out("DCOD", 2);
    out.add(rotation_).add(log_.hash()).add(log_.count()).add(std::uint64_t{groups_.size()});
    for (const Group& group : groups_) {
        out.add(group.is_draining).add(group.turn).add(std::uint64_t{group.ranks.size()});
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
    StateReader in(bytes, "DCOD", 2);
    const std::uint64_t rotation = in.u64(), hash = in.u64(), count = in.u64();
    std::vector<Group> groups(in.count(kGroupsMax));
    for (Group& group : groups) {
        group.is_draining = in.flag();
        group.turn = in.u64();
        group.ranks.resize(in.count(kRanksMax));
        group.views.resize(group.ranks.size());
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
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        for (std::size_t r = 0; r < groups_[g].ranks.size(); ++r)
            refresh(groups_[g], r);
        mirror(g);
    }
    rotation_ = rotation;
    log_.resume(hash, count);
    return {};
}

}  // namespace fathom
