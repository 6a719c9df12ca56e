// The embedded store beside the disk that it lies on (pool/bench/disk_bench.h has those rows).
//
//   pool_bench [--json] [--dir DIR] [--rounds N]
//
// DIR (default: the temporary folder) must be on the disk in question and have 4 GiB; what is made
// there is deleted. Further rows:
//
//   index.mlookups               lookups of present keys in an index of a million, one core
//   index.bytes_per_block        memory of that index
//   ec.*                         erasure codes: pool_ec.h
//   rocksdb.get.qd8, .put.qd8 …  the same work by RocksDB's blob files (pool_rocksdb.h), beside raw
//                                io_uring likewise, where it was built with it (librocksdb-dev)
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/block_key.h"
#include "base/random.h"
#include "bench/pool_ec.h"
#include "bench/pool_keys.h"
#include "bench/pool_rocksdb.h"
#include "bench/report.h"
#include "pool/bench/block_driver.h"
#include "pool/bench/disk_bench.h"
#include "pool/bench/raw_disk.h"
#include "pool/block_index.h"

namespace fathom {
namespace {

struct Options {
    std::string dir = std::filesystem::temp_directory_path().string();
    std::int64_t rounds = 9;
    bool json = false;
};

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--json") {
            options.json = true;
        } else if (word == "--dir" && i + 1 < argc) {
            options.dir = argv[++i];
        } else if (word == "--rounds" && i + 1 < argc) {
            options.rounds = std::atoll(argv[++i]);
        } else {
            return invalid_argument(
                "\"{}\" is not known: pool_bench [--json] [--dir DIR] [--rounds N]", word);
        }
    }
    if (options.rounds < 1) return invalid_argument("--rounds: at least 1");
    return options;
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

void bench_index(bench::Report& report) {
    constexpr std::size_t kEntries = 1'000'000;
    std::vector<BlockKey> keys(kEntries);
    RandomStream random(1);
    for (BlockKey& key : keys) {
        for (std::size_t at = 0; at < key.bytes.size(); at += 8) {
            const std::uint64_t word = random.next_u64();
            std::memcpy(key.bytes.data() + at, &word, 8);
        }
    }
    BlockIndex index;
    for (std::size_t i = 0; i < kEntries; ++i)
        index.put(keys[i], {.segment = static_cast<std::uint32_t>(i), .slot = 1});
    std::vector<double> rates;
    for (int round = 0; round < 7; ++round) {
        const double begin = cpu_seconds();
        std::size_t found = 0;
        // A stride that is prime to the number visits all, in no order that a cache likes.
        for (std::size_t i = 0, at = 0; i < kEntries; ++i, at = (at + 611'953) % kEntries)
            found += index.find(keys[at]).has_value() ? 1 : 0;
        const double seconds = cpu_seconds() - begin;
        if (found == kEntries) rates.push_back(static_cast<double>(kEntries) / seconds * 1e-6);
    }
    report.add("index.mlookups", median(rates), "M/s");
    report.add("index.bytes_per_block",
               static_cast<double>(index.memory_bytes()) / static_cast<double>(kEntries), "B");
}

// One run of each, raw before and after.
Status bench_rocksdb(const std::string& folder, bench::Report& report) {
    constexpr std::int64_t kPayload = 113'920, kSlot = 114'688;
    constexpr std::int64_t kBlocks = 6'000, kRoundBlocks = 1'000;
    constexpr int kDepthMax = 32;
    std::vector<BlockName> names;
    for (std::int64_t i = 0; i < kBlocks; ++i)
        names.push_back(numbered_block(i));
    FATHOM_ASSIGN(const auto raw, RawDisk::create(folder + "/raw", kBlocks, kSlot, kDepthMax));
    for (const int depth : {8, kDepthMax}) {
        FATHOM_ASSIGN(const double raw_puts, raw->run(true, kRoundBlocks, depth, 1));
        FATHOM_ASSIGN(const double raw_gets, raw->run(false, kRoundBlocks, depth, 2));
        const std::string directory = fmt::format("{}/rocksdb{}", folder, depth);
        FATHOM_ASSIGN(const bench::RocksTimes times,
                      bench::run_rocksdb(directory, names, kPayload, kBlocks, depth));
        std::error_code ignored;
        std::filesystem::remove_all(directory, ignored);
        FATHOM_ASSIGN(const double puts_after, raw->run(true, kRoundBlocks, depth, 3));
        FATHOM_ASSIGN(const double gets_after, raw->run(false, kRoundBlocks, depth, 4));
        const auto blocks = static_cast<double>(kBlocks);
        constexpr double kRawBlocks = 2 * kRoundBlocks;
        report.add(fmt::format("rocksdb.put.qd{}", depth), blocks / times.put_seconds, "blocks/s",
                   kRawBlocks / (raw_puts + puts_after));
        report.add(fmt::format("rocksdb.get.qd{}", depth), blocks / times.get_seconds, "blocks/s",
                   kRawBlocks / (raw_gets + gets_after));
    }
    return {};
}

Status compare_rocksdb(const std::string& above, bench::Report& report) {
    if (!bench::has_rocksdb()) return {};
    std::string folder = above + "/fathom_pool_bench_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
        return invalid_argument("--dir {}: nothing can be made there", above);
    const Status status = bench_rocksdb(folder, report);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return status;
}

Status run(const Options& options) {
    bench::Report report("pool");
    FATHOM_ASSIGN(const std::vector<PoolBenchRow> rows,
                  bench_pool({.directory = options.dir, .rounds = options.rounds}));
    for (const PoolBenchRow& row : rows)
        report.add(row.what, row.value, row.unit, row.limit);
    FATHOM_RETURN_IF_ERROR(compare_rocksdb(options.dir, report));
    bench_index(report);
    bench::add_key_rows(report);
    bench::add_code_rows(report);
    FATHOM_RETURN_IF_ERROR(bench::add_degraded_rows(report, options.dir));
    fmt::print("{}", report.table());
    if (options.json) fmt::print("{}\n", report.json());
    return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    const auto options = fathom::parse_options(argc, argv);
    const fathom::Status status = options.ok() ? fathom::run(*options) : options.status();
    if (status.ok()) return 0;
    fmt::print(stderr, "pool_bench: {}\n", status.message());
    return 2;
}
