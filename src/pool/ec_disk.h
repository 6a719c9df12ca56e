// Files of an erasure-coded pool's devices for one of its worker threads: blocking calls, many
// requests at a time; and rows of stripes, read or rebuilt, never believed without their checksum.
// Of one thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pool/ec_code.h"
#include "pool/ec_files.h"
#include "pool/file_layer.h"

namespace fathom {

class EcDisk {
  public:
    // `directories` by position; empty for a device that is not there.
    EcDisk(std::unique_ptr<FileLayer> files, std::vector<std::string> directories,
           const SlotGeometry& geometry, const EcCode& code);
    ~EcDisk();
    EcDisk(const EcDisk&) = delete;
    EcDisk& operator=(const EcDisk&) = delete;

    FileLayer& files() { return *files_; }
    const std::vector<std::string>& directories() const { return directories_; }
    const SlotGeometry& geometry() const { return geometry_; }
    const EcCode& code() const { return code_; }

    // Bytes done, or −errno. Retries what may pass.
    std::int64_t io(const IoRequest& request);
    std::vector<std::int64_t> io(std::span<const IoRequest> requests);
    // The names of a directory survive a loss of power.
    Status sync_directory(const std::string& path);

    // Where a shard lies; empty when its device is not there, or it is no member.
    std::string shard_path(const EcStripe& stripe, int shard) const;
    std::int64_t shard_offset(const EcStripe& stripe, int shard, std::uint32_t row) const;
    // Open for reading until forgotten or long not used.
    Result<int> reading(const std::string& path);
    void forget(const EcStripe& stripe);  // its files may go

    // A row of a shard as it lies on its device, and whether it is what was coded. `out` is aligned
    // and has row_bytes.
    bool read_row(const EcStripe& stripe, int shard, std::uint32_t row, std::uint8_t* out);
    // The row from the other shards; false when fewer than k of them have theirs.
    bool rebuild_row(const EcStripe& stripe, int shard, std::uint32_t row, std::uint8_t* out);

  private:
    // Reads some shards' rows at once, each into its piece; which of them are right.
    std::vector<bool> read_rows(const EcStripe& stripe, std::span<const int> shards,
                                std::uint32_t row);
    std::uint8_t* piece(int shard) const;

    std::unique_ptr<FileLayer> files_;
    const std::vector<std::string> directories_;
    const SlotGeometry geometry_;
    const EcCode& code_;
    std::list<std::pair<std::string, int>> open_;  // most recent first
    std::shared_ptr<std::uint8_t> pieces_;         // a row for each shard
    std::int64_t piece_bytes_ = 0;
    std::vector<IoDone> done_;
};

}  // namespace fathom
