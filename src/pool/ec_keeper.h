// What an erasure-coded pool does beside its calls (ec_store.h): builds stripes, removes them,
// rebuilds what is lost, looks through parity. Blocking; of one worker thread, paced.
//
// Nothing of a stripe counts before the heads of its parity files are written, which happens when
// all their rows are durable and were read back. What a crash leaves behind has no head, or heads
// of some of its files only: the first is removed when the set is opened again, the others are
// rebuilt.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/queue.h"
#include "pool/ec_disk.h"

namespace fathom {

// How fast, and whether still. Any thread sets; the worker waits here.
class EcPace {
  public:
    EcPace(const Clock& clock, std::int64_t bytes_per_s)
        : clock_(clock), bytes_per_s_(bytes_per_s) {}

    void hurry() { hurry_ = true; }
    // While held, and after stop(), work ends soon, with `cancelled`; but not removals.
    void hold(bool held) { held_ = held; }
    void stop() { stopped_ = true; }

    // After so many bytes of I/O: false when the job is to end.
    bool go_on(std::int64_t bytes);

  private:
    const Clock& clock_;
    const std::int64_t bytes_per_s_;  // 0: no limit
    std::atomic<bool> hurry_{false}, held_{false}, stopped_{false};
    std::int64_t due_us_ = 0;
    BoundedQueue<bool> never_{1};  // to wait at
};

class EcKeeper {
  public:
    EcKeeper(EcDisk& disk, EcPace& pace) : disk_(disk), pace_(pace) {}

    // What is found in par/ of all devices. Files that were never finished are removed, and those
    // that do not belong there.
    struct Found {
        std::shared_ptr<EcStripe> stripe;
        std::vector<bool> parity;  // which files are there
    };
    std::vector<Found> load(const PoolUuid& set);

    // Everything of `stripe` but its checksums is given. Whatever goes wrong, no file of it is
    // left, or one without a head.
    Status build(EcStripe& stripe);
    // The parity files of devices that are there are gone for good when this is ok.
    Status remove(const EcStripe& stripe);

    struct Mended {
        std::vector<std::uint32_t> good;  // rows that are right now
        std::int64_t rebuilt = 0;         // of them those that were not before
        Status status;
    };
    // Writes rows of a shard's file anew that are not what was coded.
    Mended mend(const EcStripe& stripe, int shard, const std::vector<std::uint32_t>& rows);
    // Makes the whole file of a shard whose device is there. For a member rows may be missing that
    // cannot be rebuilt; its head may not.
    Mended rebuild(const EcStripe& stripe, int shard);
    // Rows of parity that are not what was coded, of files that can be read; (shard, row).
    std::vector<std::pair<int, std::uint32_t>> scrub(const EcStripe& stripe);

    std::int64_t bytes_scrubbed() const { return bytes_scrubbed_; }

  private:
    Result<EcStripe> read_head(const std::string& path, int& parity);
    bool belongs(const EcStripe& stripe, int parity, std::size_t device, const std::string& path,
                 const PoolUuid& set) const;
    bool load_part(const std::string& path, std::size_t device, const PoolUuid& set,
                   std::map<std::uint64_t, Found>& found);
    Result<int> create_draft(const std::string& directory, const std::string& path);
    Status finish_segment(const EcStripe& stripe, int shard, int file,
                          const std::vector<bool>& missing);
    Status rebuild_rows(const EcStripe& stripe, int shard, int file, std::vector<bool>& missing);
    Result<int> create_parity(const EcStripe& stripe, int parity);
    Status finish_parity(const EcStripe& stripe, int parity, int file);
    Status encode_rows(EcStripe& stripe, const std::vector<int>& members,
                       const std::vector<int>& parity);
    Status check_rows(const EcStripe& stripe, int shard, int file, std::int64_t head,
                      const std::vector<bool>* skip);
    Status write_row(int file, std::int64_t offset, std::int64_t bytes, std::uint8_t* data);

    EcDisk& disk_;
    EcPace& pace_;
    std::int64_t bytes_scrubbed_ = 0;
};

}  // namespace fathom
