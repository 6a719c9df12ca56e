#include "policy/decision_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "policy/state_bytes.h"

namespace fathom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DecisionRecord some_record(std::int64_t i) {
    DecisionRecord record;
    record.kind = DecisionKind::prefill_grant;
    record.reason = 3;
    record.actor = 7;
    record.now_us = 1000 + i;
    record.input_digest = Digest().add(i).value();
    record.fields = {i, -i, 1, 2, 3};
    return record;
}

TEST(DecisionLog, ARecordIsItsSixtyFourBytes) {
    EXPECT_TRUE(rc::check([] {
        DecisionBytes bytes{};
        for (std::uint8_t& byte : bytes)
            byte = *rc::gen::arbitrary<std::uint8_t>();
        RC_ASSERT(encode_decision(decode_decision(bytes)) == bytes);
    }));
    const DecisionBytes bytes = encode_decision(some_record(5));
    EXPECT_EQ(bytes[0], 2);
    EXPECT_EQ(bytes[2], 3);
    EXPECT_EQ(bytes[4], 7);
    EXPECT_EQ(decode_decision(bytes), some_record(5));
    EXPECT_FALSE(decode_decisions(std::span(bytes).first(63)).ok());
}

TEST(DecisionLog, EveryBitOfEveryRecordMovesTheHash) {
    EXPECT_TRUE(rc::check([] {
        const auto bit = *rc::gen::inRange<std::size_t>(0, 8 * kDecisionBytes);
        DecisionLog a, b;
        a.record(some_record(1));
        DecisionBytes bytes = encode_decision(some_record(1));
        bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << (bit % 8));
        b.record(decode_decision(bytes));
        RC_ASSERT(a.hash() != b.hash());
        a.record(some_record(2));
        b.record(some_record(2));
        RC_ASSERT(a.hash() != b.hash());
    }));
}

TEST(DecisionLog, OrderMovesTheHash) {
    DecisionLog a, b;
    a.record(some_record(1));
    a.record(some_record(2));
    b.record(some_record(2));
    b.record(some_record(1));
    EXPECT_NE(a.hash(), b.hash());
}

TEST(DecisionLog, TheHashIsTheSameOnEveryMachine) {
    DecisionLog log;
    for (int i = 0; i < 10; ++i)
        log.record(some_record(i));
    EXPECT_EQ(fmt::format("{:016x}", log.hash()), "6208aad4bc5cd1d1");
}

TEST(DecisionLog, KeepsTheNewestRecords) {
    DecisionLog log(3);
    EXPECT_TRUE(log.newest().empty());
    for (int i = 0; i < 5; ++i)
        log.record(some_record(i));
    EXPECT_THAT(log.newest(), ElementsAre(some_record(2), some_record(3), some_record(4)));
    EXPECT_EQ(log.count(), 5U);
}

TEST(DecisionLog, AStandbyGoesOnWithTheSameHash) {
    DecisionLog whole, second(2);
    whole.record(some_record(0));
    second.resume(whole.hash(), whole.count());
    for (int i = 1; i < 6; ++i) {
        whole.record(some_record(i));
        second.record(some_record(i));
    }
    EXPECT_EQ(second.hash(), whole.hash());
    EXPECT_EQ(second.count(), 6U);
    EXPECT_THAT(second.newest(), ElementsAre(some_record(4), some_record(5)));
}

TEST(ReplayCheck, NamesTheFirstDifference) {
    std::vector<DecisionRecord> expected = {some_record(0), some_record(1)};
    const auto replayed = [&](std::vector<DecisionRecord> made) {
        ReplayCheck check(expected);
        DecisionLog log;
        log.set_visitor([&](const DecisionRecord& record) { check.observe(record); });
        for (const DecisionRecord& record : made)
            log.record(record);
        return check.finish();
    };
    EXPECT_TRUE(replayed(expected).ok());
    EXPECT_THAT(replayed({some_record(0)}).message(), HasSubstr("end after 1"));
    EXPECT_THAT(replayed({some_record(0), some_record(3)}).message(), HasSubstr("decision 1: "));
    EXPECT_THAT(replayed({some_record(0), some_record(1), some_record(2)}).message(),
                HasSubstr("expected the end of the log"));
}

TEST(StateBytes, AreReadAsWritten) {
    StateWriter out("TEST", 2);
    out.add(std::int64_t{-5}).add(1.5).add(true).add(std::uint64_t{2}).add(7).add(8);
    const std::vector<std::uint8_t> bytes = out.take();
    StateReader in(bytes, "TEST", 2);
    EXPECT_EQ(in.i64(), -5);
    EXPECT_EQ(in.f64(), 1.5);
    EXPECT_TRUE(in.flag());
    EXPECT_EQ(in.count(10), 2U);
    EXPECT_EQ(in.in_range(0, 7), 7);
    EXPECT_EQ(in.i64(), 8);
    EXPECT_TRUE(in.finish().ok());
}

TEST(StateBytes, DamageIsAnError) {
    StateWriter out("TEST", 2);
    out.add(std::uint64_t{1'000'000}).add(std::int64_t{9});
    const std::vector<std::uint8_t> bytes = out.take();
    EXPECT_FALSE(StateReader(bytes, "TEST", 3).ok());
    EXPECT_FALSE(StateReader(bytes, "ELSE", 2).ok());
    EXPECT_FALSE(StateReader({}, "TEST", 2).ok());
    StateReader more(bytes, "TEST", 2);
    EXPECT_EQ(more.count(1 << 30), 0U);  // cannot follow
    EXPECT_FALSE(more.ok());
    StateReader range(bytes, "TEST", 2);
    EXPECT_EQ(range.in_range(0, 5), 0);
    EXPECT_FALSE(range.ok());
    StateReader left(bytes, "TEST", 2);
    left.u64();
    EXPECT_THAT(left.finish().message(), HasSubstr("expected 16"));
}

}  // namespace
}  // namespace fathom
