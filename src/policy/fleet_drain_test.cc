#include "policy/fleet_drain.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "base/random.h"
#include "policy/decode_balancer.h"

namespace fathom {
namespace {

constexpr std::int64_t kSecond = 1'000'000;
using Kind = DrainWork::Kind;

EngineDrain begin(FleetRole role) {
    return *EngineDrain::begin(0, 7, role, {}, true, false);
}

TEST(EngineDrain, IsRefusedWithoutRoomUnlessForced) {
    EXPECT_EQ(EngineDrain::begin(0, 7, FleetRole::decode, {}, false, false).status().message(),
              "engine 7: no other one has room for its work");
    EXPECT_TRUE(EngineDrain::begin(0, 7, FleetRole::decode, {}, false, true).ok());
    EXPECT_FALSE(EngineDrain::begin(0, 7, FleetRole::decode, {.grace_us = -1}, true, true).ok());
}

TEST(EngineDrain, PrefillHandsBackWhatIsNotStartedAndThenTheRest) {
    EngineDrain drain = begin(FleetRole::prefill);
    const std::vector<DrainSequence> all = {{1, 10, true}, {2, 20, false}};
    EXPECT_EQ(drain.tick(0, all, 1), (std::vector<DrainWork>{{Kind::hand_back, 2}}));
    EXPECT_TRUE(drain.tick(kSecond, all, 1).empty());
    EXPECT_EQ(drain.tick(60 * kSecond, std::span(all).first(1), 0),
              (std::vector<DrainWork>{{Kind::hand_back, 1}, {Kind::exit, 0}}));
    EXPECT_EQ(drain.phase(), DrainPhase::gone);
    EngineDrain idle = begin(FleetRole::prefill);
    EXPECT_TRUE(idle.tick(0, {}, 1).empty());  // a hand-off is going out
    EXPECT_EQ(idle.tick(1, {}, 0), (std::vector<DrainWork>{{Kind::exit, 0}}));
}

TEST(EngineDrain, DecodeWaitsCopiesAheadMovesLongestFirstAndResumesTheRest) {
    EngineDrain drain = begin(FleetRole::decode);
    const std::vector<DrainSequence> all = {{1, 100}, {2, 9000}, {3, 500}};
    EXPECT_EQ(drain.tick(0, all, 0), (std::vector<DrainWork>{{Kind::copy_ahead, 2}}));
    EXPECT_TRUE(drain.tick(59 * kSecond, all, 0).empty());
    EXPECT_EQ(drain.tick(60 * kSecond, all, 0, 50'000),
              (std::vector<DrainWork>{{Kind::move, 2}, {Kind::move, 3}, {Kind::move, 1}}));
    EXPECT_TRUE(drain.stopped(60 * kSecond, 2));
    EXPECT_TRUE(drain.adopted(60 * kSecond + 200'000, 2));
    EXPECT_EQ(drain.long_pauses(), 0);
    EXPECT_TRUE(drain.stopped(61 * kSecond, 3));
    EXPECT_TRUE(drain.adopted(61 * kSecond + 200'001, 3));
    EXPECT_EQ(drain.long_pauses(), 1);
    EXPECT_FALSE(drain.adopted(62 * kSecond, 3));
    EXPECT_EQ(drain.tick(70 * kSecond, {}, 0),
              (std::vector<DrainWork>{{Kind::resume, 1}, {Kind::exit, 0}}));
    EXPECT_FALSE(drain.adopted(71 * kSecond, 1));  // resumed elsewhere: one end only
    EXPECT_EQ(drain.log().newest().back().reason,
              static_cast<std::uint16_t>(DrainReason::deadline));
}

// Whatever finishes, is adopted, refused or late: each sequence has one end, nothing moves in the
// grace, and the engine is gone by the deadline.
RC_GTEST_PROP(EngineDrain, EverySequenceHasOneEnd, (std::uint64_t seed)) {
    RandomStream random(seed);
    EngineDrain drain = begin(FleetRole::decode);
    std::map<std::uint64_t, int> ends;
    std::vector<DrainSequence> here;
    std::vector<std::uint64_t> moving;
    const std::uint64_t count = random.next_below(20);
    for (std::uint64_t id = 0; id < count; ++id) {
        here.push_back({id, static_cast<std::int64_t>(random.next_below(20'000))});
        ends[id] = 0;
    }
    std::int64_t arriving = static_cast<std::int64_t>(random.next_below(3));
    std::uint64_t next = 100;
    std::int64_t now = 0;
    for (; drain.phase() != DrainPhase::gone; now += 500'000) {
        RC_ASSERT(now <= drain.deadline_us());
        if (arriving > 0 && random.next_below(40) == 0) {
            --arriving;
            ends[next] = 0;
            here.push_back({next++, 700});
        }
        std::erase_if(here, [&](const DrainSequence& s) {
            const bool is_finished = random.next_below(200) == 0;
            ends[s.id] += is_finished ? 1 : 0;
            return is_finished;
        });
        // A standby goes on with the same decisions.
        EngineDrain standby = begin(FleetRole::decode);
        RC_ASSERT(standby.load(drain.save()).ok());
        RC_ASSERT(standby.save() == drain.save());
        const std::vector<DrainWork> work = drain.tick(now, here, arriving, 40'000);
        RC_ASSERT(standby.tick(now, here, arriving, 40'000) == work);
        for (const DrainWork& w : work) {
            if (w.kind == Kind::move) {
                RC_ASSERT(now >= 60 * kSecond);
                std::erase_if(here, [&](const DrainSequence& s) { return s.id == w.id; });
                moving.push_back(w.id);
                (void)drain.stopped(now, w.id);
            } else if (w.kind == Kind::resume) {
                ++ends[w.id];
            }
        }
        std::erase_if(moving, [&](std::uint64_t id) {
            const std::uint64_t luck = random.next_below(10);
            if (luck == 0) return drain.refused(id);
            if (luck > 2) return false;
            ends[id] += drain.adopted(now, id) ? 1 : 0;
            return true;
        });
    }
    RC_ASSERT(here.empty());
    for (const auto& [id, count_of] : ends)
        RC_ASSERT(count_of == 1);
}

// The frozen set goes to other groups, all at once.
TEST(EngineDrain, TheBalancerPlacesWhatIsFrozenOnOtherGroups) {
    DecodeBalancer balancer({});
    for (std::size_t group = 0; group < 3; ++group) {
        balancer.add_group(group, 4);
        for (std::size_t rank = 0; rank < 4; ++rank)
            (void)balancer.report(
                group, rank,
                {.free_blocks = 10'000, .total_blocks = 10'000, .sequences_max = 64, .step = 1}, 0);
    }
    EngineDrain drain = begin(FleetRole::decode);
    balancer.set_draining(1, true);
    std::vector<DrainSequence> here;
    for (std::uint64_t id = 0; id < 40; ++id)
        here.push_back({id, static_cast<std::int64_t>(1000 * (id % 7 + 1))});
    std::vector<DecodeRequest> batch;
    for (const DrainWork& work : drain.tick(60 * kSecond, here, 0))
        if (work.kind == Kind::move)
            batch.push_back({.id = work.id,
                             .context_tokens = here[work.id].kv_tokens,
                             .output_tokens = 100,
                             .output_p90_tokens = 200});
    ASSERT_EQ(batch.size(), 40U);
    std::vector<DecodePlacement> placed;
    balancer.place(batch, 60 * kSecond, &placed);
    for (const DecodePlacement& placement : placed) {
        EXPECT_EQ(placement.reason, DecodeReason::placed);
        EXPECT_NE(placement.group, 1);
        EXPECT_TRUE(drain.adopted(60 * kSecond, placement.id));
    }
    EXPECT_EQ(drain.tick(61 * kSecond, {}, 0), (std::vector<DrainWork>{{Kind::exit, 0}}));
}

}  // namespace
}  // namespace fathom
