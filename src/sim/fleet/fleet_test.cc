#include "sim/fleet/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>

#include "sim/fleet/decode_side.h"
#include "sim/fleet/test_fleet.h"
#include "sim/fleet/workload.h"

namespace fathom {
namespace {

using testing::run_checked;

FleetConfig preset(const std::string& name) {
    auto config = fleet_preset(name);
    EXPECT_TRUE(config.ok());
    return *config;
}

FleetConfig small_fleet() {
    FleetConfig config = preset("one-box");
    config.duration_s = 60;
    config.warmup_s = 10;
    config.runs_out = true;
    return config;
}

TEST(Fleet, FinishesWhatArrivesAndItsCardTimeAddsUp) {
    const FleetResult result = run_checked(small_fleet());
    EXPECT_GT(result.totals.finished, 20);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
    EXPECT_EQ(result.totals.in_flight, 0);
    EXPECT_EQ(result.prefill.sum_ns(), result.prefill.total_ns);
    EXPECT_EQ(result.decode.sum_ns(), result.decode.total_ns);
    EXPECT_GT(result.efficiency(), 0);
    EXPECT_LT(result.efficiency(), 1);
    EXPECT_GT(result.all.ttft_ms.percentile(0.5), 1);
}

TEST(Fleet, IsAFunctionOfItsConfigurationAndSeed) {
    FleetConfig config = small_fleet();
    const FleetResult one = run_checked(config), again = run_checked(config);
    EXPECT_EQ(one.hash, again.hash);
    EXPECT_EQ(one.totals.events, again.totals.events);
    config.seed = 2;
    EXPECT_NE(run_checked(config).hash, one.hash);
}

TEST(Fleet, ConservesRequestsTokensBlocksAndTimeWhateverItIs) {
    rc::check([] {
        FleetConfig config = small_fleet();
        config.seed = *rc::gen::arbitrary<std::uint32_t>();
        config.duration_s = 20;
        config.warmup_s = *rc::gen::inRange(0, 10);
        config.prefill.engines = *rc::gen::inRange(1, 4);
        config.prefill.ranks = *rc::gen::inRange(1, 5);
        config.decode.groups = *rc::gen::inRange(1, 3);
        config.decode.ranks = *rc::gen::inRange(1, 9);
        config.decode.sequences_max = *rc::gen::inRange(1, 64);
        config.decode.report_age_steps = *rc::gen::inRange(0, 6);
        config.workload.load = *rc::gen::inRange(0, 15) * 0.1 + 0.05;
        config.workload.burst = 1 + *rc::gen::inRange(0, 10) * 0.1;
        config.workload.burst_s = 3;
        config.pool.is_enabled = *rc::gen::arbitrary<bool>();
        config.runs_out = *rc::gen::arbitrary<bool>();
        if (*rc::gen::arbitrary<bool>()) {
            config.workload.source = WorkloadSource::clients;
            config.workload.clients = *rc::gen::inRange(1, 100);
            config.workload.clients_begin_s = 5;
        }
        if (*rc::gen::arbitrary<bool>())
            config.drain = {.at_s = 8,
                            .groups = 1,
                            .engines = 1,
                            .grace_s = *rc::gen::inRange(0, 3) * 0.5,
                            .adopt_s = *rc::gen::inRange(0, 3) * 0.01,
                            .is_forced = *rc::gen::arbitrary<bool>()};
        if (*rc::gen::arbitrary<bool>())
            config.failures = {.repair_s = 2, .at_s = 8 + *rc::gen::inRange(0, 4) * 0.4};
        config.network.link_gbit_s = *rc::gen::element(400.0, 0.5);
        config.scaling.is_enabled = *rc::gen::arbitrary<bool>();
        config.scaling.start_s = 2;
        const auto result = run_fleet(config);
        RC_ASSERT(result.ok());
        RC_ASSERT(result->violations == std::vector<std::string>());
    });
}

TEST(Fleet, LosesNothingWhenEnginesAndGroupsBreakDown) {
    FleetConfig config = small_fleet();
    config.prefill.engines = 3;
    config.decode.groups = 3;
    config.failures = {.card_mtbf_h = 0.05, .repair_s = 5};
    const FleetResult result = run_checked(config);
    EXPECT_GT(result.totals.resumed, 0);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
    EXPECT_GT(result.prefill.share(CardTime::failed) + result.decode.share(CardTime::failed), 0);
}

TEST(Fleet, HandsOverWhatADrainingGroupStillRuns) {
    FleetConfig config = small_fleet();
    config.decode.groups = 3;
    config.prefill.engines = 3;
    config.drain = {.at_s = 30, .groups = 1, .engines = 1, .grace_s = 5};
    const FleetResult result = run_checked(config);
    EXPECT_EQ(result.scaling.drains, 2);
    EXPECT_GT(result.totals.moved, 0);
    EXPECT_EQ(result.move_ms.count(), result.totals.moved);
    EXPECT_GT(result.totals.short_chats, 0);
    EXPECT_LE(result.totals.short_chats_ended, result.totals.short_chats);
    EXPECT_EQ(result.totals.resumed, 0);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
}

// Links so slow that few sequences arrive in time, and an engine that may finish nothing.
TEST(Fleet, ResumesWhatNobodyAdoptedInTimeAndLosesNoToken) {
    FleetConfig config = small_fleet();
    config.decode.groups = 3;
    config.prefill.engines = 3;
    config.network.link_gbit_s = 1;
    config.drain = {.at_s = 30, .groups = 1, .engines = 1, .grace_s = 0.1, .adopt_s = 0.05};
    const FleetResult result = run_checked(config);
    EXPECT_GT(result.drains.copied_ahead, 0);
    EXPECT_GT(result.drains.resumed, 0);
    EXPECT_GT(result.drains.handed_back, 0);
    EXPECT_EQ(result.drains.adopted, result.totals.moved);
    EXPECT_LE(result.drains.resumed, result.totals.resumed);  // beside those on their way there
    EXPECT_EQ(result.gap_ms.count(), result.totals.resumed);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
}

TEST(Fleet, RefusesADrainWithoutRoomElsewhereUnlessForced) {
    FleetConfig config = small_fleet();
    config.decode.groups = 2;
    config.prefill.engines = 2;
    config.decode.sequences_max = 4;
    config.drain = {.at_s = 30, .groups = 1, .grace_s = 1, .adopt_s = 1};
    const FleetResult refused = run_checked(config);
    EXPECT_EQ(refused.drains.refused, 1);
    EXPECT_EQ(refused.scaling.drains, 0);
    config.drain.is_forced = true;
    const FleetResult forced = run_checked(config);
    EXPECT_EQ(forced.drains.refused, 0);
    EXPECT_EQ(forced.scaling.drains, 1);
    EXPECT_EQ(forced.totals.finished, forced.totals.arrived);
}

TEST(Fleet, TheLastOneIsNotDrained) {
    FleetConfig config = small_fleet();
    config.decode.groups = 2;
    config.drain.at_s = 20;
    config.drain.groups = 100;
    const FleetResult result = run_checked(config);
    EXPECT_EQ(result.drains.begun, 1);
    EXPECT_EQ(result.drains.refused, 1);
}

TEST(Fleet, FailuresThatAreBeyondAnyRunNeverCome) {
    FleetConfig config = small_fleet();
    config.failures.card_mtbf_h = 1e9;
    EXPECT_EQ(run_checked(config).totals.resumed, 0);
    config.failures.card_mtbf_h = 1e-300;
    EXPECT_THAT(std::string(run_fleet(config).status().message()),
                ::testing::HasSubstr("expected 0 for never, or at least 0.0001"));
    config.failures.card_mtbf_h = 0;
    config.failures.at_s = config.duration_s;
    EXPECT_THAT(std::string(run_fleet(config).status().message()),
                ::testing::HasSubstr("failures.at_s: 60, expected less than sim.duration_s, 60"));
}

TEST(Fleet, WhatBeginsAgainIsNotAskedForAgain) {
    FleetConfig config = small_fleet();
    config.decode.groups = 2;
    const FleetResult calm = run_checked(config);
    config.failures.at_s = 20;
    config.failures.groups = 1;
    const FleetResult broken = run_checked(config);
    EXPECT_GT(broken.totals.resumed, 0);
    EXPECT_EQ(broken.totals.input_tokens, calm.totals.input_tokens);
}

TEST(Fleet, ResumesTheSequencesOfAGroupThatDies) {
    FleetConfig config = small_fleet();
    config.decode.groups = 3;
    config.prefill.engines = 3;
    config.failures = {.repair_s = 10, .at_s = 30};
    const FleetResult result = run_checked(config);
    EXPECT_GT(result.totals.resumed, 0);
    EXPECT_EQ(result.gap_ms.count(), result.totals.resumed);
    // The tail, the window's block, and one more where these are less than what the decoder half
    // keeps.
    EXPECT_LE(result.recomputed_tokens_max, kDecoderTailTokens + 127);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
}

TEST(Fleet, GrowsAndShrinksWithItsTraffic) {
    FleetConfig config = small_fleet();
    config.prefill.engines = 8;
    config.decode.groups = 8;
    config.duration_s = 1500;
    config.workload.load = 0.25;
    config.workload.shape = {.crowd_at_s = 300, .crowd_factor = 3, .crowd_s = 300};
    config.scaling = {.is_enabled = true, .prefill_begin = 3, .decode_begin = 3, .start_s = 10};
    const FleetResult result = run_checked(config);
    EXPECT_GT(result.scaling.started, 0);
    EXPECT_GT(result.scaling.drains, 0);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
    EXPECT_EQ(result.totals.resumed, 0);
}

TEST(Fleet, ServesClientsThatWaitForTheirAnswers) {
    FleetConfig config = small_fleet();
    config.workload.source = WorkloadSource::clients;
    config.workload.clients = 20;
    config.workload.clients_begin_s = 5;
    const FleetResult result = run_checked(config);
    EXPECT_GT(result.totals.finished, 40);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
    for (const FleetSample& sample : result.series)
        EXPECT_LE(sample.decoding, 20);
    // One that waits for few answers more has another run, but each client the same random numbers.
    EXPECT_EQ(run_checked(config).hash, result.hash);
}

TEST(Fleet, TakesTheShortcutOfOneClockARankWithoutMovingTheFigures) {
    FleetConfig config = small_fleet();
    config.duration_s = 300;
    config.warmup_s = 60;
    config.runs_out = false;
    const FleetResult fast = run_checked(config);
    config.decode.is_per_sequence = true;
    const FleetResult exact = run_checked(config);
    EXPECT_NEAR(fast.all.tpot_ms.mean() / exact.all.tpot_ms.mean(), 1, 0.03);
    EXPECT_NEAR(fast.all.tpot_ms.percentile(0.99) / exact.all.tpot_ms.percentile(0.99), 1, 0.05);
    EXPECT_NEAR(fast.decode.share(CardTime::work), exact.decode.share(CardTime::work), 0.01);
}

TEST(Fleet, ReplaysATraceAndFindsWhatEarlierRequestsLeft) {
    const std::string path = ::testing::TempDir() + "fleet_trace.jsonl";
    {
        std::ofstream out(path);
        for (int i = 0; i < 40; ++i)
            out << "{\"timestamp\": " << i * 1000 << ", \"input_length\": 2048, "
                << "\"output_length\": 8, \"hash_ids\": [1, 2, " << 100 + i / 2 << ", " << 1000 + i
                << "]}\n";
    }
    FleetConfig config = small_fleet();
    config.workload.source = WorkloadSource::trace;
    config.workload.trace = path;
    config.warmup_s = 0;
    const FleetResult result = run_checked(config);
    EXPECT_EQ(result.totals.finished, 40);
    // Two blocks of all but the first, a third of every other one.
    EXPECT_EQ(result.totals.hit_tokens, 512 * (2 * 39 + 20));
    EXPECT_EQ(result.totals.output_tokens, 320);
}

TEST(Fleet, RefusesWhatDoesNotGoTogetherByName) {
    FleetConfig config = small_fleet();
    config.warmup_s = 60;
    EXPECT_EQ(run_fleet(config).status().message(),
              "sim.warmup_s: 60, expected less than sim.duration_s, 60");
    config = small_fleet();
    config.prefill.blocks_per_rank = 100;
    EXPECT_EQ(run_fleet(config).status().message(),
              "prefill.blocks_per_rank: 100, expected at least 8192, for a prompt of "
              "workload.context_tokens_max");
    EXPECT_EQ(fleet_preset("two-box").status().message(),
              "sim.preset: \"two-box\" is not known; there are one-box, 16-cards, 64+64, "
              "6500-cards, 10000-cards");
}

TEST(SessionBook, HasTheFiguresItWasFittedTo) {
    const FleetConfig config = preset("64+64");
    const std::vector<SessionCall> book = write_session_book(config.workload, 1, 400'000);
    const WorkloadMeans means = session_means(book, config.pool);
    EXPECT_NEAR(means.hit_share, 0.96, 0.01);
    const double output_share = means.output_tokens / (means.input_tokens + means.output_tokens);
    EXPECT_GT(output_share, 0.04);
    EXPECT_LT(output_share, 0.05);
    // Chat alone, with a life of 7 days and of 3.
    WorkloadConfig chat = config.workload;
    chat.sessions[0].share = 0;
    const std::vector<SessionCall> chat_book = write_session_book(chat, 1, 400'000);
    PoolConfig short_lived = config.pool;
    short_lived.ttl_s[static_cast<std::size_t>(Traffic::chat)] = 3 * 86'400.0;
    const double lost = session_means(chat_book, config.pool).hit_share -
                        session_means(chat_book, short_lived).hit_share;
    EXPECT_GT(lost, 0.005);
    EXPECT_LT(lost, 0.010);
}

TEST(LogHistogram, PercentilesAreWithinAClass) {
    LogHistogram histogram;
    for (int i = 1; i <= 10'000; ++i)
        histogram.add(i);
    EXPECT_NEAR(histogram.percentile(0.5) / 5000, 1, 0.011);
    EXPECT_NEAR(histogram.percentile(0.99) / 9900, 1, 0.011);
    EXPECT_NEAR(histogram.mean(), 5000.5, 1e-6);
    EXPECT_EQ(LogHistogram().percentile(0.5), 0);
}

}  // namespace
}  // namespace fathom
