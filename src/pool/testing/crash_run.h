// An embedded store on a real disk whose process is killed (kvpool.md 15.3, crash harness): a child
// process puts, reads, renews, drops and collects, and says over a pipe what it was told; it dies
// by SIGKILL, and the pool is opened again and compared with what it said.
//
//   at every step   the same script, killed before and behind each operation on the disk in turn:
//                   a file created, allocated, written, synced, sealed, renamed, removed
//   at any moment   a random mix, killed by a parent that does not look; many lives of one pool
//
// Forks: of a process that has one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom::testing {

struct CrashRunOptions {
    std::string directory;  // there, writable; what is made in it is removed
    std::uint64_t seed = 1;
    std::int64_t random_kills = 20;
    std::int64_t step_stride = 1;  // of the script's operations every n-th
    std::function<void(double share)> progress = {};
};

struct CrashRunReport {
    std::int64_t script_steps = 0, step_kills = 0, random_kills = 0;
    std::int64_t checked = 0, hits = 0;  // blocks looked for after a kill
    std::int64_t faults = 0;             // blocks lost, invented or wrong; pools that did not open
    std::int64_t hangs = 0;              // children that did neither end nor die
    std::int64_t blocks_max = 0;         // in a pool that was opened again
    std::vector<double> recovery_ms;     // to open it, each time
    std::string first = {};              // of the faults, with its seed
};

Result<CrashRunReport> run_kills(const CrashRunOptions& options);

}  // namespace fathom::testing
