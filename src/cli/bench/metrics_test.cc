#include "cli/bench/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using ::testing::HasSubstr;

RequestRecord record(std::int64_t start_us, std::vector<std::int64_t> arrivals_us,
                     std::int64_t output_tokens) {
    RequestRecord made;
    made.start_us = start_us;
    for (const std::int64_t at : arrivals_us)
        made.arrive(at);
    made.end_us = arrivals_us.back();
    made.prompt_tokens = 10;
    made.output_tokens = output_tokens;
    return made;
}

TEST(BenchMetrics, FollowTheirDefinitions) {
    const std::vector<RequestRecord> records = {
        record(1'000'000, {1'100'000, 1'120'000, 1'150'000}, 3),
        record(1'000'000, {1'300'000, 1'500'000}, 5),  // several tokens an arrival
        record(2'000'000, {3'000'000}, 1),             // one token has no TPOT
    };
    const LoadSummary s = summarise(records, {});
    EXPECT_EQ(s.completed, 3);
    EXPECT_DOUBLE_EQ(s.duration_s, 2);
    EXPECT_EQ(s.input_tokens, 30);
    EXPECT_EQ(s.output_tokens, 9);
    EXPECT_DOUBLE_EQ(s.request_throughput, 1.5);
    EXPECT_DOUBLE_EQ(s.output_throughput, 4.5);
    EXPECT_DOUBLE_EQ(s.total_throughput, 19.5);
    EXPECT_DOUBLE_EQ(s.ttft_ms.median, 300);
    EXPECT_DOUBLE_EQ(s.ttft_ms.mean, 1400.0 / 3);
    EXPECT_DOUBLE_EQ(s.tpot_ms.mean, (25 + 50) / 2.0);
    EXPECT_DOUBLE_EQ(s.itl_ms.mean, (20 + 30 + 200) / 3.0);
    EXPECT_DOUBLE_EQ(s.e2el_ms.p99, 990);
    EXPECT_FALSE(s.goodput.has_value());
}

TEST(BenchMetrics, CountFailuresByKindAndInNothingElse) {
    RequestRecord failed = record(500'000, {9'000'000}, 100);
    failed.error = "http 429";
    failed.detail = "busy";
    const LoadSummary s = summarise({record(1'000'000, {2'000'000}, 2), failed, failed}, {});
    EXPECT_EQ(s.completed, 1);
    EXPECT_EQ(s.failed, 2);
    EXPECT_EQ(s.errors.at("http 429"), 2);
    EXPECT_EQ(s.first_detail, "busy");
    EXPECT_EQ(s.output_tokens, 2);
    EXPECT_DOUBLE_EQ(s.ttft_ms.p99, 1000);
}

TEST(BenchMetrics, GoodRequestsKeepEveryBound) {
    const std::vector<RequestRecord> records = {record(0, {100'000, 200'000}, 2),
                                                record(0, {300'000, 310'000}, 2),
                                                record(0, {100'000, 1'000'000}, 2)};
    const auto good = [&](std::vector<std::string> bounds) {
        const auto level = parse_service_level(bounds);
        EXPECT_TRUE(level.ok()) << level.status().message();
        return *summarise(records, *level).goodput;
    };
    EXPECT_DOUBLE_EQ(good({"ttft:200"}), 2);
    EXPECT_DOUBLE_EQ(good({"ttft:200", "tpot:150"}), 1);
    EXPECT_DOUBLE_EQ(good({"e2el:310"}), 2);
    EXPECT_DOUBLE_EQ(good({"e2el:1"}), 0);
}

TEST(BenchMetrics, RefuseABoundThatIsNone) {
    for (const char* bound : {"", "ttft", "ttft:", "ttft:-1", "ttft:0", "ttft:1x", "tbt:3", ":5"}) {
        const auto level = parse_service_level({bound});
        ASSERT_FALSE(level.ok()) << bound;
        EXPECT_THAT(level.status().message(), HasSubstr("goodput"));
    }
}

TEST(BenchMetrics, PercentilesInterpolate) {
    const std::vector<double> values = {1, 2, 3, 4};
    EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
    EXPECT_DOUBLE_EQ(percentile(values, 50), 2.5);
    EXPECT_DOUBLE_EQ(percentile(values, 99), 3.97);
    EXPECT_DOUBLE_EQ(percentile(values, 100), 4);
    EXPECT_DOUBLE_EQ(distribution_of({5}).p99, 5);
    EXPECT_DOUBLE_EQ(distribution_of({}).mean, 0);
}

TEST(BenchMetrics, ARunWithoutRequestsHasNoFigures) {
    const LoadSummary s = summarise({}, {});
    EXPECT_EQ(s.completed, 0);
    EXPECT_DOUBLE_EQ(s.request_throughput, 0);
}

}  // namespace
}  // namespace fathom
