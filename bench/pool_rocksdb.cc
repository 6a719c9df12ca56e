#include "bench/pool_rocksdb.h"

#ifdef FATHOM_HAS_ROCKSDB

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/random.h"

namespace fathom::bench {

namespace {

rocksdb::Options options_for_blocks() {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;  // KV is as good as random
    options.enable_blob_files = true;
    options.min_blob_size = 0;
    options.blob_file_size = std::uint64_t{64} << 20;
    options.blob_compression_type = rocksdb::kNoCompression;
    options.write_buffer_size = std::size_t{64} << 20;
    // Without these it slows writers down to 16 MiB/s while a flush runs.
    options.max_write_buffer_number = 8;
    options.delayed_write_rate = std::uint64_t{4} << 30;
    options.use_direct_reads = true;
    options.use_direct_io_for_flush_and_compaction = true;
    options.max_background_jobs = 4;
    options.max_open_files = -1;
    return options;
}

rocksdb::Slice slice_of(const BlockKey& key) {
    return {reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()};
}

// Seconds for `n` acts, `depth` at a time; an act says whether it went well.
Result<double> time_threads(std::int64_t n, int depth,
                            const std::function<bool(std::int64_t i)>& act) {
    std::atomic<std::int64_t> next{0}, bad{0};
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < depth; ++t) {
        threads.emplace_back([&] {
            for (std::int64_t i = next++; i < n; i = next++)
                if (!act(i)) ++bad;
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    if (bad > 0) return error(StatusCode::internal, "{} calls of RocksDB failed", bad.load());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

bool has_rocksdb() {
    return true;
}

Result<RocksTimes> run_rocksdb(const std::string& directory, const std::vector<BlockName>& names,
                               std::int64_t value_bytes, std::int64_t gets, int depth) {
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options_for_blocks(), directory, &opened);
    if (!status.ok()) return error(StatusCode::unavailable, "{}: {}", directory, status.ToString());
    const std::unique_ptr<rocksdb::DB> db(opened);
    const std::string value(static_cast<std::size_t>(value_bytes), 'k');
    const auto n = static_cast<std::int64_t>(names.size());
    RocksTimes times;
    FATHOM_ASSIGN(
        times.put_seconds, time_threads(n, depth, [&](std::int64_t i) {
            return db->Put({}, slice_of(names[static_cast<std::size_t>(i)].key), value).ok();
        }));
    const auto begin = std::chrono::steady_clock::now();
    if (!db->Flush({}).ok()) return error(StatusCode::internal, "RocksDB cannot flush");
    times.put_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    RandomStream random(1);
    std::vector<std::size_t> order(static_cast<std::size_t>(gets));
    for (std::size_t& at : order)
        at = random.next_below(names.size());
    FATHOM_ASSIGN(times.get_seconds, time_threads(gets, depth, [&](std::int64_t i) {
                      rocksdb::PinnableSlice found;
                      return db->Get({}, db->DefaultColumnFamily(),
                                     slice_of(names[order[static_cast<std::size_t>(i)]].key),
                                     &found)
                                 .ok() &&
                             found.size() == value.size();
                  }));
    return times;
}

}  // namespace fathom::bench

#else

namespace fathom::bench {

bool has_rocksdb() {
    return false;
}

Result<RocksTimes> run_rocksdb(const std::string&, const std::vector<BlockName>&, std::int64_t,
                               std::int64_t, int) {
    return error(StatusCode::unsupported, "built without RocksDB");
}

}  // namespace fathom::bench

#endif
