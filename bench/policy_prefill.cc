// Prefill dispatch on a fleet in virtual time: the same prompts, pushed to ranks by one of the
// usual rules or pulled through the real balancer.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "base/random.h"
#include "bench/policy_benches.h"
#include "policy/prefill_balancer.h"

namespace fathom::bench {
namespace {

constexpr std::size_t kEngines = 16, kRanksEach = 4, kRanks = kEngines * kRanksEach;
constexpr double kTauUs = 250e3;
constexpr double kArrivalsUs = 10e6;           // only steps that start in this time are measured
constexpr std::int64_t kChunkTokens = 16'384;  // a fixed chunk of about τ without context
constexpr std::int64_t kSessions = 400;
constexpr double kZipf = 1.35;
constexpr double kSpillUs = 500e3;  // backlog beyond which an affinity router goes elsewhere

PrefillCost fleet_cost() {
    PrefillCost cost;  // about 60,000 tokens a second and rank
    cost.k0_us = 3000;
    cost.k1_us = 15;
    cost.k2_us = 2e-5;
    cost.k3_us = 0.01;
    cost.k4_us = 1500;
    cost.k5_us = 200;
    cost.sync_us = 500;
    return cost;
}

struct Prompt {
    double at_us = 0;
    std::int64_t total = 0, hit = 0;
    std::size_t session = 0;
    PrefillWork work;
    double cost_us = 0;
    double done_us = 0;
    double useful_share = 1;  // of its work; the rest is what a hit would have spared
};

// Lengths are log-normal (median 7,000 tokens), half to nearly all of a prompt is a hit.
std::vector<Prompt> make_prompts(double load) {
    RandomStream random(20261130);
    std::vector<double> zipf;
    double all = 0;
    for (std::int64_t s = 0; s < kSessions; ++s)
        zipf.push_back(all += std::pow(static_cast<double>(s + 1), -kZipf));
    std::vector<Prompt> prompts;
    const double work_us = load * static_cast<double>(kRanks) * kArrivalsUs;
    double sum_us = 0;
    const PrefillCost cost = fleet_cost();
    while (sum_us < work_us) {
        Prompt prompt;
        const double length = 7000 * std::exp(1.2 * random.next_normal());
        prompt.total = std::clamp<std::int64_t>(static_cast<std::int64_t>(length), 16, 900'000);
        const double share = 0.5 * random.next_uniform();
        prompt.hit = static_cast<std::int64_t>(share * static_cast<double>(prompt.total));
        const double draw = random.next_uniform() * all;
        prompt.session = static_cast<std::size_t>(std::lower_bound(zipf.begin(), zipf.end(), draw) -
                                                  zipf.begin());
        prompt.at_us = random.next_uniform() * kArrivalsUs;
        prompt.work = prefill_work(prompt.total, prompt.hit, true);
        prompt.cost_us = cost.request_us(prompt.work.context, prompt.work.tokens, true);
        sum_us += prompt.cost_us;
        prompts.push_back(prompt);
    }
    std::sort(prompts.begin(), prompts.end(),
              [](const Prompt& a, const Prompt& b) { return a.at_us < b.at_us; });
    return prompts;
}

enum class Rule {
    round_robin,
    requests,
    tokens,
    cost,
    cost_budget,
    affinity,         // always the session's rank
    affinity_spill,   // elsewhere when that is busy: a miss, without a shared pool
    affinity_shared,  // elsewhere when that is busy: a hit, from a shared pool
    pull,
    pull_adaptive,
};

struct Outcome {
    double efficiency = 0, utilisation = 0, p50_s = 0, p99_s = 0;
};

class Fleet {
  public:
    Fleet(std::vector<Prompt> prompts, Rule rule)
        : prompts_(std::move(prompts)), rule_(rule), balancer_(settings()) {
        costs_.fill(fleet_cost());
        for (std::size_t e = 0; e < kEngines; ++e) {
            engines_[e].jobs.resize(kRanksEach);
            balancer_.join(e, 1, {.ranks = kRanksEach, .blocks_per_rank = 1 << 20}, 0);
        }
    }

    Outcome run() {
        std::size_t next = 0;
        double now_us = 0;
        while (done_ < prompts_.size()) {
            std::size_t first = 0;
            for (std::size_t e = 1; e < kEngines; ++e)
                if (engines_[e].until_us < engines_[first].until_us) first = e;
            now_us = engines_[first].until_us;
            for (; next < prompts_.size() && prompts_[next].at_us <= now_us; ++next)
                arrive(next);
            std::vector<std::uint64_t> closed;
            balancer_.tick(static_cast<std::int64_t>(now_us), &closed);
            advance(first, now_us);
        }
        return outcome();
    }

  private:
    struct Engine {
        double until_us = 0;
        std::vector<std::vector<PrefillJob>> jobs;
        PrefillStepPlanner planner;
    };

    static PrefillSettings settings() {
        PrefillSettings settings;
        settings.costs.fill(fleet_cost());
        settings.tau_us.fill(kTauUs);
        settings.lease_us = 1'000'000'000;
        return settings;
    }
    bool is_pull() const { return rule_ == Rule::pull || rule_ == Rule::pull_adaptive; }

    double rank_us(std::size_t rank) const {
        double sum = 0;
        for (const PrefillJob& job : engines_[rank / kRanksEach].jobs[rank % kRanksEach])
            sum += costs_[0].request_us(job.rest.context, job.rest.tokens, job.rest.first);
        return sum;
    }
    double measure(std::size_t rank) const {
        const auto& jobs = engines_[rank / kRanksEach].jobs[rank % kRanksEach];
        if (rule_ == Rule::requests) return static_cast<double>(jobs.size());
        if (rule_ != Rule::tokens) return rank_us(rank);
        double tokens = 0;
        for (const PrefillJob& job : jobs)
            tokens += static_cast<double>(job.rest.tokens);
        return tokens;
    }

    std::size_t least() const {
        std::size_t best = 0;
        double best_value = 0;
        for (std::size_t i = 0; i < kRanks; ++i) {
            const std::size_t r = (i + turn_) % kRanks;
            const double value = measure(r);
            if (i > 0 && value >= best_value) continue;
            best = r;
            best_value = value;
        }
        return best;
    }

    void arrive(std::size_t i) {
        Prompt& prompt = prompts_[i];
        if (is_pull()) {
            PrefillRequest request;
            request.id = i;
            request.total_tokens = prompt.total;
            request.hit_tokens = prompt.hit;
            balancer_.admit(request, static_cast<std::int64_t>(prompt.at_us));
            return;
        }
        ++turn_;
        std::size_t rank = turn_ % kRanks;
        const std::size_t home = (prompt.session * 37) % kRanks;
        if (rule_ == Rule::affinity) {
            rank = home;
        } else if (rule_ == Rule::affinity_spill || rule_ == Rule::affinity_shared) {
            rank = rank_us(home) < kSpillUs ? home : least();
            if (rank != home && rule_ == Rule::affinity_spill) {
                prompt.work = prefill_work(prompt.total, 0, true);
                prompt.useful_share =
                    prompt.cost_us / costs_[0].request_us(0, prompt.work.tokens, true);
            }
        } else if (rule_ != Rule::round_robin) {
            rank = least();
        }
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
                const double us =
                    costs_[0].request_us(job.rest.context, job.rest.tokens, job.rest.first);
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

    // In order of arrival, a fixed number of tokens a rank.
    std::vector<PlannedSlice> fixed_chunks(std::size_t e) const {
        std::vector<PlannedSlice> slices;
        for (std::size_t r = 0; r < kRanksEach; ++r) {
            std::int64_t left = kChunkTokens;
            const auto& jobs = engines_[e].jobs[r];
            for (std::size_t j = 0; j < jobs.size() && left > 0; ++j) {
                const std::int64_t tokens = std::min(left, jobs[j].rest.tokens);
                slices.push_back({.rank = r, .job = j, .tokens = tokens});
                left -= tokens;
            }
        }
        return slices;
    }

    void advance(std::size_t e, double now_us) {
        Engine& engine = engines_[e];
        if (is_pull()) pull(e, now_us);
        const bool has_budget = is_pull() || rule_ == Rule::cost_budget;
        const std::vector<PlannedSlice> slices =
            has_budget
                ? engine.planner.plan(costs_, kTauUs, engine.jobs, rule_ == Rule::pull_adaptive)
                      .slices
                : fixed_chunks(e);
        if (slices.empty()) {
            engine.until_us = now_us + 5000;  // asks again
            return;
        }
        std::array<double, kRanksEach> rank_us{};
        double work_us = 0, useful_us = 0;
        for (const PlannedSlice& slice : slices) {
            PrefillJob& job = engine.jobs[slice.rank][slice.job];
            PrefillRest& rest = job.rest;
            const double us = costs_[0].slice_us({.context = rest.context,
                                                  .tokens = slice.tokens,
                                                  .first = rest.first,
                                                  .last = slice.tokens == rest.tokens});
            rank_us[slice.rank] += us;
            work_us += us;
            useful_us += us * prompts_[job.id].useful_share;
            rest.context += slice.tokens;
            rest.tokens -= slice.tokens;
            rest.first = false;
        }
        const double step_us =
            *std::max_element(rank_us.begin(), rank_us.end()) + costs_[0].fixed_us();
        engine.until_us = now_us + step_us;
        if (now_us < kArrivalsUs) {
            // Of a step beyond the end, the part before it.
            const double part = std::min(1.0, (kArrivalsUs - now_us) / step_us);
            work_us_ += part * work_us;
            useful_us_ += part * useful_us;
            busy_us_ += part * step_us * kRanksEach;
        }
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

    Outcome outcome() const {
        std::vector<double> waits;
        for (const Prompt& prompt : prompts_)
            waits.push_back((prompt.done_us - prompt.at_us) * 1e-6);
        std::sort(waits.begin(), waits.end());
        return {.efficiency = work_us_ / busy_us_,
                .utilisation = useful_us_ / (kArrivalsUs * static_cast<double>(kRanks)),
                .p50_s = waits[waits.size() / 2],
                .p99_s = waits[waits.size() * 99 / 100]};
    }

    std::vector<Prompt> prompts_;
    Rule rule_;
    PrefillBalancer balancer_;
    PrefillCosts costs_;
    std::array<Engine, kEngines> engines_;
    std::size_t turn_ = 0, done_ = 0;
    double work_us_ = 0, useful_us_ = 0, busy_us_ = 0;
};

}  // namespace

void bench_policy_prefill(Report& report) {
    const std::vector<std::pair<std::string, Rule>> rules = {
        {"", Rule::pull_adaptive},
        {".pull_fixed_step", Rule::pull},
        {".push_round_robin", Rule::round_robin},
        {".push_requests", Rule::requests},
        {".push_tokens", Rule::tokens},
        {".push_cost", Rule::cost},
        {".push_cost_budget", Rule::cost_budget},
        {".affinity", Rule::affinity},
        {".affinity_spill_no_pool", Rule::affinity_spill},
        {".affinity_spill_pool", Rule::affinity_shared},
    };
    for (const auto& [setting, load] :
         {std::pair<std::string, double>{"prefill.overload", 1.3}, {"prefill.nominal", 0.85}}) {
        const std::vector<Prompt> prompts = make_prompts(load);
        for (const auto& [name, rule] : rules) {
            const Outcome outcome = Fleet(prompts, rule).run();
            report.add(setting + name, outcome.efficiency, "of busy time");
            report.add(setting + name + ".utilisation", outcome.utilisation, "of all time");
            report.add(setting + name + ".p50_s", outcome.p50_s, "s");
            report.add(setting + name + ".p99_s", outcome.p99_s, "s");
        }
    }
}

}  // namespace fathom::bench
