// A fleet in virtual time for tests: engines pull, plan steps, and finish what they computed. It
// checks what must hold at every step: no rank beyond its blocks, every slice within its request.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "policy/prefill_balancer.h"

namespace fathom::testing {

// About 60,000 tokens a second and rank.
inline PrefillCost some_prefill_cost() {
    PrefillCost cost;
    cost.k0_us = 6000;
    cost.k1_us = 15;
    cost.k2_us = 2e-5;
    cost.k3_us = 0.01;
    cost.k4_us = 1500;
    cost.k5_us = 200;
    cost.sync_us = 500;
    cost.moe_share = 0.4;
    cost.moe_balance = 1.06;
    return cost;
}

inline PrefillSettings some_prefill_settings() {
    PrefillSettings settings;
    settings.costs.fill(some_prefill_cost());
    return settings;
}

class PrefillFleet {
  public:
    struct Done {
        std::int64_t at_us = 0;
        std::int64_t tokens = 0;
    };

    PrefillFleet(const PrefillSettings& settings, std::size_t engines, const PrefillEngine& what)
        : settings_(settings), what_(what), balancer_(settings, 1 << 16), engines_(engines) {
        for (std::size_t e = 0; e < engines; ++e) {
            balancer_.join(e, 1, what, 0);
            engines_[e].ranks.resize(static_cast<std::size_t>(what.ranks));
            engines_[e].jobs.resize(engines_[e].ranks.size());
            for (Rank& rank : engines_[e].ranks)
                rank.free_blocks = what.blocks_per_rank;
        }
    }

    PrefillBalancer& balancer() { return balancer_; }
    const std::map<std::uint64_t, Done>& done() const { return done_; }
    std::int64_t now_us() const { return now_us_; }
    void admit_at(std::int64_t at_us, const PrefillRequest& request) {
        arrivals_.emplace(at_us, request);
    }
    bool is_idle() const {
        return arrivals_.empty() && balancer_.granted() == 0 &&
               std::all_of(kAll.begin(), kAll.end(),
                           [&](std::size_t k) { return balancer_.waiting(k) == 0; });
    }
    // Until everything is done or limit_us has passed.
    void run(std::int64_t limit_us) {
        while (!is_idle() && now_us_ < limit_us) {
            while (!arrivals_.empty() && arrivals_.begin()->first <= now_us_) {
                balancer_.admit(arrivals_.begin()->second, now_us_);
                arrivals_.erase(arrivals_.begin());
            }
            balancer_.tick(now_us_, &closed);
            for (std::size_t e = 0; e < engines_.size(); ++e)
                if (engines_[e].until_us <= now_us_ && balancer_.is_live(e)) advance(e);
            now_us_ += kQuantumUs;
        }
    }

    std::vector<std::uint64_t> closed;
    double most_backlog_us = 0;  // of a rank without a giant
    // Steps that left a rank without work while a prompt of its engine's class went on waiting.
    int idle_beside_waiting = 0;

  private:
    static constexpr std::int64_t kQuantumUs = 10'000;
    static constexpr std::array<std::size_t, 4> kAll = {0, 1, 2, 3};
    struct Rank {
        std::int64_t free_blocks = 0;
        std::vector<PrefillGrant> grants;  // beside jobs
    };
    struct Engine {
        std::int64_t until_us = 0;
        std::vector<Rank> ranks;
        std::vector<std::vector<PrefillJob>> jobs;
        PrefillStepPlanner planner;
    };

    static std::int64_t blocks_of(const PrefillGrant& grant) {
        return (grant.work.context + grant.work.tokens + 127) / 128;
    }

    void advance(std::size_t e) {
        Engine& engine = engines_[e];
        pull(e);
        const bool has_idle = std::any_of(engine.jobs.begin(), engine.jobs.end(),
                                          [](const auto& jobs) { return jobs.empty(); });
        if (has_idle && balancer_.waiting(balancer_.class_of_engine(e)) > 0) ++idle_beside_waiting;
        const PrefillStep& step =
            engine.planner.plan(settings_.costs, balancer_.tau_us(e), engine.jobs);
        double longest_us = 0;
        for (const double us : step.rank_us)
            longest_us = std::max(longest_us, us);
        if (step.slices.empty()) return;
        engine.until_us = now_us_ + std::llround(longest_us + settings_.costs[0].fixed_us());
        for (const PlannedSlice& slice : step.slices) {
            PrefillRest& rest = engine.jobs[slice.rank][slice.job].rest;
            ASSERT_GT(slice.tokens, 0);
            ASSERT_LE(slice.tokens, rest.tokens);
            rest.context += slice.tokens;
            rest.tokens -= slice.tokens;
            rest.first = false;
            ASSERT_TRUE(rest.tokens == 0 || rest.context % 128 == 0);
        }
        for (std::size_t r = 0; r < engine.ranks.size(); ++r)
            finish(engine.ranks[r], engine.jobs[r], engine.until_us);
        balancer_.heartbeat(e, 1, now_us_);
    }

    void finish(Rank& rank, std::vector<PrefillJob>& jobs, std::int64_t at_us) {
        for (std::size_t j = jobs.size(); j-- > 0;) {
            if (jobs[j].rest.tokens > 0) continue;
            const PrefillGrant grant = rank.grants[j];
            ASSERT_TRUE(balancer_.finish(grant.id, grant.attempt, now_us_));
            ASSERT_TRUE(
                done_.emplace(grant.id, Done{.at_us = at_us, .tokens = grant.work.tokens}).second);
            rank.free_blocks += blocks_of(grant);
            jobs.erase(jobs.begin() + static_cast<std::ptrdiff_t>(j));
            rank.grants.erase(rank.grants.begin() + static_cast<std::ptrdiff_t>(j));
        }
    }

    void pull(std::size_t e) {
        Engine& engine = engines_[e];
        std::vector<PrefillRankReport> reports;
        for (std::size_t r = 0; r < engine.ranks.size(); ++r) {
            PrefillRankReport report;
            report.free_blocks = engine.ranks[r].free_blocks;
            for (const PrefillJob& job : engine.jobs[r]) {
                const double cost = settings_.costs[job.length_class].request_us(
                    job.rest.context, job.rest.tokens, job.rest.first);
                report.backlog_us += cost;
                if (cost > balancer_.tau_us(e)) report.giant_us += cost;
            }
            if (report.giant_us == 0)
                most_backlog_us = std::max(most_backlog_us, report.backlog_us);
            reports.push_back(report);
        }
        std::vector<PrefillGrant> grants;
        balancer_.pull({.engine = e, .epoch = 1, .credits = 64, .ranks = reports}, now_us_,
                       &grants);
        for (const PrefillGrant& grant : grants) {
            const auto r = static_cast<std::size_t>(grant.rank);
            engine.ranks[r].free_blocks -= blocks_of(grant);
            ASSERT_GE(engine.ranks[r].free_blocks, 0);
            engine.ranks[r].grants.push_back(grant);
            engine.jobs[r].push_back(
                {.id = grant.id,
                 .length_class = prefill_class(grant.work.context + grant.work.tokens),
                 .rest = {.context = grant.work.context, .tokens = grant.work.tokens}});
        }
    }

    PrefillSettings settings_;
    PrefillEngine what_;
    PrefillBalancer balancer_;
    std::vector<Engine> engines_;
    std::multimap<std::int64_t, PrefillRequest> arrivals_;
    std::map<std::uint64_t, Done> done_;
    std::int64_t now_us_ = 0;
};

}  // namespace fathom::testing
