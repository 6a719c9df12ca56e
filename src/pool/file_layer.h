// Disks as a seam: what an embedded store does to files, so that a test can put a disk that lies,
// fails and crashes in the place of the real one.
//
// Names are handled at once, by calls that may block for a short time; bytes are read, written,
// made durable and given up by requests in flight, whose completions wait() hands out in whatever
// order they came. A request's memory is the layer's until its completion was handed out.
//
// Of one thread, the store's, but for wake(). Results of requests are bytes done, or −errno.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace fathom {

enum class OpenMode {
    existing,   // not_found when there is none
    reading,    // the same, and nothing is written
    create,     // a new file; fails when there is one
    directory,  // only to sync its names
};

enum class IoKind : std::uint8_t {
    read,
    write,
    sync,      // bytes, and for a directory names, survive a loss of power
    allocate,  // room for [offset, offset + bytes), so that writes there do not want for space
    punch,     // gives the room up; zeros are read
    unlink,    // of `path`
};

struct IoRequest {
    IoKind kind = IoKind::read;
    int file = -1;
    std::int64_t offset = 0, bytes = 0;
    std::uint8_t* data = nullptr;  // aligned to 4 KiB, as offset and bytes are
    std::string path = {};
    std::uint64_t tag = 0;  // comes back
};
struct IoDone {
    std::uint64_t tag = 0;
    std::int64_t result = 0;
};

struct FileName {
    std::string name;
    bool directory = false;
};

class FileLayer {
  public:
    virtual ~FileLayer() = default;

    virtual Result<int> open(const std::string& path, OpenMode mode) = 0;
    virtual void close(int file) = 0;
    virtual Result<std::int64_t> allocated_bytes(int file) = 0;  // what it takes of the disk
    virtual Status make_directory(const std::string& path) = 0;  // ok when it is there; no parents
    virtual Status remove_directory(const std::string& path) = 0;  // an empty one
    virtual Status rename(const std::string& from, const std::string& to) = 0;
    virtual Result<std::vector<FileName>> list(const std::string& path) = 0;  // by name
    // Of one file at most, held until the layer ends; unavailable when another process holds it, ok
    // when this layer does.
    virtual Status lock(const std::string& path) = 0;

    // Takes the request; at most depth() are in flight.
    virtual void submit(IoRequest request) = 0;
    virtual int depth() const = 0;
    // Appends completions; waits for the first one, for wake() or for the time-out.
    virtual void wait(std::vector<IoDone>& done, std::int64_t timeout_us) = 0;
    virtual void wake() = 0;  // any thread

    // What this disk cannot do and what is done instead, for people; empty when there is nothing.
    virtual std::string limits() const = 0;
};

// io_uring and direct I/O. Where the kernel forbids the one, threads do the work; where the file
// system refuses the other, its cache is used; limits() says so.
Result<std::unique_ptr<FileLayer>> make_file_layer(int depth);
// The same with threads, wherever it runs.
std::unique_ptr<FileLayer> make_thread_file_layer(int depth);

}  // namespace fathom
