// The inside of the rados store: everything that its one thread owns. Not for other folders.
//
//   rados_core.cc    deadlines, closing, lookups      rados_get.cc    reads
//   rados_put.cc     writes and the lists of names    rados_walks.cc  what goes through lists
//   rados_health.cc  whether the cluster is well
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/call_end.h"
#include "pool/rados_metrics.h"
#include "pool/rados_names.h"
#include "pool/rados_probe.h"
#include "pool/rados_store.h"
#include "pool/segment.h"
#include "pool/slot_keys.h"
#include "pool/store_mailbox.h"
#include "pool/store_thread.h"

namespace fathom {

class RadosCore;

// A call from its arrival to its `done`.
struct RadosCall {
    virtual ~RadosCall() = default;
    // Runs `done`; what has not come is as `end` says. Settles what counts the call.
    virtual void finish(RadosCore& core, CallEnd end) = 0;

    Deadline deadline;
    std::int64_t begun_us = 0;
    std::size_t blocks = 0;
    std::size_t unsettled = 0;
    bool finished = false;  // done has run
    std::optional<StoreThread::Timer> timer;
    Status status;  // the first cause of a failure
};
using RadosCallPtr = std::shared_ptr<RadosCall>;

struct RadosGet : RadosCall {
    void finish(RadosCore& core, CallEnd end) override;
    std::vector<GetRequest> requests;
    BlockStore::GetCalls calls;
    GetResult result;
    std::vector<bool> settled;
};
struct RadosPut : RadosCall {
    void finish(RadosCore& core, CallEnd end) override;
    std::vector<PutRequest> requests;
    PutOptions options;
    BlockStore::PutCalls calls;
    PutResult result;
    std::vector<bool> settled;
};
struct RadosExists : RadosCall {
    void finish(RadosCore& core, CallEnd end) override;
    std::vector<BlockKey> keys;
    std::vector<bool> present;
    BlockStore::ExistsDone done;
};
struct RadosPrefix : RadosCall {
    void finish(RadosCore& core, CallEnd end) override;
    std::vector<BlockKey> chain;
    std::size_t found = 0, beyond = 0;  // block found − 1 is present, beyond − 1 is not
    std::vector<std::size_t> probes;    // of this round: lengths, ascending
    std::vector<bool> present;          // beside them
    BlockStore::PrefixDone done;
};
struct RadosTask : RadosCall {
    void finish(RadosCore& core, CallEnd end) override;
    std::function<void(Status status)> done;
};

class RadosCore {
  public:
    RadosCore(RadosOptions options, const SlotGeometry& geometry, StoreThread& thread,
              LatestValue<StoreHealth>& health, std::unique_ptr<RadosCluster> cluster);
    ~RadosCore();

    // All on the thread.
    void open(std::function<void(Status status)> opened);
    void begin(const std::shared_ptr<RadosGet>& call);
    void begin(const std::shared_ptr<RadosPut>& call);
    void begin(const std::shared_ptr<RadosExists>& call);
    void begin(const std::shared_ptr<RadosPrefix>& call);
    void begin_drop(const std::shared_ptr<RadosTask>& call, const NamespaceId& ns);
    void begin_collect(const std::shared_ptr<RadosTask>& call);
    void cancel(const RadosCallPtr& call);
    // From now on calls are refused; `closed` runs when nothing is in flight any more.
    void begin_close(Deadline deadline, std::function<void()> closed);

  private:
    friend struct RadosGet;
    friend struct RadosPut;
    friend struct RadosExists;
    friend struct RadosPrefix;
    friend struct RadosTask;

    // What is known of a block without its bytes.
    struct Stat {
        int result = 0;
        std::int64_t expiry_ms = 0;
        std::string end, version;  // as they stand there
        bool alive = false;
    };
    struct StatJob {
        RadosCallPtr call;  // when it is over, nothing is asked
        BlockKey key;
        std::function<void(const Stat& stat)> done;
    };
    struct ReadJob {
        std::shared_ptr<RadosGet> call;
        std::size_t at = 0;
    };
    // A block on its way into the cluster.
    struct Write {
        enum class Kind : std::uint8_t { create, replace, renew } kind = Kind::create;
        std::shared_ptr<RadosPut> call;
        std::size_t at = 0;
        std::uint64_t ns_tag = 0;
        std::array<std::uint8_t, 16> digest{};
        Stat old;
        std::int64_t expiry_ms = 0;
        int round = 0;
        const PutRequest& request() const { return call->requests[at]; }
    };
    using WritePtr = std::shared_ptr<Write>;
    struct List {
        RadosListName name;
        std::string object;
        bool ready = false, appending = false;
        std::int64_t bytes = 0;
        std::vector<WritePtr> waiting;  // for their names to be in it
    };
    using ListPtr = std::shared_ptr<List>;
    // A way through lists.
    struct Walk {
        enum class Kind : std::uint8_t { sweep, drop, evict } kind = Kind::sweep;
        std::vector<std::shared_ptr<RadosTask>> calls;
        std::uint64_t ns_tag = 0;  // of a drop
        bool paced = false;
        int set = 0;                            // whose lists are next
        std::string after;                      // the last one that was seen of it
        bool more = true;                       // behind it
        std::deque<RadosListName> lists;        // of the set
        std::optional<RadosListName> earliest;  // of an eviction's first round
        std::optional<RadosListName> list;
        std::int64_t offset = 0;
        bool whole_list_read = false, list_failed = false;
        std::deque<RadosEntry> entries;
        std::int64_t in_flight = 0;
        double tokens = 0;
        std::int64_t refilled_us = 0;
        std::int64_t removed = 0;
        Status status;
    };
    using WalkPtr = std::shared_ptr<Walk>;

    // rados_core.cc
    bool admit(const RadosCallPtr& call, std::size_t blocks);
    void end(RadosCall& call);
    Status end_status(const RadosCall& call, CallEnd end) const;
    void start_stat(StatJob job);
    void pump();
    void settle(const std::shared_ptr<RadosExists>& call, std::size_t at, const Stat& stat);
    void next_probes(const std::shared_ptr<RadosPrefix>& call);
    void finish_closing();
    void write(const RadosWrite& write, std::function<void(int result)> done);
    void read(RadosRead read, std::function<void(std::shared_ptr<RadosAnswer> answer)> done);
    Status failure(int result, const std::string& object) const;
    bool alive(std::int64_t expiry_ms) const;
    std::int64_t now_us() const { return clock_.now_us(); }
    std::int64_t wall_ms() const { return clock_.wall_unix_ms(); }
    void take_pool_file(RadosAnswer& answer, const std::function<void(Status)>& opened);
    void make_pool_file(const std::function<void(Status)>& opened);
    void begin_upkeep();

    // rados_get.cc
    void start_read(const ReadJob& job);
    void finish_read(const ReadJob& job, RadosAnswer& answer);
    GetStatus judge(const ReadJob& job, RadosAnswer& answer);
    GetStatus miss(SlotFault fault, const BlockKey& key, const std::string* version, bool plain);
    void settle(const std::shared_ptr<RadosGet>& call, std::size_t at, GetStatus status);
    void quarantine(const BlockKey& key, const std::string* version);

    // rados_put.cc
    void start_write(const std::shared_ptr<RadosPut>& call, std::size_t at);
    void decide(const WritePtr& write, const Stat& stat);
    void name_in_list(const WritePtr& write);
    ListPtr list_of(TrafficClass traffic_class);
    void flush(const ListPtr& list);
    void send(const WritePtr& write);
    Status seal(const Write& write);
    void finish_write(const WritePtr& write, int result);
    void fail(const WritePtr& write, int result, const std::string& object);
    void settle(const WritePtr& write, PutOutcome outcome, const Status& status = {});
    void release(const Write& write);

    // rados_walks.cc
    void begin_walk(const WalkPtr& walk);
    void step(const WalkPtr& walk);
    void load_lists(const WalkPtr& walk);
    void load_entries(const WalkPtr& walk);
    void remove_entry(const WalkPtr& walk, const RadosEntry& entry);
    void leave_list(const WalkPtr& walk);
    void claim(const WalkPtr& walk);
    void forget_list(const WalkPtr& walk);
    void end_walk(const WalkPtr& walk);
    bool wait_for_pace(const WalkPtr& walk);
    void begin_drop_walk(std::uint64_t ns_tag, std::vector<std::shared_ptr<RadosTask>> calls);
    void begin_waiting_drop(std::uint64_t ns_tag);
    void take_lists(const WalkPtr& walk, const RadosAnswer& answer);
    bool written_no_more(const RadosListName& list) const;
    void evict();
    void sweep_later();

    // rados_health.cc
    void note(RadosPool pool, const std::string& object, int result);
    void beat();
    void take_finding(const RadosFinding& finding);
    void show_health();

    const RadosOptions options_;
    const SlotGeometry geometry_;
    StoreThread& thread_;
    const Clock& clock_;
    LatestValue<StoreHealth>& health_;
    std::unique_ptr<MetricsRegistry> own_registry_;
    RadosMetrics metrics_;
    std::unique_ptr<RadosCluster> cluster_;
    std::unique_ptr<RadosProbe> probe_;  // uses the cluster

    PoolFile pool_;
    std::uint64_t writer_ = 0, sequence_ = 0, lists_made_ = 0;
    std::vector<std::uint8_t> slot_;  // where blocks are sealed
    std::int64_t longest_life_ms_ = 0;

    std::map<const RadosCall*, RadosCallPtr> calls_;
    std::int64_t queued_blocks_ = 0;
    std::deque<ReadJob> reads_;
    std::deque<std::pair<std::shared_ptr<RadosPut>, std::size_t>> writes_;
    std::deque<StatJob> stats_;
    std::int64_t reads_in_flight_ = 0, writes_in_flight_ = 0, stats_in_flight_ = 0;
    std::array<ListPtr, kTrafficClasses> lists_;
    std::unordered_map<BlockKey, std::uint64_t> writing_;  // keys on their way, with their tag
    // By tag: the drop under way, which waits for writes first, and whom the one after it answers.
    struct Drop {
        WalkPtr walk;
        bool begun = false;
        std::vector<std::shared_ptr<RadosTask>> after;
    };
    std::unordered_map<std::uint64_t, Drop> drops_;

    std::set<WalkPtr> walks_;
    bool sweeping_ = false, evicting_ = false;
    std::int64_t evict_after_us_ = 0;

    std::optional<std::pair<RadosPool, std::string>> trouble_;  // what timed out last
    std::string stopped_;
    Status monitor_;
    const char* shown_ = "";  // kind of health
    std::uint64_t beats_ = 0;
    bool beating_ = false;

    bool closing_ = false, cancelled_all_ = false;
    std::function<void()> on_closed_;
};

}  // namespace fathom
