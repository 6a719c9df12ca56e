#include "pool/embedded_core.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"
#include "pool/prefix_search.h"

namespace fathom {

namespace {

constexpr int kMaintenanceDepth = 32;  // of requests beside those of blocks
constexpr std::int64_t kIdleUs = 50'000, kLookUs = 2'000;
constexpr std::int64_t kFutureMs = 3'600'000;  // a bucket that begins later is a clock's mistake

}  // namespace

int embedded_ring_depth(int io_depth) {
    return 2 * io_depth + kMaintenanceDepth;
}

EmbeddedCore::EmbeddedCore(EmbeddedOptions options, const SlotGeometry& geometry, FileLayer& files,
                           LatestValue<StoreHealth>& health)
    : options_(std::move(options)),
      geometry_(geometry),
      clock_(options_.clock != nullptr ? *options_.clock : real_clock()),
      files_(files),
      health_(health),
      own_registry_(options_.metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
      metrics_(options_.metrics == nullptr ? *own_registry_ : *options_.metrics, options_.backend),
      buffers_(geometry.slot_bytes, 2 * options_.io_depth) {
    for (int i = 0; i < options_.io_depth; ++i) {
        read_buffers_.push_back(buffers_.piece(2 * i));
        write_buffers_.push_back(buffers_.piece(2 * i + 1));
    }
    finishes_.resize(static_cast<std::size_t>(files_.depth()));
    for (std::size_t i = finishes_.size(); i-- > 0;)
        free_tags_.push_back(static_cast<std::uint32_t>(i));
    wall_ms_ = clock_.wall_unix_ms();
}

EmbeddedCore::~EmbeddedCore() {
    for (Segment& segment : segments_)
        if (segment.file >= 0) files_.close(segment.file);
}

void EmbeddedCore::start_io(IoRequest request, IoFinish finish) {
    if (free_tags_.empty()) {
        backlog_.emplace_back(std::move(request), std::move(finish));
        return;
    }
    send(std::move(request), std::move(finish));
}

void EmbeddedCore::send(IoRequest request, IoFinish finish) {
    const std::uint32_t tag = free_tags_.back();
    free_tags_.pop_back();
    finishes_[tag] = std::move(finish);
    request.tag = tag;
    files_.submit(std::move(request));
}

void EmbeddedCore::take_completions(std::int64_t timeout_us) {
    done_.clear();
    files_.wait(done_, timeout_us);
    // Finishing starts requests, but no completions come before the next wait.
    for (const IoDone& done : done_) {
        const IoFinish finish = std::move(finishes_[done.tag]);
        free_tags_.push_back(static_cast<std::uint32_t>(done.tag));
        finish(done.result);
    }
    while (!backlog_.empty() && !free_tags_.empty()) {
        auto [request, finish] = std::move(backlog_.front());
        backlog_.pop_front();
        send(std::move(request), std::move(finish));
    }
}

std::int64_t EmbeddedCore::io_now(IoRequest request) {
    std::optional<std::int64_t> got;
    start_io(std::move(request), [&got](std::int64_t result) { got = result; });
    while (!got)
        take_completions(kIdleUs);
    return *got;
}

bool EmbeddedCore::transient(std::int64_t result) {
    return result == -EAGAIN || result == -EINTR || result == -ENOMEM;
}

void EmbeddedCore::watch(const std::shared_ptr<StoreCall>& call) {
    call->begun_us = clock_.now_us();
    queued_blocks_ += call->blocks;
    call->timer = deadlines_.emplace(call->deadline.at_us, call);
}

void EmbeddedCore::end(StoreCall& call) {
    call.finished = true;
    queued_blocks_ -= call.blocks;
    if (call.timer) deadlines_.erase(*call.timer);
    call.timer.reset();
}

void EmbeddedCore::run_deadlines() {
    const std::int64_t now_us = clock_.now_us();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
        const std::shared_ptr<StoreCall> call = deadlines_.begin()->second;
        metrics_.deadline_exceeded.add();
        call->give_up(*this, false);
        FATHOM_CHECK(call->finished);
    }
}

void EmbeddedCore::cancel(const std::shared_ptr<StoreCall>& call) {
    if (!call->finished) call->give_up(*this, true);
}

Status EmbeddedCore::refusal(Deadline deadline) const {
    if (closing_) {
        return error(StatusCode::unavailable, "{}: the pool is being closed", options_.directory);
    }
    if (deadline.at_us > clock_.now_us()) return {};
    return Status(StatusCode::deadline_exceeded, "the deadline had passed when the call came");
}

void EmbeddedCore::answer(TaskCall& call) {
    call.finished = true;
    std::exchange(call.done, {})({});
}

void TaskCall::give_up(EmbeddedCore& core, bool cancelled) {
    core.end(*this);
    const auto call = std::move(done);
    call(cancelled
             ? Status(StatusCode::cancelled, "the call was cancelled")
             : Status(StatusCode::deadline_exceeded, "the deadline came first; the work goes on"));
}

// A turn must come by itself when a deadline, a sync or upkeep is due. The clock may be a test's,
// which nobody hears move, so no wait is long.
std::int64_t EmbeddedCore::idle_us() const {
    if (sweep_shard_ < BlockIndex::kShards || (closing_ && !closed_)) return 1'000;
    std::int64_t wait_us = kIdleUs;
    const std::int64_t now_us = clock_.now_us();
    if (!deadlines_.empty()) wait_us = std::min(wait_us, deadlines_.begin()->first - now_us);
    if (unsynced_bytes_ > 0)
        wait_us = std::min(wait_us, unsynced_since_us_ + options_.sync_interval_us - now_us);
    return std::max<std::int64_t>(wait_us, 100);
}

void EmbeddedCore::turn() {
    wall_ms_ = clock_.wall_unix_ms();
    run_deadlines();
    pump();
    sync_segments();
    upkeep();
    if (closing_ && !closed_) finish_closing();
}

void EmbeddedCore::wait(bool may_sleep) {
    take_completions(may_sleep ? idle_us() : 0);
}

void EmbeddedCore::pump() {
    while (!read_queue_.empty() && reads_in_flight_ < options_.io_depth) {
        ReadJob job = std::move(read_queue_.front());
        read_queue_.pop_front();
        start_read(std::move(job));
    }
    while (!write_queue_.empty() && writes_in_flight_ < options_.io_depth) {
        WriteJob job = std::move(write_queue_.front());
        write_queue_.pop_front();
        start_write(std::move(job));
    }
}

void EmbeddedCore::begin_close(Deadline deadline, std::function<void()> closed) {
    closing_ = true;
    close_deadline_ = deadline;
    on_closed_ = std::move(closed);
}

// First the calls, then what is in flight, then every open segment gets its footer.
void EmbeddedCore::finish_closing() {
    if (!deadlines_.empty()) {
        if (clock_.now_us() < close_deadline_.at_us) return;
        while (!deadlines_.empty()) {
            const std::shared_ptr<StoreCall> call = deadlines_.begin()->second;
            call->give_up(*this, true);
        }
    }
    for (Writer& writer : writers_) {
        writer.waiting.clear();
        for (Handle* handle : {&writer.current, &writer.next}) {
            if (*handle == kNoSegment || segments_[*handle].state == Segment::State::creating)
                continue;
            retire(*handle);
            *handle = kNoSegment;
        }
    }
    const bool quiet = free_tags_.size() == finishes_.size() && backlog_.empty() && dying_.empty();
    closed_ = quiet && unsynced_bytes_ == 0;
    if (closed_) std::exchange(on_closed_, {})();
}

bool EmbeddedCore::readable(const Segment& segment) const {
    const bool has_blocks = segment.state == Segment::State::open ||
                            segment.state == Segment::State::sealing ||
                            segment.state == Segment::State::sealed;
    return has_blocks && wall_ms_ < segment.expiry_ms &&
           segment.bucket_start_ms <= wall_ms_ + kFutureMs;
}

std::optional<BlockPlace> EmbeddedCore::find_readable(const BlockKey& key, bool* expired) const {
    const auto place = index_.find(key);
    if (!place || readable(segments_[place->segment])) return place;
    if (expired != nullptr) *expired = true;
    return std::nullopt;
}

std::vector<bool> EmbeddedCore::exists(const std::vector<BlockKey>& keys) {
    wall_ms_ = clock_.wall_unix_ms();
    std::vector<bool> present;
    present.reserve(keys.size());
    for (const BlockKey& key : keys)
        present.push_back(find_readable(key).has_value());
    return present;
}

std::size_t EmbeddedCore::longest_prefix(const std::vector<BlockKey>& chain) {
    wall_ms_ = clock_.wall_unix_ms();
    const std::size_t blocks = search_prefix(
        chain.size(), [&](std::size_t i) { return find_readable(chain[i]).has_value(); });
    metrics_.prefix_hit_blocks.observe(static_cast<double>(blocks));
    return blocks;
}

PoolUsage EmbeddedCore::usage() const {
    PoolUsage usage;
    for (const Segment& segment : segments_) {
        if (segment.state == Segment::State::none) continue;
        PoolUsage::PerClass& of = usage.classes[static_cast<std::size_t>(segment.traffic_class)];
        ++of.segments;
        of.blocks += segment.live;
        of.allocated_bytes += segment.allocated_bytes;
        if (usage.earliest_expiry_unix_ms == 0 || segment.expiry_ms < usage.earliest_expiry_unix_ms)
            usage.earliest_expiry_unix_ms = segment.expiry_ms;
    }
    usage.blocks = static_cast<std::int64_t>(index_.size());
    usage.allocated_bytes = allocated_bytes_;
    usage.index_bytes = static_cast<std::int64_t>(index_.memory_bytes());
    usage.lost_files = static_cast<std::int64_t>(lost_.size());
    usage.unsynced_bytes = unsynced_bytes_;
    usage.opened_with = opened_with_;
    return usage;
}

// Of a time of faults the first reason stays: what comes after is often its consequence.
void EmbeddedCore::degrade(const std::string& reason) {
    degraded_us_ = clock_.now_us();
    if (!degraded_.empty()) return;
    degraded_ = reason;
    log_warning("pool: {}", reason);
    show_health();
}

void EmbeddedCore::stay_degraded(const std::string& reason) {
    log_warning("pool: {}", reason);
    if (!degraded_for_good_.empty()) return;
    degraded_for_good_ = reason;
    show_health();
}

void EmbeddedCore::show_health() {
    const std::string& reason = degraded_.empty() ? degraded_for_good_ : degraded_;
    health_.set({.state = reason.empty() ? StoreHealth::State::ok : StoreHealth::State::degraded,
                 .reason = reason});
}

}  // namespace fathom
