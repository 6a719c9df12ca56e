// The settings of `fathom pool replay` as policies, and its reports.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "cli/pool/replay_plan.h"
#include "cli/pool/replay_report.h"

namespace fathom {
namespace {

TEST(PoolReplay, ListsMakeEachCombinationOnce) {
    ReplaySettings settings;
    const auto plain = make_replay_plan(settings);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    EXPECT_EQ(plain->policies.size(), 1u + 3 * 4);
    settings.capacity = "4GiB,1.5MiB";
    settings.page = "64,128";
    settings.ttl = "90s";
    const auto limited = make_replay_plan(settings);
    ASSERT_TRUE(limited.ok()) << limited.status().message();
    // 2 pages × 4 policies × 2 capacities × 3 evictions, but for refresh with earliest.
    EXPECT_EQ(limited->policies.size(), 48u - 4);
    EXPECT_EQ(limited->left_out, 4);
    EXPECT_EQ(limited->policies[3].capacity_bytes, 1'572'864);
}

TEST(PoolReplay, WrongWordsAreNamed) {
    struct Case {
        std::string ReplaySettings::*setting;
        const char* text;
        const char* message;
    };
    const Case cases[] = {
        {&ReplaySettings::ttl, "1w", "replay.ttl \"1w\": expected a time such as"},
        {&ReplaySettings::ttl, "-1s", "replay.ttl \"-1s\""},
        {&ReplaySettings::ttl, "1e300d", "replay.ttl \"1e300d\""},
        {&ReplaySettings::ttl, "1h,", "replay.ttl: expected up to 64 words"},
        {&ReplaySettings::capacity, "4GB", "replay.capacity \"4GB\": expected a size such as"},
        {&ReplaySettings::policy, "lru", "replay.policy \"lru\": expected of unlimited, refresh"},
        {&ReplaySettings::page, "12x", "replay.page \"12x\": expected tokens"},
    };
    for (const Case& bad : cases) {
        ReplaySettings settings;
        settings.*bad.setting = bad.text;
        const auto plan = make_replay_plan(settings);
        ASSERT_FALSE(plan.ok()) << bad.text;
        EXPECT_EQ(plan.status().message().rfind(bad.message, 0), 0u) << plan.status().message();
    }
}

TEST(PoolReplay, QuantitiesReadAsTheyAreWritten) {
    for (const char* text : {"90s", "15m", "1h", "3d", "7d", "0.5s"})
        EXPECT_EQ(duration_text(*parse_duration_us("ttl", text)), text);
    EXPECT_EQ(*parse_bytes("capacity", "1.5GiB"), std::int64_t{3} << 29);
    EXPECT_EQ(*parse_bytes("capacity", "1000"), 1000);
}

TEST(PoolReplay, ReportsHoldEveryRowAndEscapeNames) {
    TraceReport report{.trace = "a<b>,\"c\".jsonl", .result = {}};
    for (const std::int64_t ttl_us : {std::int64_t{60'000'000}, std::int64_t{3'600'000'000}}) {
        ReplayRow row;
        row.policy.expiry = Expiry::fixed;
        row.policy.ttl_us = ttl_us;
        row.policy.page_tokens = 64;
        row.counts.input_tokens = 100;
        row.counts.hit_tokens = 25;
        report.result.rows.push_back(row);
    }
    const auto json = parse_json(replay_json({report}));
    ASSERT_TRUE(json.ok());
    ASSERT_EQ(json->find("rows")->items().size(), 2u);
    EXPECT_EQ(json->find("rows")->items()[1].find("hit_rate")->as_double(), 0.25);
    const std::string csv = replay_csv({report});
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
    EXPECT_NE(csv.find("\n\"a<b>,\"\"c\"\".jsonl\","), std::string::npos);
    const std::string svg = replay_svg({report});
    EXPECT_NE(svg.find("a&lt;b&gt;,&quot;c&quot;"), std::string::npos);
    EXPECT_NE(svg.find(">1m<"), std::string::npos);
    EXPECT_NE(svg.find(">1h<"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_NE(replay_table({report}).find("25.00"), std::string::npos);
}

}  // namespace
}  // namespace fathom
