// Step 1 of the validation ladder (serving.md 4.5): queues with one server, whose waits are known
// in closed form, run on the event queue and the random streams that the fleet uses.
//
// Pollaczek–Khinchine: mean wait = λ E[S²] / (2 (1 − ρ)), ρ = λ E[S].
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>

#include "sim/event_queue.h"
#include "sim/sim_random.h"

namespace fathom {
namespace {

constexpr std::int64_t kRequests = 1'000'000;
constexpr double kMeanServiceNs = 1e6;

struct QueueResult {
    double mean_wait_ns = 0;
    // Sum over requests of their time in the system, and the integral over time of how many are in
    // it: Little's law without its division.
    std::int64_t sojourn_ns = 0, area_ns = 0;
    std::int64_t arrived = 0, served = 0, busy_ns = 0, idle_ns = 0, end_ns = 0;
};

class SingleServer {
  public:
    using Draw = std::function<double(SimRandom&)>;
    SingleServer(double load, Draw service, std::uint64_t seed)
        : mean_gap_ns_(kMeanServiceNs / load),
          service_(std::move(service)),
          arrivals_(seed, 0, SimPurpose::arrival),
          services_(seed, 0, SimPurpose::service) {}

    QueueResult run() {
        next_arrival();
        SimEvent event;
        while (queue_.pop(event)) {
            result_.area_ns += (event.time_ns - now_ns_) * (result_.arrived - result_.served);
            (is_busy_ ? result_.busy_ns : result_.idle_ns) += event.time_ns - now_ns_;
            now_ns_ = event.time_ns;
            event.kind == kArrival ? arrive() : depart();
        }
        result_.end_ns = now_ns_;
        result_.mean_wait_ns = static_cast<double>(wait_ns_) / static_cast<double>(result_.served);
        return result_;
    }

  private:
    enum : std::uint32_t { kArrival, kDeparture };

    void next_arrival() {
        const double gap = arrivals_.exponential(mean_gap_ns_);
        queue_.push(now_ns_ + static_cast<SimTime>(gap), kArrival, 0);
    }
    void arrive() {
        ++result_.arrived;
        waiting_.push_back(now_ns_);
        if (result_.arrived < kRequests) next_arrival();
        if (!is_busy_) start();
    }
    void start() {
        is_busy_ = true;
        wait_ns_ += now_ns_ - waiting_.front();
        queue_.push(now_ns_ + static_cast<SimTime>(service_(services_)), kDeparture, 0);
    }
    void depart() {
        is_busy_ = false;
        ++result_.served;
        result_.sojourn_ns += now_ns_ - waiting_.front();
        waiting_.pop_front();
        if (!waiting_.empty()) start();
    }

    double mean_gap_ns_;
    Draw service_;
    SimRandom arrivals_, services_;
    EventQueue queue_;
    std::deque<SimTime> waiting_;  // arrival times; the front one is served
    bool is_busy_ = false;
    SimTime now_ns_ = 0;
    std::int64_t wait_ns_ = 0;
    QueueResult result_;
};

struct Discipline {
    const char* name;
    double second_moment;  // E[S²] / E[S]²
    SingleServer::Draw draw;
};

class SingleServerQueue : public testing::TestWithParam<Discipline> {};

TEST_P(SingleServerQueue, WaitsAsLongAsTheClosedFormSays) {
    // Half loaded, so that a million requests are enough for 1 %: the standard error of the mean
    // grows with 1/(1 − ρ)².
    constexpr double kLoad = 0.5;
    const Discipline& discipline = GetParam();
    const QueueResult result = SingleServer(kLoad, discipline.draw, 20261130).run();
    const double expected = kLoad * kMeanServiceNs * discipline.second_moment / (2 * (1 - kLoad));
    EXPECT_NEAR(result.mean_wait_ns / expected, 1, 0.01) << discipline.name;
    EXPECT_EQ(result.arrived, kRequests);
    EXPECT_EQ(result.served, kRequests);
    EXPECT_EQ(result.area_ns, result.sojourn_ns);  // Little's law, exactly
    EXPECT_EQ(result.busy_ns + result.idle_ns, result.end_ns);
}

INSTANTIATE_TEST_SUITE_P(
    Ladder, SingleServerQueue,
    testing::Values(
        Discipline{"MM1", 2, [](SimRandom& random) { return random.exponential(kMeanServiceNs); }},
        Discipline{"MD1", 1, [](SimRandom&) { return kMeanServiceNs; }},
        // One of five takes four times as long as the others: mean 1.6 units, second moment 4.
        Discipline{"MG1", 4.0 / (1.6 * 1.6),
                   [](SimRandom& random) {
                       return (random.uniform() < 0.2 ? 4.0 : 1.0) * kMeanServiceNs / 1.6;
                   }}),
    [](const auto& discipline) { return std::string(discipline.param.name); });

}  // namespace
}  // namespace fathom
