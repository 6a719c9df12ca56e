// What is known of the other pools of a shared directory: their segments and, of those that are
// still being written, how far their slots have been read. Each look goes on from there and tells
// the core what is new. Of one thread, that of peer_looks.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "pool/pool_files.h"
#include "pool/shared_core.h"

namespace fathom {

struct PeerUsage {
    std::string directory;
    std::int64_t allocated_bytes = 0;
    std::int64_t unsealed = 0;                 // segments
    std::int64_t earliest_expiry_unix_ms = 0;  // of sealed segments; 0: there is none
};

class PeerPools {
  public:
    using Message = std::function<void(SharedCore&)>;
    using Tell = std::function<void(Message message)>;

    // `encrypted_only`: blocks in plain slots are passed over. `stop`: a look ends early.
    PeerPools(PoolReader& reader, const SlotGeometry& geometry, bool encrypted_only, Tell tell,
              SharedMetrics& metrics, const std::atomic<bool>& stop);

    // Looks at these pools, and forgets all others. A quick look sees new segments where segments
    // are begun, and new slots; a full one all that changed. Blocks of the namespaces that a pool
    // is not rid of yet are passed over.
    using Dropping = std::function<std::set<std::uint64_t>(const std::string& directory)>;
    void look(const std::vector<std::string>& directories, bool full, const Dropping& dropping);
    // Something is being dropped: the next look does not take empty slots for the end.
    void expect_wiped_slots();

    std::vector<PeerUsage> usage() const;             // by directory
    std::string trouble() const { return trouble_; }  // of the last look; empty when there was none

  private:
    struct Known {
        SharedCore::Handle handle = 0;  // 0: it is not in the index
        std::int64_t expiry_ms = 0, allocated_bytes = 0;
        SlotPlace place;
        bool sealed = false, listed = false;
        std::uint32_t next_slot = 0;        // behind the last one that was found
        std::map<std::uint32_t, int> gaps;  // before that, and how often looked for
        // The next look reads all slots behind it, else only until some are empty: those of a
        // dropped namespace look as if they had never been written.
        bool whole = true;
    };
    struct Pool {
        bool usable = false;
        PoolUuid uuid{};
        std::map<std::string, Known> segments;  // by path
        std::set<std::string> unsealed;         // of them
    };

    void look_at(const std::string& directory, Pool& pool, bool full,
                 const std::set<std::uint64_t>& dropping);
    bool identify(const std::string& directory, Pool& pool);
    void read_head(Pool& pool, const PoolSegmentFile& file,
                   const std::set<std::uint64_t>& dropping);
    bool read_open(Pool& pool, const std::string& path, Known& known,
                   const std::set<std::uint64_t>& dropping);
    bool wanted(const FooterEntry& entry, const std::set<std::uint64_t>& dropping) const;
    void read_slots(int file, Known& known, const std::set<std::uint64_t>& dropping);
    void take_footer(Known& known, const std::vector<FooterEntry>& entries,
                     const std::set<std::uint64_t>& dropping);
    void forget(Known& known);
    void forget_all(Pool& pool);
    void in_trouble(const Status& status);
    // Waits until the core has heard all of it, so that what it has not heard stays bounded.
    void catch_up();

    PoolReader& reader_;
    const SlotGeometry geometry_;
    const bool encrypted_only_;
    const Tell tell_;
    SharedMetrics& metrics_;
    const std::atomic<bool>& stop_;
    std::map<std::string, Pool> pools_;  // by directory
    SharedCore::Handle last_handle_ = 0;
    std::int64_t untold_ = 0;  // footers since the core caught up
    std::string trouble_;
};

}  // namespace fathom
