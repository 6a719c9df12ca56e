// The embedded store beside the disk that it lies on.
//
//   pool_bench [--json] [--dir DIR] [--rounds N]
//
// DIR (default: the temporary folder) must be on the disk in question and have 4 GiB; what is made
// there is deleted. Short rounds of raw io_uring and of the store take turns, reads and writes of
// 112 KiB at random, and the median of their ratios counts; both write, then sync. Rows:
//
//   get.qd1, get.qd8, get.qd32   verified reads a second; the limit is raw reads at that depth
//   put.qd1, put.qd8, put.qd32   the same for puts
//   get.cpu_us_per_block         CPU time of the process for a get at depth 32 and for a put, all
//   put.cpu_us_per_block         its threads, system calls included
//   index.mlookups               lookups of present keys in an index of a million, one core
//   index.bytes_per_block        memory of that index
//   open.s_per_100k              opening a pool again, for 100,000 blocks
//   rocksdb.get.qd8, .put.qd8 …  the same work by RocksDB's blob files (pool_rocksdb.h), beside raw
//                                io_uring likewise, where it was built with it (librocksdb-dev)
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/block_key.h"
#include "base/queue.h"
#include "base/random.h"
#include "bench/pool_keys.h"
#include "bench/pool_raw.h"
#include "bench/pool_rocksdb.h"
#include "bench/report.h"
#include "pool/block_index.h"
#include "pool/embedded_store.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPayload = 113'920, kSlot = 114'688;
constexpr std::int64_t kBlocks = 6'000;  // 0.64 GiB: more than a device's own cache
constexpr std::int64_t kRoundBlocks = 1'000;
constexpr int kDepthMax = 32;
constexpr std::int64_t kAnswerUs = 120'000'000;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

struct Options {
    std::string dir = fs::temp_directory_path().string();
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

BlockName name_of(std::int64_t number) {
    BlockName name;
    Sha256 hash;
    hash.update(fmt::format("block {}", number));
    name.key.bytes = hash.finish();
    name.ordinal = static_cast<std::uint32_t>(number + 1);
    return name;
}

struct Free {
    void operator()(std::uint8_t* memory) const { std::free(memory); }
};
using Page = std::unique_ptr<std::uint8_t, Free>;

// A store, and calls on it of one block each, `depth` at a time: the end of each starts the next.
class Driver {
  public:
    explicit Driver(BlockStore& store) : store_(store), ended_(1) {
        for (int i = 0; i < kDepthMax; ++i) {
            pages_.emplace_back(static_cast<std::uint8_t*>(std::aligned_alloc(4096, kSlot)));
            std::memset(pages_.back().get(), i + 1, kSlot);
        }
    }

    Result<double> gets(const std::vector<BlockName>& names, std::int64_t n, int depth,
                        std::uint64_t seed) {
        RandomStream random(seed);
        std::vector<std::size_t> order(static_cast<std::size_t>(n));
        for (std::size_t& at : order)
            at = random.next_below(names.size());
        return run(n, depth, [&](std::int64_t i, std::size_t page) {
            const BlockName& name = names[order[static_cast<std::size_t>(i)]];
            (void)store_.get({{.name = name, .destination = {pages_[page].get(), true}}}, kNever,
                             {.done = [this](GetResult r) { bad_ += r.leading_hits == 1 ? 0 : 1; },
                              .released = [this, page] { end_one(page); }});
        });
    }

    Result<double> puts(const std::vector<BlockName>& names, std::int64_t first, std::int64_t n,
                        int depth) {
        return run(n, depth, [&](std::int64_t i, std::size_t page) {
            const BlockName& name = names[static_cast<std::size_t>(first + i)];
            (void)store_.put(
                {{.name = name, .page = pages_[page].get()}}, {}, kNever,
                {.done = [this](PutResult r) { bad_ += r.blocks[0] == PutOutcome::stored ? 0 : 1; },
                 .released = [this, page] { end_one(page); }});
        });
    }

  private:
    using Start = std::function<void(std::int64_t i, std::size_t page)>;

    // Seconds for `n` calls.
    Result<double> run(std::int64_t n, int depth, Start start) {
        start_ = std::move(start);
        calls_ = n;
        started_ = ended_calls_ = bad_ = 0;
        const double begin = seconds_now();
        for (int i = 0; i < depth; ++i)
            start_(started_++, static_cast<std::size_t>(i));
        if (!ended_.pop(kAnswerUs))
            return error(StatusCode::deadline_exceeded, "the store does not answer");
        const double seconds = seconds_now() - begin;
        if (bad_ > 0) return error(StatusCode::internal, "{} calls failed", bad_.load());
        return seconds;
    }
    void end_one(std::size_t page) {  // on the store's thread
        if (const std::int64_t next = started_++; next < calls_) start_(next, page);
        if (++ended_calls_ == calls_) (void)ended_.try_push(true);
    }

    BlockStore& store_;
    std::vector<Page> pages_;
    Start start_;
    std::int64_t calls_ = 0;
    std::atomic<std::int64_t> started_{0}, ended_calls_{0}, bad_{0};
    BoundedQueue<bool> ended_;
};

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
    void report(bench::Report& report, const std::string& what) const {
        const double rate = median(rates);
        report.add(what, rate, "blocks/s", rate / median(ratios));
    }
};

Status bench_puts(const Options& options, bench::RawDisk& raw, const std::string& folder,
                  bench::Report& report) {
    std::vector<BlockName> names;
    for (const int depth : {1, 8, kDepthMax}) {
        const std::int64_t n = depth == 1 ? kRoundBlocks / 4 : kRoundBlocks;
        const std::int64_t total = n * options.rounds;
        names.clear();
        for (std::int64_t i = 0; i < total; ++i)
            names.push_back(name_of(depth * 1'000'000 + i));
        Paired paired;
        double cpu = 0;
        const std::string directory = fmt::format("{}/put{}", folder, depth);
        FATHOM_ASSIGN(const auto store, EmbeddedStore::open(store_options(directory)));
        Driver driver(*store);
        for (std::int64_t round = 0; round < options.rounds; ++round) {
            FATHOM_ASSIGN(const double raw_seconds,
                          raw.run(true, n, depth, static_cast<std::uint64_t>(round)));
            const double cpu_begin = cpu_seconds();
            FATHOM_ASSIGN(const double seconds, driver.puts(names, round * n, n, depth));
            cpu += cpu_seconds() - cpu_begin;
            paired.add(n, seconds, raw_seconds);
        }
        store->close(kNever);
        paired.report(report, fmt::format("put.qd{}", depth));
        if (depth == kDepthMax)
            report.add("put.cpu_us_per_block", cpu / static_cast<double>(total) * 1e6, "us");
        std::error_code ignored;
        fs::remove_all(directory, ignored);
    }
    return {};
}

Status bench_gets(const Options& options, bench::RawDisk& raw, const std::string& folder,
                  bench::Report& report) {
    const std::string directory = folder + "/get";
    std::vector<BlockName> names;
    for (std::int64_t i = 0; i < kBlocks; ++i)
        names.push_back(name_of(i));
    {
        FATHOM_ASSIGN(const auto store, EmbeddedStore::open(store_options(directory)));
        Driver driver(*store);
        FATHOM_RETURN_IF_ERROR(driver.puts(names, 0, kBlocks, kDepthMax).status());
        store->close(kNever);
    }
    const double open_begin = seconds_now();
    FATHOM_ASSIGN(const auto store, EmbeddedStore::open(store_options(directory)));
    const double open_seconds = seconds_now() - open_begin;
    Driver driver(*store);
    for (const int depth : {1, 8, kDepthMax}) {
        const std::int64_t n = depth == 1 ? kRoundBlocks / 4 : kRoundBlocks;
        Paired paired;
        double cpu = 0;
        for (std::int64_t round = 0; round < options.rounds; ++round) {
            const auto seed = static_cast<std::uint64_t>(round * 100 + depth);
            FATHOM_ASSIGN(const double raw_seconds, raw.run(false, n, depth, seed));
            const double cpu_begin = cpu_seconds();
            FATHOM_ASSIGN(const double seconds, driver.gets(names, n, depth, seed + 1));
            cpu += cpu_seconds() - cpu_begin;
            paired.add(n, seconds, raw_seconds);
        }
        paired.report(report, fmt::format("get.qd{}", depth));
        if (depth == kDepthMax) {
            report.add("get.cpu_us_per_block", cpu / static_cast<double>(n * options.rounds) * 1e6,
                       "us");
        }
    }
    report.add("open.s_per_100k", open_seconds * 100'000 / static_cast<double>(kBlocks), "s");
    store->close(kNever);
    return {};
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
Status bench_rocksdb(bench::RawDisk& raw, const std::string& folder, bench::Report& report) {
    if (!bench::has_rocksdb()) return {};
    std::vector<BlockName> names;
    for (std::int64_t i = 0; i < kBlocks; ++i)
        names.push_back(name_of(i));
    for (const int depth : {8, kDepthMax}) {
        Paired puts, gets;
        FATHOM_ASSIGN(double raw_puts, raw.run(true, kRoundBlocks, depth, 1));
        FATHOM_ASSIGN(double raw_gets, raw.run(false, kRoundBlocks, depth, 2));
        const std::string directory = fmt::format("{}/rocksdb{}", folder, depth);
        FATHOM_ASSIGN(const bench::RocksTimes times,
                      bench::run_rocksdb(directory, names, kPayload, kBlocks, depth));
        std::error_code ignored;
        fs::remove_all(directory, ignored);
        FATHOM_ASSIGN(const double puts_after, raw.run(true, kRoundBlocks, depth, 3));
        FATHOM_ASSIGN(const double gets_after, raw.run(false, kRoundBlocks, depth, 4));
        const double scale = 0.5 * static_cast<double>(kBlocks) / kRoundBlocks;
        puts.add(kBlocks, times.put_seconds, scale * (raw_puts + puts_after));
        gets.add(kBlocks, times.get_seconds, scale * (raw_gets + gets_after));
        puts.report(report, fmt::format("rocksdb.put.qd{}", depth));
        gets.report(report, fmt::format("rocksdb.get.qd{}", depth));
    }
    return {};
}

Status run(const Options& options) {
    std::string folder = options.dir + "/fathom_pool_bench_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
        return invalid_argument("--dir {}: nothing can be made there", options.dir);
    struct Cleaner {
        std::string path;
        ~Cleaner() {
            std::error_code ignored;
            fs::remove_all(path, ignored);
        }
    } cleaner{folder};
    bench::Report report("pool");
    FATHOM_ASSIGN(const auto raw,
                  bench::RawDisk::create(folder + "/raw", kBlocks, kSlot, kDepthMax));
    FATHOM_RETURN_IF_ERROR(bench_gets(options, *raw, folder, report));
    FATHOM_RETURN_IF_ERROR(bench_puts(options, *raw, folder, report));
    FATHOM_RETURN_IF_ERROR(bench_rocksdb(*raw, folder, report));
    bench_index(report);
    bench::add_key_rows(report);
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
