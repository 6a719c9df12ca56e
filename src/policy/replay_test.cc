// Decisions of the experts' balancer, the verification budget and the fleet planner, repeated from
// their inputs and from saved state: the same records, the same hash.
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "policy/decision_log.h"
#include "policy/expert_balancer.h"
#include "policy/fleet_planner.h"
#include "policy/verify_model.h"
#include "policy/verify_scheduler.h"

namespace fathom {
namespace {

constexpr int kRounds = 40;

// With `restart_every` > 0 all state goes through its bytes every so many rounds.
void decide(DecisionLog& log, int restart_every) {
    constexpr std::int64_t kExperts = 24;
    const ExpertShape shape{.experts = kExperts, .ranks = 4, .slots = 7};
    RandomStream random(20261130);
    ExpertWindow window(kExperts, 20);
    ExpertPredictor predictor(kExperts);
    LayerPlacement current = initial_placement(shape);
    FleetPlanner planner = *FleetPlanner::make({});
    const VerifyModel model;
    VerifyCost cost = model.cost(200);
    VerifyScheduler scheduler({.path_ms = model.path_ms()});
    VerifyRequests requests(model, 24, 9);
    VerifyRequests::Block block;
    for (int round = 0; round < kRounds; ++round) {
        const std::int64_t now_us = 1'000'000 * round;
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(kExperts));
        for (std::int32_t& count : tokens)
            count = static_cast<std::int32_t>(random.next_below(100));
        window.add(tokens);
        predictor.observe(window.mean());
        const LayerPlan plan = plan_layer(shape, predictor.predict(), window, current, {});
        if (plan.apply()) current = plan.placement;
        log.record(plan.record(now_us, 3));

        requests.next(block);
        const VerifyBatch batch = requests.view(block.survivals);
        log.record(scheduler.decide(batch, cost).record(now_us, 1, batch));
        cost.observe(24, 100, 30 + random.next_uniform(), 2);

        FleetState state;
        for (RoleState& role : state.roles) {
            role.ready = 3;
            role.demand = 6 * random.next_uniform();
        }
        const FleetPlan fleet = planner.plan(now_us, state);
        for (const FleetRole role : {FleetRole::prefill, FleetRole::decode, FleetRole::encoder})
            log.record(fleet.record(now_us, role));

        if (restart_every == 0 || round % restart_every != 0) continue;
        window = *ExpertWindow::load(window.save());
        ExpertPredictor next_predictor(kExperts);
        ASSERT_TRUE(next_predictor.load(predictor.save()).ok());
        predictor = next_predictor;
        FleetPlanner next_planner = *FleetPlanner::make({});
        ASSERT_TRUE(next_planner.load(planner.save()).ok());
        planner = std::move(next_planner);
        cost = *VerifyCost::load(cost.save());
        VerifyScheduler next_scheduler({.path_ms = model.path_ms()});
        ASSERT_TRUE(next_scheduler.load(scheduler.save()).ok());
        scheduler = std::move(next_scheduler);
    }
}

TEST(PolicyReplay, RepeatsEveryDecisionAlsoFromSavedState) {
    DecisionLog first(1000);
    decide(first, 0);
    const std::vector<DecisionRecord> expected = first.newest();
    ASSERT_EQ(expected.size(), 5U * kRounds);
    for (const int restart_every : {0, 1, 7}) {
        ReplayCheck check(expected);
        DecisionLog again;
        again.set_visitor([&check](const DecisionRecord& record) { check.observe(record); });
        decide(again, restart_every);
        EXPECT_TRUE(check.finish().ok()) << restart_every << ": " << check.finish().message();
        EXPECT_EQ(again.hash(), first.hash());
    }
}

}  // namespace
}  // namespace fathom
