// What the disk gives without a store: io_uring and direct I/O on one file, at one depth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace fathom {

class RawDisk {
  public:
    // A file of `blocks` blocks of `block_bytes`, written once. The ring has `depth` entries.
    static Result<std::unique_ptr<RawDisk>> create(const std::string& path, std::int64_t blocks,
                                                   std::int64_t block_bytes, int depth);
    virtual ~RawDisk() = default;
    // Seconds for reading or writing `n` random blocks with `depth` in flight, at most the ring's.
    virtual Result<double> run(bool write, std::int64_t n, int depth, std::uint64_t seed) = 0;
};

}  // namespace fathom
