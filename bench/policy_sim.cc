// How fast fleets are simulated.
//
//   sim.queue_mevents   the event queue alone: 100,000 events wait, each that ends begins another
//   sim.heap_mevents    the same in one heap
//   memory.random_ns    one read of memory that is anywhere in 256 MiB, each place known by the
//   last sim.mevents         events of the preset 10000-cards, policies and all, a second of one
//   core sim.real_time       simulated seconds of it a second sim.request_ns      of CPU time, a
//   request that came: a fleet's state does not fit a cache, so
//                       memory.random_ns, measured before and behind it, says how fast it can be
//
// sim-scale: one cell of more and more cards, 1:1, all at load 0.85 of their bound
//   sim.efficiency.N        of N cards, part of the balanced bound
//   sim.efficiency.fall     points from 128 to 10,000 cards
//
// sim-hour: the preset 10000-cards for an hour, at its 75,000 requests/s, and at the 30,000 that
// the specification expects of so many cards
//   sim.hour.minutes, .gib, .mevents; sim.hour_30k.minutes, .gib, .mevents
#include <fmt/core.h>
#include <sys/resource.h>

#include <cstdint>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/huge_memory.h"
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

void bench_queues(Report& report) {
    report.add("sim.queue_mevents", kEvents / queue_seconds() / 1e6, "M events/s");
    report.add("sim.heap_mevents", kEvents / heap_seconds() / 1e6, "M events/s");
}

double random_read_ns() {
    constexpr std::size_t kLine = 64, kLines = (std::size_t{256} << 20) / kLine;
    constexpr int kReads = 1'000'000;
    const auto memory = map_huge_memory(static_cast<std::int64_t>(kLine * kLines));
    FATHOM_CHECK(memory != nullptr);
    // A generator of full period modulo a power of two: every line once, in an order that no
    // prefetcher knows.
    const auto at = [&](std::size_t line) {
        return reinterpret_cast<std::size_t*>(memory.get() + line * kLine);
    };
    for (std::size_t line = 0; line < kLines; ++line)
        *at(line) = (line * 2'862'933'555'777'941'757ULL + 3'037'000'493ULL) % kLines;
    std::size_t line = 0;
    const double begin = policy_thread_seconds();
    for (int i = 0; i < kReads; ++i)
        line = *at(line);
    const double seconds = policy_thread_seconds() - begin;
    FATHOM_CHECK(line < kLines);
    return seconds / kReads * 1e9;
}

FleetResult run_preset(const FleetConfig& config) {
    auto result = run_fleet(config);
    FATHOM_CHECK(result.ok() && result->violations.empty());
    return std::move(*result);
}

}  // namespace

void bench_sim(Report& report) {
    bench_queues(report);
    auto config = fleet_preset("10000-cards");
    FATHOM_CHECK(config.ok());
    config->duration_s = 12;
    config->warmup_s = 6;
    const double before_ns = random_read_ns();
    const double begin = policy_thread_seconds();
    const FleetResult result = run_preset(*config);
    const double seconds = policy_thread_seconds() - begin;
    report.add("memory.random_ns", (before_ns + random_read_ns()) / 2, "ns");
    report.add("sim.request_ns", seconds / static_cast<double>(result.totals.arrived) * 1e9, "ns");
    report.add("sim.mevents", static_cast<double>(result.totals.events) / seconds / 1e6,
               "M events/s");
    const FleetTotals& totals = result.totals;
    const auto counted = 10 * totals.arrived + totals.prefill_steps + totals.decode_steps;
    report.add("sim.spec_mevents", static_cast<double>(counted) / seconds / 1e6, "M events/s");
    report.add("sim.real_time", config->duration_s / seconds, "s/s");
}

void bench_sim_scale(Report& report) {
    auto config = fleet_preset("64+64");
    FATHOM_CHECK(config.ok());
    config->duration_s = 90;
    config->warmup_s = 45;
    double first = 0, last = 0;
    for (const std::int64_t cards : {128, 512, 1'024, 2'048, 6'528, 9'984}) {
        config->prefill.engines = cards / 2 / config->prefill.ranks;
        config->decode.groups = cards / 2 / config->decode.ranks;
        last = run_preset(*config).efficiency();
        if (first == 0) first = last;
        report.add(fmt::format("sim.efficiency.{}", cards), last, "of the bound");
    }
    report.add("sim.efficiency.fall", 100 * (first - last), "points", 2.0);
}

namespace {

void bench_hour(Report& report, const std::string& name, double requests_s) {
    auto config = fleet_preset("10000-cards");
    FATHOM_CHECK(config.ok());
    config->duration_s = 3600;
    config->workload.rate = requests_s;  // 0: by the preset's load
    const double begin = policy_thread_seconds();
    const FleetResult result = run_preset(*config);
    const double seconds = policy_thread_seconds() - begin;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    report.add(name + ".minutes", seconds / 60, "min", 10.0);
    report.add(name + ".gib", static_cast<double>(usage.ru_maxrss) / (1 << 20), "GiB", 8.0);
    report.add(name + ".mevents", static_cast<double>(result.totals.events) / seconds / 1e6,
               "M events/s");
    report.add(name + ".memory_random_ns", random_read_ns(), "ns");
}

}  // namespace

void bench_sim_hour(Report& report) {
    bench_hour(report, "sim.hour_30k", 30'000);
    bench_hour(report, "sim.hour", 0);
}

}  // namespace fathom::bench
