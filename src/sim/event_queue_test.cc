#include "sim/event_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <queue>
#include <tuple>
#include <vector>

#include "sim/sim_random.h"

namespace fathom {
namespace {

// What the calendar must equal: one heap over (time, insertion).
class PlainQueue {
  public:
    void push(SimTime time_ns, std::uint32_t subject) {
        heap_.emplace(time_ns, number_++, subject);
    }
    std::tuple<SimTime, std::uint32_t> pop() {
        const auto [time_ns, number, subject] = heap_.top();
        heap_.pop();
        return {time_ns, subject};
    }
    bool empty() const { return heap_.empty(); }

  private:
    using Entry = std::tuple<SimTime, std::uint64_t, std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
    std::uint64_t number_ = 0;
};

TEST(EventQueue, EqualsAPlainPriorityQueue) {
    rc::check([] {
        const int day_bits = *rc::gen::inRange(0, 12);
        const int year_bits = *rc::gen::inRange(6, 9);
        const int operations = *rc::gen::inRange(0, 2000);
        SimRandom random(*rc::gen::arbitrary<std::uint64_t>(), 0, SimPurpose::arrival);
        EventQueue queue(day_bits, year_bits);
        PlainQueue plain;
        for (int i = 0; i < operations; ++i) {
            if (random.uniform() < 0.6) {
                // Now and then the same time, the same day, this year, and far beyond it.
                const int reach = static_cast<int>(random.below(day_bits + year_bits + 4));
                const SimTime time_ns =
                    queue.now_ns() + random.below(std::int64_t{1} << reach) * random.below(2);
                queue.push(time_ns, 7, static_cast<std::uint32_t>(i));
                plain.push(time_ns, static_cast<std::uint32_t>(i));
            } else if (!plain.empty()) {
                SimEvent event;
                RC_ASSERT(queue.pop(event));
                RC_ASSERT(std::tuple(event.time_ns, event.subject) == plain.pop());
                RC_ASSERT(queue.now_ns() == event.time_ns);
            }
        }
        SimEvent event;
        while (!plain.empty()) {
            RC_ASSERT(queue.pop(event));
            RC_ASSERT(std::tuple(event.time_ns, event.subject) == plain.pop());
        }
        RC_ASSERT(!queue.pop(event));
    });
}

TEST(EventQueue, KeepsTheOrderOfInsertionAtEqualTimes) {
    EventQueue queue;
    for (std::uint32_t i = 0; i < 1000; ++i)
        queue.push(i % 2 == 0 ? 5'000'000'000 : 5, 1, i, i * 2);
    SimEvent event;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        ASSERT_TRUE(queue.pop(event));
        EXPECT_EQ(event.subject, i < 500 ? 2 * i + 1 : 2 * (i - 500));
        EXPECT_EQ(event.detail, event.subject * 2);
    }
    EXPECT_TRUE(queue.empty());
}

TEST(SimRandom, StreamsAreFunctionsOfTheirNameAndDoNotShiftEachOther) {
    SimRandom a(1, 2, SimPurpose::service), again(1, 2, SimPurpose::service);
    SimRandom entity(1, 3, SimPurpose::service), purpose(1, 2, SimPurpose::arrival);
    SimRandom seed(2, 2, SimPurpose::service);
    const std::uint64_t first = a.next_u64();
    EXPECT_EQ(first, again.next_u64());
    EXPECT_NE(first, entity.next_u64());
    EXPECT_NE(first, purpose.next_u64());
    EXPECT_NE(first, seed.next_u64());
}

TEST(SimRandom, MomentsAreThoseOfTheDistributions) {
    constexpr int kDraws = 400'000;
    SimRandom random(20261130, 1, SimPurpose::service);
    double uniform = 0, normal = 0, normal2 = 0, exponential = 0, log_normal = 0;
    for (int i = 0; i < kDraws; ++i) {
        uniform += random.uniform();
        const double z = random.normal();
        normal += z;
        normal2 += z * z;
        exponential += random.exponential(3);
        log_normal += random.log_normal(2, 0.5);
    }
    // Five standard errors of each mean.
    EXPECT_NEAR(uniform / kDraws, 0.5, 5 * 0.289 / 632);
    EXPECT_NEAR(normal / kDraws, 0, 5 * 1.0 / 632);
    EXPECT_NEAR(normal2 / kDraws, 1, 5 * 1.414 / 632);
    EXPECT_NEAR(exponential / kDraws, 3, 5 * 3.0 / 632);
    EXPECT_NEAR(log_normal / kDraws, 2 * 1.133148, 5 * 1.21 / 632);
}

}  // namespace
}  // namespace fathom
