#include "policy/prefill_balancer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace fathom {

namespace {

constexpr std::int64_t kRanksMax = 1024;
constexpr double kParallelLoss = 1.1;  // of context parallelism

Digest pull_digest(const PrefillPull& pull) {
    Digest digest;
    digest.add(std::uint64_t{pull.engine}).add(pull.epoch).add(pull.credits);
    for (const PrefillRankReport& rank : pull.ranks) {
        digest.add(rank.is_alive).add(rank.free_blocks).add(rank.held_blocks);
        digest.add(rank.backlog_us).add(rank.giant_us).add(rank.cap_tokens);
    }
    return digest;
}

}  // namespace

std::string_view prefill_reason_name(PrefillReason reason) {
    switch (reason) {
        case PrefillReason::fits_quota:
            return "fits_quota";
        case PrefillReason::debt:
            return "debt";
        case PrefillReason::head_lock:
            return "head_lock";
        case PrefillReason::steal_shorter:
            return "steal_shorter";
        case PrefillReason::steal_longer:
            return "steal_longer";
        case PrefillReason::no_quota:
            return "no_quota";
        case PrefillReason::no_credits:
            return "no_credits";
        case PrefillReason::nothing_waits:
            return "nothing_waits";
        case PrefillReason::nothing_fits:
            return "nothing_fits";
        case PrefillReason::rank_dead:
            return "rank_dead";
        case PrefillReason::decode_full:
            return "decode_full";
        case PrefillReason::stale_epoch:
            return "stale_epoch";
        case PrefillReason::unknown_engine:
            return "unknown_engine";
        case PrefillReason::accepted:
            return "accepted";
        case PrefillReason::queued_late:
            return "queued_late";
        case PrefillReason::tenant_limit:
            return "tenant_limit";
        case PrefillReason::too_late:
            return "too_late";
        case PrefillReason::queue_full:
            return "queue_full";
        case PrefillReason::too_long:
            return "too_long";
        case PrefillReason::exceeds_rank:
            return "exceeds_rank";
        case PrefillReason::duplicate:
            return "duplicate";
        case PrefillReason::shed:
            return "shed";
        case PrefillReason::never_started:
            return "never_started";
        case PrefillReason::engine_lost:
            return "engine_lost";
        case PrefillReason::lease_expired:
            return "lease_expired";
        case PrefillReason::returned:
            return "returned";
        case PrefillReason::finished:
            return "finished";
        case PrefillReason::cancelled:
            return "cancelled";
        case PrefillReason::round:
            return "round";
    }
    return "unknown";
}

PrefillBalancer::PrefillBalancer(const PrefillSettings& settings, std::size_t log_records)
    : settings_(settings), log_(log_records) {
    FATHOM_CHECK(settings.check().ok());
}

// Queues

bool PrefillBalancer::comes_before(const Entry& a, const Entry& b) const {
    if (a.is_front != b.is_front) return a.is_front;
    if (a.request.deadline_us != b.request.deadline_us)
        return a.request.deadline_us < b.request.deadline_us;
    return a.order < b.order;
}

PrefillBalancer::ShedKey PrefillBalancer::shed_key(const Entry& entry) {
    return {.priority = entry.request.priority, .newness = ~entry.order, .id = entry.request.id};
}

void PrefillBalancer::enqueue(std::uint64_t id) {
    const Entry& entry = entries_.at(id);
    Queue& queue = queues_[entry.length_class];
    // Nearly always the last.
    if (queue.ids.empty() || !comes_before(entry, entries_.at(queue.ids.back()))) {
        queue.ids.push_back(id);
    } else {
        const auto place = std::upper_bound(
            queue.ids.begin(), queue.ids.end(), entry,
            [&](const Entry& a, std::uint64_t b) { return comes_before(a, entries_.at(b)); });
        queue.ids.insert(place, id);
    }
    queue.cost_us += entry.cost_us;
    queue.usable_us += usable_us(entry);
    if (settings_.mode == AdmissionMode::shed) queue.shed_order.insert(shed_key(entry));
}

void PrefillBalancer::remove_from_queue(std::uint64_t id) {
    const Entry& entry = entries_.at(id);
    Queue& queue = queues_[entry.length_class];
    if (!queue.ids.empty() && queue.ids.front() == id) {
        queue.ids.pop_front();
    } else {
        const auto place = std::lower_bound(
            queue.ids.begin(), queue.ids.end(), entry,
            [&](std::uint64_t a, const Entry& b) { return comes_before(entries_.at(a), b); });
        FATHOM_CHECK(place != queue.ids.end() && *place == id);
        queue.ids.erase(place);
    }
    queue.cost_us -= entry.cost_us;
    queue.usable_us -= usable_us(entry);
    if (settings_.mode == AdmissionMode::shed) queue.shed_order.erase(shed_key(entry));
    unlock(id);
}

void PrefillBalancer::unlock(std::uint64_t id) {
    Queue& queue = queues_[entries_.at(id).length_class];
    if (queue.locked != id) return;
    queue.locked.reset();
    queue.aside_engine.reset();
}

void PrefillBalancer::drop_grant(Entry& entry) {
    std::vector<std::uint64_t>& granted = engines_[*entry.engine].granted;
    granted.erase(std::find(granted.begin(), granted.end(), entry.request.id));
    entry.engine.reset();
    --granted_;
}

void PrefillBalancer::requeue(std::uint64_t id, PrefillReason reason, std::int64_t now_us) {
    Entry& entry = entries_.at(id);
    const std::size_t engine = *entry.engine;
    drop_grant(entry);
    ++entry.attempt;
    entry.is_front = true;
    entry.skips = 0;
    enqueue(id);
    log_.note(DecisionKind::prefill_return, reason, engine, now_us, 0,
              {static_cast<std::int64_t>(id), entry.attempt, 0, 0, 0});
}

void PrefillBalancer::close_grants(Engine& engine, PrefillReason reason, std::int64_t now_us) {
    while (!engine.granted.empty())
        requeue(engine.granted.front(), reason, now_us);
    engine.backlog_us = 0;
    const auto index = static_cast<std::size_t>(&engine - engines_.data());
    for (Queue& queue : queues_)
        if (queue.aside_engine == index) queue.aside_engine.reset();
}

void PrefillBalancer::erase(std::uint64_t id) {
    Entry& entry = entries_.at(id);
    if (entry.engine) {
        drop_grant(entry);
    } else {
        remove_from_queue(id);
    }
    entries_.erase(id);
}

// Engines

void PrefillBalancer::join(std::size_t engine, std::int64_t epoch, const PrefillEngine& what,
                           std::int64_t now_us) {
    FATHOM_CHECK(what.ranks >= 1 && what.ranks <= kRanksMax && what.blocks_per_rank >= 0);
    if (engine >= engines_.size()) engines_.resize(engine + 1);
    if (engines_[engine].is_live) {
        if (epoch <= engines_[engine].epoch) return;
        lose(engine, now_us);
    }
    // Where most work waits for each engine that there would be.
    const ClassCounts counts = live_.engines;
    std::size_t serves = 0;
    double most = -1;
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        const double each = backlog_us(k) / static_cast<double>(counts[k] + 1);
        if (each > most) {
            most = each;
            serves = k;
        }
    }
    Engine& joined = engines_[engine];
    joined = Engine{};
    joined.is_live = true;
    joined.what = what;
    joined.epoch = epoch;
    joined.heard_us = now_us;
    joined.serves = serves;
    count_in(joined);
    served_by_ = serving_classes(live_.engines);
}

void PrefillBalancer::lose(std::size_t engine, std::int64_t now_us) {
    if (!is_live(engine)) return;
    close_grants(engines_[engine], PrefillReason::engine_lost, now_us);
    engines_[engine].is_live = false;
    count_live();
    served_by_ = serving_classes(live_.engines);
}

bool PrefillBalancer::is_live(std::size_t engine) const {
    return engine < engines_.size() && engines_[engine].is_live;
}

void PrefillBalancer::heartbeat(std::size_t engine, std::int64_t epoch, std::int64_t now_us) {
    if (is_live(engine) && engines_[engine].epoch == epoch) engines_[engine].heard_us = now_us;
}

void PrefillBalancer::observe_step(std::size_t engine, std::size_t length_class,
                                   double predicted_us, double observed_us,
                                   const PrefillCorrection::Excuse& excuse, std::int64_t now_us) {
    if (!is_live(engine)) return;
    engines_[engine].correction.observe(length_class, predicted_us, observed_us, excuse, now_us);
}

bool PrefillBalancer::drifted(std::size_t engine, std::int64_t now_us) const {
    return is_live(engine) && engines_[engine].correction.drifted(now_us);
}

// Granted requests

bool PrefillBalancer::finish(std::uint64_t id, std::int64_t attempt, std::int64_t now_us) {
    Entry* found = entries_.find(id);
    if (found == nullptr || !found->engine || found->attempt != attempt) return false;
    log_.note(DecisionKind::prefill_return, PrefillReason::finished, *found->engine, now_us, 0,
              {static_cast<std::int64_t>(id), attempt, 0, 0, 0});
    drop_grant(*found);
    entries_.erase(id);
    return true;
}

bool PrefillBalancer::give_back(std::uint64_t id, std::int64_t attempt, std::int64_t now_us) {
    Entry* found = entries_.find(id);
    if (found == nullptr || !found->engine || found->attempt != attempt) return false;
    requeue(id, PrefillReason::returned, now_us);
    return true;
}

void PrefillBalancer::cancel(std::uint64_t id, std::int64_t now_us) {
    if (!entries_.contains(id)) return;
    log_.note(DecisionKind::prefill_return, PrefillReason::cancelled, 0, now_us, 0,
              {static_cast<std::int64_t>(id), entries_.at(id).attempt, 0, 0, 0});
    erase(id);
}

// Pulls

double PrefillBalancer::cost_on(const Entry& entry, const Engine& engine) const {
    PrefillCost cost = settings_.costs[entry.length_class];
    cost.scale *= engine.correction.scale(entry.length_class);
    const double whole = cost.request_us(entry.work.context, entry.work.tokens, true);
    if (!engine.what.is_context_parallel) return whole;
    return whole / static_cast<double>(engine.what.ranks) * kParallelLoss;
}

PrefillReason PrefillBalancer::check_pull(const PrefillPull& pull) const {
    if (!is_live(pull.engine)) return PrefillReason::unknown_engine;
    const Engine& engine = engines_[pull.engine];
    if (pull.epoch != engine.epoch) return PrefillReason::stale_epoch;
    if (pull.ranks.size() != static_cast<std::size_t>(engine.what.ranks))
        return PrefillReason::unknown_engine;
    const bool has_dead = std::any_of(pull.ranks.begin(), pull.ranks.end(),
                                      [](const auto& rank) { return !rank.is_alive; });
    if (has_dead && !engine.what.can_lose_rank) return PrefillReason::rank_dead;
    return PrefillReason::fits_quota;
}

// Fills ranks_; why nothing can be granted, if so.
PrefillReason PrefillBalancer::open_ranks(const PrefillPull& pull) {
    const Engine& engine = engines_[pull.engine];
    const double tau = settings_.tau_us[engine.serves];
    const bool is_merged = std::count(served_by_.begin(), served_by_.end(), engine.serves) > 1;
    bool is_held = false, has_dead = false;
    double least_us = settings_.horizon_steps * tau;
    ranks_.clear();
    for (const PrefillRankReport& report : pull.ranks) {
        PullRank rank;
        rank.backlog_us = std::max(report.backlog_us, 0.0);
        // Where classes share engines, giants may fill one step of the horizon; the rest stays for
        // those that can finish beside them.
        rank.giant_us = std::clamp(report.giant_us, 0.0, rank.backlog_us);
        rank.giant_limit_us = is_merged ? tau : std::numeric_limits<double>::max();
        rank.quota_us = settings_.horizon_steps * tau - (rank.backlog_us - rank.giant_us) -
                        std::min(rank.giant_us, rank.giant_limit_us);
        rank.blocks = engine.what.blocks_per_rank;
        rank.free_blocks = std::clamp<std::int64_t>(report.free_blocks, 0, rank.blocks);
        rank.cap_tokens = report.cap_tokens;
        const bool holds_too_much = static_cast<double>(report.held_blocks) >
                                    settings_.held_share_max * static_cast<double>(rank.blocks);
        rank.is_open = report.is_alive && !holds_too_much;
        is_held = is_held || (report.is_alive && holds_too_much);
        has_dead = has_dead || !report.is_alive;
        if (report.is_alive) least_us = std::min(least_us, rank.quota_us);
        ranks_.push_back(rank);
    }
    if (has_dead) {
        for (PullRank& rank : ranks_)
            rank.quota_us = std::min(rank.quota_us, least_us);
    }
    if (engine.what.is_context_parallel) join_ranks();
    if (fullest_quota()) return PrefillReason::fits_quota;
    return is_held ? PrefillReason::decode_full : PrefillReason::no_quota;
}

// All ranks of an engine with context parallelism as one: the tightest of each.
void PrefillBalancer::join_ranks() {
    PullRank one = ranks_.front();
    std::int64_t live = 0;
    bool is_first = true;
    for (const PullRank& rank : ranks_) {
        if (!rank.is_open) continue;
        ++live;
        if (is_first) one = rank;
        is_first = false;
        one.quota_us = std::min(one.quota_us, rank.quota_us);
        one.backlog_us = std::max(one.backlog_us, rank.backlog_us);
        one.free_blocks = std::min(one.free_blocks, rank.free_blocks);
        one.cap_tokens = std::min(one.cap_tokens, rank.cap_tokens);
    }
    one.free_blocks *= live;
    one.blocks *= live;
    ranks_.assign(1, one);
}

std::optional<std::size_t> PrefillBalancer::fullest_quota() const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        const std::size_t r = (i + rotation_) % ranks_.size();
        if (!ranks_[r].is_open || ranks_[r].quota_us <= 0) continue;
        if (!best || ranks_[r].quota_us > ranks_[*best].quota_us) best = r;
    }
    return best;
}

std::optional<PrefillBalancer::Picked> PrefillBalancer::take_aside(std::size_t engine,
                                                                   std::size_t rank,
                                                                   bool* is_aside) {
    *is_aside = false;
    for (const Queue& queue : queues_) {
        if (!queue.locked || queue.aside_engine != engine ||
            queue.aside_rank != static_cast<std::int64_t>(rank))
            continue;
        *is_aside = true;
        const Entry& entry = entries_.at(*queue.locked);
        if (entry.blocks <= ranks_[rank].free_blocks)
            return Picked{.id = *queue.locked, .reason = PrefillReason::head_lock};
    }
    return std::nullopt;
}

std::optional<PrefillBalancer::Picked> PrefillBalancer::pick(std::size_t length_class,
                                                             std::size_t engine, std::size_t rank,
                                                             bool has_debt) {
    Queue& queue = queues_[length_class];
    PullRank& on = ranks_[rank];
    if (queue.locked &&
        (has_debt || cost_on(entries_.at(*queue.locked), engines_[engine]) <= on.quota_us)) {
        const std::int64_t blocks = entries_.at(*queue.locked).blocks;
        if (blocks <= on.free_blocks)
            return Picked{.id = *queue.locked, .reason = PrefillReason::head_lock};
        if (!queue.aside_engine && blocks <= on.blocks) {
            queue.aside_engine = engine;
            queue.aside_rank = static_cast<std::int64_t>(rank);
            return std::nullopt;
        }
    }
    const double tau = settings_.tau_us[engines_[engine].serves];
    const auto ahead =
        std::min<std::size_t>(queue.ids.size(), static_cast<std::size_t>(settings_.look_ahead));
    for (std::size_t i = 0; i < ahead; ++i) {
        const std::uint64_t id = queue.ids[i];
        Entry& entry = entries_.at(id);
        if (entry.blocks <= on.free_blocks) {
            const bool is_covered = entry.work.tokens <= on.cap_tokens &&
                                    cost_on(entry, engines_[engine]) <= on.quota_us;
            if (is_covered) return Picked{.id = id, .reason = PrefillReason::fits_quota};
            if (has_debt && on.backlog_us < tau)
                return Picked{.id = id, .reason = PrefillReason::debt};
        }
        if (i == 0 && ++entry.skips > settings_.skips_max && !queue.locked) queue.locked = id;
    }
    return std::nullopt;
}

bool PrefillBalancer::own_queue_empty(std::size_t serves) const {
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        if (served_by_[k] == serves && !queues_[k].ids.empty()) return false;
    return true;
}

// Where classes share engines, the one whose head came first is asked first.
std::optional<PrefillBalancer::Picked> PrefillBalancer::pick_own(std::size_t engine,
                                                                 std::size_t rank) {
    std::array<bool, kPrefillClasses> asked{};
    for (;;) {
        std::optional<std::size_t> first;
        for (std::size_t k = 0; k < kPrefillClasses; ++k) {
            const bool is_mine = served_by_[k] == engines_[engine].serves;
            if (!is_mine || asked[k] || queues_[k].ids.empty()) continue;
            if (!first || comes_before(entries_.at(queues_[k].ids.front()),
                                       entries_.at(queues_[*first].ids.front())))
                first = k;
        }
        if (!first) return std::nullopt;
        if (const auto picked = pick(*first, engine, rank, true)) return picked;
        asked[*first] = true;
    }
}

std::optional<PrefillBalancer::Picked> PrefillBalancer::steal(std::size_t engine, std::size_t rank,
                                                              std::int64_t now_us) {
    if (!settings_.is_stealing) return std::nullopt;
    const std::size_t serves = engines_[engine].serves;
    const Queue& own = queues_[serves];
    // From longer classes only what the quota covers: a giant would make every step of an engine of
    // short prompts a long one.
    const auto try_class = [&](std::size_t k, PrefillReason reason) -> std::optional<Picked> {
        auto picked = pick(k, engine, rank, k < serves);
        if (picked) picked->reason = reason;
        return picked;
    };
    // Beside a giant every step takes its whole τ: worse than waiting for less than that.
    const bool has_giant =
        std::any_of(ranks_.begin(), ranks_.end(), [](const PullRank& r) { return r.giant_us > 0; });
    const double patience_us = has_giant ? settings_.tau_us[serves] : -1;
    for (std::size_t k = serves; k-- > 0;) {
        if (queues_[k].ids.empty()) continue;
        const Entry& head = entries_.at(queues_[k].ids.front());
        if (static_cast<double>(now_us - head.since_us) <= patience_us) continue;
        if (auto picked = try_class(k, PrefillReason::steal_shorter)) return picked;
    }
    const bool is_idle = static_cast<double>(own.used_before_us) <
                             settings_.steal_use_max * static_cast<double>(own.offered_before_us) ||
                         own.offered_before_us == 0;
    for (std::size_t k = serves + 1; is_idle && k < kPrefillClasses; ++k) {
        if (queues_[k].ids.empty()) continue;
        const Entry& head = entries_.at(queues_[k].ids.front());
        if (now_us - head.since_us <= settings_.round_us) continue;
        if (auto picked = try_class(k, PrefillReason::steal_longer)) return picked;
    }
    return std::nullopt;
}

PrefillGrant PrefillBalancer::grant(const Picked& picked, std::size_t engine, std::size_t rank,
                                    std::int64_t now_us) {
    Entry& entry = entries_.at(picked.id);
    Engine& to = engines_[engine];
    remove_from_queue(picked.id);
    entry.engine = engine;
    to.granted.push_back(picked.id);
    ++granted_;
    ++rotation_;
    const double cost_us = cost_on(entry, to);
    PullRank& on = ranks_[rank];
    if (cost_us > settings_.tau_us[to.serves]) {
        on.quota_us += std::min(on.giant_us, on.giant_limit_us);
        on.giant_us += cost_us;
        on.quota_us -= std::min(on.giant_us, on.giant_limit_us);
    } else {
        on.quota_us -= cost_us;
    }
    on.backlog_us += cost_us;
    on.free_blocks -= entry.blocks;
    on.cap_tokens -= entry.work.tokens;
    to.backlog_us += entry.cost_us;
    queues_[to.serves].used_us += entry.cost_us;
    return {.id = picked.id,
            .engine = engine,
            .rank = to.what.is_context_parallel ? kAllRanks : static_cast<std::int64_t>(rank),
            .attempt = entry.attempt,
            .lease_until_us = now_us + settings_.lease_us,
            .cost_us = cost_us,
            .work = entry.work,
            .reason = picked.reason};
}

PrefillReason PrefillBalancer::pull(const PrefillPull& pull, std::int64_t now_us,
                                    std::vector<PrefillGrant>* grants) {
    const std::size_t e = pull.engine;
    const std::uint64_t digest = pull_digest(pull).value();
    const auto record = [&](PrefillReason reason, const std::array<std::int64_t, 5>& fields) {
        log_.note(DecisionKind::prefill_grant, reason, e, now_us, digest, fields);
        return reason;
    };
    PrefillReason reason = check_pull(pull);
    if (reason == PrefillReason::fits_quota) {
        engines_[e].heard_us = now_us;
        engines_[e].backlog_us = 0;
        for (const PrefillRankReport& rank : pull.ranks)
            engines_[e].backlog_us += std::llround(std::clamp(rank.backlog_us, 0.0, 1e15));
        reason = open_ranks(pull);
    }
    if (reason == PrefillReason::fits_quota && pull.credits <= 0)
        reason = PrefillReason::no_credits;
    if (reason != PrefillReason::fits_quota) return record(reason, {0, 0, 0, 0, 0});

    std::int64_t given = 0;
    bool is_any_waiting = false;
    while (given < pull.credits) {
        const std::optional<std::size_t> rank = fullest_quota();
        if (!rank) break;
        bool is_aside = false;
        std::optional<Picked> picked = take_aside(e, *rank, &is_aside);
        if (!picked && !is_aside) {
            const bool is_own_empty = own_queue_empty(engines_[e].serves);
            picked = is_own_empty ? steal(e, *rank, now_us) : pick_own(e, *rank);
            is_any_waiting = is_any_waiting || !is_own_empty;
        }
        if (!picked) {
            ranks_[*rank].is_open = false;
            continue;
        }
        grants->push_back(grant(*picked, e, *rank, now_us));
        const PrefillGrant& made = grants->back();
        record(made.reason, {static_cast<std::int64_t>(made.id), made.rank, made.attempt,
                             std::llround(made.cost_us), made.work.tokens});
        ++given;
    }
    if (given > 0) return PrefillReason::fits_quota;
    return record(is_any_waiting ? PrefillReason::nothing_fits : PrefillReason::nothing_waits,
                  {0, 0, 0, 0, 0});
}

std::int64_t PrefillBalancer::waiting(std::size_t length_class) const {
    return static_cast<std::int64_t>(queues_[length_class].ids.size());
}

double PrefillBalancer::backlog_us(std::size_t length_class) const {
    return static_cast<double>(queues_[length_class].cost_us);
}

}  // namespace fathom
