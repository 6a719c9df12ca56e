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
    std::int64_t pages = 0;        // KV pages
    std::int64_t sequences = 0;    // live sequences, each with rings
    std::int64_t limit_bytes = 0;  // 0: what the machine has available
};

struct MemoryPlan {
    struct Item {
        std::string what;
        std::int64_t bytes = 0;
        bool mapped = false;  // file-backed: may be evicted, does not count against the limit
    };
    std::vector<Item> items;
    std::int64_t anonymous_bytes = 0, mapped_bytes = 0, limit_bytes = 0;

    std::string to_text() const;
};

// The smaller of MemAvailable and the cgroup's remaining allowance.
std::int64_t available_memory_bytes();
MemoryPlan plan_memory(const Checkpoint& checkpoint, const MemoryRequest& request);
// resource_exhausted with the numbers and what to lower, when the plan exceeds its limit.
Status check_memory_plan(const MemoryPlan& plan);

}  // namespace fathom
