#include <algorithm>
#include <cstring>
#include <random>

#include "base/log.h"
#include "pool/embedded_core.h"

namespace fathom {

namespace {

constexpr std::size_t kReadsAtATime = 32;
constexpr int kPoolWrites = 4;  // of a copy of POOL, until it is seen to be there

PoolUuid new_uuid() {
    std::random_device random;
    PoolUuid uuid{};
    for (std::uint8_t& byte : uuid)
        byte = static_cast<std::uint8_t>(random());
    return uuid;
}

}  // namespace

Status EmbeddedCore::open() {
    const std::int64_t begin_us = clock_.now_us();
    FATHOM_RETURN_IF_ERROR(open_directory());
    FATHOM_ASSIGN(const PoolListing found, list_pool_segments(files_, options_.directory));
    // Refused where somebody put something.
    for (const std::string& bucket : found.empty_buckets)
        (void)files_.remove_directory(bucket);
    FATHOM_RETURN_IF_ERROR(open_pool_file(!found.segments.empty()));
    adopt(found.segments);
    clock_offset_ms_ = wall_ms_ - clock_.now_us() / 1000;
    renew_tokens_ = static_cast<double>(options_.renew_bytes_per_s);
    const double seconds = static_cast<double>(clock_.now_us() - begin_us) * 1e-6;
    metrics_.open_seconds.set(seconds);
    log_info("pool: {}: {} blocks in {} segments, {} bytes, opened in {:.3f} s", options_.directory,
             index_.size(), by_expiry_.size(), allocated_bytes_, seconds);
    if (plain_blocks_ > 0)
        log_info("pool: {}: {} blocks are not encrypted and are not used", options_.directory,
                 plain_blocks_);
    const std::string limits = files_.limits();
    if (!limits.empty()) stay_degraded(fmt::format("{}: {}", options_.directory, limits));
    return {};
}

Status EmbeddedCore::open_directory() {
    FATHOM_RETURN_IF_ERROR(files_.make_directory(options_.directory));
    // What is changed here behind the set's back comes back from its parity.
    const auto set = files_.open(options_.directory + "/SET", OpenMode::reading);
    if (set.ok()) files_.close(*set);
    if (set.ok() && options_.watcher == nullptr) {
        return invalid_argument(
            "{}: is one device of a pool on several disks; open all of them together (pool.dirs, "
            "pool.ec)",
            options_.directory);
    }
    FATHOM_RETURN_IF_ERROR(files_.lock(options_.directory + "/LOCK"));
    for (const char* name : {"seg", "lost"})
        FATHOM_RETURN_IF_ERROR(files_.make_directory(options_.directory + "/" + name));
    for (int i = 0; i < kTrafficClasses; ++i) {
        FATHOM_RETURN_IF_ERROR(files_.make_directory(fmt::format(
            "{}/seg/{}", options_.directory, traffic_class_name(static_cast<TrafficClass>(i)))));
    }
    FATHOM_ASSIGN(const std::vector<FileName> lost, files_.list(options_.directory + "/lost"));
    for (const FileName& name : lost) {
        const std::string path = options_.directory + "/lost/" + name.name;
        const auto file = files_.open(path, OpenMode::existing);
        if (!file.ok()) continue;
        const auto bytes = files_.allocated_bytes(*file);
        files_.close(*file);
        lost_.emplace_back(path, bytes.ok() ? *bytes : 0);
        allocated_bytes_ += lost_.back().second;
    }
    return {};
}

Status EmbeddedCore::write_pool_file_now(int file) {
    const auto bytes = aligned_bytes(kPoolFileBytes);
    write_pool_file({bytes.get(), static_cast<std::size_t>(kPoolFileBytes)}, pool_);
    // One copy after the other, and the second only when the first is seen to be there, so that one
    // is whole at any time.
    const auto seen = aligned_bytes(kPoolPageBytes);
    for (std::int64_t at = 0; at < kPoolFileBytes; at += kPoolPageBytes) {
        const IoRequest page{
            .file = file, .offset = at, .bytes = kPoolPageBytes, .data = bytes.get() + at};
        std::int64_t written = 0, synced = 0;
        bool there = false;
        for (int attempt = 0; attempt < kPoolWrites && !there; ++attempt) {
            IoRequest write = page, read = page;
            write.kind = IoKind::write;
            read.data = seen.get();
            written = io_now(write);
            synced = io_now({.kind = IoKind::sync, .file = file});
            there = written == kPoolPageBytes && synced >= 0 && io_now(read) == kPoolPageBytes &&
                    std::memcmp(seen.get(), page.data, kPoolPageBytes) == 0;
        }
        if (!there) {
            return error(StatusCode::unavailable,
                         "{}/POOL: cannot be written ({}, sync {}; bytes or -errno) and read back; "
                         "is the disk full, read-only or broken?",
                         options_.directory, written, synced);
        }
    }
    return {};
}

Status EmbeddedCore::open_pool_file(bool has_segments) {
    const std::string path = options_.directory + "/POOL";
    auto file = files_.open(path, OpenMode::existing);
    const bool absent = !file.ok() && file.status().code() == StatusCode::not_found;
    if (absent) file = files_.open(path, OpenMode::create);
    if (!file.ok()) return file.status();
    const auto bytes = aligned_bytes(kPoolFileBytes);
    const std::int64_t got =
        io_now({.kind = IoKind::read, .file = *file, .bytes = kPoolFileBytes, .data = bytes.get()});
    Status status;
    const auto found =
        read_pool_file({bytes.get(), static_cast<std::size_t>(std::max<std::int64_t>(got, 0))});
    if (found.ok()) {
        pool_ = *found;
        if (pool_.payload_bytes != geometry_.payload_bytes) {
            status = invalid_argument(
                "{}: holds blocks of {} bytes, this model's have {}; give it another directory",
                path, pool_.payload_bytes, geometry_.payload_bytes);
        }
    } else if (found.status().code() == StatusCode::data_loss && got >= 0 && !has_segments) {
        // New, or the process that made it ended before its first block.
        pool_ = {.uuid = new_uuid(),
                 .payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes),
                 .slot_bytes = static_cast<std::uint32_t>(geometry_.slot_bytes),
                 .epoch = 0,
                 .created_unix_ms = wall_ms_};
    } else {
        status = found.status().with_context(path);
        if (status.code() == StatusCode::data_loss) {
            status = error(StatusCode::data_loss,
                           "{}, so its segments cannot be trusted; nothing was deleted: restore "
                           "POOL, or move seg/ away to begin anew",
                           status.message());
        }
    }
    if (status.ok()) {
        ++pool_.epoch;
        status = write_pool_file_now(*file);
    }
    files_.close(*file);
    if (!status.ok() || !absent) return status;
    FATHOM_ASSIGN(const int directory, files_.open(options_.directory, OpenMode::directory));
    (void)io_now({.kind = IoKind::sync, .file = directory});
    files_.close(directory);
    return {};
}

void EmbeddedCore::move_to_lost(const PoolSegmentFile& found, const std::string& why) {
    const std::string to = fmt::format("{}/lost/{}.{}.{}", options_.directory, found.traffic_class,
                                       found.bucket, found.name);
    const Status moved = files_.rename(found.path, to);
    metrics_.lost_files.add();
    log_warning("pool: {}: {}; {}", found.path, why,
                moved.ok() ? "moved to lost/" : moved.message());
    if (moved.ok()) lost_.emplace_back(to, 0);
}

// Reads the beginnings of all files, many at a time, then the slots of those without a footer.
void EmbeddedCore::adopt(const std::vector<PoolSegmentFile>& found) {
    const std::int64_t head_bytes = segment_head_bytes(geometry_);
    std::size_t in_flight = 0;
    for (const PoolSegmentFile& each : found) {
        const auto file = files_.open(each.path, OpenMode::existing);
        if (!file.ok()) {
            metrics_.io_errors.add();
            stay_degraded(file.status().message());
            continue;
        }
        const auto head = aligned_bytes(head_bytes);
        ++in_flight;
        start_io({.kind = IoKind::read, .file = *file, .bytes = head_bytes, .data = head.get()},
                 [this, &in_flight, &each, head, file = *file](std::int64_t result) {
                     --in_flight;
                     adopt_one(each, file, head.get(), result);
                 });
        while (in_flight >= kReadsAtATime)
            take_completions(50'000);
    }
    while (in_flight > 0)
        take_completions(50'000);
    for (Handle handle = 0; handle < segments_.size(); ++handle) {
        if (segments_[handle].state == Segment::State::sealing) scan_unsealed(handle);
    }
}

void EmbeddedCore::adopt_one(const PoolSegmentFile& found, int file, const std::uint8_t* bytes,
                             std::int64_t got) {
    if (got < 0) {
        files_.close(file);
        metrics_.io_errors.add();
        return stay_degraded(
            fmt::format("{}: cannot be read (errno {}); its blocks are not found, the "
                        "file stays where it is",
                        found.path, -got));
    }
    const std::span<const std::uint8_t> bytes_read(bytes, static_cast<std::size_t>(got));
    const auto head = judge_segment_head(bytes_read, found, pool_.uuid, geometry_);
    if (!head.ok()) {
        files_.close(file);
        switch (head.status().code()) {
            case StatusCode::unsupported:
                return stay_degraded(head.status().with_context(found.path).message());
            case StatusCode::not_found:  // its process ended before it had a block
                return start_io({.kind = IoKind::unlink, .path = found.path}, [](std::int64_t) {});
            default:
                return move_to_lost(found, head.status().message());
        }
    }
    const SegmentHeader& header = head->header;
    Segment segment;
    segment.id = header.id;
    segment.traffic_class = header.traffic_class;
    segment.bucket_start_ms = header.bucket_start_unix_ms;
    segment.expiry_ms = header.expiry_unix_ms;
    segment.file = file;
    segment.scrubbed_ms = wall_ms_;
    const Handle handle = new_handle();
    segments_[handle] = segment;
    Segment& adopted = segments_[handle];
    recent_files_.push_front(handle);
    adopted.recent = recent_files_.begin();
    measure(adopted);
    pool_.epoch = std::max(pool_.epoch, (header.id >> 32) + 1);
    if (!head->sealed) {
        adopted.state = Segment::State::sealing;  // its slots are read next
        return;
    }
    add_entries(handle, head->entries);
    adopted.state = Segment::State::sealed;
    adopted.used_slots = used_slots(head->entries);
    by_expiry_.emplace(adopted.expiry_ms, handle);
    tell_sealed(adopted);
    close_file(adopted);
}

void EmbeddedCore::begin_adopt(const std::shared_ptr<TaskCall>& call, TrafficClass traffic_class,
                               std::int64_t bucket_start_ms, std::uint64_t id) {
    watch(call);
    const PoolSegmentFile found{
        .path = segment_path(options_.directory, traffic_class, bucket_start_ms, id),
        .traffic_class = std::string(traffic_class_name(traffic_class)),
        .bucket = std::to_string(bucket_start_ms / 1000),
        .name = segment_file_name(id)};
    const auto finish = [this, call](Status status) {
        if (call->finished) return;
        end(*call);
        std::exchange(call->done, {})(std::move(status));
    };
    const auto file = files_.open(found.path, OpenMode::existing);
    if (!file.ok()) return finish(file.status());
    const std::int64_t bytes = segment_head_bytes(geometry_);
    const auto head = aligned_bytes(bytes);
    start_io({.kind = IoKind::read, .file = *file, .bytes = bytes, .data = head.get()},
             [this, finish, found, head, file = *file](std::int64_t result) {
                 const std::span<const std::uint8_t> bytes_read(
                     head.get(), static_cast<std::size_t>(std::max<std::int64_t>(result, 0)));
                 const auto judged = judge_segment_head(bytes_read, found, pool_.uuid, geometry_);
                 if (!judged.ok() || !judged->sealed) {
                     files_.close(file);
                     return finish(
                         judged.ok() ? error(StatusCode::data_loss, "{}: is not sealed", found.path)
                                     : judged.status());
                 }
                 adopt_one(found, file, head.get(), result);
                 finish({});
             });
}

void EmbeddedCore::restore(const BlockKey& key, std::uint64_t segment, std::uint32_t slot) {
    if (index_.find(key)) return;
    for (Handle handle = 0; handle < segments_.size(); ++handle) {
        Segment& of = segments_[handle];
        if (of.id != segment || of.state != Segment::State::sealed) continue;
        index_.put(key, {.segment = handle, .slot = static_cast<std::uint16_t>(slot)});
        ++of.live;
    }
}

// Of two copies the one that lives longer is found.
void EmbeddedCore::add_entries(Handle handle, const std::vector<FooterEntry>& entries) {
    Segment& segment = segments_[handle];
    if (segment.expiry_ms <= wall_ms_) return;
    for (std::size_t slot = 0; slot < entries.size(); ++slot) {
        if ((entries[slot].flags & kFooterPresent) == 0) continue;
        if (options_.encrypt && (entries[slot].flags & kFooterEncrypted) == 0) {
            ++plain_blocks_;
            continue;
        }
        if (const auto old = index_.find(entries[slot].key)) {
            Segment& other = segments_[old->segment];
            if (std::pair(other.expiry_ms, other.id) > std::pair(segment.expiry_ms, segment.id))
                continue;
            --other.live;
        }
        index_.put(entries[slot].key,
                   {.segment = handle, .slot = static_cast<std::uint16_t>(slot)});
        ++segment.live;
        ++opened_with_[entries[slot].ns_tag][segment.expiry_ms];
    }
}

// A segment whose writer ended: its trailers say what it holds. It is sealed at once.
void EmbeddedCore::scan_unsealed(Handle handle) {
    Segment& segment = segments_[handle];
    const std::int64_t bytes = geometry_.tail_bytes();
    segment.entries.assign(static_cast<std::size_t>(geometry_.slots), {});
    segment.footer_kept = true;
    segment.retired = true;
    std::size_t in_flight = 0;
    for (std::int64_t slot = 0; slot < geometry_.slots; ++slot) {
        const auto tail = aligned_bytes(bytes);
        ++in_flight;
        start_io({.kind = IoKind::read,
                  .file = segment.file,
                  .offset = geometry_.slot_offset(slot) + geometry_.tail_offset(),
                  .bytes = bytes,
                  .data = tail.get()},
                 [&, tail, slot](std::int64_t result) {
                     --in_flight;
                     if (result != bytes) return;
                     SlotFault fault = SlotFault::none;
                     const SlotPlace place{pool_low_bytes(pool_.uuid), segment.id,
                                           static_cast<std::uint32_t>(slot)};
                     const auto trailer = judge_slot_tail(
                         {tail.get(), static_cast<std::size_t>(bytes)}, geometry_, place, fault);
                     if (!trailer.ok()) return;
                     segment.entries[static_cast<std::size_t>(slot)] = footer_entry(*trailer);
                     segment.next_slot =
                         std::max(segment.next_slot, static_cast<std::uint32_t>(slot) + 1);
                 });
        while (in_flight >= kReadsAtATime)
            take_completions(50'000);
    }
    while (in_flight > 0)
        take_completions(50'000);
    add_entries(handle, segment.entries);
    segment.state = Segment::State::open;
    seal_if_quiet(handle);
}

}  // namespace fathom
