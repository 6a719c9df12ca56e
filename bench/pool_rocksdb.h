// The same work by RocksDB with values in blob files, for comparison: puts that survive the process
// (a log that is not synced), then a flush; reads past the page cache with checksums verified.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/block_key.h"
#include "base/result.h"

namespace fathom::bench {

// Whether this program was built with RocksDB.
bool has_rocksdb();

struct RocksTimes {
    double put_seconds = 0;  // of all names, the flush at the end included
    double get_seconds = 0;  // of `gets` random ones
};
// In a new directory. `depth` threads, each with one call at a time.
Result<RocksTimes> run_rocksdb(const std::string& directory, const std::vector<BlockName>& names,
                               std::int64_t value_bytes, std::int64_t gets, int depth);

}  // namespace fathom::bench
