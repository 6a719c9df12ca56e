// The dispatcher with engines in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "base/random.h"
#include "policy/test_prefill_fleet.h"

namespace fathom {
namespace {

using testing::PrefillFleet;
using testing::some_prefill_settings;

constexpr PrefillEngine kFourRanks{.ranks = 4, .blocks_per_rank = 16'384};
constexpr PrefillEngine kOneRank{.ranks = 1, .blocks_per_rank = 16'384};

PrefillRequest prompt(std::uint64_t id, std::int64_t tokens) {
    PrefillRequest request;
    request.id = id;
    request.total_tokens = tokens;
    return request;
}

void add_arrivals(PrefillFleet& fleet, int count) {
    for (int i = 0; i < count; ++i) {
        const auto tokens = *rc::gen::oneOf(
            rc::gen::inRange<std::int64_t>(0, 3000), rc::gen::inRange<std::int64_t>(1, 100'000),
            rc::gen::element<std::int64_t>(600'000, kContextTokensMax));
        PrefillRequest request = prompt(static_cast<std::uint64_t>(i), tokens);
        request.hit_tokens = *rc::gen::inRange<std::int64_t>(0, tokens + 1);
        request.is_window_found = *rc::gen::arbitrary<bool>();
        fleet.admit_at(*rc::gen::inRange<std::int64_t>(0, 3'000'000), request);
    }
}

TEST(PrefillFleet, EveryRequestIsComputedOnceAndWhole) {
    EXPECT_TRUE(rc::check([] {
        const auto engines = *rc::gen::inRange<std::size_t>(1, 5);
        const PrefillEngine what{.ranks = *rc::gen::inRange<std::int64_t>(1, 4),
                                 .blocks_per_rank = *rc::gen::element<std::int64_t>(8192, 9000)};
        PrefillFleet fleet(some_prefill_settings(), engines, what);
        const int count = *rc::gen::inRange(0, 40);
        add_arrivals(fleet, count);
        fleet.run(2'000'000'000);
        RC_ASSERT(fleet.is_idle());
        RC_ASSERT(fleet.done().size() == static_cast<std::size_t>(count));
        RC_ASSERT(!::testing::Test::HasFailure());
        for (std::size_t k = 0; k < kPrefillClasses; ++k)
            RC_ASSERT(fleet.balancer().backlog_us(k) == 0);
    }));
}

TEST(PrefillFleet, SameInputsGiveTheSameHash) {
    std::array<std::uint64_t, 2> hashes{};
    for (std::uint64_t& hash : hashes) {
        PrefillFleet fleet(some_prefill_settings(), 3, kFourRanks);
        for (std::uint64_t i = 0; i < 200; ++i)
            fleet.admit_at(static_cast<std::int64_t>(i) * 5000,
                           prompt(i, static_cast<std::int64_t>(1 + (i * 7919) % 90'000)));
        fleet.run(1'000'000'000);
        EXPECT_EQ(fleet.done().size(), 200U);
        hash = fleet.balancer().log().hash();
    }
    EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(PrefillFleet, ABacklogOfRanksStaysWithinTheHorizon) {
    PrefillFleet fleet(some_prefill_settings(), 2, kFourRanks);
    for (std::uint64_t i = 0; i < 2000; ++i)
        fleet.admit_at(0, prompt(i, 1500));
    fleet.run(1'000'000'000);
    EXPECT_LE(fleet.most_backlog_us, 2 * 150e3);
    EXPECT_GT(fleet.most_backlog_us, 100e3);
}

double percentile(std::vector<double> values, std::size_t percent) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() * percent / 100];
}

// Prompts of 1,000 to 4,000 tokens at random times, one in a hundred of 900,000 tokens; `load` is
// of both. The 99th percentile of the short ones' wait, with the giants or without.
double short_p99_us(std::size_t engines, double load, int count, bool has_giants) {
    PrefillFleet fleet(some_prefill_settings(), engines, kFourRanks);
    const PrefillCost cost = testing::some_prefill_cost();
    const double mean_us =
        0.99 * cost.request_us(0, 2500, true) + 0.01 * cost.request_us(0, 900'000, true);
    const double gap_us = mean_us / (load * static_cast<double>(engines) * 4);
    RandomStream random(11);
    double at_us = 0;
    std::vector<std::int64_t> short_at_us;
    for (int i = 0; i < count; ++i) {
        at_us -= std::log(1 - random.next_uniform()) * gap_us;
        const auto tokens = 1000 + static_cast<std::int64_t>(random.next_below(3000));
        const bool is_giant = i % 100 == 50;
        short_at_us.push_back(is_giant ? -1 : static_cast<std::int64_t>(at_us));
        if (is_giant && !has_giants) continue;
        fleet.admit_at(static_cast<std::int64_t>(at_us),
                       prompt(static_cast<std::uint64_t>(i), is_giant ? 900'000 : tokens));
    }
    fleet.run(20'000'000'000);
    EXPECT_TRUE(fleet.is_idle());
    std::vector<double> waits;
    for (const auto& [id, done] : fleet.done())
        if (short_at_us[id] >= 0)
            waits.push_back(static_cast<double>(done.at_us - short_at_us[id]));
    return percentile(waits, 99);
}

// serving.md t.P1
TEST(PrefillFleet, OneGiantInAHundredHardlyDelaysShortPrompts) {
    EXPECT_LT(short_p99_us(16, 0.85, 10'000, true), 1.5 * short_p99_us(16, 0.85, 10'000, false));
}

TEST(PrefillFleet, ShortPromptsPassAGiantOnTheOnlyEngine) {
    PrefillFleet fleet(some_prefill_settings(), 1, kOneRank);
    fleet.admit_at(0, prompt(0, 128'000));
    for (std::uint64_t i = 1; i <= 20; ++i)
        fleet.admit_at(500'000 + static_cast<std::int64_t>(i) * 20'000, prompt(i, 500));
    fleet.run(1'000'000'000);
    ASSERT_EQ(fleet.done().size(), 21U);
    const std::int64_t giant_us = fleet.done().at(0).at_us;
    EXPECT_GT(giant_us, 1'500'000);
    for (std::uint64_t i = 1; i <= 20; ++i)
        EXPECT_LT(fleet.done().at(i).at_us, 1'600'000);
}

TEST(PrefillFleet, NobodyWaitsBehindAStreamOfLaterPrompts) {
    EXPECT_TRUE(rc::check([] {
        PrefillFleet fleet(some_prefill_settings(), *rc::gen::inRange<std::size_t>(1, 4),
                           kFourRanks);
        // Far more short prompts than the engines can do, and one of any other length early on.
        const auto odd = *rc::gen::element<std::int64_t>(14'000, 40'000, 200'000, 900'000);
        fleet.admit_at(*rc::gen::inRange<std::int64_t>(1, 500'000), prompt(9999, odd));
        for (std::uint64_t i = 0; i < 1000; ++i)
            fleet.admit_at(static_cast<std::int64_t>(i) * 2000, prompt(i, 3000));
        fleet.run(2'000'000'000);
        RC_ASSERT(fleet.is_idle());
        const double alone_us = testing::some_prefill_cost().request_us(0, odd, true);
        // A quarter of its rank at worst, after a round and two horizons.
        RC_ASSERT(static_cast<double>(fleet.done().at(9999).at_us) < 5 * alone_us + 6e6);
    }));
}

TEST(PrefillFleet, NoRankIsIdleWhilePromptsItCouldRunWait) {
    EXPECT_TRUE(rc::check([] {
        PrefillFleet fleet(some_prefill_settings(), *rc::gen::inRange<std::size_t>(1, 5),
                           kFourRanks);
        for (std::uint64_t i = 0; i < 400; ++i)
            fleet.admit_at(*rc::gen::inRange<std::int64_t>(0, 2'000'000),
                           prompt(i, *rc::gen::inRange<std::int64_t>(1, 4000)));
        fleet.run(2'000'000'000);
        RC_ASSERT(fleet.is_idle());
        RC_ASSERT(fleet.idle_beside_waiting == 0);
    }));
}

TEST(PrefillFleet, IdleRoundsAndMillionTokenPromptsAreOrdinary) {
    PrefillBalancer quiet(some_prefill_settings());
    quiet.join(0, 1, kOneRank, 0);
    std::vector<std::uint64_t> closed;
    for (std::int64_t round = 0; round < 10; ++round) {
        quiet.heartbeat(0, 1, round * 2'000'000);
        quiet.tick(round * 2'000'000, &closed);
    }
    EXPECT_EQ(quiet.log().count(), 10U);
    EXPECT_EQ(quiet.class_of_engine(0), 0U);
    PrefillFleet fleet(some_prefill_settings(), 1, kOneRank);
    for (std::uint64_t i = 0; i < 3; ++i)
        fleet.admit_at(0, prompt(i, kContextTokensMax));
    fleet.run(2'000'000'000);
    EXPECT_EQ(fleet.done().size(), 3U);
    PrefillBalancer none(some_prefill_settings());
    none.tick(0, &closed);
    const PrefillAdmission admission = none.admit(prompt(1, kContextTokensMax), 0);
    EXPECT_TRUE(admission.is_accepted);
    EXPECT_TRUE(std::isfinite(admission.ttft_us));
}

}  // namespace
}  // namespace fathom
