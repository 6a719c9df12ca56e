// Prefill dispatch on a fleet in virtual time: the same prompts, pushed to ranks by one of the
// usual rules or pulled through the real balancer. 16 engines of 4 ranks, τ = 250 ms and a fixed
// cost of 3 % of it (serving.md 2.1.4, 2.1.5). Three runs:
//
//   prefill.burst     1.3 times the capacity arrives for 3 s and is worked off; everything counts
//   prefill.overload  the same load for 30 s; counted from 5 s on, while the backlog stands, and
//                     beside it (.whole) with its start and the work-off after its end
//   prefill.burst_64k  the same with no prompt of more than 64 K tokens
//   prefill.nominal   0.85 times the capacity, counted as prefill.overload
//
// The specification does not say which prompts its prototype had. These have the lengths and the
// mean hit that it gives for a public conversation trace (4.3): log-normal with median 6,909 and
// mean 12,035 tokens, at most 126,000; hits of 0 to 74.8 %, 37.4 % in the mean.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "bench/policy_benches.h"
#include "policy/prefill_balancer.h"

namespace fathom::bench {
namespace {

constexpr std::size_t kEngines = 16, kRanksEach = 4, kRanks = kEngines * kRanksEach;
constexpr double kTauUs = 250e3;
constexpr std::int64_t kChunkTokens = 16'384;  // a fixed chunk of about τ without context
constexpr double kMedianTokens = 6909, kMeanTokens = 12'035;
constexpr std::int64_t kTokensMax = 126'000;
constexpr double kHitMost = 0.748;
constexpr std::int64_t kSessions = 400;
constexpr double kZipf = 1.35;
constexpr double kSpillUs = 500e3;  // backlog a rank beyond which affinity goes elsewhere
constexpr double kPollUs = 5000;    // an engine without work asks again

PrefillCost fleet_cost() {
    PrefillCost cost;  // about 60,000 tokens a second and rank
    cost.k0_us = 6000;
    cost.k1_us = 15;
    cost.k2_us = 2e-5;
    cost.k3_us = 0.01;
    cost.k4_us = 1500;
    cost.k5_us = 200;
    cost.sync_us = 1500;
    return cost;
}

struct Setting {
    double load = 1.3;
    double arrivals_us = 3e6;
    double from_us = 0;  // of the measured window; it ends with the arrivals
    bool has_window = false;
    std::int64_t tokens_max = kTokensMax;
};

struct Prompt {
    double at_us = 0;
    std::int64_t total = 0, hit = 0;
    std::size_t session = 0;
    PrefillWork work;
    double cost_us = 0;
    double done_us = 0;
    double useful_share = 1;  // of its work; the rest is what a hit would have spared
};

std::vector<Prompt> make_prompts(const Setting& setting) {
    RandomStream random(20261130);
    std::vector<double> zipf;
    double all = 0;
    for (std::int64_t s = 0; s < kSessions; ++s)
        zipf.push_back(all += std::pow(static_cast<double>(s + 1), -kZipf));
    std::vector<Prompt> prompts;
    const double work_us = setting.load * static_cast<double>(kRanks) * setting.arrivals_us;
    const double sigma = std::sqrt(2 * std::log(kMeanTokens / kMedianTokens));
    double sum_us = 0;
    const PrefillCost cost = fleet_cost();
    while (sum_us < work_us) {
        Prompt prompt;
        const double length = kMedianTokens * std::exp(sigma * random.next_normal());
        prompt.total =
            std::clamp<std::int64_t>(static_cast<std::int64_t>(length), 16, setting.tokens_max);
        const double share = kHitMost * random.next_uniform();
        prompt.hit = static_cast<std::int64_t>(share * static_cast<double>(prompt.total));
        const double draw = random.next_uniform() * all;
        prompt.session = static_cast<std::size_t>(std::lower_bound(zipf.begin(), zipf.end(), draw) -
                                                  zipf.begin());
        prompt.at_us = random.next_uniform() * setting.arrivals_us;
        prompt.work = prefill_work(prompt.total, prompt.hit, true);
        prompt.cost_us = cost.request_us(prompt.work.context, prompt.work.tokens, true);
        sum_us += prompt.cost_us;
        prompts.push_back(prompt);
    }
    std::sort(prompts.begin(), prompts.end(),
              [](const Prompt& a, const Prompt& b) { return a.at_us < b.at_us; });
    return prompts;
}

enum class Place {
    round_robin,
    two_choices,
    requests,
    tokens,
    cost,
    home,         // always the session's engine
    home_spill,   // elsewhere when that is busy: a miss, without a shared pool
    home_shared,  // elsewhere when that is busy: a hit, from a shared pool
    pull,
};
enum class Steps {
    chunks,    // a fixed number of tokens a rank, in order of arrival
    arrival,   // τ filled in order of arrival
    tau,       // τ filled by the planner
    adaptive,  // B* filled by the planner
};
struct Rule {
    std::string name;
    Place place = Place::pull;
    Steps steps = Steps::adaptive;
    bool is_stealing = true;
    double patience = 0;  // a prompt lets shorter ones pass for so many times its own cost
};

struct Measured {
    double work_us = 0, useful_us = 0, busy_us = 0, span_us = 0;
    double efficiency() const { return busy_us > 0 ? work_us / busy_us : 0; }
    double utilisation() const { return useful_us / (span_us * static_cast<double>(kRanks)); }
};
struct Waits {
    double p50_s = 0, p99_s = 0, short_p50_s = 0, long_p99_s = 0;
};

class Fleet {
  public:
    Fleet(std::vector<Prompt> prompts, const Setting& setting, const Rule& rule)
        : prompts_(std::move(prompts)),
          setting_(setting),
          rule_(rule),
          balancer_(settings(rule)),
          random_(7) {
        costs_.fill(fleet_cost());
        for (std::size_t e = 0; e < kEngines; ++e) {
            engines_[e].jobs.resize(kRanksEach);
            balancer_.join(e, 1, {.ranks = kRanksEach, .blocks_per_rank = 1 << 20}, 0);
        }
    }

    void run() {
        std::size_t next = 0;
        while (done_ < prompts_.size()) {
            std::size_t first = 0;
            for (std::size_t e = 1; e < kEngines; ++e)
                if (engines_[e].until_us < engines_[first].until_us) first = e;
            const double now_us = engines_[first].until_us;
            for (; next < prompts_.size() && prompts_[next].at_us <= now_us; ++next)
                arrive(next);
            std::vector<std::uint64_t> closed;
            balancer_.tick(static_cast<std::int64_t>(now_us), &closed);
            advance(first, now_us);
        }
        whole_.span_us = last_us_;
        window_.span_us = setting_.arrivals_us - setting_.from_us;
    }

    const Measured& whole() const { return whole_; }
    const Measured& window() const { return window_; }
    // Of the prompts that came after the window's start.
    Waits waits() const {
        std::vector<double> all, shorts, longs;
        for (const Prompt& prompt : prompts_) {
            if (prompt.at_us < setting_.from_us) continue;
            const double wait_s = (prompt.done_us - prompt.at_us) * 1e-6;
            all.push_back(wait_s);
            const std::size_t k = prefill_class(prompt.total);
            if (k == 0) shorts.push_back(wait_s);
            if (k >= 2) longs.push_back(wait_s);
        }
        const auto part = [](std::vector<double>& values, std::size_t percent) {
            if (values.empty()) return 0.0;
            std::sort(values.begin(), values.end());
            return values[values.size() * percent / 100];
        };
        return {.p50_s = part(all, 50),
                .p99_s = part(all, 99),
                .short_p50_s = part(shorts, 50),
                .long_p99_s = part(longs, 99)};
    }

  private:
    struct Engine {
        double until_us = 0;
        std::vector<std::vector<PrefillJob>> jobs;
        PrefillStepPlanner planner;
    };

    static PrefillSettings settings(const Rule& rule) {
        PrefillSettings settings;
        settings.costs.fill(fleet_cost());
        settings.tau_us.fill(kTauUs);
        settings.lease_us = 1'000'000'000;
        settings.is_stealing = rule.is_stealing;
        return settings;
    }
    bool is_pull() const { return rule_.place == Place::pull; }

    double job_us(const PrefillJob& job) const {
        return costs_[0].request_us(job.rest.context, job.rest.tokens, job.rest.first);
    }
    double rank_us(std::size_t rank) const {
        double sum = 0;
        for (const PrefillJob& job : engines_[rank / kRanksEach].jobs[rank % kRanksEach])
            sum += job_us(job);
        return sum;
    }
    double measure(std::size_t rank) const {
        const auto& jobs = engines_[rank / kRanksEach].jobs[rank % kRanksEach];
        if (rule_.place == Place::requests || rule_.place == Place::two_choices)
            return static_cast<double>(jobs.size());
        if (rule_.place != Place::tokens) return rank_us(rank);
        double tokens = 0;
        for (const PrefillJob& job : jobs)
            tokens += static_cast<double>(job.rest.tokens);
        return tokens;
    }
    // Of ranks [first, first + count).
    std::size_t least(std::size_t first, std::size_t count) const {
        std::size_t best = first;
        double best_value = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t r = first + (i + turn_) % count;
            const double value = measure(r);
            if (i > 0 && value >= best_value) continue;
            best = r;
            best_value = value;
        }
        return best;
    }

    // A prefix lies with an engine; within it the cheapest rank is taken.
    std::size_t by_affinity(Prompt& prompt) {
        const std::size_t home = (prompt.session * 7) % kEngines * kRanksEach;
        const std::size_t rank = least(home, kRanksEach);
        if (rule_.place == Place::home || rank_us(rank) < kSpillUs) return rank;
        const std::size_t other = least(0, kRanks);
        const bool is_away = other / kRanksEach != home / kRanksEach;
        if (is_away && rule_.place == Place::home_spill) {
            prompt.work = prefill_work(prompt.total, 0, true);
            prompt.useful_share =
                prompt.cost_us / costs_[0].request_us(0, prompt.work.tokens, true);
        }
        return other;
    }

    std::size_t choose(Prompt& prompt) {
        ++turn_;
        switch (rule_.place) {
            case Place::round_robin:
                return turn_ % kRanks;
            case Place::two_choices: {
                const auto a = static_cast<std::size_t>(random_.next_below(kRanks));
                const auto b = static_cast<std::size_t>(random_.next_below(kRanks));
                return measure(a) <= measure(b) ? a : b;
            }
            case Place::home:
            case Place::home_spill:
            case Place::home_shared:
                return by_affinity(prompt);
            default:
                return least(0, kRanks);
        }
    }

    void arrive(std::size_t i) {
        Prompt& prompt = prompts_[i];
        if (is_pull()) {
            PrefillRequest request;
            request.id = i;
            request.total_tokens = prompt.total;
            request.hit_tokens = prompt.hit;
            request.deadline_us =
                static_cast<std::int64_t>(prompt.at_us + rule_.patience * prompt.cost_us);
            balancer_.admit(request, static_cast<std::int64_t>(prompt.at_us));
            return;
        }
        const std::size_t rank = choose(prompt);
        engines_[rank / kRanksEach].jobs[rank % kRanksEach].push_back(job_of(i));
    }

    PrefillJob job_of(std::size_t i) const {
        const PrefillWork& work = prompts_[i].work;
        return {.id = i,
                .length_class = prefill_class(prompts_[i].total),
                .rest = {.context = work.context, .tokens = work.tokens}};
    }

    void pull(std::size_t e, double now_us) {
        std::vector<PrefillRankReport> reports(kRanksEach);
        for (std::size_t r = 0; r < kRanksEach; ++r) {
            reports[r].free_blocks = 1 << 20;
            for (const PrefillJob& job : engines_[e].jobs[r]) {
                const double us = job_us(job);
                reports[r].backlog_us += us;
                if (us > kTauUs) reports[r].giant_us += us;
            }
        }
        std::vector<PrefillGrant> grants;
        balancer_.pull({.engine = e, .epoch = 1, .credits = 1000, .ranks = reports},
                       static_cast<std::int64_t>(now_us), &grants);
        for (const PrefillGrant& grant : grants)
            engines_[e].jobs[static_cast<std::size_t>(grant.rank)].push_back(job_of(grant.id));
    }

    // In order of arrival: a number of tokens a rank, or what fits in τ.
    std::vector<PlannedSlice> in_order(std::size_t e) const {
        std::vector<PlannedSlice> slices;
        for (std::size_t r = 0; r < kRanksEach; ++r) {
            std::int64_t left = rule_.steps == Steps::chunks ? kChunkTokens : kStepRowsMax;
            double used_us = 0;
            const auto& jobs = engines_[e].jobs[r];
            for (std::size_t j = 0; j < jobs.size() && left > 0; ++j) {
                const PrefillRest& rest = jobs[j].rest;
                const std::int64_t tokens =
                    rule_.steps == Steps::chunks
                        ? std::min(left, rest.tokens)
                        : fit_slice(costs_[0], kTauUs - used_us, rest, left, used_us == 0);
                if (tokens == 0) break;
                slices.push_back({.rank = r, .job = j, .tokens = tokens});
                left -= tokens;
                used_us += costs_[0].slice_us({.context = rest.context,
                                               .tokens = tokens,
                                               .first = rest.first,
                                               .last = tokens == rest.tokens});
            }
        }
        return slices;
    }

    std::vector<PlannedSlice> plan(std::size_t e) {
        Engine& engine = engines_[e];
        if (rule_.steps == Steps::chunks || rule_.steps == Steps::arrival) return in_order(e);
        return engine.planner.plan(costs_, kTauUs, engine.jobs, rule_.steps == Steps::adaptive)
            .slices;
    }

    void advance(std::size_t e, double now_us) {
        Engine& engine = engines_[e];
        if (is_pull()) pull(e, now_us);
        const std::vector<PlannedSlice> slices = plan(e);
        if (slices.empty()) {
            engine.until_us = now_us + kPollUs;
            return;
        }
        std::array<double, kRanksEach> rank_us{};
        Measured step;
        for (const PlannedSlice& slice : slices) {
            PrefillJob& job = engine.jobs[slice.rank][slice.job];
            PrefillRest& rest = job.rest;
            const double us = costs_[0].slice_us({.context = rest.context,
                                                  .tokens = slice.tokens,
                                                  .first = rest.first,
                                                  .last = slice.tokens == rest.tokens});
            rank_us[slice.rank] += us;
            step.work_us += us;
            step.useful_us += us * prompts_[job.id].useful_share;
            rest.context += slice.tokens;
            rest.tokens -= slice.tokens;
            rest.first = false;
        }
        const double step_us =
            *std::max_element(rank_us.begin(), rank_us.end()) + costs_[0].fixed_us();
        step.busy_us = step_us * kRanksEach;
        engine.until_us = now_us + step_us;
        last_us_ = std::max(last_us_, engine.until_us);
        count(step, 1, &whole_);
        // Of a step across an edge of the window, the part inside.
        const double inside_us =
            std::min(engine.until_us, setting_.arrivals_us) - std::max(now_us, setting_.from_us);
        count(step, std::max(0.0, inside_us / step_us), &window_);
        finish(engine, now_us);
    }

    static void count(const Measured& step, double part, Measured* into) {
        into->work_us += part * step.work_us;
        into->useful_us += part * step.useful_us;
        into->busy_us += part * step.busy_us;
    }

    void finish(Engine& engine, double now_us) {
        for (auto& jobs : engine.jobs) {
            std::erase_if(jobs, [&](const PrefillJob& job) {
                if (job.rest.tokens > 0) return false;
                prompts_[job.id].done_us = engine.until_us;
                if (is_pull()) balancer_.finish(job.id, 0, static_cast<std::int64_t>(now_us));
                ++done_;
                return true;
            });
        }
    }

    std::vector<Prompt> prompts_;
    Setting setting_;
    Rule rule_;
    PrefillBalancer balancer_;
    RandomStream random_;
    PrefillCosts costs_;
    std::array<Engine, kEngines> engines_;
    std::size_t turn_ = 0, done_ = 0;
    double last_us_ = 0;
    Measured whole_, window_;
};

void add_rows(Report& report, const std::string& name, const Fleet& fleet, bool has_window) {
    const Measured& measured = has_window ? fleet.window() : fleet.whole();
    const Waits waits = fleet.waits();
    report.add(name, measured.efficiency(), "of busy time");
    report.add(name + ".utilisation", measured.utilisation(), "of all time");
    if (has_window) {
        report.add(name + ".whole", fleet.whole().efficiency(), "of busy time");
        report.add(name + ".whole.utilisation", fleet.whole().utilisation(), "of all time");
    }
    report.add(name + ".p50_s", waits.p50_s, "s");
    report.add(name + ".p99_s", waits.p99_s, "s");
    report.add(name + ".short_p50_s", waits.short_p50_s, "s");
    report.add(name + ".long_p99_s", waits.long_p99_s, "s");
}

}  // namespace

void bench_policy_prefill(Report& report) {
    const std::vector<Rule> rules = {
        {.name = ""},
        {.name = ".pull_fixed_step", .steps = Steps::tau},
        {.name = ".pull_no_stealing", .is_stealing = false},
        {.name = ".pull_fixed_step_no_stealing", .steps = Steps::tau, .is_stealing = false},
        {.name = ".pull_by_deadline", .patience = 20},
        {.name = ".push_round_robin", .place = Place::round_robin, .steps = Steps::chunks},
        {.name = ".push_two_choices", .place = Place::two_choices, .steps = Steps::chunks},
        {.name = ".push_requests", .place = Place::requests, .steps = Steps::chunks},
        {.name = ".push_tokens", .place = Place::tokens, .steps = Steps::chunks},
        {.name = ".push_cost", .place = Place::cost, .steps = Steps::chunks},
        {.name = ".push_cost_budget", .place = Place::cost, .steps = Steps::arrival},
        {.name = ".push_cost_planner", .place = Place::cost, .steps = Steps::tau},
        {.name = ".push_cost_adaptive", .place = Place::cost, .steps = Steps::adaptive},
        {.name = ".affinity", .place = Place::home, .steps = Steps::chunks},
        {.name = ".affinity_spill_no_pool", .place = Place::home_spill, .steps = Steps::chunks},
        {.name = ".affinity_spill_pool", .place = Place::home_shared, .steps = Steps::chunks},
    };
    const std::vector<std::pair<std::string, Setting>> settings = {
        {"prefill.overload",
         {.load = 1.3, .arrivals_us = 30e6, .from_us = 5e6, .has_window = true}},
        {"prefill.burst", {.load = 1.3, .arrivals_us = 3e6}},
        {"prefill.burst_64k", {.load = 1.3, .arrivals_us = 3e6, .tokens_max = 64 << 10}},
        {"prefill.nominal",
         {.load = 0.85, .arrivals_us = 30e6, .from_us = 5e6, .has_window = true}},
    };
    for (const auto& [name, setting] : settings) {
        const std::vector<Prompt> prompts = make_prompts(setting);
        for (const Rule& rule : rules) {
            Fleet fleet(prompts, setting, rule);
            fleet.run();
            add_rows(report, name + rule.name, fleet, setting.has_window);
        }
    }
}

}  // namespace fathom::bench
