#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"
#include "pool/embedded_core.h"

namespace fathom {

namespace {

constexpr std::int64_t kSayFullEveryUs = 60'000'000;

}  // namespace

std::int64_t EmbeddedCore::bucket_start(TrafficClass traffic_class) const {
    return bucket_start_ms(options_.lives[static_cast<std::size_t>(traffic_class)], wall_ms_);
}

std::int64_t EmbeddedCore::expiry_of(TrafficClass traffic_class, std::int64_t start_ms) const {
    return bucket_expiry_ms(options_.lives[static_cast<std::size_t>(traffic_class)], start_ms);
}

std::string EmbeddedCore::bucket_directory(const Segment& segment) const {
    return fmt::format("{}/seg/{}/{}", options_.directory,
                       traffic_class_name(segment.traffic_class), segment.bucket_start_ms / 1000);
}

std::string EmbeddedCore::path_of(const Segment& segment) const {
    return segment_path(options_.directory, segment.traffic_class, segment.bucket_start_ms,
                        segment.id);
}

EmbeddedCore::Handle EmbeddedCore::new_handle() {
    if (free_handles_.empty()) {
        segments_.emplace_back();
        return static_cast<Handle>(segments_.size() - 1);
    }
    const Handle handle = free_handles_.back();
    free_handles_.pop_back();
    segments_[handle] = Segment{};
    return handle;
}

// Opens the file if need be. Least recently used files that nothing happens in are closed.
Result<int> EmbeddedCore::file_of(Handle handle) {
    Segment& segment = segments_[handle];
    if (segment.file >= 0) {
        recent_files_.splice(recent_files_.begin(), recent_files_, segment.recent);
        return segment.file;
    }
    auto at = recent_files_.end();
    while (recent_files_.size() >= static_cast<std::size_t>(options_.open_files_max) &&
           at != recent_files_.begin()) {
        Segment& other = segments_[*--at];
        const bool idle =
            other.pins == 0 && other.state == Segment::State::sealed && other.unsynced_bytes == 0;
        if (!idle) continue;
        at = std::next(at);
        close_file(other);
    }
    FATHOM_ASSIGN(segment.file, files_.open(path_of(segment), OpenMode::existing));
    recent_files_.push_front(handle);
    segment.recent = recent_files_.begin();
    return segment.file;
}

void EmbeddedCore::close_file(Segment& segment) {
    if (segment.file < 0) return;
    files_.close(segment.file);
    recent_files_.erase(segment.recent);
    segment.file = -1;
}

void EmbeddedCore::unpin(Handle handle) {
    FATHOM_CHECK(segments_[handle].pins > 0);
    --segments_[handle].pins;
}

void EmbeddedCore::measure(Segment& segment) {
    const auto bytes = files_.allocated_bytes(segment.file);
    if (!bytes.ok()) return;
    allocated_bytes_ += *bytes - segment.allocated_bytes;
    segment.allocated_bytes = *bytes;
}

// The segment that a block of the class goes to now; kNoSegment with `refused` stored: wait for it.
EmbeddedCore::Handle EmbeddedCore::writable_segment(TrafficClass traffic_class, PutOutcome& refused,
                                                    Status& status) {
    Writer& writer = writers_[static_cast<std::size_t>(traffic_class)];
    const std::int64_t bucket_ms = bucket_start(traffic_class);
    const auto slots = static_cast<std::uint32_t>(geometry_.slots);
    const auto usable = [&](Handle handle) {
        return segments_[handle].bucket_start_ms == bucket_ms &&
               segments_[handle].next_slot < slots;
    };
    if (writer.current != kNoSegment && !usable(writer.current)) {
        retire(writer.current);
        writer.current = kNoSegment;
    }
    const bool next_open =
        writer.next != kNoSegment && segments_[writer.next].state == Segment::State::open;
    if (next_open && !usable(writer.next)) {
        retire(writer.next);
        writer.next = kNoSegment;
    } else if (next_open && writer.current == kNoSegment) {
        writer.current = std::exchange(writer.next, kNoSegment);
    }
    // The next one is made while the last quarter fills, so that no put waits for it.
    const bool want_next =
        writer.current == kNoSegment || segments_[writer.current].next_slot >= slots - slots / 4;
    if (want_next && writer.next == kNoSegment) {
        PutOutcome outcome = PutOutcome::stored;
        Status cause;
        writer.next = create_segment(traffic_class, bucket_ms, outcome, cause);
        if (writer.current == kNoSegment) {
            refused = outcome;
            status = cause;
        }
    }
    return writer.current;
}

EmbeddedCore::Handle EmbeddedCore::create_segment(TrafficClass traffic_class,
                                                  std::int64_t bucket_start_ms, PutOutcome& refused,
                                                  Status& status) {
    const std::int64_t taken = allocated_bytes_ + others_.allocated_bytes;
    if (taken + kSegmentBytes > options_.capacity_bytes) {
        evicting_ = true;
        refused = PutOutcome::full;
        status = error(StatusCode::resource_exhausted,
                       "{}: {} of {} bytes are taken; old segments are being removed",
                       options_.directory, taken, options_.capacity_bytes);
        return kNoSegment;
    }
    const Handle handle = new_handle();
    Segment& segment = segments_[handle];
    segment.traffic_class = traffic_class;
    segment.id = pool_.epoch << 32 | next_segment_++;
    segment.bucket_start_ms = bucket_start_ms;
    segment.expiry_ms = expiry_of(traffic_class, bucket_start_ms);
    Status made = files_.make_directory(bucket_directory(segment));
    Result<int> file = made.ok() ? files_.open(path_of(segment), OpenMode::create) : made;
    if (!file.ok()) {
        free_handles_.push_back(handle);
        metrics_.io_errors.add();
        disk_full_ = disk_full_ || file.status().code() == StatusCode::resource_exhausted;
        evicting_ = evicting_ || disk_full_;
        refused = evicting_ ? PutOutcome::full : PutOutcome::failed;
        status = file.status();
        return kNoSegment;
    }
    segment.state = Segment::State::creating;
    segment.file = *file;
    recent_files_.push_front(handle);
    segment.recent = recent_files_.begin();
    segment.allocated_bytes = kSegmentBytes;  // until it is measured
    allocated_bytes_ += kSegmentBytes;
    segment.entries.resize(static_cast<std::size_t>(geometry_.slots));
    segment.footer_kept = true;
    pin(handle);
    start_io({.kind = IoKind::allocate, .file = segment.file, .bytes = kSegmentBytes},
             [this, handle](std::int64_t result) {
                 if (result < 0) return creation_failed(handle, result, "allocated");
                 write_header(handle);
             });
    return handle;
}

void EmbeddedCore::write_header(Handle handle) {
    const Segment& segment = segments_[handle];
    const auto page = aligned_bytes(kPoolPageBytes);
    write_segment_header({page.get(), static_cast<std::size_t>(kPoolPageBytes)},
                         {.pool = pool_.uuid,
                          .id = segment.id,
                          .traffic_class = segment.traffic_class,
                          .bucket_start_unix_ms = segment.bucket_start_ms,
                          .expiry_unix_ms = segment.expiry_ms,
                          .payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes),
                          .slot_bytes = static_cast<std::uint32_t>(geometry_.slot_bytes),
                          .slots = static_cast<std::uint32_t>(geometry_.slots),
                          .writer = pool_.epoch});
    start_io(
        {.kind = IoKind::write, .file = segment.file, .bytes = kPoolPageBytes, .data = page.get()},
        [this, handle, page](std::int64_t result) {
            if (result != kPoolPageBytes) return creation_failed(handle, result, "begun");
            sync_names(handle);
        });
}

// A name that is not durable would take its blocks with it, whatever was synced.
void EmbeddedCore::sync_names(Handle handle) {
    const std::vector<std::string> paths = {options_.directory + "/seg",
                                            bucket_directory(segments_[handle]) + "/..",
                                            bucket_directory(segments_[handle])};
    const auto left = std::make_shared<std::size_t>(paths.size());
    const auto worst = std::make_shared<std::int64_t>(0);
    for (const std::string& path : paths) {
        const auto directory = files_.open(path, OpenMode::directory);
        const auto finish = [this, handle, left, worst](std::int64_t result) {
            *worst = std::min(*worst, result);
            if (--*left > 0) return;
            if (*worst < 0) return creation_failed(handle, *worst, "made durable");
            segment_ready(handle);
        };
        if (!directory.ok()) {
            finish(-EIO);
            continue;
        }
        start_io({.kind = IoKind::sync, .file = *directory},
                 [this, finish, file = *directory](std::int64_t result) {
                     files_.close(file);
                     finish(result);
                 });
    }
}

void EmbeddedCore::segment_ready(Handle handle) {
    Segment& segment = segments_[handle];
    segment.state = Segment::State::open;
    measure(segment);
    unpin(handle);
    Writer& writer = writers_[static_cast<std::size_t>(segment.traffic_class)];
    write_queue_.insert(write_queue_.begin(), std::make_move_iterator(writer.waiting.begin()),
                        std::make_move_iterator(writer.waiting.end()));
    writer.waiting.clear();
}

void EmbeddedCore::creation_failed(Handle handle, std::int64_t result, const char* what) {
    Segment& segment = segments_[handle];
    metrics_.io_errors.add();
    const bool no_room = result == -ENOSPC || result == -EDQUOT;
    evicting_ = evicting_ || no_room;
    disk_full_ = disk_full_ || no_room;
    const Status status =
        error(no_room ? StatusCode::resource_exhausted : StatusCode::unavailable,
              "{}: the segment cannot be {} (errno {}); {}", path_of(segment), what, -result,
              no_room ? "the disk is full: what ends first is removed" : "blocks are not stored");
    const std::int64_t now_us = clock_.now_us();
    // A disk that stays full is met at every put.
    if (!no_room || now_us >= say_full_after_us_) {
        log_warning("pool: {}", status.message());
        if (no_room) say_full_after_us_ = now_us + kSayFullEveryUs;
    }
    Writer& writer = writers_[static_cast<std::size_t>(segment.traffic_class)];
    if (writer.next == handle) writer.next = kNoSegment;
    unpin(handle);
    kill(handle, GcCause::empty);
    const std::deque<WriteJob> waiting = std::exchange(writer.waiting, {});
    for (const WriteJob& job : waiting)
        settle(job.call, job.at, no_room ? PutOutcome::full : PutOutcome::failed, status);
}

// Takes no more blocks; sealed when its last write is done.
void EmbeddedCore::retire(Handle handle) {
    segments_[handle].retired = true;
    seal_if_quiet(handle);
}

void EmbeddedCore::seal_if_quiet(Handle handle) {
    Segment& segment = segments_[handle];
    if (segment.state != Segment::State::open || !segment.retired || segment.writes > 0) return;
    const bool empty = std::none_of(segment.entries.begin(), segment.entries.end(),
                                    [](const FooterEntry& entry) { return entry.flags != 0; });
    if (empty) return kill(handle, GcCause::empty);
    segment.state = Segment::State::sealing;
    segment.used_slots = used_slots(segment.entries);
    pin(handle);
    // What it says must be durable before it says so.
    start_io({.kind = IoKind::sync, .file = segment.file}, [this, handle](std::int64_t synced) {
        if (synced < 0) {
            metrics_.sync_errors.add();
            degrade(
                fmt::format("{}: cannot be synced (errno {}); it stays unsealed and is read "
                            "slot by slot when the pool is opened again",
                            path_of(segments_[handle]), -synced));
            unpin(handle);
            return sealed(handle);
        }
        const Segment& of = segments_[handle];
        const std::int64_t unused = geometry_.slot_offset(of.next_slot);
        if (unused == kSegmentBytes) return write_footer_of(handle);
        start_io({.kind = IoKind::punch,
                  .file = of.file,
                  .offset = unused,
                  .bytes = kSegmentBytes - unused},
                 [this, handle](std::int64_t) { write_footer_of(handle); });
    });
}

void EmbeddedCore::write_footer_of(Handle handle) {
    const Segment& segment = segments_[handle];
    const std::int64_t bytes = footer_bytes(geometry_);
    const auto footer = aligned_bytes(bytes);
    write_footer({footer.get(), static_cast<std::size_t>(bytes)}, geometry_,
                 {pool_low_bytes(pool_.uuid), segment.id, 0}, segment.entries);
    start_io({.kind = IoKind::write,
              .file = segment.file,
              .offset = kPoolPageBytes,
              .bytes = bytes,
              .data = footer.get()},
             [this, handle, footer, bytes](std::int64_t result) {
                 const auto end = [this, handle](bool kept) {
                     Segment& of = segments_[handle];
                     if (kept) {
                         of.footer_kept = false;
                         of.entries = {};
                     } else {
                         metrics_.io_errors.add();
                     }
                     unpin(handle);
                     sealed(handle);
                 };
                 if (result != bytes) return end(false);
                 start_io({.kind = IoKind::sync, .file = segments_[handle].file},
                          [end](std::int64_t synced) { end(synced >= 0); });
             });
}

void EmbeddedCore::sealed(Handle handle) {
    Segment& segment = segments_[handle];
    if (segment.state == Segment::State::dying) return;
    segment.state = Segment::State::sealed;
    segment.scrubbed_ms = wall_ms_;
    measure(segment);
    by_expiry_.emplace(segment.expiry_ms, handle);
    if (!segment.footer_kept) tell_sealed(segment);
}

void EmbeddedCore::tell_sealed(const Segment& segment) {
    if (options_.watcher == nullptr) return;
    options_.watcher->sealed({.id = segment.id,
                              .traffic_class = segment.traffic_class,
                              .bucket_start_ms = segment.bucket_start_ms,
                              .expiry_ms = segment.expiry_ms,
                              .slots = segment.used_slots});
}

std::uint32_t EmbeddedCore::used_slots(const std::vector<FooterEntry>& entries) {
    std::size_t used = entries.size();
    while (used > 0 && (entries[used - 1].flags & kFooterPresent) == 0)
        --used;
    return static_cast<std::uint32_t>(used);
}

// From here on none of its blocks is found. Its file goes when the index has forgotten them and no
// read is in it any more.
void EmbeddedCore::kill(Handle handle, GcCause cause) {
    Segment& segment = segments_[handle];
    if (segment.state == Segment::State::dying) return;
    by_expiry_.erase({segment.expiry_ms, handle});
    if (options_.watcher != nullptr && segment.state == Segment::State::sealed)
        options_.watcher->removed(segment.id, cause == GcCause::drop);
    segment.state = Segment::State::dying;
    segment.killed_us = clock_.now_us();
    dying_.push_back(handle);
    dying_bytes_ += segment.allocated_bytes;
    metrics_.gc_segments[static_cast<std::size_t>(cause)]->add();
    if (cause != GcCause::empty) {
        metrics_.age_at_evict.observe(static_cast<double>(wall_ms_ - segment.bucket_start_ms) /
                                      1000);
    }
}

void EmbeddedCore::sweep() {
    constexpr std::size_t kEntriesOfATurn = 65'536;
    if (sweep_shard_ == BlockIndex::kShards) {
        for (const Handle handle : dying_)
            if (!segments_[handle].swept) sweeping_.push_back(handle);
        if (sweeping_.empty()) return;
        sweep_shard_ = 0;
    }
    for (std::size_t seen = 0; sweep_shard_ < BlockIndex::kShards && seen < kEntriesOfATurn;) {
        seen += index_.shard_size(sweep_shard_);
        index_.sweep(sweep_shard_++, [this](const BlockPlace& place) {
            return segments_[place.segment].state == Segment::State::dying;
        });
    }
    if (sweep_shard_ < BlockIndex::kShards) return;
    for (const Handle handle : sweeping_)
        segments_[handle].swept = true;
    sweeping_.clear();
}

void EmbeddedCore::reap() {
    for (const Handle handle : dying_) {
        Segment& segment = segments_[handle];
        if (!segment.swept || segment.pins > 0) continue;
        close_file(segment);
        pin(handle);
        start_io({.kind = IoKind::unlink, .path = path_of(segment)},
                 [this, handle](std::int64_t result) { removed(handle, result); });
    }
}

void EmbeddedCore::removed(Handle handle, std::int64_t result) {
    Segment& segment = segments_[handle];
    if (result < 0 && result != -ENOENT) {
        metrics_.io_errors.add();
        degrade(
            fmt::format("{}: cannot be removed (errno {}); its space stays taken until the "
                        "pool is opened again",
                        path_of(segment), -result));
    }
    allocated_bytes_ -= segment.allocated_bytes;
    dying_bytes_ -= segment.allocated_bytes;
    unsynced_bytes_ -= segment.unsynced_bytes;
    unsynced_.erase(handle);
    // Refused while others are there.
    (void)files_.remove_directory(bucket_directory(segment));
    dying_.erase(std::find(dying_.begin(), dying_.end(), handle));
    segment = Segment{};
    free_handles_.push_back(handle);
}

}  // namespace fathom
