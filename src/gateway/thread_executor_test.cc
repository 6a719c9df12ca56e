#include "gateway/thread_executor.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace fathom {
namespace {

TEST(ThreadExecutor, RunsTasksInOrderAndDrainsAtItsEnd) {
    std::vector<int> order;
    {
        ThreadExecutor executor;
        for (int i = 0; i < 100; ++i)
            executor.post([&order, i] { order.push_back(i); });
        executor.post([&] { executor.post([&order] { order.push_back(100); }); });
    }
    ASSERT_EQ(order.size(), 101u);
    for (int i = 0; i <= 100; ++i)
        EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(ThreadExecutor, TicksUntilTheTickIsTaken) {
    ThreadExecutor executor;
    std::promise<void> third;
    int count = 0;
    executor.set_tick(1'000, [&] {
        if (++count == 3) third.set_value();
    });
    EXPECT_EQ(third.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    executor.set_tick(0, nullptr);
    const int after = count;  // no race: the tick cannot run any more
    std::promise<void> idle;
    executor.post([&] { idle.set_value(); });
    idle.get_future().wait();
    EXPECT_EQ(count, after);
}

}  // namespace
}  // namespace fathom
