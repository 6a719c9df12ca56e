// A pool's directory for who only reads it: which segments there are, and what POOL, headers,
// footers and trailers say. No lock is needed. The directory may be another process's, which goes
// on writing: a file may vanish at any time, an open segment gets slots and one day a footer. What
// is said here was true when it was read.
//
//   DIR/POOL, seg/, …           a pool of its own
//   DIR/peers/<name>/POOL, …    and of further processes that share DIR (shared_store.h)
//
// Bytes are judged by pure functions, the same ones for recovery, peers and tools. PoolReader gets
// the bytes: blocking calls over a file layer of its own, all on the thread of the first one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pool/file_layer.h"
#include "pool/segment.h"

namespace fathom {

struct PoolSegmentFile {
    std::string path;
    std::string traffic_class, bucket, name;  // as its directories and itself are called
};
struct PoolListing {
    std::vector<PoolSegmentFile> segments;   // whatever lies there, also what is no segment
    std::vector<std::string> empty_buckets;  // directories
};
// Directories that a live process removes meanwhile are passed over.
Result<PoolListing> list_pool_segments(FileLayer& files, const std::string& directory);
// The same of one class, only its `newest` last buckets when that is positive: new segments are
// nowhere else.
Status list_class_segments(FileLayer& files, const std::string& directory,
                           TrafficClass traffic_class, std::size_t newest, PoolListing& listing);
std::string segment_path(const std::string& directory, TrafficClass traffic_class,
                         std::int64_t bucket_start_unix_ms, std::uint64_t id);

// Every pool in a directory that may be shared: itself first, when it has a POOL, then those under
// peers/ by name.
Result<std::vector<std::string>> pool_directories(FileLayer& files, const std::string& directory);

struct SegmentHead {
    SegmentHeader header;
    bool sealed = false;
    std::vector<FooterEntry> entries;  // one for each slot; empty unless it is sealed
};
std::int64_t segment_head_bytes(const SlotGeometry& geometry);  // header and footer
// What the first bytes of `file` say; a damaged footer counts as none. not_found: it was never
// begun; unsupported: of a later format; invalid_argument: it is no segment of this pool at this
// path.
Result<SegmentHead> judge_segment_head(std::span<const std::uint8_t> head,
                                       const PoolSegmentFile& file, const PoolUuid& pool,
                                       const SlotGeometry& geometry);
// The trailer in the last pages of a slot (geometry.tail_offset(), tail_bytes()), if it is one of
// `place`. data_loss otherwise; `fault` tells a slot that was never written from a bad one.
Result<SlotTrailer> judge_slot_tail(std::span<const std::uint8_t> tail,
                                    const SlotGeometry& geometry, const SlotPlace& place,
                                    SlotFault& fault);

class PoolReader {
  public:
    explicit PoolReader(std::unique_ptr<FileLayer> files) : files_(std::move(files)) {}
    FileLayer& files() { return *files_; }

    // The POOL of one directory. not_found when there is none.
    Result<PoolFile> pool(const std::string& directory);
    // One request, whatever it is; bytes done, or −errno.
    std::int64_t perform(IoRequest request);
    // Header and footer of a file that is open (OpenMode::reading). unavailable: it cannot be read.
    Result<SegmentHead> head(int file, const PoolSegmentFile& of, const PoolUuid& pool,
                             const SlotGeometry& geometry);
    // Whether something stands where the footer goes. False when that cannot be read.
    bool has_footer(int file);
    // Trailers of some slots, many at a time; beside `slots`. An absent one is no block: it was
    // never written, is being written, was wiped, is damaged or cannot be read.
    std::vector<std::optional<SlotTrailer>> trailers(int file, const SlotGeometry& geometry,
                                                     const SlotPlace& segment,
                                                     std::span<const std::uint32_t> slots);

  private:
    std::unique_ptr<FileLayer> files_;
    std::vector<IoDone> done_;
};

}  // namespace fathom
