#include "sim/fleet/verify_side.h"

#include <gtest/gtest.h>

#include "sim/fleet/fleet.h"
#include "sim/study/draft_study.h"

namespace fathom {
namespace {

constexpr auto kScheduled = static_cast<std::size_t>(VerifyReason::scheduled);
constexpr auto kPlain = static_cast<std::size_t>(VerifyReason::plain);
constexpr auto kNoDrafts = static_cast<std::size_t>(VerifyReason::no_drafts);
constexpr auto kProbe = static_cast<std::size_t>(VerifyReason::probe);

FleetConfig drafting_fleet(Verification verification = Verification::budget) {
    FleetConfig config = *fleet_preset("one-box");
    config.duration_s = 8;
    config.warmup_s = 2;
    config.decode.ranks = 2;
    config.decode.sequences_max = 24;
    config.runs_out = true;
    config.decode.drafts.verification = verification;
    return config;
}

FleetResult run(const FleetConfig& config) {
    auto result = run_fleet(config);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (!result.ok()) return {};
    for (const std::string& violation : result->violations)
        ADD_FAILURE() << violation;
    return std::move(*result);
}

// Every answer's tokens but the first, which prefill makes.
void expect_exact_tokens(const FleetResult& result) {
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
    EXPECT_EQ(result.drafts_all.tokens, result.totals.output_tokens - result.totals.finished);
}

TEST(VerifySide, AnswersAreAsLongAsTheyWereMeantWhateverIsVerified) {
    for (const Verification verification : {Verification::all, Verification::budget}) {
        for (const bool is_group_wide : {false, true}) {
            FleetConfig config = drafting_fleet(verification);
            config.decode.drafts.is_group_wide = is_group_wide;
            const FleetResult result = run(config);
            expect_exact_tokens(result);
            EXPECT_GT(result.drafts.tokens_each(), 2);
            EXPECT_GE(result.drafts.rows_each(), result.drafts.tokens_each());
            EXPECT_GT(result.series.back().draft_rows, 1);
        }
    }
}

TEST(VerifySide, IsAFunctionOfItsConfigurationAndSeed) {
    FleetConfig config = drafting_fleet();
    const FleetResult one = run(config), again = run(config);
    EXPECT_EQ(one.hash, again.hash);
    EXPECT_EQ(one.decode_decisions, again.decode_decisions);
    config.decode.drafts.is_group_wide = true;
    EXPECT_NE(run(config).decode_decisions, one.decode_decisions);
    config = drafting_fleet();
    config.seed = 2;
    EXPECT_NE(run(config).hash, one.hash);
}

TEST(VerifySide, ItsSettingsAreNothingToARunWithATable) {
    FleetConfig config = drafting_fleet(Verification::table);
    const FleetResult before = run(config);
    config.decode.drafts = {.count = 2, .age_steps = 0, .is_group_wide = true, .patience = 0};
    const FleetResult after = run(config);
    EXPECT_EQ(before.hash, after.hash);
    EXPECT_EQ(after.drafts_all.sequence_steps, 0);
}

TEST(VerifySide, WithoutDraftsASequenceHasARowAndATokenInEveryStep) {
    FleetConfig config = drafting_fleet();
    config.decode.drafts.count = 0;
    config.workload.load = 0.3;
    const FleetResult result = run(config);
    expect_exact_tokens(result);
    EXPECT_EQ(result.drafts_all.rows, result.drafts_all.sequence_steps);
    EXPECT_EQ(result.drafts_all.tokens, result.drafts_all.sequence_steps);
}

void expect_ledger_without_negatives(const FleetResult& result) {
    EXPECT_EQ(result.decode.sum_ns(), result.decode.total_ns);
    for (std::size_t i = 0; i < kCardTimes; ++i) {
        if (static_cast<CardTime>(i) == CardTime::noise) continue;
        EXPECT_GE(result.decode.ns[i], 0) << card_time_name(static_cast<CardTime>(i));
    }
}

TEST(VerifySide, HopelessDraftsAreALossAndNoWork) {
    FleetConfig config = drafting_fleet(Verification::table);
    config.workload.load = 1.5;
    config.runs_out = false;
    const FleetResult table = run(config);
    EXPECT_EQ(table.decode.share(CardTime::rejected_drafts), 0);
    config.decode.drafts.verification = Verification::all;
    config.decode.drafts.logit_mean = -30;
    config.decode.drafts.logit_spread = config.decode.drafts.logit_noise = 0;
    const FleetResult hopeless = run(config);
    expect_ledger_without_negatives(hopeless);
    EXPECT_LT(hopeless.efficiency(), table.efficiency());
    EXPECT_LT(hopeless.decode.share(CardTime::work), table.decode.share(CardTime::work));
    EXPECT_GT(hopeless.decode.share(CardTime::rejected_drafts), 0.2);
}

TEST(VerifySide, NoPartOfFullStepsWithoutDraftsIsNegative) {
    FleetConfig config = drafting_fleet();
    config.decode.drafts.count = 0;
    config.workload.load = 1.5;
    config.runs_out = false;
    const FleetResult result = run(config);
    expect_ledger_without_negatives(result);
    EXPECT_LE(result.decode.share(CardTime::work), 1);
}

TEST(VerifySide, ServesOneSequenceOnOneRank) {
    FleetConfig config = drafting_fleet();
    config.decode.ranks = 1;
    config.decode.sequences_max = 1;
    config.workload.load = 0.2;
    const FleetResult result = run(config);
    expect_exact_tokens(result);
    EXPECT_EQ(result.drafts_all.sequence_steps, result.drafts_all.all_rank_steps());
    // Rows are nearly free: all are verified.
    EXPECT_GT(result.drafts_all.share(kPlain), 0.99);
}

TEST(VerifySide, LosesNothingWhenGroupsDrainAndBreakDown) {
    FleetConfig config = drafting_fleet();
    config.decode.groups = 3;
    config.prefill.engines = 3;
    config.drain = {.at_s = 3, .groups = 1, .grace_s = 1};
    config.failures = {.repair_s = 2, .at_s = 6};
    const FleetResult result = run(config);
    EXPECT_GT(result.totals.moved + result.totals.resumed, 0);
    EXPECT_EQ(result.totals.finished, result.totals.arrived);
}

TEST(VerifySide, RefusesAFleetThatIsTooLarge) {
    FleetConfig config = drafting_fleet();
    config.decode.groups = 512;
    EXPECT_EQ(run_fleet(config).status().message(),
              "decode.verification: \"budget\" draws the drafts of each sequence, and "
              "decode.groups x decode.ranks x decode.sequences_max are 24576, expected at most "
              "16384");
    config = drafting_fleet();
    config.decode.drafts.draft_us = 1e6;
    EXPECT_EQ(run_fleet(config).status().message().substr(0, 24), "drafts.draft_us: 1e+06, ");
}

// Steps of 10 ms and 15 us a row, whatever the ranks.
DecodeSideConfig decode_of_ten_ms(std::int64_t ranks) {
    DecodeSideConfig decode = fleet_preset("64+64")->decode;
    decode.policy.cost.moe_us *= static_cast<double>(decode.ranks) / static_cast<double>(ranks);
    return decode;
}

// A side that is driven by hand: `n` sequences of 1,000 tokens in the slots from 0.
struct Hand {
    DecodeSideConfig config;
    std::vector<std::vector<VerifySide::Seat>> seats;
    std::vector<DecodeLoad> loads;
    std::unique_ptr<VerifySide> side;
    SimTime now_ns = 0;

    Hand(std::int64_t ranks, std::int64_t sequences, DraftConfig drafts) {
        config = decode_of_ten_ms(ranks);
        config.ranks = ranks;
        config.sequences_max = sequences;
        config.drafts = drafts;
        config.drafts.verification = Verification::budget;
        side = std::make_unique<VerifySide>(config, 1);
        seats.resize(static_cast<std::size_t>(ranks));
        loads.resize(seats.size());
        std::uint32_t slot = 0;
        for (auto& rank : seats)
            for (std::int64_t i = 0; i < sequences; ++i)
                rank.push_back({slot++, 1'000});
        for (std::uint32_t i = 0; i < slot; ++i)
            side->join(i);
    }
    // Figures of so many steps.
    DraftFigures step(int steps) {
        const DraftFigures before = side->all();
        for (int i = 0; i < steps; ++i) {
            for (std::size_t r = 0; r < seats.size(); ++r)
                loads[r].sequences = static_cast<std::int64_t>(seats[r].size());
            const DecodeCost& cost = config.policy.cost;
            const double extra_us = side->plan(0, now_ns, cost, seats, loads);
            const double us = decode_step_us(cost, loads) + extra_us;
            now_ns += static_cast<SimTime>(us * 1000);
            side->finish_step(0, us);
        }
        DraftFigures done = side->all();
        for (std::size_t i = 0; i < kVerifyReasons; ++i)
            done.rank_steps[i] -= before.rank_steps[i];
        done.sequence_steps -= before.sequence_steps;
        done.rows -= before.rows;
        done.tokens -= before.tokens;
        return done;
    }
};

TEST(VerifySide, FindsBackByProbesWhenHopelessDraftsComeBack) {
    for (const bool is_group_wide : {false, true}) {
        DraftConfig drafts{.is_group_wide = is_group_wide, .fail_at_s = 2, .fail_s = 4};
        Hand hand(2, 60, drafts);
        const DraftFigures good = hand.step(150);
        EXPECT_GT(good.share(kScheduled), 0.9);
        EXPECT_LT(hand.now_ns, SimTime{2'000'000'000});
        while (hand.now_ns < SimTime{3'000'000'000})
            hand.step(1);
        // None is drafted but in probes, which are rare.
        const DraftFigures hopeless = hand.step(128);
        EXPECT_EQ(hopeless.rank_steps[kProbe], 2 * 2);
        EXPECT_EQ(hopeless.share(kScheduled) + hopeless.share(kPlain), 0);
        EXPECT_EQ(hopeless.share(kNoDrafts) + hopeless.share(kProbe), 1);
        EXPECT_EQ(hopeless.tokens, hopeless.sequence_steps);
        EXPECT_LT(hand.now_ns, SimTime{6'000'000'000});
        while (hand.now_ns < SimTime{6'000'000'000})
            hand.step(1);
        // A probe comes within 64 steps, and is judged 3 steps later.
        hand.step(64 + 3);
        const DraftFigures again = hand.step(100);
        EXPECT_EQ(again.share(kNoDrafts), 0);
        EXPECT_GT(again.tokens_each(), 2.5);
    }
}

TEST(VerifySide, GoesOnWhenAllSequencesOfARankEndInOneStep) {
    Hand hand(2, 8, {});
    hand.step(3);
    const auto seats = std::exchange(hand.seats[1], {});
    const DraftFigures alone = hand.step(5);
    EXPECT_EQ(hand.loads[1].verify_tokens, 0);
    EXPECT_EQ(alone.all_rank_steps(), 5);
    for (const VerifySide::Seat& seat : seats)
        hand.side->join(seat.slot);
    hand.seats[1] = seats;
    const DraftFigures both = hand.step(1);
    EXPECT_EQ(both.all_rank_steps(), 2);
    EXPECT_EQ(hand.loads[1].verify_tokens, 8);  // none has a draft yet
}

TEST(VerifySide, VerifiesNoMoreThanASequenceMayStillGenerate) {
    Hand hand(1, 8, {});
    hand.step(2);
    for (VerifySide::Seat& seat : hand.seats[0])
        seat.left_tokens = 1 + seat.slot % 3;
    for (int i = 0; i < 50; ++i) {
        hand.step(1);
        EXPECT_LE(hand.loads[0].verify_tokens, 3 * 1 + 3 * 2 + 2 * 3);
        for (const VerifySide::Seat& seat : hand.seats[0])
            EXPECT_LE(hand.side->accepted(seat.slot), seat.left_tokens);
    }
}

TEST(DraftStudy, SchedulingGainsWithLoadAndACommonBudgetMoreWhereRanksDiffer) {
    DraftStudy study;
    study.decode = decode_of_ten_ms(2);
    study.warmup_steps = 50;
    study.steps = 200;
    study.decode.drafts.verification = Verification::budget;
    study.sequences = {96, 96};
    EXPECT_GT(draft_gain(study), 0.05);
    study.sequences = {4, 4};
    EXPECT_NEAR(draft_gain(study), 0, 0.01);
    study.decode.policy.cost.moe_us /= 2;
    study.sequences = {10, 30, 60, 100};
    const double alone = draft_gain(study);
    study.decode.drafts.is_group_wide = true;
    EXPECT_GT(draft_gain(study), alone);
    EXPECT_EQ(run_draft_study(study).decisions, run_draft_study(study).decisions);
}

}  // namespace
}  // namespace fathom
