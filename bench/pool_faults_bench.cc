// The embedded store under faults and kills, for long (kvpool.md 15.3).
//
//   pool_faults_bench [--json] [--dir DIR] [--reads N] [--kills N] [--seed N]
//
// First reads from a pool on a disk in memory that flips, tears, shortens, misdirects, loses and
// delays, refuses and loses power; then a pool in DIR (default: the temporary folder) whose process
// is killed at every step of a script and N times at any moment. Rows count; a row whose value must
// be 0 and is not makes the exit status 1:
//
//   reads.wrong     hits of bytes that nobody put under that name
//   pools.unopened  pools that a healthy disk did not open again
//   kills.faults    blocks lost though stored, invented, or wrong, after a kill
//   kills.hangs     (a hang on the disk in memory ends the program)
//   recovery.*      opening a pool after a kill; ops: what the script does to the disk
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "bench/report.h"
#include "pool/testing/crash_run.h"
#include "pool/testing/fault_run.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;

struct Options {
    std::string dir = fs::temp_directory_path().string();
    std::int64_t reads = 1'000'000, kills = 400;
    std::uint64_t seed = 20'261'130;
    bool json = false;
};

Result<Options> parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const bool valued = i + 1 < argc;
        if (word == "--json") {
            options.json = true;
        } else if (word == "--dir" && valued) {
            options.dir = argv[++i];
        } else if (word == "--reads" && valued) {
            options.reads = std::atoll(argv[++i]);
        } else if (word == "--kills" && valued) {
            options.kills = std::atoll(argv[++i]);
        } else if (word == "--seed" && valued) {
            options.seed = std::strtoull(argv[++i], nullptr, 10);
        } else {
            return invalid_argument(
                "\"{}\" is not known: pool_faults_bench [--json] [--dir DIR] [--reads N] "
                "[--kills N] [--seed N]",
                word);
        }
    }
    if (options.reads < 0 || options.kills < 0)
        return invalid_argument("--reads, --kills: at least 0");
    return options;
}

// Over itself, on a terminal.
std::function<void(double)> progress(const char* what) {
    return [what](double share) {
        if (::isatty(STDERR_FILENO) == 0) return;
        fmt::print(stderr, "\r{}: {:3.0f} %{}", what, share * 100, share >= 1 ? "\n" : "");
    };
}

double count(std::int64_t n) {
    return static_cast<double>(n);
}

// What must be 0 and is not is said on stderr.
bool run_faults(const Options& options, bench::Report& report) {
    const testing::FaultRunReport run = testing::run_on_lying_disk(
        {.seed = options.seed, .reads = options.reads, .progress = progress("faults")});
    report.add("reads", count(run.reads), "blocks");
    report.add("reads.hits", count(run.hits), "blocks");
    report.add("reads.wrong", count(run.wrong), "blocks");
    report.add("reads.corrupt", count(run.corrupt), "blocks");
    report.add("reads.cancelled", count(run.cancelled), "blocks");
    report.add("reads.late", count(run.late), "blocks");
    report.add("puts", count(run.puts), "blocks");
    report.add("puts.stored", count(run.stored), "blocks");
    report.add("faults", count(run.faults), "");
    report.add("pools.opened", count(run.lives), "");
    report.add("pools.unopened", count(run.unopened), "");
    report.add("power_losses", count(run.power_losses), "");
    if (!run.first.empty()) fmt::print(stderr, "pool_faults_bench: {}\n", run.first);
    return run.wrong == 0 && run.unopened == 0;
}

Result<bool> run_kills(const Options& options, bench::Report& report) {
    std::string folder = options.dir + "/fathom_pool_faults_XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
        return invalid_argument("--dir {}: nothing can be made there", options.dir);
    auto run = testing::run_kills({.directory = folder,
                                   .seed = options.seed,
                                   .random_kills = options.kills,
                                   .progress = progress("kills")});
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    if (!run.ok()) return run.status();
    std::vector<double>& ms = run->recovery_ms;
    std::sort(ms.begin(), ms.end());
    report.add("kills.script_ops", count(run->script_steps), "");
    report.add("kills.at_steps", count(run->step_kills), "");
    report.add("kills.at_random", count(run->random_kills), "");
    report.add("kills.checked", count(run->checked), "blocks");
    report.add("kills.hits", count(run->hits), "blocks");
    report.add("kills.faults", count(run->faults), "blocks");
    report.add("kills.hangs", count(run->hangs), "");
    report.add("recovery.blocks_max", count(run->blocks_max), "blocks");
    report.add("recovery.median", ms[ms.size() / 2], "ms");
    report.add("recovery.p99", ms[ms.size() * 99 / 100], "ms");
    report.add("recovery.max", ms.back(), "ms");
    if (!run->first.empty()) fmt::print(stderr, "pool_faults_bench: {}\n", run->first);
    return run->faults == 0 && run->hangs == 0;
}

Result<bool> run(const Options& options) {
    bench::Report report("pool_faults");
    bool good = true;
    // First, as it forks and needs a process of one thread (logging starts another).
    if (options.kills > 0) {
        FATHOM_ASSIGN(good, run_kills(options, report));
    }
    if (options.reads > 0) {
        init_logging(LogLevel::error, LogStyle::text);  // its warnings are what was asked for
        good = run_faults(options, report) && good;
    }
    fmt::print("{}", report.table());
    if (options.json) fmt::print("{}\n", report.json());
    return good;
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
    const auto options = fathom::parse_options(argc, argv);
    const auto good = options.ok() ? fathom::run(*options) : fathom::Result<bool>(options.status());
    if (good.ok()) return *good ? 0 : 1;
    fmt::print(stderr, "pool_faults_bench: {}\n", good.status().message());
    return 2;
}
