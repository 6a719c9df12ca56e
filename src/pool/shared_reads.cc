#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "pool/shared_core.h"
#include "pool/slot_keys.h"

namespace fathom {

namespace {

constexpr int kAttempts = 3;
constexpr std::int64_t kFutureMs = 3'600'000;  // a bucket that begins later is a clock's mistake
constexpr std::size_t kSweptATurn = 65'536;

bool absent(std::int64_t result) {
    return result == -ENOENT || result == -ESTALE;
}

}  // namespace

const PeerSegment* SharedCore::find(const BlockKey& key, BlockPlace& place) const {
    const auto found = index_.find(key);
    if (!found) return nullptr;
    place = *found;
    const auto at = segments_.find(place.segment);
    if (at == segments_.end()) return nullptr;
    const PeerSegment& segment = at->second;
    const std::int64_t wall_ms = clock_.wall_unix_ms();
    const bool readable = !segment.gone && wall_ms < segment.expiry_ms &&
                          segment.bucket_start_ms <= wall_ms + kFutureMs;
    return readable ? &segment : nullptr;
}

bool SharedCore::has(const BlockKey& key) const {
    BlockPlace place;
    return find(key, place) != nullptr;
}

void SharedCore::add_segment(Handle handle, PeerSegment segment) {
    segment.namespaces.assign(static_cast<std::size_t>(geometry_.slots), 0);
    segments_.emplace(handle, std::move(segment));
}

// Of two copies the one that lives longer is found.
void SharedCore::add_blocks(Handle handle, const std::vector<PeerBlock>& blocks) {
    const auto at = segments_.find(handle);
    if (at == segments_.end() || at->second.gone) return;
    PeerSegment& segment = at->second;
    for (const PeerBlock& block : blocks) {
        const auto number = static_cast<std::uint32_t>(namespaces_.size() + 1);
        segment.namespaces[block.slot] = namespaces_.emplace(block.ns_tag, number).first->second;
        BlockPlace place;
        const PeerSegment* other = find(block.key, place);
        if (other != nullptr && other != &segment && other->expiry_ms >= segment.expiry_ms)
            continue;
        index_.put(block.key, {.segment = handle, .slot = static_cast<std::uint16_t>(block.slot)});
    }
    // At once: who waited for these blocks asks for them next.
    peer_blocks_.store(index_.size(), std::memory_order_release);
}

void SharedCore::seal(Handle handle) {
    const auto at = segments_.find(handle);
    if (at != segments_.end()) at->second.sealed = true;
}

void SharedCore::remove_segment(Handle handle) {
    const auto at = segments_.find(handle);
    if (at == segments_.end()) return;
    at->second.gone = true;
    sweep_again_ = true;
}

// At once: whoever drops the namespace waits for this.
void SharedCore::forget_namespace(std::uint64_t ns_tag) {
    const auto number = namespaces_.find(ns_tag);
    if (number == namespaces_.end()) return;
    for (std::size_t shard = 0; shard < BlockIndex::kShards; ++shard) {
        index_.sweep(shard, [&](const BlockPlace& place) {
            const auto at = segments_.find(place.segment);
            return at != segments_.end() && at->second.namespaces[place.slot] == number->second;
        });
    }
}

// Entries of segments that have gone; those go when no read is in them any more.
void SharedCore::sweep() {
    if (sweep_shard_ == BlockIndex::kShards) {
        if (!std::exchange(sweep_again_, false)) return;
        sweep_shard_ = 0;
    }
    for (std::size_t seen = 0; sweep_shard_ < BlockIndex::kShards && seen < kSweptATurn;) {
        seen += index_.shard_size(sweep_shard_);
        index_.sweep(sweep_shard_++, [this](const BlockPlace& place) {
            const auto at = segments_.find(place.segment);
            return at == segments_.end() || at->second.gone;
        });
    }
    if (sweep_shard_ < BlockIndex::kShards) return;
    for (auto at = segments_.begin(); at != segments_.end();) {
        PeerSegment& segment = at->second;
        const bool ends = segment.gone && segment.pins == 0;
        sweep_again_ = sweep_again_ || (segment.gone && !ends);
        if (ends) close_file(segment);
        at = ends ? segments_.erase(at) : std::next(at);
    }
}

// Opens the file if need be. Least recently used files that nothing is read from are closed.
Result<int> SharedCore::file_of(Handle handle, PeerSegment& segment) {
    if (segment.file >= 0) {
        recent_files_.splice(recent_files_.begin(), recent_files_, segment.recent);
        return segment.file;
    }
    auto at = recent_files_.end();
    while (recent_files_.size() >= static_cast<std::size_t>(options_.embedded.open_files_max) &&
           at != recent_files_.begin()) {
        PeerSegment& other = segments_.at(*--at);
        if (other.pins > 0) continue;
        at = std::next(at);
        close_file(other);
    }
    FATHOM_ASSIGN(segment.file, files_.open(segment.path, OpenMode::reading));
    recent_files_.push_front(handle);
    segment.recent = recent_files_.begin();
    return segment.file;
}

void SharedCore::close_file(PeerSegment& segment) {
    if (segment.file < 0) return;
    files_.close(segment.file);
    recent_files_.erase(segment.recent);
    segment.file = -1;
}

void SharedCore::pump() {
    while (!read_queue_.empty() && !read_buffers_.empty() && !free_tags_.empty()) {
        ReadJob job = std::move(read_queue_.front());
        read_queue_.pop_front();
        start_read(std::move(job));
    }
}

void SharedCore::settle(const std::shared_ptr<SharedGet>& call, std::size_t at, GetStatus status) {
    if (call->finished) return;
    metrics_.get_blocks[static_cast<std::size_t>(status)]->add();
    call->result.blocks[at] = status;
    call->open[at] = false;
    if (--call->unsettled == 0) finish(*call);
}

void SharedCore::start_read(ReadJob job) {
    if (job.call->finished) return;
    const GetRequest& request = job.call->requests[job.at];
    BlockPlace place;
    if (find(request.name.key, place) == nullptr) return settle(job.call, job.at, GetStatus::miss);
    PeerSegment& segment = segments_.at(place.segment);
    const auto file = file_of(place.segment, segment);
    if (!file.ok()) {
        index_.erase_if_at(request.name.key, place);
        if (file.status().code() == StatusCode::not_found) {
            remove_segment(place.segment);
            return settle(job.call, job.at, GetStatus::miss);
        }
        metrics_.io_errors.add();
        if (job.call->result.status.ok()) job.call->result.status = file.status();
        return settle(job.call, job.at, GetStatus::io_error);
    }
    std::uint8_t* buffer = nullptr;  // none: straight to where it is wanted
    std::uint8_t* target = request.destination.page;
    if (takes_whole_slot(request.destination)) {
        ++job.call->page_users;
    } else {
        buffer = target = read_buffers_.back();
        read_buffers_.pop_back();
    }
    ++segment.pins;
    const std::uint32_t tag = free_tags_.back();
    free_tags_.pop_back();
    finishes_[tag] = [this, job = std::move(job), place, buffer](std::int64_t result) {
        finish_read(job, place, buffer, result);
    };
    files_.submit({.kind = IoKind::read,
                   .file = *file,
                   .offset = geometry_.slot_offset(place.slot),
                   .bytes = geometry_.slot_bytes,
                   .data = target,
                   .tag = tag});
}

void SharedCore::finish_read(const ReadJob& job, const BlockPlace& place, std::uint8_t* buffer,
                             std::int64_t result) {
    SharedGet& call = *job.call;
    PeerSegment& segment = segments_.at(place.segment);  // it is pinned
    if (!call.finished) {
        const GetRequest& request = call.requests[job.at];
        const bool whole = result == geometry_.slot_bytes;
        const bool again =
            result == -EAGAIN || result == -EINTR || result == -ENOMEM || (result > 0 && !whole);
        if (!whole && again && job.attempt + 1 < kAttempts) {
            read_queue_.push_front({job.call, job.at, job.attempt + 1});
        } else if (!whole) {
            index_.erase_if_at(request.name.key, place);
            // A reader may see a file shorter than it was written: that is no error.
            if (absent(result)) remove_segment(place.segment);
            if (absent(result) || result >= 0) {
                settle(job.call, job.at, GetStatus::miss);
            } else {
                metrics_.io_errors.add();
                if (call.result.status.ok()) {
                    call.result.status =
                        error(StatusCode::unavailable, "{}: slot {} cannot be read (errno {})",
                              segment.path, place.slot, -result);
                }
                settle(job.call, job.at, GetStatus::io_error);
            }
        } else {
            std::uint8_t* slot = buffer != nullptr ? buffer : request.destination.page;
            settle(job.call, job.at, judge(job, place, segment, slot));
        }
    }
    --segment.pins;
    if (buffer != nullptr) {
        read_buffers_.push_back(buffer);
    } else {
        release(call);
    }
}

// Whether what was read is the block asked for; if so it is where it was wanted afterwards. What
// is in doubt is forgotten. In a segment that is being written that is no fault: the slot was on
// its way, and is found again when the segment is sealed.
GetStatus SharedCore::judge(const ReadJob& job, const BlockPlace& place, const PeerSegment& segment,
                            std::uint8_t* slot) {
    const GetRequest& request = job.call->requests[job.at];
    SlotPlace expected = segment.place;
    expected.slot = place.slot;
    SlotTrailer trailer;
    const SlotFault fault =
        open_slot({slot, static_cast<std::size_t>(geometry_.slot_bytes)}, geometry_, expected,
                  request.name, {options_.embedded.keys.get(), options_.embedded.encrypt}, trailer);
    if (fault != SlotFault::none) {
        metrics_.faults[static_cast<std::size_t>(fault)]->add();
        if (fault == SlotFault::collision) return GetStatus::miss;
        index_.erase_if_at(request.name.key, place);
        // Wiped, of a pool that was begun anew, or of a namespace whose key has gone.
        const bool replaced =
            fault == SlotFault::empty || fault == SlotFault::place || fault == SlotFault::tag;
        return segment.sealed && !replaced ? GetStatus::corrupt : GetStatus::miss;
    }
    if (slot != request.destination.page) {
        std::memcpy(request.destination.page, slot,
                    static_cast<std::size_t>(geometry_.payload_bytes));
    }
    job.call->result.expiry_unix_ms[job.at] = segment.expiry_ms;
    metrics_.get_bytes.add(static_cast<std::uint64_t>(geometry_.payload_bytes));
    return GetStatus::hit;
}

}  // namespace fathom
