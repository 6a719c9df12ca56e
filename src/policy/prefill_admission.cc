// Admission, and what happens with time: leases, closed requests, rounds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "policy/prefill_balancer.h"

namespace fathom {

namespace {

constexpr std::int64_t kRetryLeastUs = 1'000'000;
constexpr std::int64_t kBlocksMax = std::int64_t{1} << 50;  // far beyond any request's
constexpr double kCostMaxUs = 1e12;  // of one request, whatever the coefficients say

std::int64_t blocks_of(std::int64_t tokens) {
    return (tokens + kBlockTokens - 1) / kBlockTokens;
}

std::int64_t retry_after(double late_us) {
    return std::max(kRetryLeastUs, static_cast<std::int64_t>(std::min(late_us, 1e15)));
}

}  // namespace

Status PrefillSettings::check() const {
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        FATHOM_RETURN_IF_ERROR(costs[k].check());
        if (!(tau_us[k] >= 1e3 && tau_us[k] <= 60e6))
            return invalid_argument("tau_us: {}, expected 1,000 to 60,000,000", tau_us[k]);
        if (!(ttft_limit_us[k] > 0 && std::isfinite(ttft_limit_us[k])))
            return invalid_argument("ttft_limit_us: {}, expected a number > 0", ttft_limit_us[k]);
        if (!(headroom[k] >= 1 && headroom[k] <= 16))
            return invalid_argument("headroom: {}, expected 1 to 16", headroom[k]);
    }
    const auto positive = {look_ahead,         skips_max,      round_us,       lease_us,
                           queue_requests_max, start_limit_us, token_bytes_max};
    if (std::any_of(positive.begin(), positive.end(), [](std::int64_t n) { return n < 1; }))
        return invalid_argument("prefill settings: a count or time below 1");
    if (!(horizon_steps >= 1 && horizon_steps <= 16))
        return invalid_argument("horizon_steps: {}, expected 1 to 16", horizon_steps);
    if (!(planned_use > 0 && planned_use <= 1))
        return invalid_argument("planned_use: {}, expected a part in (0, 1]", planned_use);
    if (!(held_share_max > 0 && held_share_max <= 1 && steal_use_max >= 0 && steal_use_max <= 1 &&
          urgent_backlog_us >= 0))
        return invalid_argument("prefill settings: a share outside 0 to 1, or a negative limit");
    return {};
}

void PrefillBalancer::count_live() {
    live_ = {};
    for (const Engine& engine : engines_)
        if (engine.is_live) count_in(engine);
}

void PrefillBalancer::count_in(const Engine& engine) {
    ++live_.engines[engine.serves];
    live_.ranks[engine.serves] += engine.what.ranks;
    const std::int64_t parts = engine.what.is_context_parallel ? engine.what.ranks : 1;
    const std::int64_t each = std::min(engine.what.blocks_per_rank, kBlocksMax);
    live_.most_blocks = std::max(live_.most_blocks, each * parts);
}

double PrefillBalancer::wait_us(std::size_t length_class) const {
    const std::size_t serves = served_by_[length_class];
    const std::int64_t ranks = live_ranks(serves);
    if (ranks == 0) return static_cast<double>(settings_.start_limit_us);
    double backlog = 0;
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        if (served_by_[k] == serves) backlog += backlog_us(k);
    return backlog / (static_cast<double>(ranks) * settings_.planned_use);
}

PrefillAdmission PrefillBalancer::judge(const PrefillRequest& request, std::int64_t cost_us,
                                        std::int64_t blocks) const {
    PrefillAdmission admission;
    const std::size_t k = prefill_class(request.total_tokens);
    const auto refuse = [&](PrefillReason reason) {
        admission.reason = reason;
        admission.is_accepted = false;
        return admission;
    };
    if (request.total_tokens > kContextTokensMax) return refuse(PrefillReason::too_long);
    if (entries_.contains(request.id)) return refuse(PrefillReason::duplicate);
    if (most_blocks() >= 0 && blocks > most_blocks()) return refuse(PrefillReason::exceeds_rank);

    const double cost = static_cast<double>(cost_us);
    const double steps = std::ceil(cost / settings_.tau_us[k]);
    admission.ttft_us = wait_us(k) + cost + steps * settings_.costs[k].fixed_us();
    const double late_us = admission.ttft_us - settings_.ttft_limit_us[k];
    admission.retry_after_us = retry_after(late_us);
    if (request.is_over_tenant_limit) return refuse(PrefillReason::tenant_limit);
    if (late_us > 0 && settings_.mode == AdmissionMode::reject)
        return refuse(PrefillReason::too_late);
    admission.is_accepted = true;
    admission.reason = late_us > 0 ? PrefillReason::queued_late : PrefillReason::accepted;
    if (waiting(k) < settings_.queue_requests_max) return admission;
    if (settings_.mode != AdmissionMode::shed) return refuse(PrefillReason::queue_full);
    const ShedKey& least = *queues_[k].shed_order.begin();
    if (request.priority <= least.priority) return refuse(PrefillReason::shed);
    admission.shed_id = least.id;
    return admission;
}

PrefillAdmission PrefillBalancer::admit_bytes(std::int64_t bytes, std::int64_t) const {
    // A token is at most so many bytes, and everything might be a hit; what even then is too long
    // or too late need not be tokenized.
    const std::int64_t tokens =
        std::max<std::int64_t>(1, std::max<std::int64_t>(bytes, 0) / settings_.token_bytes_max);
    PrefillAdmission admission;
    admission.is_accepted = true;
    if (tokens > kContextTokensMax) {
        admission.is_accepted = false;
        admission.reason = PrefillReason::too_long;
        return admission;
    }
    if (settings_.mode != AdmissionMode::reject) return admission;
    double least_late_us = std::numeric_limits<double>::max();
    for (std::size_t k = prefill_class(tokens); k < kPrefillClasses; ++k) {
        const double ttft_us = wait_us(k) + settings_.costs[k].request_us(0, 1, false);
        least_late_us = std::min(least_late_us, ttft_us - settings_.ttft_limit_us[k]);
    }
    if (least_late_us > 0) {
        admission.is_accepted = false;
        admission.reason = PrefillReason::too_late;
        admission.retry_after_us = retry_after(least_late_us);
    }
    return admission;
}

void PrefillBalancer::set_work(Entry& entry) const {
    const PrefillRequest& request = entry.request;
    entry.length_class = prefill_class(request.total_tokens);
    entry.work = prefill_work(std::min(request.total_tokens, kContextTokensMax), request.hit_tokens,
                              request.is_window_found);
    entry.blocks = blocks_of(entry.work.context + entry.work.tokens);
}

PrefillAdmission PrefillBalancer::admit(const PrefillRequest& request, std::int64_t now_us) {
    Entry entry;
    entry.request = request;
    set_work(entry);
    const double cost_us =
        settings_.costs[entry.length_class].request_us(entry.work.context, entry.work.tokens, true);
    entry.cost_us = std::llround(std::min(cost_us, kCostMaxUs));
    const PrefillAdmission admission = judge(request, entry.cost_us, entry.blocks);
    const std::uint64_t digest = Digest()
                                     .add(request.id)
                                     .add(request.total_tokens)
                                     .add(request.hit_tokens)
                                     .add(request.is_window_found)
                                     .add(request.deadline_us)
                                     .add(request.priority)
                                     .add(request.is_over_tenant_limit)
                                     .value();
    const auto id = static_cast<std::int64_t>(request.id);
    log_.note(DecisionKind::prefill_admission, admission.reason, entry.length_class, now_us, digest,
              {id, std::llround(std::min(admission.ttft_us, 1e15)), entry.cost_us, entry.blocks,
               admission.shed_id ? static_cast<std::int64_t>(*admission.shed_id) : -1});
    if (admission.shed_id) erase(*admission.shed_id);
    if (!admission.is_accepted) return admission;

    if (entry.request.deadline_us == 0) entry.request.deadline_us = now_us;
    entry.since_us = now_us;
    entry.order = order_next_++;
    queues_[entry.length_class].arrived_us += usable_us(entry);
    entries_.insert(request.id, entry);
    enqueue(request.id);
    by_admission_.push_back(request.id);
    return admission;
}

void PrefillBalancer::tick(std::int64_t now_us, std::vector<std::uint64_t>* closed) {
    for (std::size_t e = 0; e < engines_.size(); ++e) {
        Engine& engine = engines_[e];
        if (!engine.is_live || now_us - engine.heard_us <= settings_.lease_us) continue;
        close_grants(engine, PrefillReason::lease_expired, now_us);
        engine.is_live = false;
        count_live();
        served_by_ = serving_classes(live_.engines);
    }
    while (!by_admission_.empty()) {
        const std::uint64_t id = by_admission_.front();
        const Entry* found = entries_.find(id);
        const bool is_waiting = found != nullptr && !found->engine && !found->is_front;
        if (is_waiting) {
            if (now_us - found->since_us <= settings_.start_limit_us) break;
            log_.note(DecisionKind::prefill_return, PrefillReason::never_started, 0, now_us, 0,
                      {static_cast<std::int64_t>(id), 0, 0, 0, 0});
            erase(id);
            closed->push_back(id);
        }
        by_admission_.pop_front();
    }
    if (now_us >= round_end_us_) divide(now_us);
}

void PrefillBalancer::divide(std::int64_t now_us) {
    DivisionInput input;
    input.previous = live_.engines;
    double backlog = 0;
    std::int64_t ranks = 0;
    for (std::size_t k = 0; k < kPrefillClasses; ++k) {
        Queue& queue = queues_[k];
        input.demand_us[k] = queue.arrived_us + queue.usable_us;
        input.engines += input.previous[k];
        backlog += static_cast<double>(queue.cost_us);
        ranks += live_ranks(k);
        queue.used_before_us = queue.used_us;
        queue.offered_before_us = live_ranks(k) * settings_.round_us;
        queue.used_us = queue.arrived_us = 0;
    }
    // What was granted and is not finished keeps its engine for a round more, at most.
    for (const Engine& engine : engines_) {
        for (const std::uint64_t id : engine.granted) {
            const Entry& entry = entries_.at(id);
            input.demand_us[entry.length_class] += usable_us(entry);
        }
    }
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        input.demand_us[k] =
            std::llround(static_cast<double>(input.demand_us[k]) * settings_.headroom[k]);
    round_end_us_ = now_us + settings_.round_us;
    const bool is_urgent = backlog > settings_.urgent_backlog_us * static_cast<double>(ranks);
    input.is_limited = has_divided_ && !is_urgent;
    const bool has_demand = std::any_of(input.demand_us.begin(), input.demand_us.end(),
                                        [](std::int64_t d) { return d > 0; });
    has_divided_ = has_divided_ || (has_demand && input.engines > 0);
    const Division division = divide_engines(input);
    relabel(division.engines, now_us);
    served_by_ = division.served_by;
}

// Engines that already work on the class change first, so that a giant's lock step is not that of
// short prompts; then those that are closest to empty. What was granted stays where it is.
std::vector<PrefillBalancer::Engine*> PrefillBalancer::nearest_to(std::size_t length_class,
                                                                  const ClassCounts& spare) {
    struct Candidate {
        std::int64_t granted_us = 0;
        Engine* engine = nullptr;
    };
    std::vector<Candidate> candidates;
    for (Engine& engine : engines_) {
        if (!engine.is_live || spare[engine.serves] <= 0) continue;
        Candidate one{.granted_us = 0, .engine = &engine};
        for (const std::uint64_t id : engine.granted)
            if (entries_.at(id).length_class == length_class)
                one.granted_us += entries_.at(id).cost_us;
        candidates.push_back(one);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                         if (a.granted_us != b.granted_us) return a.granted_us > b.granted_us;
                         return a.engine->backlog_us < b.engine->backlog_us;
                     });
    std::vector<Engine*> engines;
    for (const Candidate& one : candidates)
        engines.push_back(one.engine);
    return engines;
}

void PrefillBalancer::relabel(const ClassCounts& counts, std::int64_t now_us) {
    ClassCounts gap = live_.engines;
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        gap[k] -= counts[k];
    std::int64_t changes = 0;
    for (std::size_t to = 0; to < kPrefillClasses; ++to) {
        if (gap[to] >= 0) continue;
        // Sources only dry up while one class fills, so one order serves all of its moves.
        for (Engine* engine : nearest_to(to, gap)) {
            if (gap[to] == 0) break;
            if (gap[engine->serves] <= 0) continue;
            --gap[engine->serves];
            engine->serves = to;
            ++gap[to];
            ++changes;
        }
        FATHOM_CHECK(gap[to] == 0);  // both sides add up to the live engines
    }
    count_live();
    const Digest digest =
        Digest().add(counts[0]).add(counts[1]).add(counts[2]).add(counts[3]).add(changes);
    log_.note(DecisionKind::prefill_division, PrefillReason::round, 0, now_us, digest.value(),
              {counts[0], counts[1], counts[2], counts[3], changes});
}

}  // namespace fathom
