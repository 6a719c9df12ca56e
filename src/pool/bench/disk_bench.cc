#include "pool/bench/disk_bench.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "pool/bench/block_driver.h"
#include "pool/bench/raw_disk.h"
#include "pool/embedded_store.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
using Rows = std::vector<PoolBenchRow>;

constexpr std::int64_t kPayload = 113'920, kSlot = 114'688;
constexpr int kDepths[] = {1, 8, 32};
constexpr std::int64_t kRoundsMax = 15;
constexpr std::int64_t kRoundBlocks = 1'000;
constexpr int kDepthMax = BlockDriver::kDepthMax;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

EmbeddedOptions store_options(const std::string& directory) {
    EmbeddedOptions options;
    options.directory = directory;
    options.payload_bytes = kPayload;
    options.capacity_bytes = std::int64_t{1} << 40;
    options.io_depth = kDepthMax;
    return options;
}

struct Paired {
    std::vector<double> ratios, rates, limits;
    void add(std::int64_t blocks, double seconds, double raw_seconds) {
        rates.push_back(static_cast<double>(blocks) / seconds);
        limits.push_back(static_cast<double>(blocks) / raw_seconds);
        ratios.push_back(raw_seconds / seconds);
    }
    // The limit that makes the reported ratio the median of ratios.
    void report(Rows& rows, const std::string& what) const {
        const double rate = median(rates);
        rows.push_back({what, rate, "blocks/s", rate / median(ratios)});
    }
};

struct Bench {
    PoolBenchOptions options;
    std::string folder;
    std::unique_ptr<RawDisk> raw;
    Rows rows;
    std::int64_t rounds_done = 0;

    ~Bench() {
        std::error_code ignored;
        if (!folder.empty()) fs::remove_all(folder, ignored);
    }
    Status next_round() {
        const std::int64_t total = 2 * std::ssize(kDepths) * options.rounds;
        if (!options.progress || options.progress(rounds_done++, total)) return {};
        return Status(StatusCode::cancelled, "interrupted; what it had made is removed");
    }
};

Status bench_puts(Bench& bench) {
    std::vector<BlockName> names;
    for (const int depth : kDepths) {
        const std::int64_t n = depth == 1 ? kRoundBlocks / 4 : kRoundBlocks;
        const std::int64_t total = n * bench.options.rounds;
        names.clear();
        for (std::int64_t i = 0; i < total; ++i)
            names.push_back(numbered_block(depth * 1'000'000 + i));
        Paired paired;
        double cpu = 0;
        const std::string directory = fmt::format("{}/put{}", bench.folder, depth);
        FATHOM_ASSIGN(const auto store, EmbeddedStore::open(store_options(directory)));
        BlockDriver driver(*store, kSlot);
        for (std::int64_t round = 0; round < bench.options.rounds; ++round) {
            FATHOM_RETURN_IF_ERROR(bench.next_round());
            FATHOM_ASSIGN(const double raw_seconds,
                          bench.raw->run(true, n, depth, static_cast<std::uint64_t>(round)));
            const double cpu_begin = cpu_seconds();
            FATHOM_ASSIGN(const double seconds, driver.puts(names, round * n, n, depth));
            cpu += cpu_seconds() - cpu_begin;
            paired.add(n, seconds, raw_seconds);
        }
        store->close(kNever);
        paired.report(bench.rows, fmt::format("put.qd{}", depth));
        if (depth == kDepthMax)
            bench.rows.push_back(
                {"put.cpu_us_per_block", cpu / static_cast<double>(total) * 1e6, "us", {}});
        std::error_code ignored;
        fs::remove_all(directory, ignored);
    }
    return {};
}

Status bench_gets(Bench& bench) {
    const std::string directory = bench.folder + "/get";
    std::vector<BlockName> names;
    for (std::int64_t i = 0; i < bench.options.blocks; ++i)
        names.push_back(numbered_block(i));
    {
        FATHOM_ASSIGN(const auto store, EmbeddedStore::open(store_options(directory)));
        BlockDriver driver(*store, kSlot);
        FATHOM_RETURN_IF_ERROR(driver.puts(names, 0, bench.options.blocks, kDepthMax).status());
        store->close(kNever);
    }
    const double open_begin = seconds_now();
    FATHOM_ASSIGN(const auto store, EmbeddedStore::open(store_options(directory)));
    const double open_seconds = seconds_now() - open_begin;
    BlockDriver driver(*store, kSlot);
    for (const int depth : kDepths) {
        const std::int64_t n = depth == 1 ? kRoundBlocks / 4 : kRoundBlocks;
        Paired paired;
        double cpu = 0;
        for (std::int64_t round = 0; round < bench.options.rounds; ++round) {
            FATHOM_RETURN_IF_ERROR(bench.next_round());
            const auto seed = static_cast<std::uint64_t>(round * 100 + depth);
            FATHOM_ASSIGN(const double raw_seconds, bench.raw->run(false, n, depth, seed));
            const double cpu_begin = cpu_seconds();
            FATHOM_ASSIGN(const double seconds, driver.gets(names, n, depth, seed + 1));
            cpu += cpu_seconds() - cpu_begin;
            paired.add(n, seconds, raw_seconds);
        }
        paired.report(bench.rows, fmt::format("get.qd{}", depth));
        if (depth == kDepthMax) {
            bench.rows.push_back({"get.cpu_us_per_block",
                                  cpu / static_cast<double>(n * bench.options.rounds) * 1e6,
                                  "us",
                                  {}});
        }
    }
    bench.rows.push_back({"open.s_per_100k",
                          open_seconds * 100'000 / static_cast<double>(bench.options.blocks),
                          "s",
                          {}});
    store->close(kNever);
    return {};
}

Status check_room(const PoolBenchOptions& options) {
    if (options.rounds < 1 || options.rounds > kRoundsMax)
        return invalid_argument("{} rounds: 1 to {} are possible", options.rounds, kRoundsMax);
    std::error_code failed;
    const fs::space_info space = fs::space(options.directory, failed);
    if (failed)
        return invalid_argument("{}: {}; name a directory on the disk to be measured",
                                options.directory, failed.message());
    if (space.available >= static_cast<std::uintmax_t>(kPoolBenchBytes)) return {};
    return error(StatusCode::resource_exhausted,
                 "{}: {} bytes are free, the measurement needs {}; make room, or name another",
                 options.directory, space.available, kPoolBenchBytes);
}

}  // namespace

Result<std::vector<PoolBenchRow>> bench_pool(const PoolBenchOptions& options) {
    FATHOM_RETURN_IF_ERROR(check_room(options));
    Bench bench;
    bench.options = options;
    std::string folder = options.directory + "/fathom_pool_bench_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
        return invalid_argument("{}: nothing can be made there: {}; check its rights",
                                options.directory, std::strerror(errno));
    bench.folder = folder;
    FATHOM_ASSIGN(bench.raw, RawDisk::create(folder + "/raw", options.blocks, kSlot, kDepthMax));
    FATHOM_RETURN_IF_ERROR(bench_gets(bench));
    FATHOM_RETURN_IF_ERROR(bench_puts(bench));
    return std::move(bench.rows);
}

}  // namespace fathom
