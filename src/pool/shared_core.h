// The inside of the shared store: the thread that has its calls, the index of the others' blocks
// and the reads of them. Not for other folders.
//
//   shared_core.cc   calls that pass through the own store first; deadlines; the turn of the loop
//   shared_reads.cc  the index of the others, and reads of their slots
//   peer_looks.h     the thread that looks at their directories, and tells this one
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/block_index.h"
#include "pool/shared_metrics.h"
#include "pool/shared_store.h"
#include "pool/slot_buffers.h"
#include "pool/store_mailbox.h"

namespace fathom {

class SharedCore;

struct SharedParts : SharedOptions {
    EmbeddedOptions embedded;  // what all pools have in common; its directory is the shared one
};

// A call from its arrival to its `done`. While the own store has it, that one sees to its deadline.
struct SharedCall {
    virtual ~SharedCall() = default;
    virtual void give_up(SharedCore& core, bool cancelled) = 0;

    Deadline deadline;
    bool begun = false, cancelled = false, finished = false;
    StoreOpPtr own;  // while the own store has it
    std::optional<std::multimap<std::int64_t, std::shared_ptr<SharedCall>>::iterator> timer;
};

struct SharedGet : SharedCall {
    void give_up(SharedCore& core, bool cancelled) override;
    std::vector<GetRequest> requests;
    BlockStore::GetCalls calls;
    GetResult result;
    std::vector<bool> open;  // blocks that the others are asked for
    std::size_t unsettled = 0;
    std::int64_t page_users = 0;  // the own store, and direct reads
};

struct SharedPut : SharedCall {
    void give_up(SharedCore& core, bool cancelled) override;
    std::vector<PutRequest> requests;
    PutOptions options;
    BlockStore::PutCalls calls;
    PutResult result;
    std::vector<std::size_t> passed_on;  // to the own store
    std::vector<bool> renewal;           // beside it
};

// The own store has been asked already when the core hears of it.
struct SharedExists {
    std::vector<BlockKey> keys;
    BlockStore::ExistsDone done;
};

struct SharedDrop : SharedCall {
    void give_up(SharedCore& core, bool cancelled) override;
    std::function<void(Status status)> done;
    std::string waits_for;  // pools
};

// A segment of another pool.
struct PeerSegment {
    std::string path;
    SlotPlace place;  // without its slot
    std::int64_t bucket_start_ms = 0, expiry_ms = 0;
    bool sealed = false;
    bool gone = false;                      // its file is not there any more
    std::vector<std::uint32_t> namespaces;  // by slot: number of its block's namespace; 0: none
    int file = -1;
    std::uint32_t pins = 0;
    std::list<std::uint32_t>::iterator recent;  // valid while file >= 0
};
struct PeerBlock {
    BlockKey key;
    std::uint64_t ns_tag = 0;
    std::uint32_t slot = 0;
};

class SharedCore {
  public:
    using Handle = std::uint32_t;  // of a segment; never used again

    SharedCore(const SharedParts& options, const SlotGeometry& geometry, FileLayer& files,
               EmbeddedStore& own, StoreMailbox<std::function<void(SharedCore&)>>& mailbox,
               SharedMetrics& metrics, std::atomic<std::size_t>& peer_blocks);
    ~SharedCore();

    void turn();
    void wait(bool may_sleep);
    // New calls are refused from here on; drops are told that they go on.
    void begin_close(Deadline deadline);
    // The own store is closed: `closed` runs when no call and no read is left.
    void end_close(std::function<void()> closed);
    void end_loop() { ended_ = true; }
    bool ended() const { return ended_; }

    void begin(const std::shared_ptr<SharedGet>& call);
    void begin(const std::shared_ptr<SharedPut>& call);
    void take_own(SharedExists& call, std::vector<bool> present, Status status);
    bool begin(const std::shared_ptr<SharedDrop>& call);  // false: it has ended
    void cancel(const std::shared_ptr<SharedCall>& call);

    // What the looks found.
    void add_segment(Handle handle, PeerSegment segment);
    void add_blocks(Handle handle, const std::vector<PeerBlock>& blocks);
    void seal(Handle handle);
    void remove_segment(Handle handle);
    void forget_namespace(std::uint64_t ns_tag);
    void drop_waits(SharedDrop& call, std::string for_pools) {
        call.waits_for = std::move(for_pools);
    }
    void end_drop(SharedDrop& call, Status status);

  private:
    friend struct SharedGet;
    friend struct SharedPut;
    friend struct SharedDrop;

    using IoFinish = std::function<void(std::int64_t result)>;
    struct ReadJob {
        std::shared_ptr<SharedGet> call;
        std::size_t at = 0;
        int attempt = 0;
    };

    // shared_core.cc
    Status refusal(Deadline deadline) const;
    void watch(const std::shared_ptr<SharedCall>& call);
    void end(SharedCall& call);
    void run_deadlines();
    void finish_closing();
    std::int64_t idle_us() const;
    void ask_own(const std::shared_ptr<SharedGet>& call);
    void take_own(const std::shared_ptr<SharedGet>& call, GetResult result);
    void finish(SharedGet& call);
    void release(SharedGet& call);
    bool passes_on(SharedPut& call, std::size_t at);
    void take_own(SharedPut& call, PutResult result);

    // shared_reads.cc
    const PeerSegment* find(const BlockKey& key, BlockPlace& place) const;
    bool has(const BlockKey& key) const;
    void pump();
    void start_read(ReadJob job);
    void finish_read(const ReadJob& job, const BlockPlace& place, std::uint8_t* buffer,
                     std::int64_t result);
    GetStatus judge(const ReadJob& job, const BlockPlace& place, const PeerSegment& segment,
                    std::uint8_t* slot);
    void settle(const std::shared_ptr<SharedGet>& call, std::size_t at, GetStatus status);
    Result<int> file_of(Handle handle, PeerSegment& segment);
    void close_file(PeerSegment& segment);
    void sweep();

    const SharedParts& options_;
    const SlotGeometry geometry_;
    const Clock& clock_;
    FileLayer& files_;
    EmbeddedStore& own_;
    StoreMailbox<std::function<void(SharedCore&)>>& mailbox_;
    SharedMetrics& metrics_;
    std::atomic<std::size_t>& peer_blocks_;  // for who asks whether there are any

    std::vector<IoFinish> finishes_;  // by tag
    std::vector<std::uint32_t> free_tags_;
    std::vector<IoDone> done_;
    SlotBuffers buffers_;
    std::vector<std::uint8_t*> read_buffers_;
    std::deque<ReadJob> read_queue_;
    std::multimap<std::int64_t, std::shared_ptr<SharedCall>> deadlines_;
    std::int64_t running_ = 0;  // calls that have begun and not ended, and pages not released

    BlockIndex index_;
    std::unordered_map<Handle, PeerSegment> segments_;
    std::unordered_map<std::uint64_t, std::uint32_t> namespaces_;  // tag to number, from 1
    std::list<Handle> recent_files_;                               // most recent first
    std::size_t sweep_shard_ = BlockIndex::kShards;
    bool sweep_again_ = false;
    double renew_tokens_ = 0;

    std::int64_t turned_us_ = 0;
    bool closing_ = false, ended_ = false;
    Deadline close_deadline_;
    std::function<void()> on_closed_;
};

}  // namespace fathom
