#include "pool/rados_core.h"

#include <openssl/rand.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"

namespace fathom {

namespace {

constexpr std::int64_t kFutureMs = kHourMs;  // what ends later than possible is a clock's mistake
constexpr std::size_t kProbes = 7;           // of a prefix, at a time

template <std::size_t N>
std::array<std::uint8_t, N> random_bytes() {
    std::array<std::uint8_t, N> bytes{};
    FATHOM_CHECK(RAND_bytes(bytes.data(), static_cast<int>(N)) == 1, "no random numbers");
    return bytes;
}

}  // namespace

RadosCore::RadosCore(RadosOptions options, const SlotGeometry& geometry, StoreThread& thread,
                     LatestValue<StoreHealth>& health, std::unique_ptr<RadosCluster> cluster)
    : options_(std::move(options)),
      geometry_(geometry),
      thread_(thread),
      clock_(options_.clock != nullptr ? *options_.clock : real_clock()),
      health_(health),
      own_registry_(options_.metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
      metrics_(options_.metrics == nullptr ? *own_registry_ : *options_.metrics),
      cluster_(std::move(cluster)),
      probe_(std::make_unique<RadosProbe>(
          *cluster_, options_.cluster,
          [&thread](std::function<void()> task) { thread.post(std::move(task)); },
          [this](const RadosFinding& finding) { take_finding(finding); })),
      slot_(static_cast<std::size_t>(geometry.slot_bytes)) {
    const auto id = random_bytes<sizeof(writer_)>();
    std::memcpy(&writer_, id.data(), id.size());
    for (const ClassLife& life : options_.lives)
        longest_life_ms_ = std::max(longest_life_ms_, life.ttl_ms + life.bucket_ms);
}

RadosCore::~RadosCore() = default;

void RadosCore::write(const RadosWrite& write, std::function<void(int result)> done) {
    cluster_->write(write, [this, pool = write.pool, object = write.object,
                            done = std::move(done)](int result) {
        note(pool, object, result);
        done(result);
        if (closing_) finish_closing();
    });
    metrics_.inflight_io.set(static_cast<double>(cluster_->in_flight()));
}

void RadosCore::read(RadosRead read, std::function<void(std::shared_ptr<RadosAnswer>)> done) {
    cluster_->read(read, [this, pool = read.pool, object = read.object,
                          done = std::move(done)](const std::shared_ptr<RadosAnswer>& answer) {
        note(pool, object, answer->result);
        done(answer);
        if (closing_) finish_closing();
    });
    metrics_.inflight_io.set(static_cast<double>(cluster_->in_flight()));
}

Status RadosCore::failure(int result, const std::string& object) const {
    if (result == -ETIMEDOUT) {
        return error(StatusCode::unavailable,
                     "the cluster did not answer for object {} within {} s; look at `ceph status`",
                     object, options_.cluster.timeout_s);
    }
    const bool full = result == -ENOSPC || result == -EDQUOT;
    return error(full ? StatusCode::resource_exhausted : StatusCode::unavailable,
                 "the cluster refused object {}: {}", object, std::strerror(-result));
}

void RadosCore::open(std::function<void(Status status)> opened) {
    read({.pool = RadosPool::lists, .object = kRadosPoolObject, .bytes = kPoolFileBytes},
         [this, opened = std::move(opened)](const std::shared_ptr<RadosAnswer>& answer) {
             if (answer->result == -ENOENT) return make_pool_file(opened);
             take_pool_file(*answer, opened);
         });
}

void RadosCore::make_pool_file(const std::function<void(Status)>& opened) {
    PoolFile pool;
    pool.uuid = random_bytes<sizeof(pool.uuid)>();
    pool.payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes);
    pool.slot_bytes = static_cast<std::uint32_t>(geometry_.slot_bytes);
    pool.epoch = 1;
    pool.created_unix_ms = wall_ms();
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kPoolFileBytes));
    write_pool_file(bytes, pool);
    // With a key, so that a pool that cannot hold lists says so now.
    write({.pool = RadosPool::lists,
           .object = kRadosPoolObject,
           .create = true,
           .whole = bytes,
           .keys = {"pool"}},
          [this, opened](int result) {
              if (result == 0 || result == -EEXIST) return open(opened);
              if (result == -EOPNOTSUPP) {
                  return opened(invalid_argument(
                      "the pool \"{}\" cannot hold lists; name a replicated one in "
                      "pool.rados_index_pool",
                      options_.cluster.index_pool));
              }
              opened(failure(result, kRadosPoolObject).with_context(options_.cluster.index_pool));
          });
}

void RadosCore::take_pool_file(RadosAnswer& answer, const std::function<void(Status)>& opened) {
    const std::string where = options_.cluster.index_pool + "/" + kRadosPoolObject;
    if (answer.result < 0) return opened(failure(answer.result, where));
    const Result<PoolFile> pool = read_pool_file({answer.data.get(), answer.bytes});
    if (!pool.ok()) return opened(pool.status().with_context(where));
    if (pool->payload_bytes != geometry_.payload_bytes) {
        return opened(invalid_argument(
            "{}: a pool for blocks of {} bytes, this model's have {}; give the model another "
            "pool.rados_namespace",
            where, pool->payload_bytes, geometry_.payload_bytes));
    }
    pool_ = *pool;
    begin_upkeep();
    opened({});
}

void RadosCore::begin_upkeep() {
    sweep_later();
    beat();
}

bool RadosCore::admit(const RadosCallPtr& call, std::size_t blocks) {
    call->begun_us = now_us();
    call->unsettled = blocks;
    const bool late = call->deadline.at_us <= call->begun_us;
    const bool busy =
        queued_blocks_ + static_cast<std::int64_t>(blocks) > options_.queued_blocks_max;
    if (closing_ || busy || late) {
        if (late && !closing_) metrics_.deadline_exceeded.add();
        call->finish(*this, closing_ ? CallEnd::closed : late ? CallEnd::deadline : CallEnd::busy);
        return false;
    }
    call->blocks = blocks;
    queued_blocks_ += static_cast<std::int64_t>(blocks);
    metrics_.queued_blocks.set(static_cast<double>(queued_blocks_));
    calls_.emplace(call.get(), call);
    call->timer = thread_.at(call->deadline.at_us, [this, call] {
        metrics_.deadline_exceeded.add();
        call->finish(*this, CallEnd::deadline);
        if (closing_) finish_closing();
    });
    return true;
}

// The caller holds the call.
void RadosCore::end(RadosCall& call) {
    call.finished = true;
    if (call.timer) thread_.cancel(*call.timer);
    queued_blocks_ -= static_cast<std::int64_t>(call.blocks);
    metrics_.queued_blocks.set(static_cast<double>(queued_blocks_));
    calls_.erase(&call);
}

Status RadosCore::end_status(const RadosCall& call, CallEnd end) const {
    return end == CallEnd::complete ? call.status : call_end_status(end);
}

void RadosCore::cancel(const RadosCallPtr& call) {
    if (call->finished) return;
    call->finish(*this, CallEnd::cancelled);
    if (closing_) finish_closing();
}

void RadosTask::finish(RadosCore& core, CallEnd end) {
    core.end(*this);
    const auto call = std::move(done);
    call(core.end_status(*this, end));
}

bool RadosCore::alive(std::int64_t expiry_ms) const {
    const std::int64_t now_ms = wall_ms();
    return now_ms < expiry_ms && expiry_ms <= now_ms + longest_life_ms_ + kFutureMs;
}

void RadosCore::pump() {
    while (!stats_.empty() && stats_in_flight_ < options_.stat_depth) {
        StatJob job = std::move(stats_.front());
        stats_.pop_front();
        if (!job.call->finished) start_stat(std::move(job));
    }
    while (!reads_.empty() && reads_in_flight_ < options_.io_depth) {
        const ReadJob job = std::move(reads_.front());
        reads_.pop_front();
        if (!job.call->finished) start_read(job);
    }
    while (!writes_.empty() && writes_in_flight_ < options_.io_depth) {
        const auto [call, at] = std::move(writes_.front());
        writes_.pop_front();
        if (!call->finished) start_write(call, at);
    }
}

void RadosCore::start_stat(StatJob job) {
    ++stats_in_flight_;
    RadosRead what{.object = rados_block_object(job.key), .attributes = true};
    read(std::move(what), [this, job = std::move(job)](const std::shared_ptr<RadosAnswer>& answer) {
        --stats_in_flight_;
        Stat stat;
        stat.result = answer->result;
        const std::string* end = answer->attribute(kRadosEnd);
        const std::string* version = answer->attribute(kRadosVersion);
        if (end != nullptr) stat.end = *end;
        if (version != nullptr) stat.version = *version;
        stat.expiry_ms = static_cast<std::int64_t>(parse_rados_number(stat.end).value_or(0));
        stat.alive = stat.result == 0 && alive(stat.expiry_ms);
        job.done(stat);
        pump();
    });
}

void RadosCore::begin(const std::shared_ptr<RadosExists>& call) {
    const std::size_t n = call->keys.size();
    call->present.resize(n);
    if (!admit(call, n)) return;
    if (n == 0) return call->finish(*this, CallEnd::complete);
    for (std::size_t i = 0; i < n; ++i) {
        stats_.push_back(
            {call, call->keys[i], [this, call, i](const Stat& stat) { settle(call, i, stat); }});
    }
    pump();
}

void RadosCore::settle(const std::shared_ptr<RadosExists>& call, std::size_t at, const Stat& stat) {
    if (call->finished) return;
    call->present[at] = stat.alive;
    if (stat.result < 0 && stat.result != -ENOENT && call->status.ok())
        call->status = failure(stat.result, rados_block_object(call->keys[at]));
    if (--call->unsettled == 0) call->finish(*this, CallEnd::complete);
}

void RadosExists::finish(RadosCore& core, CallEnd end) {
    core.end(*this);
    const auto call = std::move(done);
    call(std::move(present), core.end_status(*this, end));
}

void RadosCore::begin(const std::shared_ptr<RadosPrefix>& call) {
    call->beyond = call->chain.size() + 1;
    if (!admit(call, call->chain.empty() ? 0 : 1)) return;
    next_probes(call);
}

// Cuts what is in question into equal parts and asks for their ends, all at once.
void RadosCore::next_probes(const std::shared_ptr<RadosPrefix>& call) {
    const std::size_t open = call->beyond - call->found - 1;
    if (open == 0) return call->finish(*this, CallEnd::complete);
    const std::size_t probes = std::min(open, kProbes);
    call->probes.clear();
    for (std::size_t i = 1; i <= probes; ++i)
        call->probes.push_back(call->found + (open + 1) * i / (probes + 1));
    call->present.assign(probes, false);
    call->unsettled = probes;
    for (std::size_t i = 0; i < probes; ++i) {
        const BlockKey& key = call->chain[call->probes[i] - 1];
        stats_.push_back({call, key, [this, call, i](const Stat& stat) {
                              if (call->finished) return;
                              call->present[i] = stat.alive;
                              if (stat.result < 0 && stat.result != -ENOENT && call->status.ok())
                                  call->status = failure(stat.result, "of a prefix");
                              if (--call->unsettled > 0) return;
                              for (std::size_t j = 0; j < call->probes.size(); ++j) {
                                  if (!call->present[j]) {
                                      call->beyond = call->probes[j];
                                      break;
                                  }
                                  call->found = call->probes[j];
                              }
                              next_probes(call);
                          }});
    }
    pump();
}

void RadosPrefix::finish(RadosCore& core, CallEnd end) {
    core.end(*this);
    core.metrics_.prefix_hit_blocks.observe(static_cast<double>(found));
    const auto call = std::move(done);
    call(found, core.end_status(*this, end));
}

void RadosCore::begin_close(Deadline deadline, std::function<void()> closed) {
    closing_ = true;
    on_closed_ = std::move(closed);
    thread_.at(deadline.at_us, [this] {
        while (!calls_.empty()) {
            const RadosCallPtr call = calls_.begin()->second;
            call->finish(*this, CallEnd::cancelled);
        }
        cancelled_all_ = true;
        cluster_->cancel_all();
        finish_closing();
    });
    finish_closing();
}

void RadosCore::finish_closing() {
    if (on_closed_ == nullptr || !calls_.empty() || cluster_->in_flight() > 0) return;
    std::exchange(on_closed_, {})();
}

}  // namespace fathom
