// The inside of a pool over several devices (ec_store.h): what its call thread owns. Not for other
// folders.
//
//   ec_store.cc    the public face
//   ec_open.cc     which devices there are, and what they hold
//   ec_calls.cc    gets, puts and lookups: to devices, to the reader, and back
//   ec_stripes.cc  segments and stripes: what devices tell, what the keeper is to do next
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pool/block_index.h"
#include "pool/ec_disk.h"
#include "pool/ec_keeper.h"
#include "pool/ec_store.h"
#include "pool/store_mailbox.h"
#include "pool/store_thread.h"

namespace fathom {

class EcCore;

// A call from its arrival to its `done`; of the call thread, but for `finished`.
struct EcCall {
    virtual ~EcCall() = default;
    virtual void give_up(EcCore& core, bool cancelled) = 0;

    Deadline deadline;
    std::int64_t blocks = 0;
    std::atomic<bool> finished{false};  // done has run
    std::vector<StoreOpPtr> ops;        // of devices
    std::int64_t holds = 0;             // calls of devices that have its pages
    std::function<void()> released;
    std::optional<StoreThread::Timer> timer;
};

struct EcGet : EcCall {
    void give_up(EcCore& core, bool cancelled) override;
    std::vector<GetRequest> requests;
    std::function<void(GetResult)> done;
    GetResult result;
    Status trouble;  // of devices
    std::vector<bool> settled;
    std::size_t unsettled = 0;
};

struct EcPut : EcCall {
    void give_up(EcCore& core, bool cancelled) override;
    std::vector<PutRequest> requests;
    PutOptions options;
    std::function<void(PutResult)> done;
    PutResult result;
    std::vector<bool> settled;
    std::size_t unsettled = 0;
};

struct EcTask : EcCall {
    void give_up(EcCore& core, bool cancelled) override;
    std::uint64_t returned = 0;  // EcCore::returned_ when devices were asked
    std::function<void(Status)> done;
};

struct EcMetrics {
    explicit EcMetrics(MetricsRegistry& registry);
    Counter &degraded_reads, &failed_rebuilds, &repair_blocks, &stripes_built, &scrub_bytes;
    Gauge &devices_open, &devices_lost, &stripes, &parity_bytes, &unprotected_segments,
        &lost_blocks, &repairs_left;
};

class EcCore : public std::enable_shared_from_this<EcCore> {
  public:
    explicit EcCore(EcOptions options, const SlotGeometry& geometry);
    ~EcCore();

    // ec_open.cc; before anything else, on the caller's thread.
    Status open();

    // Any thread.
    StoreOpPtr begin(const std::shared_ptr<EcGet>& call, Deadline deadline);
    StoreOpPtr begin(const std::shared_ptr<EcPut>& call, Deadline deadline);
    StoreOpPtr begin_exists(std::vector<BlockKey> keys, Deadline deadline,
                            BlockStore::ExistsDone done);
    StoreOpPtr begin_drop(const NamespaceId& ns, Deadline deadline,
                          std::function<void(Status)> done);
    StoreOpPtr begin_scrub(Deadline deadline, std::function<void(Status)> done);
    StoreOpPtr begin_settle(Deadline deadline, std::function<void(Status)> done);
    StoreHealth health() const;
    EcUsage usage() const { return usage_.get(); }
    std::size_t devices() const { return devices_.size(); }
    std::int64_t degraded_reads() const {
        return static_cast<std::int64_t>(metrics_.degraded_reads.value());
    }
    std::int64_t payload_bytes() const { return geometry_.payload_bytes; }
    EmbeddedStore* device(std::size_t position) { return devices_[position].store.get(); }

    void close(Deadline deadline);
    void stop();  // no callback runs after this
    bool close_called() const { return close_called_; }

  private:
    friend struct EcGet;
    friend struct EcPut;
    friend struct EcTask;

    struct Watcher;
    struct Device {
        std::string directory;
        std::string trouble;  // why it is not open
        std::unique_ptr<Watcher> watcher;
        std::unique_ptr<EmbeddedStore> store;
        std::map<std::uint64_t, SealedSegment> segments;  // sealed
        std::int64_t parity_bytes = 0;
        int failures = 0;  // of writes, in a row
        std::int64_t suspect_until_us = 0;
    };
    struct Stripe {
        std::shared_ptr<const EcStripe> info;
        std::vector<bool> parity;                      // files that are there
        std::vector<bool> lost;                        // members that are not
        std::vector<std::vector<std::uint64_t>> tags;  // namespaces of lost members
        std::int64_t scrubbed_ms = 0;
        int failures = 0;
    };
    // Where blocks that are found by rebuilding lie; handles of lost_ lead here.
    struct LostSegment {
        std::uint64_t stripe = 0;
        int member = 0;
        bool gone = false;
    };
    using StripeMember = std::pair<std::uint64_t, int>;
    // Asks several devices, then goes on.
    struct Question {
        std::vector<int> found;  // device, or −1; beside the keys
        std::size_t waiting = 0;
    };
    using Answer = std::function<void(const std::vector<int>& devices)>;

    // ec_open.cc
    struct SeenDevice;
    Status look_at(FileLayer& files, std::vector<SeenDevice>& seen);
    Status arrange(FileLayer& files, std::vector<SeenDevice>& seen);
    Status begin_set(std::vector<SeenDevice>& seen);
    Status recognize(std::vector<SeenDevice>& seen);
    Status assign_places(FileLayer& files, std::vector<SeenDevice>& seen);
    Status write_sets(FileLayer& files, bool begun);
    Status open_devices(FileLayer& files);
    Status make_pool_file(FileLayer& files, std::size_t position);
    Status open_one(std::size_t position, std::int64_t capacity_bytes);
    void adopt_stripes();
    Result<std::unique_ptr<FileLayer>> make_files(int depth) const;

    // ec_calls.cc
    StoreOpPtr post_call(const std::shared_ptr<EcCall>& call, Deadline deadline,
                         std::function<void()> begin);
    Status refusal(Deadline deadline) const;
    void watch(const std::shared_ptr<EcCall>& call);
    void end(EcCall& call);
    void release(EcCall& call);
    void start(const std::shared_ptr<EcGet>& call);
    void send_get(const std::shared_ptr<EcGet>& call, int device, std::vector<std::size_t> at,
                  bool first);
    void take_got(const std::shared_ptr<EcGet>& call, const std::vector<std::size_t>& at,
                  const GetResult& got, bool first, std::uint64_t asked);
    void ask_homes(const std::shared_ptr<EcGet>& call, const std::vector<std::size_t>& at);
    void look_elsewhere(const std::shared_ptr<EcGet>& call, std::vector<std::size_t> at);
    bool rebuild(const std::shared_ptr<EcGet>& call, std::size_t at, GetStatus otherwise);
    void take_rebuilt(const std::shared_ptr<EcGet>& call, std::size_t at, const BlockPlace& place,
                      GetStatus status, GetStatus otherwise, const std::uint8_t* slot,
                      std::int64_t expiry_ms);
    void settle(const std::shared_ptr<EcGet>& call, std::size_t at, GetStatus status,
                std::int64_t expiry_ms = 0);
    void finish(EcGet& call);
    void start(const std::shared_ptr<EcPut>& call);
    void send_put(const std::shared_ptr<EcPut>& call, int device, std::vector<std::size_t> at);
    void settle(const std::shared_ptr<EcPut>& call, std::size_t at, PutOutcome outcome);
    void finish(EcPut& call);
    void finish(EcTask& call, Status status);
    void look(const std::shared_ptr<EcTask>& call,
              const std::shared_ptr<std::vector<bool>>& present, const std::vector<BlockKey>& keys);
    // Where keys are: at home first, then, unless `home_only`, everywhere.
    void ask(std::vector<BlockKey> keys, std::vector<int> devices_asked, Deadline deadline,
             Answer answer);
    void find(const std::vector<BlockKey>& keys, Deadline deadline, Answer answer);
    int home(const BlockKey& key) const;
    std::optional<BlockPlace> find_lost(const BlockKey& key, std::int64_t* expiry_ms) const;

    // ec_stripes.cc
    void segment_sealed(int device, const SealedSegment& segment);
    void segment_changed(int device, std::uint64_t id, bool protect_again);
    void segment_removed(int device, std::uint64_t id, bool dropped);
    void block_damaged(int device, const BlockKey& key, std::uint64_t id, std::uint32_t slot);
    void install(std::shared_ptr<const EcStripe> info, std::vector<bool> parity,
                 const std::map<int, std::vector<FooterEntry>>& lost);
    void dissolve(std::uint64_t stripe, bool protect_again);
    std::uint32_t lost_handle(std::uint64_t stripe, int member);
    void forget_lost(std::uint64_t stripe, int member);
    void work();
    void run(std::function<std::function<void()>()> job);  // on the keeper; then, on this thread
    bool work_on_removal();
    bool work_on_build();
    bool work_on_rows();
    bool work_on_files();
    bool work_on_scrub();
    void take_build(std::shared_ptr<EcStripe> info, const Status& status);
    void take_rebuilt_file(std::uint64_t stripe, int shard, const EcKeeper::Mended& mended);
    void take_mended(std::uint64_t stripe, int shard, const std::map<std::uint32_t, BlockKey>& rows,
                     const EcKeeper::Mended& mended);
    std::optional<EcStripe> plan(bool any_length) const;
    void remove_expired();
    void run_drops();
    void start_drop();
    void finish_drop();
    void end_settled();
    void show();
    bool is_open(int device) const {
        return devices_[static_cast<std::size_t>(device)].store != nullptr;
    }
    int open_devices_count() const;
    std::int64_t parity_file_bytes(const EcStripe& stripe) const;

    EcOptions options_;
    const SlotGeometry geometry_;
    const Clock& clock_;
    const EcCode code_;
    std::array<ClassLife, kTrafficClasses> lives_;
    std::unique_ptr<MetricsRegistry> own_registry_;
    EcMetrics metrics_;
    EcSetFile set_;  // but for `position`
    std::unique_ptr<FileLayer> locks_;
    bool close_called_ = false;  // by the owner
    LatestValue<EcUsage> usage_;

    // Of the call thread, once it runs.
    std::vector<Device> devices_;
    std::map<std::uint64_t, Stripe> stripes_;
    std::map<std::pair<int, std::uint64_t>, StripeMember> member_of_;  // (device, segment)
    // Sealed, to be protected: by class and bucket.
    std::map<std::pair<TrafficClass, std::int64_t>, std::vector<std::pair<int, std::uint64_t>>>
        pending_;
    BlockIndex lost_;
    std::deque<LostSegment> lost_segments_;
    std::map<StripeMember, std::uint32_t> lost_handles_;
    std::map<StripeMember, std::map<std::uint32_t, BlockKey>> damaged_;  // rows to be mended
    std::deque<std::shared_ptr<const EcStripe>> removals_;
    Status removal_failure_;
    std::optional<EcStripe> building_;
    bool build_spoiled_ = false;
    std::uint64_t stripes_made_ = 0;
    bool working_ = false, scattered_ = false;
    std::int64_t queued_blocks_ = 0;
    int restoring_ = 0;  // slots that devices are told of
    // How often blocks that only rebuilding found were given back to a device: who asked it before
    // asks again.
    std::uint64_t returned_ = 0;
    std::unordered_set<BlockKey> writing_;
    std::multimap<std::int64_t, std::shared_ptr<EcCall>> calls_;
    std::deque<std::pair<std::shared_ptr<EcTask>, NamespaceId>> drops_;  // the first one runs
    bool dropping_ = false, drop_sent_ = false;
    Status drop_status_;
    std::vector<std::shared_ptr<EcTask>> settles_;
    bool scrub_now_ = false;
    bool closing_ = false, close_buckets_ = false, stopped_ = false;
    bool thread_ended_ = false;  // by stop()
    std::function<void()> on_calls_ended_, on_protected_;

    // Of the workers. The last members: what runs on these threads uses the others.
    std::unique_ptr<EcDisk> reader_disk_, keeper_disk_;
    std::unique_ptr<KeyRing> reader_keys_;
    bool encrypted_only_ = false;
    std::unique_ptr<EcKeeper> keeper_;
    EcPace pace_;
    BoundedQueue<bool> naps_{1};
    StoreThread reader_, worker_, thread_;
};

}  // namespace fathom
