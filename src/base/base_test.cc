// The small parts of base: results, clocks, executors, queues, UTF-8.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/queue.h"
#include "base/result.h"
#include "base/utf8.h"

namespace fathom {
namespace {

Result<int> half(int x) {
    if (x % 2 != 0) return invalid_argument("{} is odd", x);
    return x / 2;
}

Result<int> quarter(int x) {
    FATHOM_ASSIGN(const int h, half(x));
    FATHOM_ASSIGN(const int q, half(h));
    return q;
}

Status both_even(int a, int b) {
    FATHOM_RETURN_IF_ERROR(half(a).status());
    FATHOM_RETURN_IF_ERROR(half(b).status().with_context("second"));
    return {};
}

TEST(Result, PassesErrorsUpWithContext) {
    EXPECT_EQ(*quarter(8), 2);
    EXPECT_EQ(quarter(6).status().to_string(), "invalid_argument: 3 is odd");
    EXPECT_TRUE(both_even(2, 4).ok());
    EXPECT_EQ(both_even(2, 3).message(), "second: 3 is odd");
    EXPECT_EQ(Status().with_context("unused"), Status());
    EXPECT_EQ(Status().to_string(), "ok");
}

TEST(Result, HoldsMoveOnlyValues) {
    const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(3); };
    const auto add = [&]() -> Result<int> {
        FATHOM_ASSIGN(std::unique_ptr<int> p, make());
        return *p + 1;
    };
    EXPECT_EQ(*add(), 4);
}

TEST(Result, NamesEveryStatusCode) {
    for (int code = 0; code <= static_cast<int>(StatusCode::internal); ++code)
        EXPECT_STRNE(status_code_name(static_cast<StatusCode>(code)), "unknown");
}

TEST(CheckDeathTest, PrintsWhereAndWhy) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(FATHOM_CHECK(1 == 2, "arithmetic"), "base_test.cc:.*1 == 2: arithmetic");
    FATHOM_CHECK(1 == 1);
}

TEST(Clock, RealTimeMovesForwardAndManualTimeWhenTold) {
    const std::int64_t first = real_clock().now_us();
    EXPECT_GE(real_clock().now_us(), first);
    EXPECT_GT(real_clock().wall_unix_ms(), 1'600'000'000'000);
    ManualClock clock;
    clock.advance_us(2500);
    EXPECT_EQ(clock.now_us(), 2500);
    EXPECT_EQ(clock.wall_unix_ms(), 2);
}

TEST(ManualExecutor, RunsInOrderIncludingWhatTasksPost) {
    ManualExecutor executor;
    std::vector<int> order;
    executor.post([&] {
        order.push_back(1);
        executor.post([&] { order.push_back(3); });
    });
    executor.post([&] { order.push_back(2); });
    EXPECT_TRUE(order.empty()) << "post never runs a task";
    EXPECT_EQ(executor.run_all(), 3u);
    EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
    EXPECT_EQ(executor.run_all(), 0u);
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
    BoundedQueue<std::unique_ptr<int>> queue(2);
    EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
    EXPECT_TRUE(queue.try_push(std::make_unique<int>(2)));
    auto third = std::make_unique<int>(3);
    EXPECT_FALSE(queue.try_push(std::move(third)));
    EXPECT_NE(third, nullptr) << "a refused item is untouched";
    queue.close();
    EXPECT_EQ(**queue.pop(0), 1);
    EXPECT_EQ(**queue.try_pop(), 2);
    EXPECT_FALSE(queue.pop(1'000'000'000).has_value()) << "closed and drained: no wait";
    EXPECT_FALSE(queue.try_push(std::make_unique<int>(4)));
}

TEST(BoundedQueue, PopTimesOutAndWakesForAnItem) {
    BoundedQueue<int> queue(1);
    EXPECT_FALSE(queue.pop(1000).has_value());
    std::thread producer([&] { EXPECT_TRUE(queue.try_push(7)); });
    EXPECT_EQ(queue.pop(60'000'000), 7);
    producer.join();
}

TEST(Utf8, FindsTheFirstFault) {
    struct Case {
        std::string_view text;
        std::size_t valid;
        int next;  // utf8_sequence at the fault
    };
    const Case cases[] = {
        {"plain", 5, 0},
        {"\u00e9\u20ac\U0001f600", 9, 0},
        {"\U0010ffff", 4, 0},
        {"a\xff", 1, -1},
        {"a\xc0\xaf", 1, -1},
        {"\xe0\x9f\x80", 0, -1},
        {"\xed\xa0\x80", 0, -1},
        {"\xf4\x90\x80\x80", 0, -1},
        {"\xf5", 0, -1},
        {"\x80", 0, -1},
        {"ab\xe2\x82", 2, -2},
        {"ab\xf0\x9f\x98", 2, -3},
        {"ab\xf0\x9f\x98z", 2, -3},
    };
    for (const Case& c : cases) {
        EXPECT_EQ(utf8_valid_bytes(c.text), c.valid) << c.text;
        if (c.next != 0) {
            EXPECT_EQ(utf8_sequence(c.text.substr(c.valid)), c.next) << c.text;
        }
    }
}

TEST(Utf8, FaultsAreFoundOneByOneInLinearTime) {
    // A look at all that is left after each fault would be some 10^12 steps.
    const std::string faults(std::size_t{1} << 20, '\xff');
    std::string written;
    append_json_string(written, faults);
    EXPECT_EQ(written.size(), 2 + 3 * faults.size());
}

TEST(StrongId, ComparesByValue) {
    EXPECT_EQ(SeqId(3), SeqId(3));
    EXPECT_LT(PageId(1), PageId(2));
}

}  // namespace
}  // namespace fathom
