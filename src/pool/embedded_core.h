// The inside of the embedded store: everything that its one thread owns. Not for other folders.
//
//   embedded_core.cc      requests to the disk, deadlines, the turn of the loop, lookups
//   embedded_get.cc       reads          embedded_put.cc       writes and group sync
//   embedded_segments.cc  the life of a segment, from its file's creation to its removal
//   embedded_upkeep.cc    expiry, capacity, clock, metrics
//   embedded_walks.cc     what goes through all segments: scrub, drop of a namespace
//   embedded_recovery.cc  opening a directory
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pool/block_index.h"
#include "pool/embedded_metrics.h"
#include "pool/embedded_store.h"
#include "pool/file_layer.h"
#include "pool/pool_files.h"
#include "pool/segment.h"
#include "pool/slot_buffers.h"
#include "pool/slot_keys.h"
#include "pool/store_mailbox.h"

namespace fathom {

class EmbeddedCore;

// A call from its arrival to its `done`.
struct StoreCall {
    virtual ~StoreCall() = default;
    // Ends it now: what has not come is `timeout`, or `cancelled`.
    virtual void give_up(EmbeddedCore& core, bool cancelled) = 0;

    Deadline deadline;
    std::int64_t begun_us = 0;
    bool finished = false;  // done has run
    std::int64_t blocks = 0;
    std::optional<std::multimap<std::int64_t, std::shared_ptr<StoreCall>>::iterator> timer;
};

struct GetCall : StoreCall {
    void give_up(EmbeddedCore& core, bool cancelled) override;
    std::vector<GetRequest> requests;
    BlockStore::GetCalls calls;
    GetResult result;
    std::vector<bool> settled;
    std::size_t unsettled = 0;
    std::int64_t direct_reads = 0;  // in flight into pages of the caller
};

struct PutCall : StoreCall {
    void give_up(EmbeddedCore& core, bool cancelled) override;
    std::vector<PutRequest> requests;
    PutOptions options;
    BlockStore::PutCalls calls;
    PutResult result;
    std::vector<bool> settled;
    std::size_t unsettled = 0;
};

// Everything else: one answer.
struct TaskCall : StoreCall {
    void give_up(EmbeddedCore& core, bool cancelled) override;
    std::function<void(Status status)> done;
};

struct Segment {
    enum class State : std::uint8_t { none, creating, open, sealing, sealed, dying };
    State state = State::none;
    TrafficClass traffic_class = TrafficClass::agent;
    bool retired = false;      // open, but takes no more blocks
    bool footer_kept = false;  // `entries` is not on the disk
    bool syncing = false;
    bool swept = false;  // dying, and the index has none of its blocks
    std::uint64_t id = 0;
    std::int64_t bucket_start_ms = 0, expiry_ms = 0;
    std::int64_t allocated_bytes = 0, unsynced_bytes = 0, scrubbed_ms = 0;
    std::int64_t killed_us = 0;  // while dying
    int file = -1;
    std::uint32_t next_slot = 0, live = 0;
    std::uint32_t used_slots = 0;  // of a sealed one: up to the last one that has a block
    std::uint32_t writes = 0;      // of slots, in flight
    std::uint32_t pins = 0;        // whatever is in flight here, writes too
    std::vector<FooterEntry> entries;
    // Slots whose write failed and could not be wiped, with the tag of their namespace.
    std::vector<std::pair<std::uint32_t, std::uint64_t>> unwiped;
    std::vector<std::function<void(bool synced)>> awaiting_sync;
    std::list<std::uint32_t>::iterator recent;  // valid while file >= 0
};

class EmbeddedCore {
  public:
    EmbeddedCore(EmbeddedOptions options, const SlotGeometry& geometry, FileLayer& files,
                 LatestValue<StoreHealth>& health);
    ~EmbeddedCore();

    // Reads the directory; blocks.
    Status open();

    // One turn of the loop: deadlines, requests for what is queued, upkeep.
    void turn();
    // Takes what the disk has done; if it may sleep, waits for that, for being woken, or until
    // something is due.
    void wait(bool may_sleep);
    // From now on calls are refused; `closed` runs when no I/O is in flight any more. The loop goes
    // on, to refuse, until end_loop().
    void begin_close(Deadline deadline, std::function<void()> closed);
    void end_loop() { ended_ = true; }
    bool ended() const { return ended_; }

    void begin(const std::shared_ptr<GetCall>& call);
    void begin(const std::shared_ptr<PutCall>& call);
    void begin_drop(const std::shared_ptr<TaskCall>& call, const NamespaceId& ns);
    void begin_collect(const std::shared_ptr<TaskCall>& call);
    void begin_scrub(const std::shared_ptr<TaskCall>& call, std::shared_ptr<ScrubReport> report);
    void begin_adopt(const std::shared_ptr<TaskCall>& call, TrafficClass traffic_class,
                     std::int64_t bucket_start_ms, std::uint64_t id);
    void restore(const BlockKey& key, std::uint64_t segment, std::uint32_t slot);
    void cancel(const std::shared_ptr<StoreCall>& call);
    // Why a call cannot begin: the store is closing, or it is too late. Else ok.
    Status refusal(Deadline deadline) const;
    static void answer(TaskCall& call);  // of a call that never was watched: ok
    std::vector<bool> exists(const std::vector<BlockKey>& keys);
    std::size_t longest_prefix(const std::vector<BlockKey>& chain);
    PoolUsage usage() const;
    void set_others(const OthersUsage& others) { others_ = others; }

  private:
    friend struct GetCall;
    friend struct PutCall;
    friend struct TaskCall;

    using Handle = std::uint32_t;  // of a segment
    using IoFinish = std::function<void(std::int64_t result)>;
    static constexpr Handle kNoSegment = ~Handle{0};

    struct ReadJob {
        std::shared_ptr<GetCall> call;
        std::size_t at = 0;
        int attempt = 0;
    };
    struct WriteJob {
        std::shared_ptr<PutCall> call;
        std::size_t at = 0;
    };
    // A slot on its way to the disk.
    struct SlotWrite {
        WriteJob job;
        Handle segment = kNoSegment;
        std::uint32_t slot = 0;
        std::uint8_t* buffer = nullptr;
        FooterEntry entry;
        bool renewal = false;
        int attempt = 0;
    };
    struct Writer {  // of a class
        Handle current = kNoSegment, next = kNoSegment;
        std::deque<WriteJob> waiting;  // for a segment
    };
    // A way through segments, one at a time.
    struct Walk {
        std::shared_ptr<TaskCall> call;  // null for the scrub of the background
        std::shared_ptr<ScrubReport> report;
        std::optional<std::uint64_t> drop_tag;               // else a scrub
        std::vector<std::pair<Handle, std::uint64_t>> todo;  // the next one last
        Handle segment = kNoSegment;
        std::vector<FooterEntry> entries;
        std::vector<std::uint32_t> slots;  // of the segment, the next one last
        std::int64_t in_flight = 0;
        bool footer_changed = false, wipe_failed = false;
        bool paused = false;  // until scrub_after_us_
        Status status;
    };

    // embedded_core.cc
    void start_io(IoRequest request, IoFinish finish);
    void send(IoRequest request, IoFinish finish);
    std::int64_t io_now(IoRequest request);  // waits; for opening
    void take_completions(std::int64_t timeout_us);
    void watch(const std::shared_ptr<StoreCall>& call);
    void end(StoreCall& call);
    void run_deadlines();
    std::int64_t idle_us() const;
    void pump();
    void finish_closing();
    std::optional<BlockPlace> find_readable(const BlockKey& key, bool* expired = nullptr) const;
    bool readable(const Segment& segment) const;
    std::int64_t wall_ms() const { return wall_ms_; }
    void degrade(const std::string& reason);
    void stay_degraded(const std::string& reason);
    void show_health();
    static bool transient(std::int64_t result);

    // embedded_get.cc
    void start_read(ReadJob job);
    void finish_read(const ReadJob& job, const BlockPlace& place, std::uint8_t* buffer,
                     std::int64_t result);
    GetStatus judge(const ReadJob& job, const BlockPlace& place, std::uint8_t* slot);
    void settle(const std::shared_ptr<GetCall>& call, std::size_t at, GetStatus status);
    void finish(GetCall& call);
    void forget(const BlockKey& key, const BlockPlace& place);
    void damaged(const BlockKey& key, const BlockPlace& place);

    // embedded_put.cc
    void start_write(WriteJob job);
    std::optional<PutOutcome> answer_without_writing(const WriteJob& job, bool& renewal);
    void write_slot(const WriteJob& job, Handle handle, bool renewal);
    SlotTrailer trailer_of(const SlotWrite& write, const Segment& segment);
    void send_slot(const std::shared_ptr<SlotWrite>& write);
    void finish_write(const std::shared_ptr<SlotWrite>& write, std::int64_t result);
    void install(const SlotWrite& write);
    void burn(const std::shared_ptr<SlotWrite>& write, PutOutcome outcome, const Status& status);
    void release(const SlotWrite& write);
    void settle(const std::shared_ptr<PutCall>& call, std::size_t at, PutOutcome outcome,
                const Status& status = {});
    void finish(PutCall& call);
    void sync_segments();
    void sync_segment(Handle handle);

    // embedded_segments.cc
    Handle writable_segment(TrafficClass traffic_class, PutOutcome& refused, Status& status);
    Handle create_segment(TrafficClass traffic_class, std::int64_t bucket_start_ms,
                          PutOutcome& refused, Status& status);
    void write_header(Handle handle);
    void sync_names(Handle handle);
    void segment_ready(Handle handle);
    void creation_failed(Handle handle, std::int64_t result, const char* what);
    void retire(Handle handle);
    void seal_if_quiet(Handle handle);
    void write_footer_of(Handle handle);
    void sealed(Handle handle);
    void tell_sealed(const Segment& segment);
    void kill(Handle handle, GcCause cause);
    void sweep();
    void reap();
    void removed(Handle handle, std::int64_t result);
    Handle new_handle();
    Result<int> file_of(Handle handle);
    void close_file(Segment& segment);
    void pin(Handle handle) { ++segments_[handle].pins; }
    void unpin(Handle handle);
    std::string bucket_directory(const Segment& segment) const;
    std::string path_of(const Segment& segment) const;
    std::int64_t bucket_start(TrafficClass traffic_class) const;
    std::int64_t expiry_of(TrafficClass traffic_class, std::int64_t start_ms) const;
    void measure(Segment& segment);
    static std::uint32_t used_slots(const std::vector<FooterEntry>& entries);

    // embedded_upkeep.cc
    void upkeep();
    void watch_clock();
    void retire_old_buckets();
    void remove_expired(double& tokens);
    void make_room(double& tokens);
    std::int64_t kept_bytes() const;
    bool may_evict() const;
    bool remove_lost_file();
    void end_collects();
    void show_metrics();

    // embedded_walks.cc
    void begin_walk(Walk walk);
    void next_segment();
    void cut_short(Walk& walk);
    void load_entries();
    void take_entries(Status status, std::vector<FooterEntry> entries);
    void next_slot();
    void scrub_slot(std::uint32_t slot);
    void drop_slot(std::uint32_t slot);
    void leave_segment();
    void end_walk();
    void scrub_in_background();
    bool writing_of(std::uint64_t ns_tag) const;

    // embedded_recovery.cc
    Status open_directory();
    Status open_pool_file(bool has_segments);
    Status write_pool_file_now(int file);
    void adopt(const std::vector<PoolSegmentFile>& found);
    void adopt_one(const PoolSegmentFile& found, int file, const std::uint8_t* bytes,
                   std::int64_t got);
    void scan_unsealed(Handle handle);
    void add_entries(Handle handle, const std::vector<FooterEntry>& entries);
    void move_to_lost(const PoolSegmentFile& found, const std::string& why);

    EmbeddedOptions options_;
    const SlotGeometry geometry_;
    const Clock& clock_;
    FileLayer& files_;
    LatestValue<StoreHealth>& health_;
    std::unique_ptr<MetricsRegistry> own_registry_;
    EmbeddedMetrics metrics_;

    PoolFile pool_;
    std::uint64_t next_segment_ = 1;  // low half of the next id
    std::uint64_t sequence_ = 0;      // of writes

    // Requests in flight by tag, and those that had no room yet.
    std::vector<IoFinish> finishes_;
    std::vector<std::uint32_t> free_tags_;
    std::deque<std::pair<IoRequest, IoFinish>> backlog_;
    std::vector<IoDone> done_;

    SlotBuffers buffers_;
    std::vector<std::uint8_t*> read_buffers_, write_buffers_;
    std::int64_t reads_in_flight_ = 0, writes_in_flight_ = 0, queued_blocks_ = 0;
    std::deque<ReadJob> read_queue_;
    std::deque<WriteJob> write_queue_;
    std::multimap<std::int64_t, std::shared_ptr<StoreCall>> deadlines_;

    BlockIndex index_;
    std::deque<Segment> segments_;
    std::vector<Handle> free_handles_;
    std::list<Handle> recent_files_;                       // most recent first
    std::set<std::pair<std::int64_t, Handle>> by_expiry_;  // sealed ones
    std::array<Writer, kTrafficClasses> writers_;
    std::unordered_map<BlockKey, std::uint64_t> writing_;  // keys on their way, with their tag
    std::unordered_set<std::uint64_t> dropping_;           // tags
    std::unordered_set<Handle> unsynced_;
    std::int64_t unsynced_bytes_ = 0, unsynced_since_us_ = 0;

    std::vector<Handle> dying_, sweeping_;
    std::size_t sweep_shard_ = BlockIndex::kShards;
    std::int64_t allocated_bytes_ = 0, dying_bytes_ = 0;
    OthersUsage others_;
    bool evicting_ = false, disk_full_ = false;
    std::int64_t say_full_after_us_ = 0;  // in the log
    double gc_tokens_ = 0, renew_tokens_ = 0;
    std::vector<std::shared_ptr<TaskCall>> collects_;
    std::deque<std::pair<std::string, std::int64_t>> lost_;  // path, bytes

    std::deque<Walk> walks_;  // the first one runs
    bool walking_ = false;
    std::int64_t scrub_after_us_ = 0;
    std::map<std::uint64_t, std::map<std::int64_t, std::int64_t>> opened_with_;
    std::int64_t plain_blocks_ = 0;  // found and not used, since the pool encrypts

    std::int64_t wall_ms_ = 0, upkeep_us_ = 0, shown_us_ = 0;
    std::int64_t clock_offset_ms_ = 0, hold_expiry_until_us_ = 0;
    bool closing_ = false, closed_ = false, ended_ = false;
    std::function<void()> on_closed_;
    Deadline close_deadline_;
    // What is wrong until the pool is opened again, and what was not long ago.
    std::string degraded_for_good_, degraded_;
    std::int64_t degraded_us_ = 0;
};

}  // namespace fathom
