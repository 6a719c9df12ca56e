// How fast fleets are simulated.
//
//   sim.queue_mevents   the event queue alone: 100,000 events wait, each that ends begins another
//   sim.heap_mevents    the same in one heap
//   sim.mevents         events of the preset 10000-cards, policies and all, a second of one core
//   sim.real_time       simulated seconds of it a second
#include <fmt/core.h>

#include <cstdint>
#include <queue>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "bench/policy_benches.h"
#include "sim/event_queue.h"
#include "sim/fleet/fleet.h"
#include "sim/sim_random.h"

namespace fathom::bench {
namespace {

constexpr std::uint32_t kWaiting = 100'000;
constexpr std::int64_t kEvents = 8'000'000;
constexpr double kMeanNs = 50e6;

SimTime gap(SimRandom& random) {
    return static_cast<SimTime>(random.exponential(kMeanNs));
}

double queue_seconds() {
    SimRandom random(1, 0, SimPurpose::arrival);
    EventQueue queue;
    for (std::uint32_t i = 0; i < kWaiting; ++i)
        queue.push(gap(random), 0, i);
    const double begin = policy_thread_seconds();
    SimEvent event;
    for (std::int64_t i = 0; i < kEvents && queue.pop(event); ++i)
        queue.push(event.time_ns + gap(random), 0, event.subject);
    return policy_thread_seconds() - begin;
}

double heap_seconds() {
    using Entry = std::tuple<SimTime, std::uint64_t, std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    SimRandom random(1, 0, SimPurpose::arrival);
    std::uint64_t number = 0;
    for (std::uint32_t i = 0; i < kWaiting; ++i)
        queue.emplace(gap(random), number++, i);
    const double begin = policy_thread_seconds();
    for (std::int64_t i = 0; i < kEvents; ++i) {
        const auto [time_ns, unused, subject] = queue.top();
        queue.pop();
        queue.emplace(time_ns + gap(random), number++, subject);
    }
    return policy_thread_seconds() - begin;
}

}  // namespace

void bench_sim(Report& report) {
    report.add("sim.queue_mevents", kEvents / queue_seconds() / 1e6, "M events/s");
    report.add("sim.heap_mevents", kEvents / heap_seconds() / 1e6, "M events/s");
    auto config = fleet_preset("10000-cards");
    FATHOM_CHECK(config.ok());
    config->duration_s = 12;
    config->warmup_s = 6;
    const double begin = policy_thread_seconds();
    const auto result = run_fleet(*config);
    const double seconds = policy_thread_seconds() - begin;
    FATHOM_CHECK(result.ok());
    report.add("sim.mevents", static_cast<double>(result->totals.events) / seconds / 1e6,
               "M events/s");
    report.add("sim.real_time", config->duration_s / seconds, "s/s");
}

}  // namespace fathom::bench
