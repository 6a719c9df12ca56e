#include "policy/fleet_planner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace fathom {
namespace {

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::size_t kPrefill = 0, kDecode = 1;

FleetRules rules_of(double capacity) {
    FleetRules rules;
    for (RoleRules& role : rules.roles)
        role.capacity = capacity;
    return rules;
}

// A fleet that does what it is told: what is started is ready after `start_s`, what is drained is
// gone after `drain_s`.
struct Fleet {
    FleetPlanner planner;
    FleetState state;
    std::int64_t now_s = 0, start_s = 20, drain_s = 30;
    std::vector<std::pair<std::int64_t, std::size_t>> starts, drains;  // at second, role
    std::array<int, kFleetRoles> turns{}, last{};                      // changes of direction
    FleetPlan plan;

    explicit Fleet(const FleetRules& rules) : planner(*FleetPlanner::make(rules)) {}

    void second() {
        ++now_s;
        const auto due = [this](auto& list, const auto& use) {
            std::erase_if(list, [&](const auto& item) {
                if (item.first > now_s) return false;
                use(state.roles[item.second]);
                return true;
            });
        };
        due(starts, [&](RoleState& role) {
            --role.starting;
            ++role.ready;
            role.changed_us = now_s * kSecond;
        });
        due(drains, [](RoleState& role) { --role.draining; });
        plan = planner.plan(now_s * kSecond, state);
        for (std::size_t i = 0; i < kFleetRoles; ++i)
            obey(i, plan.roles[i]);
    }
    void obey(std::size_t i, const RoleDecision& decision) {
        RoleState& role = state.roles[i];
        for (std::int64_t n = 0; n < decision.start; ++n)
            starts.emplace_back(now_s + start_s, i);
        for (std::int64_t n = 0; n < decision.cancel; ++n)
            for (auto at = starts.rbegin(); at != starts.rend(); ++at)
                if (at->second == i) {
                    starts.erase(std::next(at).base());
                    break;
                }
        for (std::int64_t n = 0; n < decision.drain; ++n)
            drains.emplace_back(now_s + drain_s, i);
        role.starting += decision.start - decision.cancel;
        role.ready -= decision.drain;
        role.draining += decision.drain;
        const int direction = decision.start > 0 ? 1 : decision.drain > 0 ? -1 : 0;
        if (direction == 0) return;
        if (last[i] != 0 && last[i] != direction) ++turns[i];
        last[i] = direction;
    }
    void run(std::int64_t seconds) {
        for (std::int64_t i = 0; i < seconds; ++i)
            second();
    }
};

// Whatever the constant load and the beginning: the fleet ends at what carries it, changes its
// direction at most once, and stays.
RC_GTEST_PROP(FleetPlanner, ConstantLoadDoesNotFlap, (std::uint64_t seed)) {
    RandomStream random(seed);
    Fleet fleet(rules_of(10));
    for (RoleState& role : fleet.state.roles) {
        role.demand = 200 * random.next_uniform();
        role.ready = static_cast<std::int64_t>(random.next_below(40));
    }
    fleet.start_s = static_cast<std::int64_t>(random.next_below(120));
    fleet.drain_s = static_cast<std::int64_t>(random.next_below(120));
    fleet.run(9000);
    for (std::size_t i = 0; i < kFleetRoles; ++i) {
        const RoleState& role = fleet.state.roles[i];
        RC_ASSERT(role.ready >= static_cast<std::int64_t>(std::ceil(role.demand / 10)));
        RC_ASSERT(role.ready <= static_cast<std::int64_t>(std::ceil(1.05 * role.demand / 10)));
        RC_ASSERT(fleet.turns[i] == 0);
        RC_ASSERT(role.starting == 0);
    }
}

// A load that shakes by 20 % around what it is: nothing is drained and started again and again.
TEST(FleetPlanner, NoiseDoesNotFlap) {
    Fleet fleet(rules_of(10));
    RandomStream random(20261129);
    for (int i = 0; i < 7200; ++i) {
        for (RoleState& role : fleet.state.roles)
            role.demand = 300 * (0.8 + 0.4 * random.next_uniform());
        fleet.second();
    }
    for (const int turns : fleet.turns)
        EXPECT_LE(turns, 2);
}

// A load that seldom reaches the edge of an engine: the margin is what keeps it from turning around
// each time.
TEST(FleetPlanner, TheMarginKeepsAnEdgeFromFlapping) {
    std::array<int, 2> turns{};
    for (const double margin : {0.0, 0.05}) {
        FleetRules rules = rules_of(10);
        rules.shrink_margin = margin;
        Fleet fleet(rules);
        RandomStream random(20261130);
        for (int i = 0; i < 30'000; ++i) {
            for (RoleState& role : fleet.state.roles)
                role.demand = 290 * (1 + 0.04 * random.next_normal());
            fleet.second();
        }
        turns[margin > 0 ? 1 : 0] = fleet.turns[kDecode];
    }
    EXPECT_GE(turns[0], 4);
    EXPECT_LE(turns[1], 1);
}

// Requests that come at a constant rate run for as long as their steps take: more of them at a time
// on fewer engines. At the edge of an engine that alone made the planner start and drain one for
// ever.
TEST(FleetPlanner, WhatRunsOnFewerEnginesIsForeseen) {
    constexpr double kFixed = 70, kEach = 0.3;  // of a step; 30 % of it at 100 requests
    std::array<int, 2> turns{};
    for (const double share : {0.0, 0.3}) {
        FleetRules rules = rules_of(100);
        rules.roles[kDecode].load_share = share;
        Fleet fleet(rules);
        fleet.state.roles[kDecode].ready = 5;
        for (int i = 0; i < 20'000; ++i) {
            for (RoleState& role : fleet.state.roles) {
                const double engines = static_cast<double>(std::max<std::int64_t>(role.ready, 5));
                const double each = 5.021 / engines;
                role.demand = engines * kFixed * each / (1 - kEach * each);
            }
            fleet.second();
        }
        turns[share > 0 ? 1 : 0] = fleet.turns[kDecode];
    }
    EXPECT_GE(turns[0], 20);
    EXPECT_EQ(turns[1], 0);
}

// A full cluster of as many prefill as decode engines, where prefill has little to do: it becomes
// decode, with bounds kept at every second, and stays so.
TEST(FleetPlanner, AFullClusterConvertsWhatIsTooMany) {
    FleetRules rules = rules_of(10);
    rules.roles[kPrefill].cards = 4;
    rules.roles[kDecode].cards = 8;
    rules.cards_max = 4 * 32 + 8 * 16;
    rules.converts[kPrefill][kDecode] = rules.converts[kDecode][kPrefill] = true;
    FleetPlanner planner = *FleetPlanner::make(rules);
    FleetState state;
    RoleState& prefill = state.roles[kPrefill];
    RoleState& decode = state.roles[kDecode];
    prefill.ready = 32;
    decode.ready = 16;
    prefill.demand = 35;  // 4 engines
    decode.demand = 270;  // 27 engines
    struct Pending {
        std::int64_t at = 0, drain = 0, start = 0, converted = 0;
    };
    std::vector<Pending> pending;
    int conversions = 0;
    for (std::int64_t second = 1; second < 6000; ++second) {
        std::erase_if(pending, [&](const Pending& p) {
            if (p.at > second) return false;
            prefill.draining -= p.drain;
            decode.starting -= p.start;
            decode.converting -= p.converted;
            decode.ready += p.start;
            decode.changed_us = second * kSecond;
            return true;
        });
        const FleetPlan plan = planner.plan(second * kSecond, state);
        EXPECT_EQ(plan.roles[kDecode].drain, 0);
        const std::int64_t drain = plan.roles[kPrefill].drain;
        prefill.ready -= drain;
        ASSERT_GE(prefill.ready, 4);
        if (plan.conversion.start > 0) {
            ++conversions;
            EXPECT_EQ(plan.conversion.from, FleetRole::prefill);
            EXPECT_LE(8 * plan.conversion.start, 4 * plan.conversion.drain + 4);
            EXPECT_EQ(plan.record(0, FleetRole::decode).fields[4], plan.conversion.start);
        }
        const std::int64_t start = plan.conversion.start + plan.roles[kDecode].start;
        decode.starting += start;
        decode.converting += plan.conversion.start;
        prefill.draining += drain;
        if (drain > 0 || start > 0)
            pending.push_back({second + 30, drain, start, plan.conversion.start});
        ASSERT_LE(4 * (prefill.ready + prefill.draining) + 8 * decode.ready, rules.cards_max);
    }
    EXPECT_EQ(decode.ready, 27);
    EXPECT_GE(conversions, 5);
}

TEST(FleetPlanner, ConversionsObeyTheQuotaGuard) {
    static const QuotaUse kUsed[] = {{70, 100}};
    for (const bool is_used : {false, true}) {
        FleetRules rules = rules_of(10);
        rules.roles[kDecode].cards = 8;  // eight engines of prefill make one
        rules.cards_max = 20 + 8 * 4;
        rules.converts[kPrefill][kDecode] = true;
        FleetPlanner planner = *FleetPlanner::make(rules);
        FleetState state;
        state.roles[kPrefill].ready = 20;
        state.roles[kPrefill].demand = 30;
        if (is_used) state.roles[kPrefill].quotas = kUsed;
        state.roles[kDecode].ready = 4;
        state.roles[kDecode].demand = 60;
        EXPECT_EQ(planner.plan(0, state).roles[kPrefill].reason, FleetReason::unwatched);
        const FleetPlan plan = planner.plan(300 * kSecond, state);
        EXPECT_EQ(plan.conversion.drain, is_used ? 0 : 8);
        EXPECT_EQ(plan.conversion.start, is_used ? 0 : 1);
        EXPECT_EQ(plan.roles[kDecode].reason, is_used ? FleetReason::full : FleetReason::convert);
        EXPECT_EQ(plan.roles[kPrefill].drain, is_used ? 1 : 8);
    }
}

TEST(FleetPlanner, NoTrafficEndsWithNobodyTogether) {
    Fleet fleet(rules_of(10));
    fleet.state.roles[kPrefill].ready = 3;
    fleet.state.roles[kDecode].ready = 9;
    for (int i = 0; i < 9000; ++i) {
        fleet.second();
        const bool prefill = fleet.state.roles[kPrefill].ready > 0;
        EXPECT_EQ(prefill, fleet.state.roles[kDecode].ready > 0) << fleet.now_s;
    }
    EXPECT_EQ(fleet.state.roles[kPrefill].ready, 0);
}

TEST(FleetPlanner, NobodyStartsAlone) {
    Fleet fleet(rules_of(10));
    fleet.state.roles[kDecode].demand = 25;
    fleet.second();
    EXPECT_EQ(fleet.plan.roles[kDecode].start, 1);
    EXPECT_EQ(fleet.plan.roles[kPrefill].start, 1);
    EXPECT_EQ(fleet.plan.roles[kPrefill].reason, FleetReason::coupled);
}

TEST(FleetPlanner, StartsThatHangAreNotRepeatedAndHoldNobodyUp) {
    Fleet fleet(rules_of(10));
    fleet.start_s = 1 << 30;
    for (RoleState& role : fleet.state.roles)
        role.ready = 8;
    fleet.state.roles[kDecode].demand = 1000;
    fleet.run(600);
    EXPECT_EQ(fleet.state.roles[kDecode].starting, 92);  // what is missing, once
    EXPECT_EQ(fleet.plan.roles[kDecode].reason, FleetReason::starting);
    fleet.state.roles[kDecode].demand = 28;
    fleet.run(1200);
    EXPECT_EQ(fleet.state.roles[kDecode].starting, 0);
    EXPECT_EQ(fleet.state.roles[kDecode].ready, 3);
}

TEST(FleetPlanner, ACrowdIsFollowedByAQuarterEveryTenSeconds) {
    Fleet fleet(rules_of(10));
    fleet.start_s = 1;
    for (RoleState& role : fleet.state.roles) {
        role.ready = 100;
        role.demand = 1000;
    }
    fleet.run(400);
    for (RoleState& role : fleet.state.roles)
        role.demand = 3000;
    std::int64_t seconds = 0;
    while (fleet.state.roles[kDecode].ready < 300 && seconds < 300) {
        fleet.second();
        ++seconds;
    }
    EXPECT_LE(seconds, 70);
}

TEST(FleetPlanner, StartsThatTakeAMinuteDelayACrowdByThatMinuteOnly) {
    Fleet fleet(rules_of(10));
    fleet.start_s = 60;
    for (RoleState& role : fleet.state.roles) {
        role.ready = 4;
        role.demand = 40;
    }
    fleet.run(400);
    for (RoleState& role : fleet.state.roles)
        role.demand = 120;
    std::int64_t seconds = 0;
    while (fleet.state.roles[kDecode].ready < 12 && seconds < 600) {
        fleet.second();
        ++seconds;
    }
    EXPECT_LE(seconds, 60 + 8 * 10 + 10);  // one every ten seconds
}

struct Forbidden {
    const char* name;
    void (*change)(FleetState& state);
    FleetReason reason;
};

TEST(FleetPlanner, ShrinkingIsForbiddenWhenItCouldBeRegretted) {
    static const QuotaUse kFull[] = {{10, 100}, {81, 100}, {5, 0}};
    static const QuotaUse kNearly[] = {{79, 100}};
    const Forbidden cases[] = {
        {"quota", [](FleetState& s) { s.roles[kDecode].quotas = kFull; }, FleetReason::quota},
        {"quota after", [](FleetState& s) { s.roles[kDecode].quotas = kNearly; },
         FleetReason::quota_after},
        {"draining", [](FleetState& s) { s.roles[kDecode].draining = 1; }, FleetReason::draining},
        {"lost", [](FleetState& s) { s.roles[kDecode].changed_us = 590 * kSecond; },
         FleetReason::unsettled},
        {"nothing", [](FleetState&) {}, FleetReason::shrink},
    };
    for (const Forbidden& forbidden : cases) {
        FleetPlanner planner = *FleetPlanner::make(rules_of(10));
        FleetState state;
        for (RoleState& role : state.roles) {
            role.ready = 20;
            role.demand = 50;
        }
        forbidden.change(state);
        EXPECT_EQ(planner.plan(300 * kSecond, state).roles[kDecode].reason, FleetReason::unwatched);
        const FleetPlan plan = planner.plan(600 * kSecond, state);
        EXPECT_EQ(plan.roles[kDecode].reason, forbidden.reason) << forbidden.name;
        EXPECT_EQ(plan.roles[kDecode].drain, forbidden.reason == FleetReason::shrink ? 1 : 0)
            << forbidden.name;
    }
}

TEST(FleetPlanner, AFallingHitRateForbidsShrinking) {
    FleetPlanner planner = *FleetPlanner::make(rules_of(10));
    FleetState state;
    for (RoleState& role : state.roles) {
        role.ready = 20;
        role.demand = 200;
    }
    state.prompt_tokens = 1000;
    std::int64_t now_s = 0;
    const auto run = [&](std::int64_t hits, double demand, int seconds) {
        state.hit_tokens = hits;
        FleetPlan plan;
        for (RoleState& role : state.roles)
            role.demand = demand;
        for (int i = 0; i < seconds; ++i)
            plan = planner.plan(++now_s * kSecond, state);
        return plan.roles[kDecode].reason;
    };
    (void)run(960, 200, 100);
    (void)run(960, 50, 200);
    (void)run(930, 50, 20);
    EXPECT_EQ(run(930, 50, 100), FleetReason::hit_rate);
    EXPECT_EQ(run(930, 50, 400), FleetReason::shrink_cooldown);  // it has been shrinking since
}

TEST(FleetPlanner, OddNumbersAreNoDemand) {
    FleetPlanner planner = *FleetPlanner::make(rules_of(10));
    FleetState state;
    state.roles[kPrefill].demand = std::numeric_limits<double>::quiet_NaN();
    state.roles[kDecode].demand = -5;
    state.roles[2].demand = std::numeric_limits<double>::infinity();
    const FleetPlan plan = planner.plan(0, state);
    for (const RoleDecision& decision : plan.roles)
        EXPECT_EQ(decision.start + decision.drain + decision.cancel, 0);
    EXPECT_FALSE(FleetPlanner::make(rules_of(0)).ok());
    EXPECT_FALSE(FleetPlanner::make(rules_of(std::nan(""))).ok());
}

TEST(FleetPlanner, GoesOnFromItsBytes) {
    const FleetRules rules = rules_of(10);
    Fleet fleet(rules);
    for (RoleState& role : fleet.state.roles)
        role.demand = 120;
    fleet.run(200);
    Fleet other(rules);
    const std::vector<std::uint8_t> bytes = fleet.planner.save();
    ASSERT_TRUE(other.planner.load(bytes).ok());
    EXPECT_EQ(other.planner.save(), bytes);
    for (RoleState& role : fleet.state.roles)
        role.demand = 20;
    for (std::int64_t second = 201; second < 900; second += 10) {
        const FleetPlan a = fleet.planner.plan(second * kSecond, fleet.state);
        const FleetPlan b = other.planner.plan(second * kSecond, fleet.state);
        for (const FleetRole role : {FleetRole::prefill, FleetRole::decode, FleetRole::encoder})
            EXPECT_EQ(a.record(second, role), b.record(second, role));
    }
    EXPECT_FALSE(other.planner.load(std::span(bytes).first(40)).ok());
}

}  // namespace
}  // namespace fathom
