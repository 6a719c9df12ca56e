#include "policy/expert_switch.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "policy/state_bytes.h"

namespace fathom {
namespace {

constexpr std::size_t kLayersMax = 4096;

// What a rank must fetch for a change of one layer, in the order of its slots.
template <typename Use>
void for_each_fetch(const ExpertShape& shape, std::int64_t rank,
                    std::span<const std::int32_t> current, const LayerChange& change,
                    const Use& use) {
    for (std::int64_t slot = rank * shape.slots; slot < (rank + 1) * shape.slots; ++slot) {
        const std::int32_t expert = change.next[static_cast<std::size_t>(slot)];
        if (expert >= 0 && expert != current[static_cast<std::size_t>(slot)]) use(slot, expert);
    }
}

void add_to_checksum(Digest& digest, std::int64_t layer, std::int64_t slot, std::uint64_t weights) {
    digest.add(layer).add(slot).add(weights);
}

void write_map(StateWriter& out, const LayerPlacement& map) {
    for (const std::int32_t expert : map)
        out.add(expert);
}

LayerPlacement read_map(StateReader& in, const ExpertShape& shape) {
    LayerPlacement map(static_cast<std::size_t>(shape.slots_total()), -1);
    for (std::int32_t& expert : map)
        expert = static_cast<std::int32_t>(in.in_range(-1, shape.experts - 1));
    return map;
}

void write_changes(StateWriter& out, std::span<const LayerChange> changes) {
    out.add(static_cast<std::uint64_t>(changes.size()));
    for (const LayerChange& change : changes) {
        out.add(change.layer);
        write_map(out, change.next);
        for (const std::uint64_t weights : change.weights)
            out.add(weights);
    }
}

std::vector<LayerChange> read_changes(StateReader& in, const ExpertShape& shape,
                                      std::size_t layers) {
    std::vector<LayerChange> changes(in.count(kLayersMax));
    for (LayerChange& change : changes) {
        change.layer = in.in_range(0, static_cast<std::int64_t>(layers) - 1);
        change.next = read_map(in, shape);
        change.weights.resize(static_cast<std::size_t>(shape.experts));
        for (std::uint64_t& weights : change.weights)
            weights = in.u64();
        if (!in.ok()) return {};
    }
    return changes;
}

constexpr std::int64_t kNumberMax = std::int64_t{1} << 62;

}  // namespace

Status SwitchRules::check() const {
    if (layers_per_chunk < 1)
        return invalid_argument("layers_per_chunk: {}, expected 1 or more", layers_per_chunk);
    if (in_flight_max < 1)
        return invalid_argument("in_flight_max: {}, expected 1 or more", in_flight_max);
    if (lead_steps < 2) return invalid_argument("lead_steps: {}, expected 2 or more", lead_steps);
    if (flip_steps < 1) return invalid_argument("flip_steps: {}, expected 1 or more", flip_steps);
    if (fetch_bytes < 1)
        return invalid_argument("fetch_bytes: {}, expected 1 or more", fetch_bytes);
    if (transfer_deadline_us < 1 || flip_deadline_us < 1)
        return invalid_argument("a deadline is not above 0");
    if (!(link_bytes_per_us > 0 && std::isfinite(link_bytes_per_us)))
        return invalid_argument("link_bytes_per_us: {}, expected a number above 0",
                                link_bytes_per_us);
    if (!(link_part > 0 && link_part <= 1))
        return invalid_argument("link_part: {}, expected above 0, at most 1", link_part);
    return {};
}

std::int64_t fetch_source(const ExpertShape& shape, std::span<const std::int32_t> current,
                          std::span<const std::uint8_t> alive, std::int64_t slot,
                          std::int32_t expert) {
    const std::int64_t rank = slot / shape.slots;
    const auto near = [&](std::int64_t other, int distance) {
        if (distance == 0) return other == rank;
        return distance == 2 || shape.node_of(other) == shape.node_of(rank);
    };
    for (int distance = 0; distance < 3; ++distance) {
        std::vector<std::int64_t> found;
        for (std::size_t s = 0; s < current.size(); ++s) {
            const std::int64_t other = static_cast<std::int64_t>(s) / shape.slots;
            const bool is_alive = alive.empty() || alive[static_cast<std::size_t>(other)] != 0;
            if (current[s] == expert && is_alive && near(other, distance))
                found.push_back(static_cast<std::int64_t>(s));
        }
        if (!found.empty()) return found[static_cast<std::size_t>(slot) % found.size()];
    }
    return -1;
}

SwitchLeader::SwitchLeader(const ExpertShape& shape, const SwitchRules& rules,
                           std::vector<LayerPlacement> maps, std::size_t log_records)
    : shape_(shape),
      rules_(rules),
      maps_(std::move(maps)),
      alive_(static_cast<std::size_t>(shape.ranks), 1),
      answered_(alive_.size()),
      log_(log_records) {
    FATHOM_CHECK(shape.check().ok() && rules.check().ok() && maps_.size() <= kLayersMax);
    for (const LayerPlacement& map : maps_)
        FATHOM_CHECK(static_cast<std::int64_t>(map.size()) == shape.slots_total());
}

std::span<const LayerChange> SwitchLeader::chunk() const {
    const std::size_t size =
        std::min(static_cast<std::size_t>(rules_.layers_per_chunk), plan_.size() - done_);
    return std::span(plan_).subspan(done_, size);
}

Status SwitchLeader::begin(std::int64_t now_us, std::vector<LayerChange> plan) {
    if (busy()) return error(StatusCode::unavailable, "another placement is being applied");
    std::vector<std::uint8_t> seen(maps_.size());
    for (const LayerChange& change : plan) {
        if (change.layer < 0 || change.layer >= static_cast<std::int64_t>(maps_.size()))
            return invalid_argument("layer: {}, expected 0 to {}", change.layer,
                                    static_cast<std::int64_t>(maps_.size()) - 1);
        if (seen[static_cast<std::size_t>(change.layer)]++ != 0)
            return invalid_argument("layer: {} twice", change.layer);
        if (static_cast<std::int64_t>(change.weights.size()) != shape_.experts)
            return invalid_argument("weights: {} digests, expected {}", change.weights.size(),
                                    shape_.experts);
        FATHOM_RETURN_IF_ERROR(check_placement(shape_, change.next));
        for (std::size_t s = 0; s < change.next.size(); ++s)
            if (change.next[s] >= 0 && alive_[s / static_cast<std::size_t>(shape_.slots)] == 0)
                return invalid_argument("placement: expert {} on rank {}, which is lost",
                                        change.next[s],
                                        static_cast<std::int64_t>(s) / shape_.slots);
    }
    plan_ = std::move(plan);
    done_ = 0;
    if (!plan_.empty()) begin_chunk(now_us);
    return {};
}

void SwitchLeader::begin_chunk(std::int64_t now_us) {
    phase_ = Phase::transfer;
    ++attempt_;
    std::fill(answered_.begin(), answered_.end(), std::uint8_t{0});
    deadline_us_ = now_us + rules_.transfer_deadline_us;
    const std::span<const LayerChange> changes = chunk();
    orders_.push_back({.kind = SwitchOrder::Kind::prepare,
                       .epoch = attempt_,
                       .rank = -1,
                       .base_epoch = epoch_,
                       .step = 0,
                       .changes = {changes.begin(), changes.end()}});
    note(now_us, SwitchReason::prepared, -1);
}

void SwitchLeader::abort(std::int64_t now_us, SwitchReason reason, std::int64_t rank) {
    note(now_us, reason, rank);
    orders_.push_back({.kind = SwitchOrder::Kind::abort, .epoch = attempt_, .changes = {}});
    phase_ = Phase::idle;
    plan_.clear();
    done_ = 0;
}

std::uint64_t SwitchLeader::expected_checksum(std::int64_t rank) const {
    Digest digest;
    for (const LayerChange& change : chunk())
        for_each_fetch(shape_, rank, map(change.layer), change,
                       [&](std::int64_t slot, std::int32_t expert) {
                           add_to_checksum(digest, change.layer, slot,
                                           change.weights[static_cast<std::size_t>(expert)]);
                       });
    return digest.value();
}

bool SwitchLeader::all_answered() const {
    for (std::size_t r = 0; r < alive_.size(); ++r)
        if (alive_[r] != 0 && answered_[r] == 0) return false;
    return true;
}

void SwitchLeader::commit(std::int64_t now_us, std::int64_t step) {
    phase_ = Phase::commit;
    commit_step_ = step + rules_.lead_steps;
    deadline_us_ = now_us + rules_.flip_deadline_us;
    std::fill(answered_.begin(), answered_.end(), std::uint8_t{0});
    orders_.push_back({.kind = SwitchOrder::Kind::commit,
                       .epoch = attempt_,
                       .rank = -1,
                       .base_epoch = epoch_,
                       .step = commit_step_,
                       .changes = {}});
    note(now_us, SwitchReason::committed, -1, commit_step_);
}

// The chunk is in force; the next one, or the end.
void SwitchLeader::finish(std::int64_t now_us) {
    note(now_us, SwitchReason::flipped, -1, commit_step_);
    const std::span<const LayerChange> changes = chunk();
    for (const LayerChange& change : changes)
        maps_[static_cast<std::size_t>(change.layer)] = change.next;
    epoch_ = attempt_;
    done_ += changes.size();
    phase_ = Phase::idle;
    // A rank that was fenced may have been the only one with an expert that is still to be moved,
    // and the plan lays experts on it: what is left needs a new plan.
    bool fits = done_ < plan_.size();
    for (std::size_t i = done_; i < plan_.size(); ++i)
        for (std::size_t s = 0; s < plan_[i].next.size(); ++s)
            fits = fits && (plan_[i].next[s] < 0 ||
                            alive_[s / static_cast<std::size_t>(shape_.slots)] != 0);
    if (fits) {
        begin_chunk(now_us);
    } else {
        plan_.clear();
        done_ = 0;
    }
}

void SwitchLeader::tick(std::int64_t now_us, std::int64_t step) {
    if (phase_ == Phase::transfer && now_us >= deadline_us_) {
        abort(now_us, SwitchReason::deadline, -1);
    } else if (phase_ == Phase::commit &&
               (step > commit_step_ + rules_.flip_steps || now_us >= deadline_us_)) {
        for (std::size_t r = 0; r < alive_.size(); ++r) {
            if (alive_[r] == 0 || answered_[r] != 0) continue;
            alive_[r] = 0;
            const auto rank = static_cast<std::int64_t>(r);
            note(now_us, SwitchReason::fenced, rank, commit_step_);
            orders_.push_back(
                {.kind = SwitchOrder::Kind::fence, .epoch = attempt_, .rank = rank, .changes = {}});
        }
        finish(now_us);
    }
}

void SwitchLeader::receive(std::int64_t now_us, std::int64_t step, const SwitchReply& reply) {
    if (!busy() || reply.epoch != attempt_ || reply.rank < 0 || reply.rank >= shape_.ranks) return;
    const auto rank = static_cast<std::size_t>(reply.rank);
    if (alive_[rank] == 0) return;
    using Kind = SwitchReply::Kind;
    if (phase_ == Phase::transfer && reply.kind == Kind::refused) {
        abort(now_us, SwitchReason::refused, reply.rank);
    } else if (phase_ == Phase::transfer && reply.kind == Kind::ready) {
        if (reply.checksum != expected_checksum(reply.rank)) {
            abort(now_us, SwitchReason::checksum, reply.rank);
            return;
        }
        answered_[rank] = 1;
        if (all_answered()) commit(now_us, step);
    } else if (phase_ == Phase::commit && reply.kind == Kind::flipped) {
        answered_[rank] = 1;
        if (all_answered()) finish(now_us);
    }
}

void SwitchLeader::lose(std::int64_t now_us, std::int64_t rank) {
    FATHOM_CHECK(rank >= 0 && rank < shape_.ranks);
    if (alive_[static_cast<std::size_t>(rank)] == 0) return;
    alive_[static_cast<std::size_t>(rank)] = 0;
    if (phase_ == Phase::transfer) {
        abort(now_us, SwitchReason::rank_lost, rank);
    } else if (phase_ == Phase::commit && all_answered()) {
        finish(now_us);
    }
}

void SwitchLeader::join(std::int64_t rank) {
    FATHOM_CHECK(!busy() && rank >= 0 && rank < shape_.ranks);
    alive_[static_cast<std::size_t>(rank)] = 1;
}

bool SwitchLeader::reload(std::int64_t now_us) {
    if (phase_ == Phase::transfer) abort(now_us, SwitchReason::reload, -1);
    return !busy();
}

std::vector<SwitchOrder> SwitchLeader::take_orders() {
    std::vector<SwitchOrder> orders;
    orders.swap(orders_);
    return orders;
}

// fields: the rank it is about (-1: all), the step of the commit, layers of the plan that are done,
// layers of this chunk, a digest of their maps.
void SwitchLeader::note(std::int64_t now_us, SwitchReason reason, std::int64_t rank,
                        std::int64_t step) {
    Digest maps, input;
    for (const LayerChange& change : chunk()) {
        maps.add(change.layer);
        for (const std::int32_t expert : change.next)
            maps.add(expert);
    }
    input.add(epoch_).add(attempt_);
    for (const std::uint8_t alive : alive_)
        input.add(alive != 0);
    log_.note(DecisionKind::expert_switch, reason, attempt_, now_us, input.value(),
              {rank, step, static_cast<std::int64_t>(done_),
               static_cast<std::int64_t>(chunk().size()), static_cast<std::int64_t>(maps.value())});
}

std::vector<std::uint8_t> SwitchLeader::save() const {
    StateWriter out("XSWL", 1);
    out.add(static_cast<std::uint64_t>(maps_.size()));
    for (const LayerPlacement& map : maps_)
        write_map(out, map);
    for (std::size_t r = 0; r < alive_.size(); ++r)
        out.add(alive_[r] != 0).add(answered_[r] != 0);
    out.add(static_cast<std::int64_t>(phase_)).add(epoch_).add(attempt_);
    out.add(deadline_us_).add(commit_step_);
    write_changes(out, plan_);
    out.add(static_cast<std::uint64_t>(done_));
    return out.take();
}

Status SwitchLeader::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "XSWL", 1);
    if (const std::size_t layers = in.count(kLayersMax); in.ok() && layers != maps_.size())
        in.fail(invalid_argument("state of {} layers, expected {}", layers, maps_.size()));
    SwitchLeader next(shape_, rules_, maps_);
    for (LayerPlacement& map : next.maps_)
        if (in.ok()) map = read_map(in, shape_);
    for (std::size_t r = 0; r < alive_.size(); ++r) {
        next.alive_[r] = in.flag() ? 1 : 0;
        next.answered_[r] = in.flag() ? 1 : 0;
    }
    next.phase_ = static_cast<Phase>(in.in_range(0, 2));
    next.epoch_ = in.in_range(0, kNumberMax);
    next.attempt_ = in.in_range(next.epoch_, kNumberMax);
    next.deadline_us_ = in.i64();
    next.commit_step_ = in.i64();
    next.plan_ = read_changes(in, shape_, maps_.size());
    const auto layers = static_cast<std::int64_t>(next.plan_.size());
    next.done_ = static_cast<std::size_t>(in.in_range(
        0, next.phase_ == Phase::idle ? layers : std::max<std::int64_t>(layers - 1, 0)));
    if (in.ok() && next.phase_ != Phase::idle && next.plan_.empty())
        in.fail(invalid_argument("a switch under way without a plan"));
    FATHOM_RETURN_IF_ERROR(in.finish());
    next.log_ = std::move(log_);
    *this = std::move(next);
    return {};
}

SwitchRank::SwitchRank(const ExpertShape& shape, const SwitchRules& rules, std::int64_t rank,
                       std::vector<LayerPlacement> maps, std::int64_t epoch)
    : shape_(shape),
      rules_(rules),
      rank_(rank),
      maps_(std::move(maps)),
      alive_(static_cast<std::size_t>(shape.ranks), 1),
      epoch_(epoch) {
    FATHOM_CHECK(shape.check().ok() && rules.check().ok() && rank >= 0 && rank < shape.ranks);
}

void SwitchRank::reply(SwitchReply::Kind kind, std::int64_t epoch, std::uint64_t checksum) {
    replies_.push_back({.kind = kind, .rank = rank_, .epoch = epoch, .checksum = checksum});
}

void SwitchRank::drop() {
    staged_epoch_ = 0;
    changes_.clear();
    fetches_.clear();
    asked_ = arrived_ = 0;
    commit_step_ = -1;
}

void SwitchRank::prepare(const SwitchOrder& order) {
    drop();
    bool fits = order.base_epoch == epoch_;
    for (const LayerChange& change : order.changes)
        fits = fits && change.layer >= 0 &&
               change.layer < static_cast<std::int64_t>(maps_.size()) &&
               check_placement(shape_, change.next).ok();
    if (!fits) {
        reply(SwitchReply::Kind::refused, order.epoch);
        return;
    }
    staged_epoch_ = order.epoch;
    changes_ = order.changes;
    for (const LayerChange& change : changes_)
        for_each_fetch(shape_, rank_, map(change.layer), change,
                       [&](std::int64_t slot, std::int32_t expert) {
                           fetches_.push_back({.epoch = order.epoch,
                                               .layer = change.layer,
                                               .slot = slot,
                                               .expert = expert,
                                               .from_slot = -1,
                                               .digest = 0});
                       });
    if (fetches_.empty()) reply(SwitchReply::Kind::ready, staged_epoch_, Digest().value());
}

void SwitchRank::receive(std::int64_t now_us, const SwitchOrder& order) {
    if (fenced_ || (order.rank >= 0 && order.rank != rank_)) return;
    switch (order.kind) {
        case SwitchOrder::Kind::prepare:
            if (order.epoch <= std::max(epoch_, staged_epoch_)) return;
            next_us_ = std::max(next_us_, now_us);
            prepare(order);
            return;
        case SwitchOrder::Kind::commit:
            // Without the weights, or too late: the group has gone on with another map.
            if (order.epoch != staged_epoch_ || arrived_ != fetches_.size() ||
                order.step <= step_) {
                fenced_ = true;
                return;
            }
            commit_step_ = order.step;
            return;
        case SwitchOrder::Kind::abort:
            if (order.epoch == staged_epoch_) drop();
            return;
        case SwitchOrder::Kind::fence:
            fenced_ = true;
            return;
    }
}

void SwitchRank::set_alive(std::int64_t rank, bool is_alive) {
    FATHOM_CHECK(rank >= 0 && rank < shape_.ranks);
    alive_[static_cast<std::size_t>(rank)] = is_alive ? 1 : 0;
}

std::optional<SwitchFetch> SwitchRank::next_fetch(std::int64_t now_us) {
    if (asked_ == fetches_.size() || now_us < next_us_ || in_flight_ >= rules_.in_flight_max)
        return {};
    // Fetches of a dropped epoch may still write into staging: none begins before they have ended.
    if (asked_ == arrived_ && in_flight_ > 0) return {};
    SwitchFetch& fetch = fetches_[asked_];
    fetch.from_slot = fetch_source(shape_, map(fetch.layer), alive_, fetch.slot, fetch.expert);
    ++asked_;
    ++in_flight_;
    next_us_ = now_us + std::llround(static_cast<double>(rules_.fetch_bytes) /
                                     (rules_.link_bytes_per_us * rules_.link_part));
    return fetch;
}

void SwitchRank::fetched(const SwitchFetch& fetch, bool is_good, std::uint64_t digest) {
    FATHOM_CHECK(in_flight_ > 0);
    --in_flight_;
    if (fetch.epoch != staged_epoch_) return;
    const auto own = std::find_if(fetches_.begin(), fetches_.end(), [&](const SwitchFetch& f) {
        return f.layer == fetch.layer && f.slot == fetch.slot;
    });
    FATHOM_CHECK(own != fetches_.end());
    own->digest = digest;
    ++arrived_;
    if (!is_good) {
        const std::int64_t epoch = staged_epoch_;
        drop();
        reply(SwitchReply::Kind::refused, epoch);
    } else if (arrived_ == fetches_.size()) {
        Digest checksum;
        for (const SwitchFetch& f : fetches_)
            add_to_checksum(checksum, f.layer, f.slot, f.digest);
        reply(SwitchReply::Kind::ready, staged_epoch_, checksum.value());
    }
}

std::vector<SwitchFetch> SwitchRank::begin_step(std::int64_t step) {
    step_ = step;
    if (fenced_ || commit_step_ < 0 || step < commit_step_) return {};
    for (const LayerChange& change : changes_)
        maps_[static_cast<std::size_t>(change.layer)] = change.next;
    std::vector<SwitchFetch> flips = std::move(fetches_);
    epoch_ = staged_epoch_;
    drop();
    reply(SwitchReply::Kind::flipped, epoch_);
    return flips;
}

std::vector<SwitchReply> SwitchRank::take_replies() {
    std::vector<SwitchReply> replies;
    replies.swap(replies_);
    return replies;
}

// What was being staged is not kept: memory that a network card may still write is not known to
// another process, so a rank that goes on from bytes refuses the chunk and is asked again.
std::vector<std::uint8_t> SwitchRank::save() const {
    StateWriter out("XSWR", 1);
    out.add(rank_).add(static_cast<std::uint64_t>(maps_.size()));
    for (const LayerPlacement& map : maps_)
        write_map(out, map);
    out.add(epoch_).add(staged_epoch_);
    return out.add(step_).add(fenced_).take();
}

Status SwitchRank::load(std::span<const std::uint8_t> bytes) {
    StateReader in(bytes, "XSWR", 1);
    const std::int64_t rank = in.in_range(0, shape_.ranks - 1);
    if (in.ok() && rank != rank_)
        in.fail(invalid_argument("state of rank {}, expected {}", rank, rank_));
    if (const std::size_t layers = in.count(kLayersMax); in.ok() && layers != maps_.size())
        in.fail(invalid_argument("state of {} layers, expected {}", layers, maps_.size()));
    SwitchRank next(shape_, rules_, rank_, maps_);
    for (LayerPlacement& map : next.maps_)
        if (in.ok()) map = read_map(in, shape_);
    next.epoch_ = in.in_range(0, kNumberMax);
    const std::int64_t dropped = in.in_range(0, kNumberMax);
    next.step_ = in.i64();
    next.fenced_ = in.flag();
    FATHOM_RETURN_IF_ERROR(in.finish());
    next.alive_ = alive_;
    if (dropped != 0) next.reply(SwitchReply::Kind::refused, dropped);
    *this = std::move(next);
    return {};
}

}  // namespace fathom
