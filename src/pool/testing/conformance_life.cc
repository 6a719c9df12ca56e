// Conformance: how long blocks live.
#include <algorithm>
#include <deque>

#include "pool/class_life.h"
#include "pool/testing/store_conformance.h"

namespace fathom::testing {

void link_life_tests() {}

namespace {

constexpr std::int64_t kMsInUs = 1000;

}  // namespace

TEST_P(StoreConformance, ReopenedItHasWhatItHad) {
    const std::vector<BlockName> names = chain_names(1, 30);
    put(names, 1);
    for (int life = 0; life < 3; ++life) {
        reopen();
        if (!rig_->traits.durable) return expect_absent(names);
        expect_writer(names, 1);
        EXPECT_EQ(put_outcome_name(put({names[4]}, 2)[0]), "exists");
        const std::vector<BlockName> more = chain_names(static_cast<std::uint64_t>(life) + 2, 3);
        put(more, 1);
        expect_writer(more, 1);
    }
}

TEST_P(StoreConformance, ADroppedNamespaceIsGoneAndOthersStay) {
    const std::vector<BlockName> mine = chain_names(1, 20, 1), theirs = chain_names(1, 20, 2);
    put(mine, 1);
    put(theirs, 1);
    ASSERT_TRUE(start_drop(*store_, oracle_namespace(1), soon()).wait().ok());
    expect_absent(mine);
    expect_writer(theirs, 1);
    reopen();
    expect_absent(mine);
    if (rig_->traits.durable) expect_writer(theirs, 1);
    ASSERT_TRUE(start_drop(*store_, oracle_namespace(3), soon()).wait().ok());
}

TEST_P(StoreConformance, ADropAmongPutsLeavesNothingOfWhatWasThere) {
    for (std::uint64_t round = 0; round < 10; ++round) {
        const std::vector<BlockName> before = chain_names(round, 20, 1);
        const std::vector<BlockName> among = chain_names(100 + round, 20, 1);
        put(before, 1);
        const WritePages writes(among, 2, payload_bytes_);
        const Call<PutResult> call = start_put(*store_, writes.requests(), {}, soon());
        ASSERT_TRUE(start_drop(*store_, oracle_namespace(1), soon()).wait().ok());
        expect_absent(before);
        call.wait_released();
        const Read read = get(among);
        for (std::size_t i = 0; i < among.size(); ++i) {
            if (read.blocks[i] != GetStatus::hit) continue;
            EXPECT_EQ(payload_writer(among[i].key, read.payloads[i]), std::uint64_t{2});
        }
    }
}

TEST_P(StoreConformance, BlocksLiveAsLongAsTheirClassSays) {
    if (!rig_->advance_us(0)) GTEST_SKIP() << "no manual clock";
    for (int i = 0; i < kTrafficClasses; ++i) {
        const auto traffic_class = static_cast<TrafficClass>(i);
        SCOPED_TRACE(traffic_class_name(traffic_class));
        open_anew(kPayloadBytes);
        const ClassLife& life = class_life(traffic_class);
        const std::vector<BlockName> names = chain_names(1, 8);
        put(names, 1, {.traffic_class = traffic_class});
        const std::int64_t before_ms = 1000;
        rig_->advance_us((life.ttl_ms - before_ms) * kMsInUs);
        expect_writer(names, 1);
        rig_->advance_us((before_ms + life.bucket_ms + rig_->traits.expiry_slack_ms) * kMsInUs);
        expect_absent(names);
        EXPECT_EQ(start_prefix(*store_, keys_of(names), soon()).wait().blocks, 0u);
        put(names, 2, {.traffic_class = traffic_class});
        expect_writer(names, 2);
    }
}

TEST_P(StoreConformance, ExpiredBlocksStayGoneWhenReopened) {
    if (!rig_->advance_us(0)) GTEST_SKIP() << "no manual clock";
    const std::vector<BlockName> brief = chain_names(1, 8), lasting = chain_names(2, 8);
    put(brief, 1, {.traffic_class = TrafficClass::ephemeral});
    put(lasting, 1, {.traffic_class = TrafficClass::agent});
    rig_->advance_us((kHourMs + 5 * kMinuteMs + rig_->traits.expiry_slack_ms) * kMsInUs);
    reopen();
    expect_absent(brief);
    if (rig_->traits.durable) expect_writer(lasting, 1);
}

TEST_P(StoreConformance, RenewedBlocksOutliveTheirFirstTerm) {
    if (!rig_->advance_us(0)) GTEST_SKIP() << "no manual clock";
    const std::vector<BlockName> names = chain_names(1, 8);
    const PutOptions options{.traffic_class = TrafficClass::ephemeral,
                             .renew_before_ms = 15 * kMinuteMs};
    put(names, 1, options);
    for (const PutOutcome outcome : put(names, 1, options))
        EXPECT_EQ(put_outcome_name(outcome), "exists");
    for (int term = 0; term < 4; ++term) {
        rig_->advance_us(55 * kMinuteMs * kMsInUs);
        for (const PutOutcome outcome : put(names, 1, options))
            EXPECT_EQ(put_outcome_name(outcome), "renewed");
        expect_writer(names, 1);
    }
    if (rig_->traits.durable) {
        reopen();
        expect_writer(names, 1);
    }
    rig_->advance_us((kHourMs + 5 * kMinuteMs + rig_->traits.expiry_slack_ms) * kMsInUs);
    expect_absent(names);
}

TEST_P(StoreConformance, WithoutRenewalADuplicateDoesNotProlong) {
    if (!rig_->advance_us(0)) GTEST_SKIP() << "no manual clock";
    const std::vector<BlockName> names = chain_names(1, 4);
    put(names, 1, {.traffic_class = TrafficClass::ephemeral});
    rig_->advance_us(50 * kMinuteMs * kMsInUs);
    for (const PutOutcome outcome : put(names, 1, {.traffic_class = TrafficClass::ephemeral}))
        EXPECT_EQ(put_outcome_name(outcome), "exists");
    rig_->advance_us((15 * kMinuteMs + rig_->traits.expiry_slack_ms) * kMsInUs);
    expect_absent(names);
}

// Every ten minutes blocks of an hour's life and of days are put; at any time those that must be
// there are, and those that must not are not.
TEST_P(StoreConformance, HoldsWhatItShouldThroughADayOfTraffic) {
    if (!rig_->advance_us(0)) GTEST_SKIP() << "no manual clock";
    constexpr std::int64_t kStepMs = 10 * kMinuteMs;
    const ClassLife& brief = class_life(TrafficClass::ephemeral);
    const std::int64_t gone_ms = brief.ttl_ms + brief.bucket_ms + rig_->traits.expiry_slack_ms;
    std::vector<BlockName> lasting;
    for (std::int64_t step = 0; step < kDayMs / kStepMs; ++step) {
        const auto chain = static_cast<std::uint64_t>(step);
        put(chain_names(chain, 8), 1, {.traffic_class = TrafficClass::ephemeral});
        lasting.push_back(oracle_name(100'000 + chain, 1));
        put({lasting.back()}, 1, {.traffic_class = TrafficClass::agent});
        rig_->advance_us(kStepMs * kMsInUs);
        for (std::int64_t age = 1; age <= step + 1; ++age) {
            const std::vector<BlockName> names =
                chain_names(static_cast<std::uint64_t>(step + 1 - age), 2);
            if (age * kStepMs < brief.ttl_ms) expect_writer(names, 1);
            if (age * kStepMs > gone_ms && age * kStepMs < gone_ms + 2 * kStepMs)
                expect_absent(names);
        }
        if (step % 36 == 35) expect_writer(lasting, 1);
    }
}

}  // namespace fathom::testing
