#include "cli/bench/load.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/queue.h"

namespace fathom {
namespace {

// Answers each request from a thread of its own, in order; the background only when cancelled.
class FakeTarget : public LoadTarget {
  public:
    FakeTarget() : thread_([this] { work(); }) {}
    ~FakeTarget() override {
        tasks_.close();
        thread_.join();
    }
    void start(std::int64_t index, const LoadRequest& request, Done done) override {
        ++live_;
        live_max_ = std::max<int>(live_max_, live_);
        starts_us_.push_back(real_clock().now_us());
        if (keeps_ids_ && !request.ids.empty()) ids_.push_back(request.ids);
        if (request.max_tokens < 0) {
            held_ = std::move(done);
            return;
        }
        ASSERT_TRUE(tasks_.try_push({index, request.text, std::move(done)}));
    }
    void cancel_all() override {
        ++cancels_;
        if (!held_) return;
        RequestRecord record;
        record.index = -1;
        record.error = "cancelled";
        std::exchange(held_, {})(record);
    }

    int live_max_ = 0, cancels_ = 0;
    bool keeps_ids_ = false;
    std::vector<std::vector<TokenId>> ids_;
    std::vector<std::int64_t> starts_us_;

  private:
    struct Task {
        std::int64_t index;
        std::string error;
        Done done;
    };
    void work() {
        while (!tasks_.closed() || tasks_.size() > 0) {
            auto task = tasks_.pop(10'000'000);
            if (!task) continue;
            RequestRecord record;
            record.index = task->index;
            record.error = task->error;
            --live_;
            task->done(std::move(record));
        }
    }
    std::atomic<int> live_ = 0;
    Done held_;
    BoundedQueue<Task> tasks_{1000};
    std::thread thread_;
};

std::vector<LoadRequest> some(std::size_t count) {
    return std::vector<LoadRequest>(count);
}

const std::function<void(std::int64_t)> kQuiet = [](std::int64_t) {};

TEST(Load, RunsEachRequestOnceWithinItsConcurrency) {
    FakeTarget target;
    Interrupts interrupts;
    const LoadResult result =
        run_load(target, some(50), {.concurrency = 3, .arrivals_us = {}}, interrupts, kQuiet);
    EXPECT_FALSE(result.interrupted);
    ASSERT_EQ(result.records.size(), 50u);
    std::vector<int> seen(50);
    for (const RequestRecord& record : result.records)
        ++seen[static_cast<std::size_t>(record.index)];
    EXPECT_EQ(seen, std::vector<int>(50, 1));
    EXPECT_LE(target.live_max_, 3);
}

TEST(Load, SendsNothingBeforeItsTime) {
    FakeTarget target;
    Interrupts interrupts;
    const std::int64_t begin_us = real_clock().now_us();
    const LoadPlan plan{.concurrency = 9, .arrivals_us = {0, 10'000, 20'000}};
    ASSERT_EQ(run_load(target, some(3), plan, interrupts, kQuiet).records.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_GE(target.starts_us_[i] - begin_us, plan.arrivals_us[i]);
}

TEST(Load, KeepsTheBackgroundUntilTheLastHasEnded) {
    FakeTarget target;
    Interrupts interrupts;
    LoadRequest background;
    background.max_tokens = -1;
    const LoadResult result =
        run_load(target, some(5), {.concurrency = 1, .arrivals_us = {}, .background = &background},
                 interrupts, kQuiet);
    EXPECT_EQ(result.records.size(), 5u);
    EXPECT_TRUE(result.background.empty()) << "it was cancelled at the end, which is no result";
    EXPECT_EQ(target.cancels_, 1);
}

TEST(Load, EachCopyOfTheBackgroundBeginsDifferently) {
    FakeTarget target;
    target.keeps_ids_ = true;
    Interrupts interrupts;
    LoadRequest background;
    background.ids = {1, 2, 3};
    const LoadResult result = run_load(
        target, some(200), {.concurrency = 1, .arrivals_us = {}, .background = &background},
        interrupts, kQuiet);
    ASSERT_GE(target.ids_.size(), 2u);
    EXPECT_EQ(target.ids_[0], (std::vector<TokenId>{1, 2, 3}));
    EXPECT_EQ(target.ids_[1], (std::vector<TokenId>{2, 3, 1}));
}

TEST(Load, ABackgroundThatFailsIsNotRepeated) {
    FakeTarget target;
    Interrupts interrupts;
    LoadRequest background;
    background.text = "boom";  // the fake's error
    const LoadResult result =
        run_load(target, some(5), {.concurrency = 1, .arrivals_us = {}, .background = &background},
                 interrupts, kQuiet);
    EXPECT_EQ(result.records.size(), 5u);
    ASSERT_EQ(result.background.size(), 1u);
    EXPECT_EQ(result.background[0].error, "0boom") << "a text begins with the number of its copy";
}

TEST(Load, AnInterruptCancelsAndEnds) {
    FakeTarget target;
    Interrupts interrupts;
    raise(SIGINT);
    const LoadResult result =
        run_load(target, some(5), {.concurrency = 1, .arrivals_us = {}}, interrupts, kQuiet);
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(target.cancels_, 1);
    EXPECT_TRUE(result.records.empty());
}

}  // namespace
}  // namespace fathom
