#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "pool/embedded_core.h"

namespace fathom {

namespace {

constexpr int kAttempts = 3;

}  // namespace

void EmbeddedCore::begin(const std::shared_ptr<PutCall>& call) {
    const std::size_t n = call->requests.size();
    call->settled.assign(n, false);
    call->unsettled = n;
    call->result.status = closing_ ? refusal(call->deadline) : Status();
    PutOutcome refused = PutOutcome::failed;
    const std::int64_t queued = queued_blocks_ + static_cast<std::int64_t>(n);
    if (call->result.status.ok() && queued > options_.queued_blocks_max) {
        refused = PutOutcome::busy;
        call->result.status = error(StatusCode::resource_exhausted,
                                    "{}: {} blocks are on their way at a time, {} are possible",
                                    options_.directory, queued, options_.queued_blocks_max);
    }
    call->result.blocks.assign(n, refused);
    call->blocks = call->result.status.ok() ? static_cast<std::int64_t>(n) : 0;
    watch(call);
    if (!call->result.status.ok() || n == 0) return finish(*call);
    if (call->deadline.at_us <= call->begun_us) {
        metrics_.deadline_exceeded.add();
        return call->give_up(*this, false);
    }
    for (std::size_t i = 0; i < n; ++i)
        write_queue_.push_back({call, i});
}

void PutCall::give_up(EmbeddedCore& core, bool cancelled) {
    for (std::size_t i = 0; i < settled.size(); ++i) {
        if (!settled[i]) result.blocks[i] = cancelled ? PutOutcome::cancelled : PutOutcome::timeout;
    }
    result.status = cancelled ? Status(StatusCode::cancelled, "the put was cancelled")
                              : Status(StatusCode::deadline_exceeded,
                                       "the deadline came before all blocks were stored");
    core.finish(*this);
}

void EmbeddedCore::settle(const std::shared_ptr<PutCall>& call, std::size_t at, PutOutcome outcome,
                          const Status& status) {
    if (call->finished) return;
    call->result.blocks[at] = outcome;
    call->settled[at] = true;
    if (call->result.status.ok()) call->result.status = status;
    if (--call->unsettled == 0) finish(*call);
}

// Pages were copied when their writes began, so none is in use any more.
void EmbeddedCore::finish(PutCall& call) {
    end(call);
    for (const PutOutcome outcome : call.result.blocks)
        metrics_.put_blocks[static_cast<std::size_t>(outcome)]->add();
    metrics_.put_seconds.observe(static_cast<double>(clock_.now_us() - call.begun_us) * 1e-6);
    const auto done = std::move(call.calls.done);
    done(std::move(call.result));
    if (call.calls.released) std::exchange(call.calls.released, {})();
}

// kvpool.md 5.3: the first writer wins, and only a copy near its end is worth another one.
std::optional<PutOutcome> EmbeddedCore::answer_without_writing(const WriteJob& job, bool& renewal) {
    const BlockName& name = job.call->requests[job.at].name;
    const PutOptions& options = job.call->options;
    if (dropping_.contains(namespace_tag(name.ns))) return PutOutcome::failed;
    if (writing_.contains(name.key)) return PutOutcome::in_flight;
    const auto place = find_readable(name.key);
    if (!place) return std::nullopt;
    const std::int64_t expiry_ms = segments_[place->segment].expiry_ms;
    const TrafficClass traffic_class = options.traffic_class;
    const bool old = expiry_ms - wall_ms_ < options.renew_before_ms;
    const bool longer = expiry_of(traffic_class, bucket_start(traffic_class)) > expiry_ms;
    const auto cost = static_cast<double>(geometry_.slot_bytes);
    if (!old || !longer || renew_tokens_ < cost) return PutOutcome::exists;
    renew_tokens_ -= cost;
    renewal = true;
    return std::nullopt;
}

void EmbeddedCore::start_write(WriteJob job) {
    if (job.call->finished) return;
    bool renewal = false;
    if (const auto outcome = answer_without_writing(job, renewal)) {
        return settle(job.call, job.at, *outcome,
                      *outcome == PutOutcome::failed
                          ? Status(StatusCode::unavailable, "the namespace is being dropped")
                          : Status());
    }
    PutOutcome refused = PutOutcome::stored;
    Status status;
    const TrafficClass traffic_class = job.call->options.traffic_class;
    const Handle handle = writable_segment(traffic_class, refused, status);
    if (handle != kNoSegment) return write_slot(job, handle, renewal);
    if (refused != PutOutcome::stored) return settle(job.call, job.at, refused, status);
    writers_[static_cast<std::size_t>(traffic_class)].waiting.push_back(std::move(job));
}

void EmbeddedCore::write_slot(const WriteJob& job, Handle handle, bool renewal) {
    Segment& segment = segments_[handle];
    const PutRequest& request = job.call->requests[job.at];
    Result<BlockCipher*> cipher = nullptr;
    if (options_.encrypt) cipher = options_.keys->find_or_make(request.name.ns);
    if (!cipher.ok()) return settle(job.call, job.at, PutOutcome::failed, cipher.status());
    std::uint8_t* buffer = write_buffers_.back();
    std::memcpy(buffer, request.page, static_cast<std::size_t>(geometry_.payload_bytes));
    const auto digest = payload_digest(buffer, geometry_.payload_bytes);
    if (request.has_digest && request.digest != digest) {
        metrics_.faults[static_cast<std::size_t>(SlotFault::digest)]->add();
        return settle(job.call, job.at, PutOutcome::failed,
                      Status(StatusCode::data_loss,
                             "a block is not what its producer had: its "
                             "digest does not match; it is not stored"));
    }
    write_buffers_.pop_back();
    const auto write = std::make_shared<SlotWrite>();
    write->job = job;
    write->segment = handle;
    write->slot = segment.next_slot++;
    write->renewal = renewal;
    write->buffer = buffer;

    SlotTrailer trailer = trailer_of(*write, segment);
    trailer.digest = digest;
    if (*cipher != nullptr)
        (*cipher)->encrypt({buffer, static_cast<std::size_t>(geometry_.payload_bytes)}, trailer);
    seal_slot({write->buffer, static_cast<std::size_t>(geometry_.slot_bytes)}, geometry_, trailer);
    write->entry = footer_entry(trailer);

    writing_.emplace(request.name.key, write->entry.ns_tag);
    ++segment.writes;
    pin(handle);
    ++writes_in_flight_;
    send_slot(write);
}

// All but what the payload decides.
SlotTrailer EmbeddedCore::trailer_of(const SlotWrite& write, const Segment& segment) {
    SlotTrailer trailer;
    if (write.renewal) trailer.flags = kSlotRenewed;
    trailer.name = write.job.call->requests[write.job.at].name;
    trailer.place = {pool_low_bytes(pool_.uuid), segment.id, write.slot};
    trailer.payload_bytes = static_cast<std::uint32_t>(geometry_.payload_bytes);
    trailer.traffic_class = segment.traffic_class;
    trailer.written_unix_ms = wall_ms_;
    trailer.expiry_unix_ms = segment.expiry_ms;
    trailer.writer = pool_.epoch;
    trailer.writer_sequence = ++sequence_;
    return trailer;
}

void EmbeddedCore::send_slot(const std::shared_ptr<SlotWrite>& write) {
    start_io({.kind = IoKind::write,
              .file = segments_[write->segment].file,
              .offset = geometry_.slot_offset(write->slot),
              .bytes = geometry_.slot_bytes,
              .data = write->buffer},
             [this, write](std::int64_t result) { finish_write(write, result); });
}

void EmbeddedCore::finish_write(const std::shared_ptr<SlotWrite>& write, std::int64_t result) {
    const bool whole = result == geometry_.slot_bytes;
    if (!whole && (transient(result) || result >= 0) && ++write->attempt < kAttempts)
        return send_slot(write);
    Segment& segment = segments_[write->segment];
    if (!whole) {
        metrics_.io_errors.add();
        const bool no_room = result == -ENOSPC || result == -EDQUOT;
        return burn(write, no_room ? PutOutcome::full : PutOutcome::failed,
                    error(no_room ? StatusCode::resource_exhausted : StatusCode::unavailable,
                          "{}: slot {} cannot be written ({} of {} bytes, or -errno); the block "
                          "is not stored",
                          path_of(segment), write->slot, result, geometry_.slot_bytes));
    }
    if (dropping_.contains(write->entry.ns_tag)) {
        return burn(write, PutOutcome::failed,
                    Status(StatusCode::unavailable, "the namespace is being dropped"));
    }
    install(*write);
    if (options_.sync_every_put) {
        segment.awaiting_sync.push_back([this, write](bool synced) {
            if (synced) {
                settle(write->job.call, write->job.at,
                       write->renewal ? PutOutcome::renewed : PutOutcome::stored);
                return release(*write);
            }
            forget(write->entry.key, {write->segment, static_cast<std::uint16_t>(write->slot), 0});
            burn(write, PutOutcome::failed,
                 Status(StatusCode::unavailable, "the disk could not make the block durable"));
        });
        return;
    }
    settle(write->job.call, write->job.at,
           write->renewal ? PutOutcome::renewed : PutOutcome::stored);
    release(*write);
}

// From here on the block is found.
void EmbeddedCore::install(const SlotWrite& write) {
    Segment& segment = segments_[write.segment];
    if (const auto old = index_.find(write.entry.key)) --segments_[old->segment].live;
    index_.put(write.entry.key,
               {.segment = write.segment, .slot = static_cast<std::uint16_t>(write.slot)});
    ++segment.live;
    segment.entries[write.slot] = write.entry;
    if (unsynced_bytes_ == 0) unsynced_since_us_ = clock_.now_us();
    segment.unsynced_bytes += geometry_.slot_bytes;
    unsynced_bytes_ += geometry_.slot_bytes;
    unsynced_.insert(write.segment);
    metrics_.put_bytes.add(static_cast<std::uint64_t>(geometry_.payload_bytes));
    if (write.renewal) metrics_.renewed_blocks.add();
}

// A slot whose write failed may be whole on the disk all the same. It must not come back to life
// when an unsealed segment is read again, so its trailer is wiped before the put is said to have
// failed. If that fails too, the footer still leaves it out.
void EmbeddedCore::burn(const std::shared_ptr<SlotWrite>& write, PutOutcome outcome,
                        const Status& status) {
    Segment& segment = segments_[write->segment];
    segment.entries[write->slot] = {};
    const std::int64_t from = geometry_.tail_offset();
    const std::int64_t bytes = geometry_.tail_bytes();
    std::memset(write->buffer, 0, static_cast<std::size_t>(bytes));
    start_io({.kind = IoKind::write,
              .file = segment.file,
              .offset = geometry_.slot_offset(write->slot) + from,
              .bytes = bytes,
              .data = write->buffer},
             [this, write, outcome, status, bytes](std::int64_t result) {
                 if (result != bytes)
                     segments_[write->segment].unwiped.emplace_back(write->slot,
                                                                    write->entry.ns_tag);
                 settle(write->job.call, write->job.at, outcome, status);
                 release(*write);
             });
}

void EmbeddedCore::release(const SlotWrite& write) {
    writing_.erase(write.job.call->requests[write.job.at].name.key);
    write_buffers_.push_back(write.buffer);
    --writes_in_flight_;
    --segments_[write.segment].writes;
    unpin(write.segment);
    seal_if_quiet(write.segment);
}

void EmbeddedCore::sync_segments() {
    if (unsynced_.empty()) return;
    const bool due = options_.sync_every_put || closing_ ||
                     unsynced_bytes_ >= options_.sync_bytes ||
                     clock_.now_us() - unsynced_since_us_ >= options_.sync_interval_us;
    if (!due) return;
    const std::vector<Handle> handles(unsynced_.begin(), unsynced_.end());
    for (const Handle handle : handles)
        sync_segment(handle);
    unsynced_since_us_ = clock_.now_us();
}

void EmbeddedCore::sync_segment(Handle handle) {
    Segment& segment = segments_[handle];
    if (segment.syncing) return;
    segment.syncing = true;
    pin(handle);
    auto waiting =
        std::make_shared<std::vector<std::function<void(bool)>>>(std::move(segment.awaiting_sync));
    segment.awaiting_sync.clear();
    const std::int64_t bytes = segment.unsynced_bytes;
    start_io({.kind = IoKind::sync, .file = segment.file},
             [this, handle, waiting, bytes](std::int64_t result) {
                 Segment& of = segments_[handle];
                 of.syncing = false;
                 of.unsynced_bytes -= bytes;
                 unsynced_bytes_ -= bytes;
                 if (of.unsynced_bytes == 0) unsynced_.erase(handle);
                 if (result < 0) {
                     metrics_.sync_errors.add();
                     degrade(
                         fmt::format("{}: cannot be synced (errno {}); blocks may be missing "
                                     "after a loss of power; look at the disk",
                                     path_of(of), -result));
                 }
                 for (const auto& tell : *waiting)
                     tell(result >= 0);
                 unpin(handle);
             });
}

}  // namespace fathom
