#include "sim/fleet/prefill_side.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace fathom {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr int kWakesMax = 4;  // idle engines that are asked about one new request

// Into the cache, for one who will soon write it.
void fetch(const void* from, std::size_t bytes) {
    const auto* begin = static_cast<const char*>(from);
    for (std::size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(begin + at, 1);
}

SimTime ns_of(double us) {
    return static_cast<SimTime>(std::llround(us * 1000));
}

std::int64_t blocks_of(const PrefillWork& work) {
    return (work.context + work.tokens + kBlock - 1) / kBlock;
}

}  // namespace

PrefillSide::PrefillSide(const PrefillSideConfig& config, std::uint64_t seed, EventQueue& events,
                         Host& host, const std::function<bool()>& goes_on)
    : config_(config),
      events_(events),
      host_(host),
      balancer_(config.policy),
      engines_(static_cast<std::size_t>(config.engines)),
      ranks_(engines_.size() * static_cast<std::size_t>(config.ranks)),
      jobs_(ranks_.size()) {
    const PrefillEngine what{.ranks = config.ranks, .blocks_per_rank = config.blocks_per_rank};
    for (std::size_t e = 0; e < engines_.size() && goes_on(); ++e) {
        Engine& engine = engines_[e];
        const auto ranks = static_cast<std::size_t>(config.ranks);
        engine.ranks = std::span(ranks_).subspan(e * ranks, ranks);
        engine.jobs = std::span(jobs_).subspan(e * ranks, ranks);
        for (Rank& rank : engine.ranks)
            rank.free_blocks = config.blocks_per_rank;
        engine.noise = SimRandom(seed, e, SimPurpose::step_noise);
        balancer_.join(e, engine.epoch, what, 0);
        list_idle(e);
    }
}

void PrefillSide::set_moe_balance(double balance) {
    for (PrefillCost& cost : config_.policy.costs)
        cost.moe_balance = balance;
}

PrefillAdmission PrefillSide::admit(const PrefillRequest& request) {
    const PrefillAdmission admission = balancer_.admit(request, now_us());
    if (admission.is_accepted) ask_idle(prefill_class(request.total_tokens));
    return admission;
}

// Idle engines wait with an open pull: the nearest class first, then those of longer ones.
void PrefillSide::ask_idle(std::size_t length_class) {
    int tries = 0;
    for (std::size_t k = length_class; k < kPrefillClasses; ++k) {
        while (!idle_[k].empty() && tries < kWakesMax) {
            const std::size_t engine = idle_[k].front();
            idle_[k].pop_front();
            engines_[engine].is_listed_idle = false;
            if (engines_[engine].is_stepping || !is_up(engines_[engine])) continue;
            ++tries;
            wake(engine);
            if (!engines_[engine].is_listed_idle) return;
            // It found nothing that it may take, and stands at the end of the line again.
        }
    }
}

void PrefillSide::list_idle(std::size_t engine) {
    if (engines_[engine].is_listed_idle || engines_[engine].mode != Mode::works) return;
    engines_[engine].is_listed_idle = true;
    idle_[balancer_.class_of_engine(engine)].push_back(engine);
}

void PrefillSide::wake(std::size_t engine) {
    if (!engines_[engine].is_stepping && is_up(engines_[engine])) begin_step(engine);
}

void PrefillSide::pull(std::size_t index) {
    Engine& engine = engines_[index];
    const double tau_us = balancer_.tau_us(index);
    reports_.clear();
    std::int64_t held = 0;
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        const Rank& rank = engine.ranks[r];
        PrefillRankReport report;
        report.free_blocks = rank.free_blocks;
        report.held_blocks = rank.held_blocks;
        held += rank.held_blocks;
        const auto add = [&](const PrefillJob& job) {
            const double us = config_.policy.costs[job.length_class].request_us(
                job.rest.context, job.rest.tokens, job.rest.first);
            report.backlog_us += us;
            if (us > tau_us) report.giant_us += us;
        };
        for (const PrefillJob& job : engine.jobs[r])
            add(job);
        for (const Loading& loading : rank.loading)
            add(loading.job);
        reports_.push_back(report);
    }
    grants_.clear();
    const PrefillReason reason =
        balancer_.pull({.engine = index, .epoch = engine.epoch, .credits = 64, .ranks = reports_},
                       now_us(), &grants_);
    engine.idle_kind =
        reason == PrefillReason::decode_full || (reason == PrefillReason::nothing_fits && held > 0)
            ? CardTime::blocked
            : CardTime::idle;
    for (const PrefillGrant& grant : grants_) {
        Rank& rank = engine.ranks[static_cast<std::size_t>(grant.rank)];
        const std::int64_t blocks = blocks_of(grant.work);
        rank.free_blocks -= blocks;
        FATHOM_CHECK(rank.free_blocks >= 0);
        host_.granted(grant);
        Loading loading;
        loading.job.id = grant.id;
        loading.job.length_class = prefill_class(grant.work.context + grant.work.tokens);
        loading.job.rest = {grant.work.context, grant.work.tokens, true};
        loading.granted = {grant.id, grant.attempt, blocks, host_.is_redone(grant.id)};
        loading.ready_ns = host_.load_kv(grant);
        rank.loading.push_back(std::move(loading));
    }
}

void PrefillSide::admit_loaded(Engine& engine) {
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        std::vector<Loading>& loading = engine.ranks[r].loading;
        const auto rest =
            std::stable_partition(loading.begin(), loading.end(),
                                  [&](const Loading& l) { return l.ready_ns > now_ns(); });
        for (auto ready = rest; ready != loading.end(); ++ready) {
            engine.jobs[r].push_back(ready->job);
            engine.ranks[r].granted.push_back(ready->granted);
        }
        loading.erase(rest, loading.end());
    }
}

void PrefillSide::begin_step(std::size_t index) {
    Engine& engine = engines_[index];
    close_span(engine);
    if (engine.mode == Mode::works) pull(index);
    admit_loaded(engine);
    const double tau_us = balancer_.tau_us(index);
    const PrefillStep& step =
        planner_.plan(config_.policy.costs, tau_us, engine.jobs, config_.is_adaptive);
    if (step.slices.empty()) {
        rest(index);
        return;
    }
    double longest_us = 0;
    for (const double us : step.rank_us)
        longest_us = std::max(longest_us, us);
    const double fixed_us = config_.policy.costs[0].fixed_us();
    double us = (longest_us + fixed_us) * engine.noise.log_normal(1, config_.noise_sigma);
    if (engine.noise.uniform() < config_.stall_share) us += config_.stall_us;
    const SimTime duration_ns = std::max<SimTime>(1, ns_of(us));
    count_step(engine, step, tau_us, duration_ns);
    engine.slices = step.slices;
    engine.is_stepping = true;
    events_.push(now_ns() + duration_ns, static_cast<std::uint32_t>(FleetEvent::prefill_step),
                 static_cast<std::uint32_t>(index), engine.epoch);
    balancer_.heartbeat(index, engine.epoch, now_us());
}

// Nothing to compute now.
void PrefillSide::rest(std::size_t index) {
    Engine& engine = engines_[index];
    engine.is_stepping = false;
    SimTime ready_ns = -1;
    for (const Rank& rank : engine.ranks) {
        for (const Loading& loading : rank.loading)
            ready_ns = ready_ns < 0 ? loading.ready_ns : std::min(ready_ns, loading.ready_ns);
    }
    if (ready_ns >= 0) {
        engine.idle_kind = CardTime::kv_wait;
        events_.push(ready_ns, static_cast<std::uint32_t>(FleetEvent::prefill_wake),
                     static_cast<std::uint32_t>(index), engine.epoch);
        balancer_.heartbeat(index, engine.epoch, now_us());
    } else {
        list_idle(index);
    }
}

void PrefillSide::on_wake(std::size_t index, std::uint32_t epoch) {
    if (engines_[index].epoch == epoch) wake(index);
}

void PrefillSide::prefetch(std::size_t index) const {
    const auto ranks = static_cast<std::size_t>(config_.ranks);
    fetch(&engines_[index], sizeof(Engine));
    fetch(&ranks_[index * ranks], ranks * sizeof(Rank));
    fetch(&jobs_[index * ranks], ranks * sizeof(jobs_[0]));
}

void PrefillSide::prefetch_rank(std::size_t engine, std::size_t rank) const {
    fetch(&ranks_[engine * static_cast<std::size_t>(config_.ranks) + rank], sizeof(Rank));
}

void PrefillSide::fetch_lists(const Engine& engine) const {
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        const Rank& rank = engine.ranks[r];
        fetch(engine.jobs[r].data(), engine.jobs[r].size() * sizeof(PrefillJob));
        fetch(rank.granted.data(), rank.granted.size() * sizeof(Granted));
        fetch(rank.loading.data(), rank.loading.size() * sizeof(Loading));
    }
}

// Requests lie anywhere in memory: all are asked for before the first is needed.
void PrefillSide::fetch_ending(const Engine& engine) {
    ending_.clear();
    for (const PlannedSlice& slice : engine.slices) {
        const PrefillJob& job = engine.jobs[slice.rank][slice.job];
        if (slice.tokens < job.rest.tokens) continue;
        ending_.push_back(job.id);
        host_.prefetch(job.id);
    }
    balancer_.prefetch(ending_);
}

void PrefillSide::on_step(std::size_t index, std::uint32_t epoch) {
    Engine& engine = engines_[index];
    if (engine.epoch != epoch) return;  // it broke down in the middle
    engine.is_stepping = false;
    if (engine.span_ns >= count_from_ns_) ledger_.add(engine.step);
    engine.span_ns = now_ns();
    ++steps_;
    fetch_lists(engine);
    fetch_ending(engine);
    for (const PlannedSlice& slice : engine.slices) {
        PrefillJob& job = engine.jobs[slice.rank][slice.job];
        FATHOM_CHECK(slice.tokens > 0 && slice.tokens <= job.rest.tokens);
        job.rest.context += slice.tokens;
        job.rest.tokens -= slice.tokens;
        job.rest.first = false;
        computed_tokens_ += slice.tokens;
        if (engine.ranks[slice.rank].granted[slice.job].is_redone) redone_tokens_ += slice.tokens;
    }
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        std::vector<PrefillJob>& jobs = engine.jobs[r];
        Rank& rank = engine.ranks[r];
        std::size_t kept = 0;
        for (std::size_t j = 0; j < jobs.size(); ++j) {
            if (jobs[j].rest.tokens > 0) {
                jobs[kept] = jobs[j];
                rank.granted[kept++] = rank.granted[j];
                continue;
            }
            const Granted granted = rank.granted[j];
            FATHOM_CHECK(balancer_.finish(granted.id, granted.attempt, now_us()));
            rank.held_blocks += granted.blocks;
            held_total_ += granted.blocks;
            host_.prefilled(granted.id, index, r, granted.blocks);
        }
        jobs.resize(kept);
        rank.granted.resize(kept);
    }
    begin_step(index);
}

// Where the time of the step goes, in integers that add up to ranks × duration.
void PrefillSide::count_step(Engine& engine, const PrefillStep& step, double tau_us,
                             SimTime duration_ns) {
    engine.step = {};
    const PrefillCost& cost = config_.policy.costs[0];
    double longest_us = 0;
    for (const double us : step.rank_us)
        longest_us = std::max(longest_us, us);
    const SimTime longest_ns = ns_of(longest_us), fixed_ns = ns_of(cost.fixed_us());
    // The bound's steps are full: as much of the fixed cost as this one is full belongs to it.
    const SimTime bound_fixed_ns = ns_of(cost.fixed_us() * std::min(1.0, longest_us / tau_us));
    redone_us_.assign(step.rank_us.size(), 0);
    for (const PlannedSlice& slice : step.slices) {
        if (!engine.ranks[slice.rank].granted[slice.job].is_redone) continue;
        const PrefillJob& job = engine.jobs[slice.rank][slice.job];
        redone_us_[slice.rank] += config_.policy.costs[job.length_class].slice_us(
            {job.rest.context, slice.tokens, job.rest.first, slice.tokens == job.rest.tokens});
    }
    for (std::size_t r = 0; r < step.rank_us.size(); ++r) {
        const SimTime rank_ns = ns_of(step.rank_us[r]);
        const SimTime even_ns = ns_of(step.rank_us[r] / cost.factor());
        const SimTime redone_ns = std::min(even_ns, ns_of(redone_us_[r] / cost.factor()));
        engine.step.add(CardTime::work, even_ns - redone_ns + bound_fixed_ns);
        engine.step.add(CardTime::redone, redone_ns);
        engine.step.add(CardTime::moe_imbalance, rank_ns - even_ns);
        engine.step.add(CardTime::dp_imbalance, longest_ns - rank_ns);
        engine.step.add(CardTime::step_fixed, fixed_ns - bound_fixed_ns);
        engine.step.add(CardTime::noise, duration_ns - longest_ns - fixed_ns);
    }
    const auto ranks = static_cast<std::int64_t>(step.rank_us.size());
    engine.step.total_ns = ranks * duration_ns;
    step_ns_ += ranks * duration_ns;
}

void PrefillSide::close_span(Engine& engine) {
    const SimTime card_ns =
        (now_ns() - engine.span_ns) * static_cast<std::int64_t>(engine.ranks.size());
    if (engine.span_ns >= count_from_ns_) {
        const CardTime kind = engine.mode == Mode::broken  ? CardTime::failed
                              : engine.mode == Mode::works ? engine.idle_kind
                                                           : CardTime::lifecycle;
        if (engine.mode != Mode::off) {
            ledger_.add(kind, card_ns);
            ledger_.total_ns += card_ns;
        }
    }
    engine.span_ns = now_ns();
}

void PrefillSide::count_from(SimTime from_ns) {
    count_from_ns_ = from_ns;
    ledger_ = {};
    for (Engine& engine : engines_)
        if (!engine.is_stepping) engine.span_ns = from_ns;
}

void PrefillSide::close_spans() {
    for (Engine& engine : engines_)
        if (!engine.is_stepping) close_span(engine);
}

void PrefillSide::on_poll(std::vector<std::uint64_t>* closed) {
    for (std::size_t e = 0; e < engines_.size(); ++e) {
        const Engine& engine = engines_[e];
        if (is_up(engine)) balancer_.heartbeat(e, engine.epoch, now_us());
    }
    balancer_.tick(now_us(), closed);
    if (waiting() == 0) return;
    for (auto& idle : idle_) {
        for (std::size_t left = idle.size(); left > 0; --left) {
            const std::size_t engine = idle.front();
            idle.pop_front();
            engines_[engine].is_listed_idle = false;
            wake(engine);
        }
    }
}

void PrefillSide::release(std::size_t engine, std::size_t rank, std::int64_t blocks) {
    Rank& held = engines_[engine].ranks[rank];
    held.held_blocks -= blocks;
    held.free_blocks += blocks;
    held_total_ -= blocks;
    FATHOM_CHECK(held.held_blocks >= 0);
    // Not at once: the engine may be in the middle of ending a step.
    if (!engines_[engine].is_stepping && engines_[engine].idle_kind == CardTime::blocked)
        events_.push(now_ns(), static_cast<std::uint32_t>(FleetEvent::prefill_wake),
                     static_cast<std::uint32_t>(engine), engines_[engine].epoch);
}

// What the step in work computed is lost, and the time with it.
void PrefillSide::drop_step(Engine& engine) {
    if (!engine.is_stepping) return;
    engine.idle_kind = CardTime::redone;
    engine.is_stepping = false;
}

void PrefillSide::break_down(std::size_t index) {
    Engine& engine = engines_[index];
    drop_step(engine);
    close_span(engine);
    engine.mode = Mode::broken;
    balancer_.lose(index, now_us());
    ++engine.epoch;
    for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
        Rank& rank = engine.ranks[r];
        for (const Granted& granted : rank.granted)
            rank.free_blocks += granted.blocks;
        for (const Loading& loading : rank.loading)
            rank.free_blocks += loading.granted.blocks;
        rank.granted.clear();
        rank.loading.clear();
        engine.jobs[r].clear();
    }
}

void PrefillSide::start(std::size_t index) {
    Engine& engine = engines_[index];
    close_span(engine);
    engine.mode = Mode::works;
    engine.idle_kind = CardTime::idle;
    balancer_.join(index, engine.epoch,
                   {.ranks = config_.ranks, .blocks_per_rank = config_.blocks_per_rank}, now_us());
    wake(index);
}

void PrefillSide::drain(std::size_t index) {
    Engine& engine = engines_[index];
    if (!engine.is_stepping) close_span(engine);
    engine.mode = Mode::drains;
    engine.is_listed_idle = false;
    for (auto& idle : idle_)
        std::erase(idle, index);
}

void PrefillSide::stop(std::size_t index) {
    Engine& engine = engines_[index];
    for (const Rank& rank : engine.ranks)
        FATHOM_CHECK(rank.free_blocks == config_.blocks_per_rank);
    FATHOM_CHECK(!engine.is_stepping);
    close_span(engine);
    engine.mode = Mode::off;
    balancer_.lose(index, now_us());
    ++engine.epoch;
}

void PrefillSide::prepare(std::size_t index) {
    close_span(engines_[index]);
    engines_[index].mode = Mode::prepares;
}

std::int64_t PrefillSide::waiting() const {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        sum += balancer_.waiting(k);
    return sum;
}

std::int64_t PrefillSide::used_blocks() const {
    std::int64_t sum = 0;
    for (const Engine& engine : engines_) {
        for (const Rank& rank : engine.ranks)
            sum += config_.blocks_per_rank - rank.free_blocks;
    }
    return sum;
}

std::int64_t PrefillSide::pending_tokens() const {
    std::int64_t sum = 0;
    for (const Engine& engine : engines_) {
        for (const auto& jobs : engine.jobs)
            for (const PrefillJob& job : jobs)
                sum += job.rest.tokens;
        for (const Rank& rank : engine.ranks)
            for (const Loading& loading : rank.loading)
                sum += loading.job.rest.tokens;
    }
    return sum;
}

}  // namespace fathom
