#include "policy/prefill_balancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>

#include "policy/test_prefill_fleet.h"

namespace fathom {
namespace {

using testing::some_prefill_settings;

constexpr PrefillEngine kFourRanks{.ranks = 4, .blocks_per_rank = 16'384};
constexpr PrefillEngine kOneRank{.ranks = 1, .blocks_per_rank = 16'384};

std::vector<PrefillRankReport> idle(std::size_t ranks, std::int64_t blocks = 16'384) {
    PrefillRankReport report;
    report.free_blocks = blocks;
    return std::vector<PrefillRankReport>(ranks, report);
}

struct Pulled {
    PrefillReason reason = PrefillReason::fits_quota;
    std::vector<PrefillGrant> grants;
};
Pulled pull(PrefillBalancer& balancer, std::size_t engine,
            const std::vector<PrefillRankReport>& ranks, std::int64_t now_us = 0,
            std::int64_t credits = 64, std::int64_t epoch = 1) {
    Pulled pulled;
    pulled.reason =
        balancer.pull({.engine = engine, .epoch = epoch, .credits = credits, .ranks = ranks},
                      now_us, &pulled.grants);
    return pulled;
}

PrefillRequest prompt(std::uint64_t id, std::int64_t tokens, std::int64_t hit = 0) {
    PrefillRequest request;
    request.id = id;
    request.total_tokens = tokens;
    request.hit_tokens = hit;
    return request;
}

TEST(PrefillPull, FillsTheEmptiestRanksWithinTheirQuota) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kFourRanks, 0);
    for (std::uint64_t i = 0; i < 200; ++i)
        ASSERT_TRUE(balancer.admit(prompt(i, 4000), 0).is_accepted);
    const Pulled pulled = pull(balancer, 0, idle(4));
    std::array<double, 4> cost{};
    for (const PrefillGrant& grant : pulled.grants)
        cost[static_cast<std::size_t>(grant.rank)] += grant.cost_us;
    for (const double c : cost) {
        EXPECT_LE(c, 300e3);
        EXPECT_GE(c, 300e3 - 2 * pulled.grants[0].cost_us);
    }
    EXPECT_EQ(pulled.grants[0].id, 0U);  // in the order of arrival
    EXPECT_EQ(balancer.granted(), static_cast<std::int64_t>(pulled.grants.size()));
}

TEST(PrefillPull, SaysWhyNothingIsGranted) {
    PrefillBalancer balancer(some_prefill_settings());
    EXPECT_EQ(pull(balancer, 0, idle(1)).reason, PrefillReason::unknown_engine);
    balancer.join(0, 1, kOneRank, 0);
    EXPECT_EQ(pull(balancer, 0, idle(1)).reason, PrefillReason::nothing_waits);
    EXPECT_EQ(pull(balancer, 0, idle(2)).reason, PrefillReason::unknown_engine);
    EXPECT_EQ(pull(balancer, 0, idle(1), 0, 64, 0).reason, PrefillReason::stale_epoch);
    balancer.admit(prompt(1, 1000), 0);
    EXPECT_EQ(pull(balancer, 0, idle(1), 0, 0).reason, PrefillReason::no_credits);
    std::vector<PrefillRankReport> busy = idle(1);
    busy[0].backlog_us = 300e3;
    EXPECT_EQ(pull(balancer, 0, busy).reason, PrefillReason::no_quota);
    std::vector<PrefillRankReport> held = idle(1);
    held[0].held_blocks = 10'000;  // 61 %
    EXPECT_EQ(pull(balancer, 0, held).reason, PrefillReason::decode_full);
    EXPECT_EQ(pull(balancer, 0, idle(1, 7)).reason, PrefillReason::nothing_fits);
    EXPECT_EQ(pull(balancer, 0, idle(1, 8)).grants.size(), 1U);
}

TEST(PrefillPull, AGiantIsADebtOfANearlyIdleRank) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    balancer.admit(prompt(1, 600'000), 0);
    std::vector<PrefillRankReport> ranks = idle(1);
    ranks[0].backlog_us = balancer.tau_us(0) + 1;
    EXPECT_TRUE(pull(balancer, 0, ranks).grants.empty());
    ranks[0].backlog_us = balancer.tau_us(0) - 1;
    const Pulled pulled = pull(balancer, 0, ranks);
    ASSERT_EQ(pulled.grants.size(), 1U);
    EXPECT_EQ(pulled.grants[0].reason, PrefillReason::debt);
}

TEST(PrefillPull, AHeadThatIsPassedOverIsTakenByTheNextRankThatHoldsIt) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    balancer.admit(prompt(0, 14'000), 0);  // costs more than is left
    for (std::uint64_t i = 1; i < 100; ++i)
        balancer.admit(prompt(i, 200), 0);
    std::vector<PrefillRankReport> ranks = idle(1);
    ranks[0].backlog_us = 200e3;
    std::uint64_t passed = 0;
    for (;; ++passed) {
        const Pulled pulled = pull(balancer, 0, ranks, 0, 1);
        ASSERT_EQ(pulled.grants.size(), 1U);
        if (pulled.grants[0].id != 0) continue;
        EXPECT_EQ(pulled.grants[0].reason, PrefillReason::head_lock);
        break;
    }
    EXPECT_EQ(passed, 9U);
}

TEST(PrefillPull, AHeadThatNoRankHoldsHasOneSetAside) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, {.ranks = 2, .blocks_per_rank = 120}, 0);
    balancer.admit(prompt(0, 14'000), 0);  // 110 blocks
    for (std::uint64_t i = 1; i < 100; ++i)
        balancer.admit(prompt(i, 128), 0);
    for (int i = 0; i < 5; ++i)
        pull(balancer, 0, idle(2, 60), 0, 2);
    // Locked by now: one rank takes nothing until it has room, the other goes on.
    std::set<std::int64_t> ranks;
    for (int i = 0; i < 5; ++i)
        for (const PrefillGrant& grant : pull(balancer, 0, idle(2, 60), 0, 2).grants)
            ranks.insert(grant.rank);
    ASSERT_EQ(ranks.size(), 1U);
    std::vector<PrefillRankReport> reports = idle(2, 60);
    reports[static_cast<std::size_t>(1 - *ranks.begin())].free_blocks = 110;
    const Pulled pulled = pull(balancer, 0, reports);
    EXPECT_THAT(pulled.grants, ::testing::Contains(::testing::Field(&PrefillGrant::id, 0U)));
    ranks.clear();
    for (const PrefillGrant& grant : pull(balancer, 0, idle(2, 60), 0, 4).grants)
        ranks.insert(grant.rank);
    EXPECT_EQ(ranks.size(), 2U);  // it is back
}

TEST(PrefillPull, StealsFromShorterClassesAtOnceAndFromLongerOnesLate) {
    PrefillSettings settings = some_prefill_settings();
    PrefillBalancer balancer(settings);
    balancer.join(0, 1, kOneRank, 0);
    balancer.join(1, 1, kOneRank, 0);
    balancer.admit(prompt(1, 1000), 0);
    balancer.admit(prompt(2, 40'000), 0);
    std::vector<std::uint64_t> closed;
    balancer.tick(0, &closed);
    const std::size_t longer = balancer.class_of_engine(0) > balancer.class_of_engine(1) ? 0 : 1;
    ASSERT_EQ(balancer.class_of_engine(longer), 1U);
    ASSERT_EQ(balancer.class_of_engine(1 - longer), 0U);
    EXPECT_EQ(pull(balancer, longer, idle(1), 0, 1).grants.at(0).id, 2U);
    EXPECT_EQ(pull(balancer, longer, idle(1), 0, 1).grants.at(0).reason,
              PrefillReason::steal_shorter);
    balancer.admit(prompt(4, 1000), 0);
    std::vector<PrefillRankReport> giant = idle(1);  // every step takes τ: short ones may wait
    giant[0].giant_us = giant[0].backlog_us = 200e3;
    EXPECT_TRUE(pull(balancer, longer, giant, 150'000, 1).grants.empty());
    EXPECT_EQ(pull(balancer, longer, giant, 150'001, 1).grants.size(), 1U);
    balancer.admit(prompt(3, 17'000), 0);
    EXPECT_TRUE(pull(balancer, 1 - longer, idle(1), 1'000'000).grants.empty());
    const Pulled late = pull(balancer, 1 - longer, idle(1), 2'000'001);
    ASSERT_EQ(late.grants.size(), 1U);
    EXPECT_EQ(late.grants[0].reason, PrefillReason::steal_longer);
    balancer.admit(prompt(5, 60'000), 2'000'001);  // a giant for an engine of short prompts
    EXPECT_TRUE(pull(balancer, 1 - longer, idle(1), 5'000'000).grants.empty());
    EXPECT_EQ(pull(balancer, longer, idle(1), 5'000'000, 1).grants.at(0).reason,
              PrefillReason::debt);
}

TEST(PrefillPull, ContextParallelEnginesChargeEveryRank) {
    PrefillBalancer balancer(some_prefill_settings());
    PrefillEngine engine = kFourRanks;
    engine.is_context_parallel = true;
    engine.blocks_per_rank = 100;
    balancer.join(0, 1, engine, 0);
    ASSERT_TRUE(balancer.admit(prompt(1, 50'000), 0).is_accepted);  // 391 of 400 blocks
    EXPECT_EQ(balancer.admit(prompt(2, 60'000), 0).reason, PrefillReason::exceeds_rank);
    const Pulled pulled = pull(balancer, 0, idle(4, 100));
    ASSERT_EQ(pulled.grants.size(), 1U);
    EXPECT_EQ(pulled.grants[0].rank, kAllRanks);
    const double alone = some_prefill_settings().costs[1].request_us(0, 50'000, true);
    EXPECT_NEAR(pulled.grants[0].cost_us, alone / 4 * 1.1, 1e-6);
}

TEST(PrefillPull, ADeadRankStopsAnEngineThatCannotRunWithoutIt) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kFourRanks, 0);
    PrefillEngine tolerant = kFourRanks;
    tolerant.can_lose_rank = true;
    balancer.join(1, 1, tolerant, 0);
    for (std::uint64_t i = 0; i < 100; ++i)
        balancer.admit(prompt(i, 2000), 0);
    std::vector<PrefillRankReport> ranks = idle(4);
    ranks[2].is_alive = false;
    ranks[1].backlog_us = 200e3;  // the least quota counts for all: 100 ms each
    EXPECT_EQ(pull(balancer, 0, ranks).reason, PrefillReason::rank_dead);
    const Pulled pulled = pull(balancer, 1, ranks);
    std::array<double, 4> cost{};
    for (const PrefillGrant& grant : pulled.grants)
        cost[static_cast<std::size_t>(grant.rank)] += grant.cost_us;
    EXPECT_EQ(cost[2], 0);
    for (const std::size_t r : {0, 1, 3}) {
        EXPECT_GT(cost[r], 0);
        EXPECT_LE(cost[r], 150e3);
    }
}

TEST(PrefillLease, OneOfTwoEnginesThatHaveARequestIsBelieved) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    balancer.join(1, 1, kOneRank, 0);
    balancer.admit(prompt(7, 1000), 0);
    const Pulled first = pull(balancer, 0, idle(1));
    ASSERT_EQ(first.grants.size(), 1U);
    std::vector<std::uint64_t> closed;
    balancer.heartbeat(1, 1, 3'000'000);
    balancer.tick(3'000'001, &closed);  // engine 0 has been silent for its lease
    EXPECT_FALSE(balancer.is_live(0));
    const Pulled second = pull(balancer, 1, idle(1), 3'000'001);
    ASSERT_EQ(second.grants.size(), 1U);
    EXPECT_EQ(second.grants[0].attempt, 1);
    EXPECT_FALSE(balancer.finish(7, first.grants[0].attempt, 3'000'002));
    EXPECT_FALSE(balancer.give_back(7, first.grants[0].attempt, 3'000'002));
    EXPECT_TRUE(balancer.finish(7, 1, 3'000'003));
    EXPECT_FALSE(balancer.finish(7, 1, 3'000'004));
}

TEST(PrefillLease, ALostEngineGivesItsRequestsBackToTheFront) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    for (std::uint64_t i = 0; i < 4; ++i)
        balancer.admit(prompt(i, 1000), 0);
    ASSERT_EQ(pull(balancer, 0, idle(1), 0, 2).grants.size(), 2U);
    balancer.join(0, 2, kOneRank, 10);  // a restart
    EXPECT_EQ(pull(balancer, 0, idle(1), 10, 2, 1).reason, PrefillReason::stale_epoch);
    const Pulled again = pull(balancer, 0, idle(1), 10, 3, 2);
    ASSERT_EQ(again.grants.size(), 3U);
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(again.grants[i].id, i);
        EXPECT_EQ(again.grants[i].attempt, i < 2 ? 1 : 0);
    }
}

TEST(PrefillLease, AllEnginesOfAClassLostLeavesItToTheOthers) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    balancer.join(1, 1, kOneRank, 0);
    balancer.admit(prompt(1, 1000), 0);
    balancer.admit(prompt(2, 300'000), 0);
    std::vector<std::uint64_t> closed;
    balancer.tick(0, &closed);
    const std::size_t giants = balancer.class_of_engine(0) == 3 ? 0 : 1;
    ASSERT_EQ(balancer.class_of_engine(giants), 3U);
    balancer.lose(giants, 1);
    EXPECT_EQ(pull(balancer, 1 - giants, idle(1), 2).grants.size(), 2U);
    balancer.lose(1 - giants, 3);
    EXPECT_EQ(balancer.granted(), 0);
    EXPECT_TRUE(balancer.admit(prompt(3, 100), 4).is_accepted);  // waits for an engine
    balancer.join(5, 1, kOneRank, 5);
    EXPECT_EQ(pull(balancer, 5, idle(1), 5).grants.size(), 3U);
}

TEST(PrefillAdmission, AZeroLengthOrFullyHitPromptRunsOneToken) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    EXPECT_TRUE(balancer.admit(prompt(1, 0), 0).is_accepted);
    EXPECT_TRUE(balancer.admit(prompt(2, 1025, 1025), 0).is_accepted);
    const Pulled pulled = pull(balancer, 0, idle(1));
    ASSERT_EQ(pulled.grants.size(), 2U);
    for (const PrefillGrant& grant : pulled.grants)
        EXPECT_EQ(grant.work.tokens, 1);
}

TEST(PrefillAdmission, RefusesWhatNoRankCanHold) {
    PrefillBalancer balancer(some_prefill_settings());
    EXPECT_EQ(balancer.admit(prompt(1, kContextTokensMax + 1), 0).reason, PrefillReason::too_long);
    balancer.join(0, 1, {.ranks = 1, .blocks_per_rank = 8}, 0);
    EXPECT_EQ(balancer.admit(prompt(2, 1025), 0).reason, PrefillReason::exceeds_rank);
    EXPECT_TRUE(balancer.admit(prompt(3, 1024), 0).is_accepted);
    EXPECT_EQ(balancer.admit(prompt(3, 1024), 0).reason, PrefillReason::duplicate);
}

TEST(PrefillAdmission, ALostHitChangesTheCostAndNotTheClass) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.admit(prompt(1, 100'000, 99'000), 0);
    balancer.admit(prompt(2, 100'000, 0), 0);
    EXPECT_EQ(balancer.waiting(2), 2);
}

TEST(PrefillAdmission, RejectsWhatWouldBeTooLate) {
    PrefillSettings settings = some_prefill_settings();
    settings.mode = AdmissionMode::reject;
    PrefillBalancer balancer(settings);
    balancer.join(0, 1, kOneRank, 0);
    std::uint64_t id = 0;
    while (balancer.admit(prompt(id, 8000), 0).is_accepted)
        ++id;
    const PrefillAdmission refused = balancer.admit(prompt(id, 8000), 0);
    EXPECT_EQ(refused.reason, PrefillReason::too_late);
    EXPECT_GT(refused.ttft_us, settings.ttft_limit_us[0]);
    EXPECT_GE(refused.retry_after_us, 1'000'000);
    EXPECT_NEAR(balancer.backlog_us(0) / settings.planned_use, settings.ttft_limit_us[0], 0.5e6);
    EXPECT_TRUE(balancer.admit_bytes(30'000, 0).is_accepted);  // it might be of a longer class
    balancer.lose(0, 0);                                       // nobody serves
    EXPECT_EQ(balancer.admit_bytes(30'000, 0).reason, PrefillReason::too_late);
    EXPECT_EQ(balancer.admit_bytes(std::int64_t{1} << 40, 0).reason, PrefillReason::too_long);
    PrefillRequest greedy = prompt(++id, 100);
    greedy.is_over_tenant_limit = true;
    EXPECT_EQ(balancer.admit(greedy, 0).reason, PrefillReason::tenant_limit);
}

TEST(PrefillAdmission, QueuesAndClosesWhatNeverStarted) {
    PrefillBalancer balancer(some_prefill_settings());
    balancer.join(0, 1, kOneRank, 0);
    for (std::uint64_t id = 0; id < 200; ++id)
        ASSERT_TRUE(balancer.admit(prompt(id, 8000), 0).is_accepted);
    EXPECT_EQ(balancer.admit(prompt(200, 8000), 1000).reason, PrefillReason::queued_late);
    std::vector<std::uint64_t> closed;
    balancer.tick(600'000'001, &closed);
    EXPECT_EQ(closed.size(), 200U);
    EXPECT_EQ(balancer.waiting(0), 1);
}

TEST(PrefillAdmission, ShedsTheNewestOfTheLowestPriority) {
    PrefillSettings settings = some_prefill_settings();
    settings.mode = AdmissionMode::shed;
    settings.queue_requests_max = 3;
    PrefillBalancer balancer(settings);
    const auto admit = [&](std::uint64_t id, std::int64_t priority) {
        PrefillRequest request = prompt(id, 100);
        request.priority = priority;
        return balancer.admit(request, 0);
    };
    admit(1, 5);
    admit(2, 1);
    admit(3, 1);
    const PrefillAdmission full = admit(4, 1);  // itself the newest
    EXPECT_FALSE(full.is_accepted);
    EXPECT_EQ(full.reason, PrefillReason::shed);
    EXPECT_EQ(admit(5, 2).shed_id, 3U);
    EXPECT_EQ(admit(6, 2).shed_id, 2U);
    EXPECT_EQ(balancer.waiting(0), 3);
}

// Feeds a balancer a made-up but fixed history.
void relive(PrefillBalancer& balancer) {
    std::vector<std::uint64_t> closed;
    for (std::size_t e = 0; e < 3; ++e)
        balancer.join(e, 1, kFourRanks, 0);
    for (std::uint64_t i = 0; i < 300; ++i) {
        const auto now_us = static_cast<std::int64_t>(i) * 30'000;
        const std::uint64_t mix = i * 7919 % 4001;
        balancer.admit(prompt(i, static_cast<std::int64_t>(mix * mix % 400'000)), now_us);
        std::vector<PrefillRankReport> ranks = idle(4);
        ranks[mix % 4].backlog_us = static_cast<double>(mix * 100);
        ranks[mix % 3].free_blocks = static_cast<std::int64_t>(mix % 500);
        for (const PrefillGrant& grant : pull(balancer, mix % 3, ranks, now_us, 3).grants) {
            if (mix % 7 == 0) balancer.give_back(grant.id, grant.attempt, now_us);
            if (mix % 2 == 0) balancer.finish(grant.id, grant.attempt, now_us);
        }
        if (mix % 50 == 0) balancer.lose(mix % 3, now_us);
        if (mix % 50 == 1)
            balancer.join(mix % 3, static_cast<std::int64_t>(i) + 2, kFourRanks, now_us);
        if (mix % 11 == 0) balancer.cancel(i / 2, now_us);
        balancer.tick(now_us, &closed);
    }
}

TEST(PrefillState, ARecordedLogIsReplayedToTheSameHash) {
    std::vector<DecisionRecord> recorded;
    PrefillBalancer live(some_prefill_settings());
    live.log().set_visitor([&](const DecisionRecord& r) { recorded.push_back(r); });
    relive(live);
    ASSERT_GT(recorded.size(), 300U);
    std::set<DecisionKind> kinds;
    for (const DecisionRecord& record : recorded)
        kinds.insert(record.kind);
    EXPECT_THAT(kinds, ::testing::IsSupersetOf(
                           {DecisionKind::prefill_admission, DecisionKind::prefill_grant,
                            DecisionKind::prefill_division, DecisionKind::prefill_return}));

    PrefillBalancer again(some_prefill_settings());
    ReplayCheck check(recorded);
    again.log().set_visitor([&](const DecisionRecord& r) { check.observe(r); });
    relive(again);
    EXPECT_TRUE(check.finish().ok());
    EXPECT_EQ(again.log().hash(), live.log().hash());

    PrefillSettings other = some_prefill_settings();
    other.horizon_steps = 1;
    PrefillBalancer differs(other);
    ReplayCheck found(recorded);
    differs.log().set_visitor([&](const DecisionRecord& r) { found.observe(r); });
    relive(differs);
    EXPECT_FALSE(found.finish().ok());
    EXPECT_NE(differs.log().hash(), live.log().hash());
}

// What admission asks of the live engines, found by looking at each of them.
void expect_sums_of_a_scan(const PrefillBalancer& balancer,
                           const std::vector<PrefillEngine>& engines) {
    std::array<std::int64_t, kPrefillClasses> ranks{};
    std::int64_t most_blocks = -1;
    for (std::size_t e = 0; e < engines.size(); ++e) {
        if (!balancer.is_live(e)) continue;
        ranks[balancer.class_of_engine(e)] += engines[e].ranks;
        most_blocks =
            std::max(most_blocks, engines[e].blocks_per_rank *
                                      (engines[e].is_context_parallel ? engines[e].ranks : 1));
    }
    for (std::size_t k = 0; k < kPrefillClasses; ++k)
        RC_ASSERT(balancer.live_ranks(k) == ranks[k]);
    RC_ASSERT(balancer.most_blocks() == most_blocks);
}

TEST(PrefillAdmission, KnowsTheLiveEnginesAsAScanFindsThem) {
    EXPECT_TRUE(rc::check([] {
        PrefillBalancer balancer(some_prefill_settings());
        std::vector<PrefillEngine> engines(6, kOneRank);
        std::vector<std::int64_t> epochs(engines.size());
        std::vector<std::uint64_t> closed;
        std::int64_t now_us = 0, starts = 0;
        std::uint64_t id = 0;
        for (int i = *rc::gen::inRange(0, 80); i > 0; --i) {
            const auto e = *rc::gen::inRange<std::size_t>(0, engines.size());
            switch (*rc::gen::inRange(0, 6)) {
                case 0: {  // joins; with an epoch that may be old, or a restart
                    const PrefillEngine what{
                        .ranks = *rc::gen::inRange<std::int64_t>(1, 9),
                        .blocks_per_rank = *rc::gen::inRange<std::int64_t>(0, 20'000),
                        .is_context_parallel = *rc::gen::arbitrary<bool>()};
                    const std::int64_t epoch = *rc::gen::arbitrary<bool>() ? ++starts : 0;
                    if (!balancer.is_live(e) || epoch > 0) {
                        engines[e] = what;
                        epochs[e] = epoch;
                    }
                    balancer.join(e, epoch, what, now_us);
                    break;
                }
                case 1:
                    balancer.lose(e, now_us);
                    break;
                case 2:  // rounds, and engines that are silent for too long
                    now_us += *rc::gen::inRange<std::int64_t>(0, 2'500'000);
                    balancer.tick(now_us, &closed);
                    break;
                case 3: {
                    const auto tokens = *rc::gen::inRange<std::int64_t>(1, 500'000);
                    balancer.admit(prompt(id++, tokens), now_us);
                    break;
                }
                case 4:
                    if (balancer.is_live(e))
                        pull(balancer, e, idle(static_cast<std::size_t>(engines[e].ranks)), now_us,
                             64, epochs[e]);
                    break;
                default: {
                    PrefillBalancer standby(some_prefill_settings());
                    RC_ASSERT(standby.load(balancer.save()).ok());
                    expect_sums_of_a_scan(standby, engines);
                }
            }
            expect_sums_of_a_scan(balancer, engines);
        }
    }));
}

TEST(PrefillState, AStandbyDecidesAsTheOriginalWouldHave) {
    EXPECT_TRUE(rc::check([] {
        PrefillSettings settings = some_prefill_settings();
        settings.mode = *rc::gen::element(AdmissionMode::queue, AdmissionMode::shed);
        settings.queue_requests_max = 30;
        PrefillBalancer original(settings), standby(settings);
        std::vector<std::uint64_t> closed;
        std::uint64_t id = 0;
        std::int64_t now_us = 0;
        for (std::size_t e = 0; e < 3; ++e)
            original.join(e, 1, kFourRanks, 0);
        const auto step = [&](PrefillBalancer& balancer, std::uint64_t choice) {
            PrefillRequest request =
                prompt(id, static_cast<std::int64_t>(choice * 7919 % 400'000), 128);
            request.priority = static_cast<std::int64_t>(choice % 3);
            balancer.admit(request, now_us);
            std::vector<PrefillRankReport> ranks = idle(4);
            ranks[choice % 4].backlog_us = 1000.0 * static_cast<double>(choice % 400);
            ranks[choice % 3].free_blocks = static_cast<std::int64_t>(choice % 500);
            for (const PrefillGrant& grant : pull(balancer, choice % 3, ranks, now_us, 3).grants) {
                if (choice % 2 == 0) balancer.finish(grant.id, grant.attempt, now_us);
                if (choice % 5 == 0) balancer.give_back(grant.id, grant.attempt, now_us);
            }
            balancer.observe_step(choice % 3, choice % 4, 100, 80 + choice % 50, {}, now_us);
            balancer.tick(now_us, &closed);
        };
        const auto advance = [&] {
            ++id;
            now_us += 200'000;
        };
        for (int i = *rc::gen::inRange(0, 60); i > 0; --i, advance())
            step(original, *rc::gen::inRange<std::uint64_t>(0, 100'000));
        const std::vector<std::uint8_t> bytes = original.save();
        RC_ASSERT(standby.load(bytes).ok());
        RC_ASSERT(standby.save() == bytes);
        for (int i = 0; i < 20; ++i, advance()) {
            const auto choice = *rc::gen::inRange<std::uint64_t>(0, 100'000);
            step(original, choice);
            step(standby, choice);
        }
        RC_ASSERT(original.log().hash() == standby.log().hash());
        RC_ASSERT(original.save() == standby.save());
    }));
}

TEST(PrefillState, DamagedBytesAreRefusedOrHarmless) {
    PrefillBalancer original(some_prefill_settings());
    original.join(0, 1, kFourRanks, 0);
    for (std::uint64_t i = 0; i < 20; ++i)
        original.admit(prompt(i, 4000), 0);
    pull(original, 0, idle(4), 0, 5);
    const std::vector<std::uint8_t> bytes = original.save();
    EXPECT_TRUE(rc::check([&] {
        std::vector<std::uint8_t> damaged = bytes;
        damaged[*rc::gen::inRange<std::size_t>(0, bytes.size())] ^=
            *rc::gen::inRange<std::uint8_t>(1, 255);
        if (*rc::gen::arbitrary<bool>())
            damaged.resize(*rc::gen::inRange<std::size_t>(0, bytes.size()));
        PrefillBalancer balancer(some_prefill_settings());
        if (!balancer.load(damaged).ok()) {
            RC_ASSERT(balancer.waiting(0) == 0);
            return;
        }
        std::vector<std::uint64_t> closed;
        pull(balancer, 0, idle(4));
        balancer.tick(10'000'000, &closed);
    }));
}

}  // namespace
}  // namespace fathom
