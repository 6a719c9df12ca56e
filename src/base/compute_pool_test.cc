#include "base/compute_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sched.h>
#include <xmmintrin.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace fathom {
namespace {

TEST(ComputePool, RunsEveryTaskExactlyOnce) {
    EXPECT_TRUE(rc::check([] {
        ComputePool pool(*rc::gen::inRange(1, 6));
        const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 200));
        for (const int n : sizes) {
            // Plain integers: run() must order the tasks' writes before its return.
            std::vector<int> runs(static_cast<std::size_t>(n));
            pool.run(n, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
            RC_ASSERT(runs == std::vector<int>(static_cast<std::size_t>(n), 1));
        }
    }));
}

TEST(ComputePool, PiecesCoverEveryItemOnceAndKeepTheGrain) {
    EXPECT_TRUE(rc::check([] {
        ComputePool pool(*rc::gen::inRange(1, 6));
        const std::int64_t n = *rc::gen::inRange(0, 300);
        const std::int64_t grain = *rc::gen::inRange(1, 40);
        std::vector<int> runs(static_cast<std::size_t>(n));
        std::atomic<bool> fits{true};
        pool.run_ranges(n, grain, [&](std::int64_t begin, std::int64_t end) {
            if (begin >= end || end - begin > grain) fits = false;
            for (std::int64_t i = begin; i < end; ++i)
                ++runs[static_cast<std::size_t>(i)];
        });
        RC_ASSERT(fits.load());
        RC_ASSERT(runs == std::vector<int>(static_cast<std::size_t>(n), 1));
    }));
}

TEST(ComputePool, SharesAreRunByTheirOwnThreadsAlone) {
    ComputePool pool(3);
    const auto owners = [&] {
        std::vector<std::thread::id> of(10);
        pool.run_shares(10, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i)
                of[static_cast<std::size_t>(i)] = std::this_thread::get_id();
        });
        return of;
    };
    const auto first = owners();
    EXPECT_EQ(std::set(first.begin(), first.end()).size(), 3u);
    EXPECT_EQ(first[0], std::this_thread::get_id());
    for (int round = 0; round < 200; ++round) {
        pool.run(7, [](std::int64_t) {});
        EXPECT_EQ(owners(), first);
    }
}

TEST(ComputePool, PinsItsThreadsInTheOrderOfTheTopology) {
    const CpuTopology topology = CpuTopology::detect();
    ASSERT_FALSE(topology.cpus.empty());
    const int threads = static_cast<int>(std::min<std::size_t>(topology.cpus.size(), 4));
    std::thread owner([&] {  // pinning outlives the pool: not for the test's own thread
        ComputePool pool({.threads = threads, .pin = true, .topology = topology});
        pool.place_caller();
        std::vector<int> cpu(static_cast<std::size_t>(threads));
        pool.run_shares(threads, [&](std::int64_t begin, std::int64_t) {
            cpu[static_cast<std::size_t>(begin)] = sched_getcpu();
        });
        for (int t = 0; t < threads; ++t)
            EXPECT_EQ(cpu[static_cast<std::size_t>(t)], topology.cpus[static_cast<std::size_t>(t)]);
    });
    owner.join();
}

TEST(ComputePool, ManyShortRunsDoNotMixJobs) {
    ComputePool pool(4);
    std::vector<std::int64_t> out(8);
    for (std::int64_t round = 0; round < 5000; ++round) {
        const std::int64_t n = 1 + round % 8;
        pool.run(n, [&out, round](std::int64_t i) { out[static_cast<std::size_t>(i)] = round; });
        for (std::int64_t i = 0; i < n; ++i)
            ASSERT_EQ(out[static_cast<std::size_t>(i)], round);
    }
}

TEST(ComputePool, SharesWorkAmongItsThreads) {
    ComputePool pool(3);
    EXPECT_EQ(pool.threads(), 3);
    // Each task waits for the other two, so three threads must be in it at a time.
    std::atomic<int> arrived{0};
    pool.run(3, [&](std::int64_t) {
        arrived.fetch_add(1);
        arrived.notify_all();
        for (int now = arrived.load(); now < 3; now = arrived.load())
            arrived.wait(now);
    });
    EXPECT_EQ(arrived.load(), 3);
}

TEST(ComputePool, SleepingWorkersComeBack) {
    ComputePool pool(2);
    for (int round = 0; round < 20; ++round) {
        // Longer than the spin of the other thread, whichever takes the long task.
        std::atomic<std::int64_t> sum{0};
        pool.run(2, [&](std::int64_t i) {
            for (int k = 0; k < (i == 0 ? 20'000 : 1); ++k)
                _mm_pause();
            sum += i + 1;
        });
        EXPECT_EQ(sum.load(), 3);
    }
}

TEST(ComputePool, StartsAndStopsWithoutWork) {
    for (int threads = 1; threads <= 8; ++threads)
        EXPECT_EQ(ComputePool(threads).threads(), threads);
}

TEST(ComputePool, TasksFlushDenormalsAndTheCallerGetsItsModeBack) {
    const std::uint32_t before = _mm_getcsr();
    ComputePool pool(3);
    std::vector<std::uint32_t> modes(64);
    pool.run(64, [&](std::int64_t i) { modes[static_cast<std::size_t>(i)] = _mm_getcsr(); });
    for (const std::uint32_t mode : modes)
        EXPECT_EQ(mode & 0xffc0u, 0x9fc0u) << "FTZ, DAZ, nearest, exceptions masked";
    EXPECT_EQ(_mm_getcsr(), before);
}

TEST(ComputePoolDeathTest, RefusesNestedRuns) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            ComputePool pool(1);
            pool.run(1, [&](std::int64_t) { pool.run(1, [](std::int64_t) {}); });
        },
        "not re-entrant");
}

TEST(FlushDenormals, TreatsDenormalsAsZeroWhileAlive) {
    volatile float tiny = 0x1p-130f;
    volatile float result = 0;
    {
        const FlushDenormals flush;
        result = tiny * 0x1p20f;
    }
    EXPECT_EQ(result, 0.0f);
    result = tiny * 0x1p20f;
    EXPECT_EQ(result, 0x1p-110f);
}

}  // namespace
}  // namespace fathom
