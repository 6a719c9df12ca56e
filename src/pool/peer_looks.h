// The thread of a shared store that looks at the directory, over and over: what the others wrote,
// which namespaces are being dropped, which pools nobody looks after. It may block on the file
// system for as long as that likes; the calls of the store do not wait for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "pool/drop_marks.h"
#include "pool/peer_pools.h"
#include "pool/shared_core.h"

namespace fathom {

class PeerLooks {
  public:
    using Mailbox = StoreMailbox<std::function<void(SharedCore&)>>;

    // All of these outlive it; the own store and the core run until stop() has returned.
    PeerLooks(const SharedParts& options, const SlotGeometry& geometry, std::string own_directory,
              EmbeddedStore& own, Mailbox& mailbox, SharedMetrics& metrics, PoolReader reader);
    ~PeerLooks() { stop(); }

    // Returns when the own pool is rid of what was dropped while it was closed, and the first look
    // is done or takes long.
    Status start();
    void stop();
    // Any thread. One more full look; abandoned pools are looked after at once.
    void refresh(std::function<void()> done);
    void drop(std::shared_ptr<SharedDrop> call, const NamespaceId& ns);
    StoreHealth health() const { return health_.get(); }

  private:
    struct Drop {
        std::shared_ptr<SharedDrop> call;
        std::string mark;
    };

    void run();
    void look(bool full, bool tend_all);
    bool own_is_there();
    void begin_drop(const std::shared_ptr<SharedDrop>& call, const NamespaceId& ns);
    void obey(const std::vector<DropMark>& marks);
    void forget(const NamespaceId& ns);
    void end_drops(const std::vector<DropMark>& marks, const std::vector<std::string>& pools);
    void share_capacity(const std::vector<PeerUsage>& usage);
    void tend(const std::vector<DropMark>& marks, const std::vector<PeerUsage>& usage, bool all);
    bool tend_one(const std::vector<PeerUsage>& usage, std::size_t at);
    void tell(PeerPools::Message message) { (void)mailbox_.post(std::move(message)); }
    void degrade(const Status& status);
    std::string name_of(const std::string& pool) const {
        return pool_name(options_.embedded.directory, pool);
    }

    const SharedParts& options_;
    const SlotGeometry geometry_;
    const std::string own_directory_;
    const Clock& clock_;
    EmbeddedStore& own_;
    Mailbox& mailbox_;
    SharedMetrics& metrics_;
    PoolReader reader_;
    PeerPools pools_;
    LatestValue<StoreHealth> health_;
    std::atomic<bool> stop_{false};
    BoundedQueue<std::function<void()>> jobs_;

    // The thread's.
    std::optional<PoolUuid> own_uuid_;
    std::string gone_;              // what became of the own pool's directory; empty: it is there
    std::set<std::string> obeyed_;  // marks
    std::vector<Drop> drops_;
    std::int64_t own_bytes_ = 0, own_earliest_ms_ = 0;
    std::map<std::string, std::int64_t> tend_after_us_;  // by directory
    std::int64_t next_full_us_ = 0, drops_made_ = 0;
    std::thread thread_;
};

}  // namespace fathom
