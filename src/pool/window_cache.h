// Window rows of sequences at block boundaries, kept on this node for a few minutes (kvpool.md 9):
// a turn that comes back soon finds the encoder windows in front of its boundary and computes
// nothing again; otherwise 128 tokens are replayed. Worth keeping in memory only, so they are never
// written anywhere, and what is released is zeroed.
//
//   memory file of the node: | slab header, 4 KiB | directory | cell | cell | …
//   the directory: 8 bytes a cell, the beginning of its key, or 0
//   a cell, a multiple of 4 KiB: | WindowCell, 128 bytes | the rows of one boundary
//
// An entry goes kWindowLifeUs after its last use, or before that by CLOCK when all cells are taken.
// Cells say all about themselves, so that another process of the node can map the file and read an
// entry between two looks at its version (WindowReader); what it read it checks.
//
// A cache and a reader have one owner thread each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/block_key.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/result.h"

namespace fathom {

inline constexpr std::int64_t kWindowLifeUs = 180'000'000;

struct WindowCacheOptions {
    std::int64_t entry_bytes = 0;   // of every entry
    std::int64_t budget_bytes = 0;  // of the memory file; at least one cell
    std::int64_t life_us = kWindowLifeUs;
};

// The name of the windows in front of a boundary: of the block that ends there, and of how windows
// lie in an entry (any text that is equal for equal layouts). No block goes by the same name.
BlockKey window_key(const BlockKey& boundary, std::string_view window_layout);

// The name of the memory files, as /proc shows it.
inline constexpr std::string_view kWindowMemoryName = "fathom_windows";

// At the beginning of every cell; numbers in the machine's order, as it never leaves it.
struct WindowCell {
    std::uint64_t version = 0;  // odd while the cell is being written; 0: never used
    std::uint64_t bytes = 0;    // of the entry; 0: the cell is free
    Sha256Digest key{};
    std::array<std::uint8_t, 16> digest{};  // payload_digest of the entry
    std::int64_t used_at_us = 0;            // on the clock of the owner
    std::array<std::uint8_t, 56> spare{};
};
static_assert(sizeof(WindowCell) == 128);

struct WindowCacheCounters {
    Counter hits, misses, stored, expired, evicted, corrupt;
};

class WindowCache {
  public:
    // Takes the address space; memory as cells are first written. invalid_argument for sizes that
    // hold nothing, resource_exhausted when the machine gives no such file.
    static Result<std::unique_ptr<WindowCache>> create(const WindowCacheOptions& options,
                                                       const Clock& clock);
    ~WindowCache();
    WindowCache(const WindowCache&) = delete;
    WindowCache& operator=(const WindowCache&) = delete;

    // Keeps a copy of `entry`, of entry_bytes. The first entry of a key stays.
    void put(const BlockKey& key, std::span<const std::uint8_t> entry);
    // Copies the entry out and begins its life anew. False when there is none, or when it is not
    // what was put.
    bool get(const BlockKey& key, std::span<std::uint8_t> entry);
    // Releases what has not been used for its life; to be called now and then.
    void expire();
    void clear();

    std::int64_t entries() const { return static_cast<std::int64_t>(cell_of_.size()); }
    std::int64_t cells() const { return static_cast<std::int64_t>(slots_.size()); }
    const WindowCacheCounters& counters() const { return counters_; }
    // Of the memory file, for other processes of the node; valid while the cache lives.
    int fd() const { return fd_; }
    // False when the system did not let the memory be kept from swap space: what "never written"
    // then means is up to whether the machine has any.
    bool locked() const { return locked_; }

  private:
    struct Slot {  // what the owner knows of a cell
        BlockKey key;
        bool taken = false, referenced = false;
    };

    WindowCache(const WindowCacheOptions& options, const Clock& clock)
        : options_(options), clock_(clock) {}
    Status map_memory();
    WindowCell& cell(std::size_t index) const;
    std::uint64_t& directory(std::size_t index) const;
    std::span<std::uint8_t> entry_of(std::size_t index) const;
    bool dead(std::size_t index) const;
    std::size_t free_cell();
    void release(std::size_t index);

    const WindowCacheOptions options_;
    const Clock& clock_;
    int fd_ = -1;
    bool locked_ = false;
    std::uint8_t* memory_ = nullptr;
    std::size_t memory_bytes_ = 0, cell_bytes_ = 0, cells_offset_ = 0;
    std::vector<Slot> slots_;
    std::vector<std::size_t> free_;
    std::unordered_map<BlockKey, std::size_t> cell_of_;
    std::size_t hand_ = 0;
    WindowCacheCounters counters_;
};

// The windows of another process of this node, for reading.
class WindowReader {
  public:
    // Maps the memory file behind the path (/proc/PID/fd/N). not_found when it is no such file;
    // invalid_argument when its entries are of another size.
    static Result<std::unique_ptr<WindowReader>> open(const std::string& path,
                                                      std::int64_t entry_bytes, const Clock& clock);
    ~WindowReader();
    WindowReader(const WindowReader&) = delete;
    WindowReader& operator=(const WindowReader&) = delete;

    // As WindowCache::get, but that the entry's life goes on.
    bool get(const BlockKey& key, std::span<std::uint8_t> entry, std::int64_t life_us) const;

  private:
    explicit WindowReader(const Clock& clock) : clock_(clock) {}
    bool read_cell(std::size_t index, const BlockKey& key, std::span<std::uint8_t> entry,
                   std::int64_t life_us) const;

    const Clock& clock_;
    const std::uint8_t* memory_ = nullptr;
    std::size_t memory_bytes_ = 0, cell_bytes_ = 0, cells_ = 0, cells_offset_ = 0;
};

}  // namespace fathom
