// Memory is planned before anything is loaded: a list of what will be held and how much, printed
// and compared with what the machine has. Too little is refused with the numbers, so that a server
// never dies of memory later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/checkpoint.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace fathom {

struct MemoryRequest {
    ModelOptions model;
    std::int64_t pages = 0;           // KV pages
    std::int64_t sequences = 0;       // live sequences, each with rings
    std::int64_t snapshot_bytes = 0;  // budget of window snapshots
    std::int64_t limit_bytes = 0;     // 0: what the machine has available
    // Of a back end's own weight layouts: in memory, or mapped from a packed file. Both 0: it reads
    // the checkpoint's mapping.
    std::int64_t packed_bytes = 0;
    std::int64_t packed_file_bytes = 0;
};

struct MemoryPlan {
    struct Item {
        std::string what;
        std::int64_t bytes = 0;
        bool mapped = false;  // file-backed: may be evicted, does not count against the limit
        std::string lower;    // what a user lowers to make it smaller, or empty
    };
    std::vector<Item> items;
    std::int64_t anonymous_bytes = 0, mapped_bytes = 0, limit_bytes = 0;

    std::string to_text() const;  // a table with one line an item
};

// "1.50 GiB": three significant digits in the unit that fits.
std::string bytes_text(std::int64_t bytes);

// The smaller of MemAvailable and what the cgroups of this process (v2 and v1, all levels) leave,
// page cache counted as free. `root` stands before /proc and /sys, so that tests can make a
// machine.
std::int64_t available_memory_bytes(const std::string& root = "");
MemoryPlan plan_memory(const Checkpoint& checkpoint, const MemoryRequest& request);
// resource_exhausted with the numbers and what to lower, when the plan exceeds its limit.
Status check_memory_plan(const MemoryPlan& plan);

}  // namespace fathom
