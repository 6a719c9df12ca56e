#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "pool/embedded_core.h"

namespace fathom {

namespace {

constexpr std::int64_t kShowUs = 100'000;
constexpr std::int64_t kJumpMs = 3'600'000;
constexpr std::int64_t kHoldUs = 3'600'000'000;
constexpr std::int64_t kQuietUs = 60'000'000;
constexpr double kGcBurst = 2;
constexpr double kRenewBurstSeconds = 2;

}  // namespace

void EmbeddedCore::upkeep() {
    sweep();
    reap();
    const std::int64_t now_us = clock_.now_us();
    const bool unpaced = !collects_.empty();
    const double passed_s = upkeep_us_ == 0 ? 0 : static_cast<double>(now_us - upkeep_us_) * 1e-6;
    upkeep_us_ = now_us;
    gc_tokens_ = std::min(gc_tokens_ + passed_s * options_.gc_segments_per_s, kGcBurst);
    const auto renew_rate = static_cast<double>(options_.renew_bytes_per_s);
    renew_tokens_ =
        std::min(renew_tokens_ + passed_s * renew_rate, renew_rate * kRenewBurstSeconds);
    watch_clock();
    retire_old_buckets();
    double tokens = unpaced ? HUGE_VAL : gc_tokens_;
    remove_expired(tokens);
    make_room(tokens);
    if (!unpaced) gc_tokens_ = tokens;
    if (!walking_ && !walks_.empty()) next_segment();
    scrub_in_background();
    end_collects();
    if (!degraded_.empty() && now_us - degraded_us_ >= kQuietUs) {
        degraded_.clear();
        show_health();
    }
    if (now_us - shown_us_ >= kShowUs) show_metrics();
}

// The wall clock decides what is expired, and it can be set wrongly. When it moves by more than an
// hour against the monotonic one, nothing is deleted for its age for an hour: blocks are misses
// meanwhile if it says so, and are there again if it is set back.
void EmbeddedCore::watch_clock() {
    const std::int64_t now_us = clock_.now_us();
    const std::int64_t offset_ms = wall_ms_ - now_us / 1000;
    if (std::abs(offset_ms - clock_offset_ms_) <= kJumpMs) return;
    metrics_.clock_jumps.add();
    log_warning("pool: {}: the wall clock jumped by {} s; nothing expires from the disk for 1 h",
                options_.directory, (offset_ms - clock_offset_ms_) / 1000);
    clock_offset_ms_ = offset_ms;
    hold_expiry_until_us_ = now_us + kHoldUs;
}

void EmbeddedCore::retire_old_buckets() {
    for (std::size_t i = 0; i < writers_.size(); ++i) {
        Writer& writer = writers_[i];
        for (Handle* handle : {&writer.current, &writer.next}) {
            if (*handle == kNoSegment) continue;
            const Segment& segment = segments_[*handle];
            if (segment.state != Segment::State::open ||
                segment.bucket_start_ms == bucket_start(static_cast<TrafficClass>(i)))
                continue;
            retire(*handle);
            *handle = kNoSegment;
        }
    }
}

void EmbeddedCore::remove_expired(double& tokens) {
    if (clock_.now_us() < hold_expiry_until_us_) return;
    while (tokens >= 1 && !by_expiry_.empty() && by_expiry_.begin()->first <= wall_ms_) {
        kill(by_expiry_.begin()->second, GcCause::ttl);
        tokens -= 1;
    }
}

// Of the capacity, without what is being removed.
std::int64_t EmbeddedCore::kept_bytes() const {
    return allocated_bytes_ - dying_bytes_ + others_.allocated_bytes;
}

bool EmbeddedCore::may_evict() const {
    if (by_expiry_.empty()) return false;
    return disk_full_ || kept_bytes() + kSegmentBytes > options_.capacity_bytes ||
           by_expiry_.begin()->first < others_.evict_before_unix_ms;
}

// Files that are not of the pool go first, then the segments that would expire first.
void EmbeddedCore::make_room(double& tokens) {
    const auto capacity = static_cast<double>(options_.capacity_bytes);
    const auto kept = [&] { return static_cast<double>(kept_bytes()); };
    if (kept() > options_.high_watermark * capacity) evicting_ = true;
    // A put that found no room cannot wait for the pace.
    const bool urgent =
        allocated_bytes_ + others_.allocated_bytes + kSegmentBytes > options_.capacity_bytes;
    double urgent_tokens = std::max(tokens, 1.0);
    double& left = urgent ? urgent_tokens : tokens;
    bool removed_one = false;
    while (evicting_ && left >= 1) {
        const bool low = kept() <= options_.low_watermark * capacity;
        // A disk that is full below the capacity is eased by one segment at a time.
        if (low && (removed_one || allocated_bytes_ == dying_bytes_ || !dying_.empty())) break;
        if (!remove_lost_file()) {
            if (!may_evict()) break;
            kill(by_expiry_.begin()->second, GcCause::capacity);
        }
        removed_one = true;
        left -= 1;
        if (low) break;
    }
    if (kept() <= options_.low_watermark * capacity || !may_evict()) evicting_ = disk_full_ = false;
}

bool EmbeddedCore::remove_lost_file() {
    if (lost_.empty()) return false;
    const auto [path, bytes] = lost_.front();
    lost_.pop_front();
    start_io({.kind = IoKind::unlink, .path = path}, [this, freed = bytes](std::int64_t result) {
        if (result >= 0) allocated_bytes_ -= freed;
    });
    return true;
}

void EmbeddedCore::end_collects() {
    if (collects_.empty() || !dying_.empty()) return;
    const bool held = clock_.now_us() < hold_expiry_until_us_;
    const bool expired = !by_expiry_.empty() && by_expiry_.begin()->first <= wall_ms_ && !held;
    const bool sealing =
        std::any_of(segments_.begin(), segments_.end(), [](const Segment& segment) {
            return segment.state == Segment::State::sealing ||
                   (segment.state == Segment::State::open && segment.retired);
        });
    if (expired || evicting_ || sealing) return;
    const auto collects = std::exchange(collects_, {});
    for (const std::shared_ptr<TaskCall>& call : collects) {
        if (call->finished) continue;
        end(*call);
        std::exchange(call->done, {})({});
    }
}

void EmbeddedCore::begin_collect(const std::shared_ptr<TaskCall>& call) {
    watch(call);
    collects_.push_back(call);
}

void EmbeddedCore::show_metrics() {
    shown_us_ = clock_.now_us();
    std::size_t open = 0;
    for (const Writer& writer : writers_)
        open += (writer.current != kNoSegment ? 1 : 0) + (writer.next != kNoSegment ? 1 : 0);
    const bool overdue = !by_expiry_.empty() && by_expiry_.begin()->first < wall_ms_;
    const double lag_ms = overdue ? static_cast<double>(wall_ms_ - by_expiry_.begin()->first) : 0;
    metrics_.gc_lag.set(lag_ms / 1000);
    std::int64_t killed_us = shown_us_;
    for (const Handle handle : dying_)
        killed_us = std::min(killed_us, segments_[handle].killed_us);
    metrics_.epoch_lag.set(static_cast<double>(shown_us_ - killed_us) * 1e-6);
    metrics_.segments_open.set(static_cast<double>(open));
    metrics_.segments_sealed.set(static_cast<double>(by_expiry_.size()));
    metrics_.segments_dying.set(static_cast<double>(dying_.size()));
    metrics_.allocated_bytes.set(static_cast<double>(allocated_bytes_));
    metrics_.index_entries.set(static_cast<double>(index_.size()));
    metrics_.index_bytes.set(static_cast<double>(index_.memory_bytes()));
    metrics_.unsynced_bytes.set(static_cast<double>(unsynced_bytes_));
    metrics_.inflight_io.set(static_cast<double>(finishes_.size() - free_tags_.size()));
    metrics_.queued_blocks.set(static_cast<double>(queued_blocks_));
}

}  // namespace fathom
