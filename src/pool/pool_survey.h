// What lies in a pool's directory, for people who look after it: totals of a pool, and a check of
// every slot. Both only read and need no lock, so they work beside a process that has the pool
// open; what that one changes meanwhile is counted as it was or as it is, and never called bad.
//
// Of one directory with a POOL; pool_directories (pool_files.h) finds those that share one. One
// thread; the calls block.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "pool/key_ring.h"
#include "pool/pool_files.h"

namespace fathom {

struct PoolSurvey {
    struct PerClass {
        std::int64_t segments = 0, unsealed = 0, expired = 0, blocks = 0, allocated_bytes = 0;
        std::int64_t oldest_unix_s = 0, newest_unix_s = 0;  // writes of blocks; 0: none
        std::int64_t first_expiry_unix_ms = 0, last_expiry_unix_ms = 0;  // 0: no segment
    };
    struct PerNamespace {
        std::int64_t blocks = 0, encrypted = 0;
    };
    std::string directory;
    PoolFile pool;
    std::array<PerClass, kTrafficClasses> classes{};
    std::map<std::string, PerNamespace> namespaces;  // by namespace_tag_text
    std::int64_t lost_files = 0, lost_bytes = 0;     // in lost/
    std::vector<std::string> strange;  // files that are no segments of this pool, each with why
    std::string holder;                // who has it open, "process 12"; empty: nobody seen here
    PerClass total() const;
};

// Called now and then, with segments or bytes done and all; false ends the work (`cancelled`).
using SurveyProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

// Errors name path, cause and remedy; `cancelled` when progress says so.
Result<PoolSurvey> survey_pool(PoolReader& reader, const std::string& directory, const Clock& clock,
                               const SurveyProgress& progress);

// The beginning of a namespace as people see it: 16 hex digits, those that its key file begins
// with.
std::string namespace_tag_text(std::uint64_t ns_tag);

struct PoolCheckOptions {
    std::int64_t bytes_per_s = 0;  // of slots; 0: as fast as the disk
    KeyRing* keys = nullptr;       // what these open is checked down to the plain payload
    SurveyProgress progress;       // of bytes
};
struct BadSlot {
    std::string path;
    std::uint32_t slot = 0;
    SlotFault fault = SlotFault::none;
};
struct PoolCheck {
    std::int64_t segments = 0, blocks = 0, bytes = 0;
    std::int64_t encrypted = 0, opened = 0;  // blocks; opened: with their key
    // Of these, segments without a footer and their blocks: being written when somebody has the
    // pool open, else cut off when their process was killed. And files that never became segments.
    std::int64_t open_segments = 0, open_blocks = 0, unbegun_segments = 0;
    std::string holder;  // as of PoolSurvey
    std::int64_t bad_blocks = 0;
    std::vector<BadSlot> bad;  // the first thousand
    // Bad copies of blocks that were stored anew since: nobody reads them, and they go with their
    // segment. Not among bad_blocks.
    std::int64_t replaced_blocks = 0;
    std::vector<std::string> strange;
};
Result<PoolCheck> check_pool(PoolReader& reader, const std::string& directory, const Clock& clock,
                             const PoolCheckOptions& options);

// Who has the lock of this pool, as far as can be seen without taking it.
std::string pool_holder(const std::string& directory);

}  // namespace fathom
