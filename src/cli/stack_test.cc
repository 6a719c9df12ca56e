#include "cli/stack.h"

#include <gtest/gtest.h>

#include "cli/text_stream.h"

namespace fathom {
namespace {

MemoryPlan plan_with(std::int64_t limit, std::int64_t used) {
    MemoryPlan plan;
    plan.limit_bytes = limit;
    plan.anonymous_bytes = used;
    return plan;
}

TEST(ChoosePages, AreWhatIsUsefulWhenThereIsRoom) {
    StackOptions options;
    options.engine.sequences_max = 4;
    EXPECT_EQ(choose_pages(options, 1000, 100, plan_with(std::int64_t{1} << 40, 0)), 4 * 8);
}

TEST(ChoosePages, AreLoweredToWhatFits) {
    StackOptions options;
    options.engine.sequences_max = 4;
    // 90 % of 10,000 bytes less 1,000 leave room for 80 pages of 100.
    EXPECT_EQ(choose_pages(options, 1'000'000, 100, plan_with(10'000, 1'000)), 80);
    // Never below one page a sequence: the plan's check then refuses with the numbers.
    EXPECT_EQ(choose_pages(options, 1'000'000, 100, plan_with(10'000, 20'000)), 4);
}

TEST(ChoosePages, AreWhatTheUserSays) {
    StackOptions options;
    options.engine.sequences_max = 4;
    options.kv_tokens = 1280;
    EXPECT_EQ(choose_pages(options, 1000, 100, plan_with(1, 1)), 10);
}

TEST(PoolFindTime, IsWhatTheUserSaysElseThatOfTheKindOfPool) {
    StackOptions options;
    EXPECT_EQ(options.pool_find_ms, 0);
    EXPECT_EQ(pool_find_us(options), 20'000);  // shared
    options.pool.store = "rados";
    EXPECT_EQ(pool_find_us(options), 20'000);
    options.pool.store = "embedded";
    EXPECT_EQ(pool_find_us(options), 10'000);
    options.pool_find_ms = 7;
    EXPECT_EQ(pool_find_us(options), 7'000);
}

TEST(MakePool, RefusesProcessorsThatItMayNotUse) {
    StackOptions options;
    options.cpus = "0-1023";
    const auto pool = make_pool(options);
    ASSERT_FALSE(pool.ok());
    EXPECT_NE(pool.status().message().find("engine.cpus \"0-1023\": processor"), std::string::npos)
        << pool.status().message();
}

TEST(MakePool, RefusesThreadsThatWouldOnlyTakeTurns) {
    StackOptions options;
    options.threads = 4096;
    const auto pool = make_pool(options);
    ASSERT_FALSE(pool.ok());
    EXPECT_NE(pool.status().message().find("engine.threads is 4096"), std::string::npos);
}

TEST(TextStream, GathersWhatDoesNotFitAndLosesNothing) {
    TextStream stream;
    std::string sent;
    for (int i = 0; i < 1000; ++i) {
        const std::string text = std::to_string(i) + " ";
        sent += text;
        stream.on_events({{.kind = OutputEvent::Kind::content, .text = text}});
    }
    GenerationResult result;
    result.finish = GenerationFinish::stop;
    stream.on_finish(result);
    std::string got;
    int reads = 0;
    while (!stream.result()) {
        const OutputParser::Events events = stream.next(1'000'000);
        ASSERT_FALSE(events.empty());
        for (const OutputEvent& event : events)
            got += event.text;
        ++reads;
    }
    EXPECT_EQ(got, sent);
    EXPECT_LT(reads, 1000);
    EXPECT_EQ(stream.result()->finish, GenerationFinish::stop);
    EXPECT_TRUE(stream.next(0).empty());
}

}  // namespace
}  // namespace fathom
