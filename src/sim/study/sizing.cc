#include "sim/study/sizing.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "sim/fleet/bound.h"
#include "sim/fleet/fleet.h"
#include "sim/fleet/kv_model.h"

namespace fathom {
namespace {

constexpr int kHalvings = 6;

// A trace as calls, with what an unlimited fleet would have found in the pool.
Result<std::vector<SessionCall>> book_of_trace(const FleetConfig& config) {
    WorkloadConfig one = config.workload;
    one.trace_clones = 1;
    FATHOM_ASSIGN(const auto trace, open_trace_workload(one, config.seed));
    KvModel kv(config, 0);
    std::vector<SessionCall> book;
    Arrival arrival;
    while (static_cast<std::int64_t>(book.size()) < kSessionBookCalls) {
        FATHOM_ASSIGN(const bool more, trace->next(arrival));
        if (!more || static_cast<double>(arrival.time_ns) >= config.duration_s * 1e9) break;
        const PoolHit hit = kv.look_up(arrival);
        (void)kv.store(arrival, arrival.time_ns, hit.tokens);
        book.push_back({.input_tokens = static_cast<std::int32_t>(arrival.input_tokens),
                        .output_tokens = static_cast<std::int32_t>(arrival.output_tokens),
                        .reusable_tokens = static_cast<std::int32_t>(hit.tokens),
                        .shared_tokens = static_cast<std::int32_t>(hit.tokens),
                        .gap_us = 0,
                        .traffic = arrival.traffic,
                        .is_first = true});
    }
    if (book.empty())
        return invalid_argument("workload.trace: {} has no request within sim.duration_s, {}",
                                config.workload.trace, config.duration_s);
    return book;
}

class Sizing {
  public:
    Sizing(const SizingQuestion& question, const std::function<bool(std::int64_t)>& progress)
        : question_(question), progress_(progress) {}

    Result<SizingAnswer> answer() {
        const FleetConfig& base = question_.base;
        if (base.workload.source == WorkloadSource::trace) {
            FATHOM_ASSIGN(book_, book_of_trace(base));
        } else {
            book_ = write_session_book(base.workload, base.seed, kSessionBookCalls);
        }
        FATHOM_RETURN_IF_ERROR(find_candidates());
        FATHOM_RETURN_IF_ERROR(run_candidates());
        FATHOM_RETURN_IF_ERROR(run_neighbours());
        FATHOM_RETURN_IF_ERROR(run_without());
        return std::move(answer_);
    }

  private:
    struct Candidate {
        FleetConfig config;
        double bound = 0;
    };

    Result<FleetConfig> sized(std::int64_t prefill_ranks, std::int64_t decode_ranks) const {
        FleetConfig config = question_.base;
        FATHOM_RETURN_IF_ERROR(set_prefill_ranks(config, prefill_ranks));
        FATHOM_RETURN_IF_ERROR(set_decode_ranks(config, decode_ranks));
        return config;
    }
    // Decode gets what is left; false when that is no group.
    bool split(FleetConfig& config, std::int64_t engines) const {
        config.prefill.engines = engines;
        config.decode.groups =
            (question_.cards - engines * config.prefill.ranks) / config.decode.ranks;
        return engines >= 1 && config.decode.groups >= 1;
    }

    // Of each pair of sizes the split with the best bound.
    Status find_candidates() {
        for (const std::int64_t p : question_.prefill_ranks) {
            for (const std::int64_t d : question_.decode_ranks) {
                auto config = sized(p, d);
                if (!config.ok()) {
                    const std::string why = config.status().message();
                    if (std::find(answer_.impossible.begin(), answer_.impossible.end(), why) ==
                        answer_.impossible.end())
                        answer_.impossible.push_back(why);
                    continue;
                }
                Candidate best;
                config->prefill.engines = config->decode.groups = 1;
                const BoundRates one = bound_rates(*config, book_);
                for (std::int64_t engines = 1; split(*config, engines); ++engines) {
                    const double bound =
                        std::min(one.prefill * static_cast<double>(engines),
                                 one.decode * static_cast<double>(config->decode.groups));
                    if (bound > best.bound) best = {*config, bound};
                }
                if (best.bound > 0) candidates_.push_back(std::move(best));
            }
        }
        if (candidates_.empty())
            return error(StatusCode::resource_exhausted,
                         "plan.cards: {} cards hold no engine of any size of plan.prefill_ep and "
                         "group of plan.decode_ep{}{}",
                         question_.cards, answer_.impossible.empty() ? "" : "; ",
                         answer_.impossible.empty() ? "" : answer_.impossible.front());
        std::stable_sort(candidates_.begin(), candidates_.end(),
                         [](const Candidate& a, const Candidate& b) { return a.bound > b.bound; });
        const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, question_.candidates));
        if (candidates_.size() > most) candidates_.resize(most);
        return {};
    }

    Status run_candidates() {
        for (const Candidate& candidate : candidates_) {
            FATHOM_ASSIGN(SizingRow row, measure(candidate.config, candidate.bound));
            answer_.candidates.push_back(std::move(row));
        }
        sort();
        return {};
    }

    void sort() {
        std::stable_sort(
            answer_.candidates.begin(), answer_.candidates.end(),
            [](const SizingRow& a, const SizingRow& b) { return a.capacity > b.capacity; });
    }

    Result<FleetConfig> config_of(const SizingRow& row) const {
        FATHOM_ASSIGN(FleetConfig config, sized(row.prefill_ranks, row.decode_ranks));
        config.prefill.engines = row.engines;
        config.decode.groups = row.groups;
        return config;
    }

    // The bound knows nothing of queues: a card more here or there may be better.
    Status run_neighbours() {
        const SizingRow best = answer_.best();
        for (const std::int64_t step : {-1, 1}) {
            FATHOM_ASSIGN(FleetConfig config, config_of(best));
            if (!split(config, best.engines + step)) continue;
            FATHOM_ASSIGN(SizingRow row, measure(config, bound_rates(config, book_).both()));
            answer_.candidates.push_back(std::move(row));
        }
        sort();
        return {};
    }

    Status run_without() {
        const auto without = [&](const char* name, auto change) -> Status {
            FATHOM_ASSIGN(FleetConfig config, config_of(answer_.best()));
            change(config);
            FATHOM_ASSIGN(SizingRow row, measure(config, bound_rates(config, book_).both()));
            row.name = name;
            answer_.without.push_back(std::move(row));
            return {};
        };
        FATHOM_RETURN_IF_ERROR(without("drafts (DSpark)", [](FleetConfig& config) {
            config.decode.speculation.clear();
            config.decode.drafts.count = 0;
        }));
        FATHOM_RETURN_IF_ERROR(
            without("a shared pool", [](FleetConfig& config) { config.pool.is_enabled = false; }));
        FATHOM_RETURN_IF_ERROR(without("answers in the pool", [](FleetConfig& config) {
            config.pool.is_output_persisted = false;
        }));
        FATHOM_RETURN_IF_ERROR(without(
            "steps cut at B*", [](FleetConfig& config) { config.prefill.is_adaptive = false; }));
        return without("balanced experts", [](FleetConfig& config) {
            for (PrefillCost& cost : config.prefill.policy.costs)
                cost.moe_balance = std::max(cost.moe_balance, 1.3);
            config.decode.policy.cost.moe_balance = 1.6;
            config.experts.is_balanced = false;  // where moe_lb is not those constants
        });
    }

    Result<FleetResult> run(FleetConfig config, double rate) {
        ++answer_.runs;
        if (progress_ && !progress_(answer_.runs))
            return error(StatusCode::cancelled, "the plan was interrupted");
        if (config.workload.source == WorkloadSource::trace)
            config.workload.trace_clones = std::max<std::int64_t>(1, std::llround(rate));
        else
            config.workload.rate = rate;
        return run_fleet(config);
    }

    bool is_within(const FleetResult& result) const {
        const auto counted = static_cast<double>(result.all.finished + result.counted.rejected +
                                                 result.counted.closed);
        return result.all.finished > 0 && is_steady(result) &&
               static_cast<double>(result.all.within_slo) >= question_.slo_share * counted;
    }

    // Requests in flight must not have grown by more than 2 % of those that came in the second half
    // of the measured time (and not by what chance does to their number): what is late then has
    // not ended, and no SLO counts it.
    static bool is_steady(const FleetResult& result) {
        if (result.series.empty()) return false;
        const double from_s = (result.config.warmup_s + result.config.duration_s) / 2;
        const auto middle = std::find_if(result.series.begin(), result.series.end(),
                                         [&](const FleetSample& s) { return s.at_s >= from_s; });
        if (middle == result.series.end()) return false;
        const FleetSample& last = result.series.back();
        const auto grown = static_cast<double>(last.in_flight - middle->in_flight);
        const double came = result.rate * (last.at_s - middle->at_s);
        return grown <= 0.02 * came + 3 * std::sqrt(2.0 * static_cast<double>(last.in_flight));
    }

    // Halves the distance between a rate that is borne and one that is not; sessions by requests a
    // second, traces by copies.
    Result<SizingRow> measure(const FleetConfig& config, double bound) {
        SizingRow row = describe(config, bound);
        const bool is_trace = config.workload.source == WorkloadSource::trace;
        const double of_one = is_trace ? trace_rate() : 1;
        double low = 0, high = std::max(bound / of_one, is_trace ? 2.0 : 0.0);
        for (int i = 0; i < kHalvings; ++i) {
            double rate = i == 0 ? 0.75 * high : (low + high) / 2;
            if (is_trace) rate = std::max(1.0, std::round(rate));
            if (rate <= low || (rate >= high && i > 0)) break;
            FATHOM_ASSIGN(const FleetResult result, run(config, rate));
            if (!is_within(result)) {
                high = rate;
                continue;
            }
            low = rate;
            fill(row, result);
        }
        return row;
    }

    double trace_rate() const {
        return static_cast<double>(book_.size()) / question_.base.duration_s;
    }

    SizingRow describe(const FleetConfig& config, double bound) const {
        SizingRow row;
        row.prefill_ranks = config.prefill.ranks;
        row.engines = config.prefill.engines;
        row.decode_ranks = config.decode.ranks;
        row.groups = config.decode.groups;
        row.bound = bound;
        row.name = fmt::format("{} x EP{} + {} x EP{}", row.engines, row.prefill_ranks, row.groups,
                               row.decode_ranks);
        return row;
    }

    void fill(SizingRow& row, const FleetResult& result) const {
        const double seconds = std::max(result.measured_s, 1e-9);
        row.capacity = static_cast<double>(result.counted.arrived) / seconds;
        row.tokens_s =
            static_cast<double>(result.served.input_tokens + result.served.output_tokens) / seconds;
        // Cards that fit into no group are paid for as well.
        const double paid =
            static_cast<double>(question_.cards) / static_cast<double>(result.config.cards());
        row.usd_per_million = result.cost_per_million() * paid;
        row.usd_revenue_hour =
            result.revenue_per_card_hour() * static_cast<double>(result.config.cards());
        row.ttft_p99_ms = result.all.ttft_ms.percentile(0.99);
        row.tpot_p99_ms = result.all.tpot_ms.percentile(0.99);
        row.hit_share = result.hit_share();
        row.efficiency = result.efficiency();
    }

    SizingQuestion question_;
    std::function<bool(std::int64_t)> progress_;
    std::vector<SessionCall> book_;
    std::vector<Candidate> candidates_;
    SizingAnswer answer_;
};

}  // namespace

Result<SizingAnswer> size_fleet(const SizingQuestion& question,
                                const std::function<bool(std::int64_t)>& progress) {
    return Sizing(question, progress).answer();
}

}  // namespace fathom
