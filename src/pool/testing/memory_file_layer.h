// A disk in memory that can do all the harm a disk can: it loses what was not synced when it
// crashes, and, when told, flips bits, tears, shortens, misdirects and loses writes, reads what is
// stale, and fails. Its choices follow from a seed and the number of the operation.
//
// A MemoryDisk outlives its layers, as a disk does its processes. It may have several layers at a
// time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "pool/file_layer.h"

namespace fathom::testing {

// Shares of requests that go wrong, 0 to 1.
struct DiskFaults {
    double read_flip = 0, read_misdirected = 0, read_stale = 0, read_short = 0, read_error = 0;
    double write_flip = 0, write_torn = 0, write_short = 0, write_lost = 0, write_misdirected = 0,
           write_error = 0;
    double no_space = 0, again = 0, sync_error = 0;
    bool any_read() const {
        return read_flip + read_misdirected + read_stale + read_short + read_error + again > 0;
    }
};

class MemoryDisk {
  public:
    explicit MemoryDisk(std::uint64_t seed) : seed_(seed) {}

    std::unique_ptr<FileLayer> layer(int depth);

    void set_faults(const DiskFaults& faults);
    // Operations (requests and changes of names) from here on succeed `operations` times; then
    // the process is as good as dead: all fail, and nothing reaches the disk any more.
    void crash_after(std::int64_t operations);
    bool crashed() const;
    std::int64_t operations() const;  // so far
    std::int64_t faults_done() const;
    // The power fails: of what was not synced, each page and each name stays or goes by the seed.
    // Call while no layer is open.
    void lose_power();
    // Completions of reads wait while held.
    void hold_reads(bool held);
    std::int64_t held_reads() const;
    // Space of the disk; allocations beyond it fail.
    void set_capacity(std::int64_t bytes);

    // Behind the store's back.
    std::vector<std::string> files() const;
    void flip(const std::string& path, std::int64_t bit);
    void remove(const std::string& path);
    void truncate(const std::string& path, std::int64_t bytes);
    void copy(const std::string& from, const std::string& to);
    // A directory whose device is gone: everything below it fails, and is there again when it is
    // brought back.
    void lose(const std::string& directory);
    void bring_back(const std::string& directory);
    // Everything below a directory, as on a device that was replaced; and a device as it was.
    void clear(const std::string& directory);
    void copy_all(const std::string& from, const std::string& to);

  private:
    friend class MemoryLayer;
    using Bytes = std::vector<std::uint8_t>;
    using Pages = std::map<std::int64_t, std::shared_ptr<const Bytes>>;
    struct File {
        Pages pages, durable;  // by number; absent: zeros
        std::int64_t bytes = 0, allocated = 0;
    };
    using FilePtr = std::shared_ptr<File>;

    double draw();  // [0, 1)
    bool begin_operation();
    bool is_lost(const std::string& path) const;
    std::int64_t perform(const IoRequest& request, File* file);
    std::int64_t read(const IoRequest& request, File& file);
    std::int64_t write(const IoRequest& request, File& file);
    static void read_pages(const Pages& pages, std::int64_t offset, std::int64_t bytes,
                           std::uint8_t* out);
    static void flip_bit(File& file, std::int64_t bit);
    static void write_pages(File& file, std::int64_t offset, std::int64_t bytes,
                            const std::uint8_t* data);
    bool fault(double share);
    std::int64_t unlink(const std::string& path);

    mutable std::mutex mutex_;
    const std::uint64_t seed_;
    std::uint64_t draws_ = 0;
    std::map<std::string, FilePtr> files_, durable_files_;
    std::set<std::string> directories_{""};
    std::set<std::string> locks_, lost_;
    DiskFaults faults_;
    std::int64_t operations_ = 0, crash_at_ = -1, faults_done_ = 0;
    std::int64_t capacity_ = std::int64_t{1} << 50, allocated_ = 0;
    bool hold_reads_ = false;
    std::int64_t held_reads_ = 0;
    std::condition_variable changed_;
};

}  // namespace fathom::testing
