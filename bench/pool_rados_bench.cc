// The rados store beside Ceph's own `rados bench`, on a cluster that it starts and ends: a monitor
// and six OSDs in memory on loopback, k=4 m=2 (tests/ceph_cluster.h).
//
//   pool_rados_bench [--json] [--rounds N]
//
// Everything, the OSDs too, shares this machine's processors, which are the limit of both. Rounds
// of both take turns; objects of 112 KiB, 32 operations at a time, and the median of ratios counts:
//
//   put.qd32   blocks stored a second, each with its list entry and attributes; the limit is
//              `rados bench write`
//   get.qd32   verified reads a second; the limit is `rados bench rand`
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/report.h"
#include "pool/bench/block_driver.h"
#include "pool/rados_store.h"
#include "tests/ceph_cluster.h"

namespace fathom {
namespace {

using testing::CephCluster;

constexpr std::int64_t kPayload = 113'920, kSlot = 114'688;
constexpr std::int64_t kRoundBlocks = 2'000;  // six times as much lies in the cluster at a time
constexpr int kDepth = 32;
constexpr Deadline kNever{std::numeric_limits<std::int64_t>::max()};

// What `rados bench WORDS` gives in operations a second.
Result<double> rados_bench(const CephCluster& cluster, std::vector<std::string> words) {
    words.insert(words.begin(), {"-p", CephCluster::kPool, "bench"});
    words.insert(words.end(), {"-t", std::to_string(kDepth), "--run-name", "raw"});
    const std::string output = cluster.rados(words);
    constexpr std::string_view kName = "Average IOPS:";
    const std::size_t at = output.find(kName);
    if (at == std::string::npos) return error(StatusCode::internal, "rados bench: {}", output);
    return std::strtod(output.c_str() + at + kName.size(), nullptr);
}

struct Turns {
    std::vector<double> rates, ratios;
    void add(double rate, double limit) {
        rates.push_back(rate);
        ratios.push_back(rate / limit);
    }
    static double median(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    }
    // The limit that makes the reported ratio the median of ratios.
    void report(bench::Report& report, const char* what) const {
        report.add(what, median(rates), "blocks/s", median(rates) / median(ratios));
    }
};

Status round(const CephCluster& cluster, RadosStore& store, int number, Turns& puts, Turns& gets) {
    FATHOM_ASSIGN(const double raw_puts,
                  rados_bench(cluster, {"30", "write", "-b", std::to_string(kSlot), "--max-objects",
                                        std::to_string(kRoundBlocks), "--no-cleanup"}));
    FATHOM_ASSIGN(const double raw_gets, rados_bench(cluster, {"2", "rand"}));
    (void)cluster.rados({"-p", CephCluster::kPool, "cleanup", "--run-name", "raw"});
    std::vector<BlockName> names;
    for (std::int64_t i = 0; i < kRoundBlocks; ++i)
        names.push_back(numbered_block(number * kRoundBlocks + i));
    BlockDriver driver(store, kSlot);
    FATHOM_ASSIGN(const double put_seconds, driver.puts(names, 0, kRoundBlocks, kDepth));
    const auto n = static_cast<std::int64_t>(2 * raw_gets);
    FATHOM_ASSIGN(const double get_seconds,
                  driver.gets(names, n, kDepth, static_cast<std::uint64_t>(number)));
    puts.add(kRoundBlocks / put_seconds, raw_puts);
    gets.add(static_cast<double>(n) / get_seconds, raw_gets);
    std::promise<Status> dropped;
    (void)store.drop_namespace(names[0].ns, kNever,
                               [&](Status status) { dropped.set_value(std::move(status)); });
    return dropped.get_future().get();
}

Status run(int rounds, bool json) {
    CephCluster cluster;
    if (const std::string wrong = cluster.start({}); !wrong.empty())
        return error(StatusCode::unavailable, "the cluster does not start: {}", wrong);
    RadosOptions options;
    options.cluster = {.conf = cluster.conf(),
                       .user = "admin",
                       .keyring = {},
                       .pool = CephCluster::kPool,
                       .index_pool = CephCluster::kIndexPool,
                       .rados_namespace = "bench"};
    options.payload_bytes = kPayload;
    FATHOM_ASSIGN(const auto store, RadosStore::open(std::move(options)));
    Turns puts, gets;
    for (int number = 0; number < rounds; ++number)
        FATHOM_RETURN_IF_ERROR(round(cluster, *store, number, puts, gets));
    bench::Report report("pool_rados");
    puts.report(report, "put.qd32");
    gets.report(report, "get.qd32");
    fmt::print("{}", report.table());
    if (json) fmt::print("{}\n", report.json());
    return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    bool json = false;
    int rounds = 5;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--json") {
            json = true;
        } else if (word == "--rounds" && i + 1 < argc) {
            rounds = std::clamp(std::atoi(argv[++i]), 1, 100);
        } else {
            fmt::print(stderr, "\"{}\" is not known: pool_rados_bench [--json] [--rounds N]\n",
                       word);
            return 2;
        }
    }
    if (!fathom::testing::CephCluster::installed()) {
        fmt::print("pool_rados: no Ceph on this machine (ceph-mon, ceph-osd, ceph-common)\n");
        return 0;
    }
    const fathom::Status status = fathom::run(rounds, json);
    if (status.ok()) return 0;
    fmt::print(stderr, "pool_rados_bench: {}\n", status.message());
    return 2;
}
