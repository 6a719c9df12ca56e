// Lives of an embedded store on a disk that lies, fails and loses power (kvpool.md 15.3): puts,
// reads, renewals, drops, scrubs, collections and clocks that jump, with a different mix of faults
// in every life. Whatever happens, a read gives bytes that somebody put under that name, or none,
// and every call ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fathom::testing {

struct FaultRunOptions {
    std::uint64_t seed = 1;
    std::int64_t reads = 10'000;  // goes on until there were as many
    std::function<void(double share)> progress = {};
};

struct FaultRunReport {
    std::int64_t reads = 0, hits = 0, puts = 0, stored = 0;
    std::int64_t wrong = 0;     // hits whose bytes nobody put under that name
    std::int64_t unopened = 0;  // pools that a healthy disk did not open again
    std::int64_t faults = 0, lives = 0, power_losses = 0;
    std::int64_t corrupt = 0;              // found out by a read
    std::int64_t cancelled = 0, late = 0;  // reads that were ended before their I/O
    std::string first = {};                // what went wrong first, with its seed
};

// A call that does not end within a minute ends the process, saying which seed it was.
FaultRunReport run_on_lying_disk(const FaultRunOptions& options);

}  // namespace fathom::testing
