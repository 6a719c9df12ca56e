#include <algorithm>
#include <cstring>

#include "pool/embedded_core.h"

namespace fathom {

namespace {

constexpr int kAttempts = 3;

}  // namespace

void EmbeddedCore::begin(const std::shared_ptr<GetCall>& call) {
    const std::size_t n = call->requests.size();
    call->result.blocks.assign(n, GetStatus::miss);
    call->result.expiry_unix_ms.assign(n, 0);
    call->settled.assign(n, false);
    call->unsettled = n;
    call->result.status = closing_ ? refusal(call->deadline) : Status();
    const std::int64_t queued = queued_blocks_ + static_cast<std::int64_t>(n);
    if (call->result.status.ok() && queued > options_.queued_blocks_max) {
        call->result.status =
            error(StatusCode::resource_exhausted,
                  "{}: {} blocks are asked for at a time, {} are possible; ask again later",
                  options_.directory, queued, options_.queued_blocks_max);
    }
    const bool refused = !call->result.status.ok();
    call->blocks = refused ? 0 : static_cast<std::int64_t>(n);
    watch(call);
    if (refused || n == 0) return finish(*call);
    if (call->deadline.at_us <= call->begun_us) {
        metrics_.deadline_exceeded.add();
        return call->give_up(*this, false);
    }
    for (std::size_t i = 0; i < n; ++i)
        read_queue_.push_back({call, i, 0});
}

void GetCall::give_up(EmbeddedCore& core, bool cancelled) {
    for (std::size_t i = 0; i < settled.size(); ++i) {
        if (!settled[i]) result.blocks[i] = cancelled ? GetStatus::cancelled : GetStatus::timeout;
    }
    result.status = cancelled ? Status(StatusCode::cancelled, "the get was cancelled")
                              : Status(StatusCode::deadline_exceeded,
                                       "the deadline came before all blocks did");
    core.finish(*this);
}

void EmbeddedCore::settle(const std::shared_ptr<GetCall>& call, std::size_t at, GetStatus status) {
    if (call->finished) return;
    call->result.blocks[at] = status;
    call->settled[at] = true;
    if (--call->unsettled == 0) finish(*call);
}

void EmbeddedCore::finish(GetCall& call) {
    end(call);
    GetResult& result = call.result;
    while (result.leading_hits < result.blocks.size() &&
           result.blocks[result.leading_hits] == GetStatus::hit)
        ++result.leading_hits;
    for (const GetStatus status : result.blocks)
        metrics_.get_blocks[static_cast<std::size_t>(status)]->add();
    metrics_.get_seconds.observe(static_cast<double>(clock_.now_us() - call.begun_us) * 1e-6);
    const auto done = std::move(call.calls.done);
    done(std::move(result));
    if (call.direct_reads == 0 && call.calls.released) std::exchange(call.calls.released, {})();
}

void EmbeddedCore::start_read(ReadJob job) {
    if (job.call->finished) return;
    const GetRequest& request = job.call->requests[job.at];
    bool expired = false;
    const auto place = find_readable(request.name.key, &expired);
    if (!place) {
        metrics_.misses[static_cast<std::size_t>(expired ? MissCause::expired : MissCause::absent)]
            ->add();
        return settle(job.call, job.at, GetStatus::miss);
    }
    const auto file = file_of(place->segment);
    if (!file.ok()) {
        metrics_.io_errors.add();
        // Who can rebuild it does not wait for the disk to come back.
        if (file.status().code() == StatusCode::not_found || options_.watcher != nullptr)
            damaged(request.name.key, *place);
        if (job.call->result.status.ok()) job.call->result.status = file.status();
        return settle(job.call, job.at, GetStatus::io_error);
    }
    std::uint8_t* buffer = nullptr;  // none: straight to where it is wanted
    std::uint8_t* target = request.destination.page;
    if (takes_whole_slot(request.destination)) {
        ++job.call->direct_reads;
    } else {
        buffer = target = read_buffers_.back();
        read_buffers_.pop_back();
    }
    ++reads_in_flight_;
    pin(place->segment);
    start_io({.kind = IoKind::read,
              .file = *file,
              .offset = geometry_.slot_offset(place->slot),
              .bytes = geometry_.slot_bytes,
              .data = target},
             [this, job = std::move(job), place = *place, buffer](std::int64_t result) {
                 finish_read(job, place, buffer, result);
             });
}

void EmbeddedCore::finish_read(const ReadJob& job, const BlockPlace& place, std::uint8_t* buffer,
                               std::int64_t result) {
    GetCall& call = *job.call;
    --reads_in_flight_;
    if (!call.finished) {
        const bool whole = result == geometry_.slot_bytes;
        const bool again = transient(result) || (result >= 0 && !whole);
        if (!whole && again && job.attempt + 1 < kAttempts) {
            read_queue_.push_front({job.call, job.at, job.attempt + 1});
        } else if (!whole) {
            metrics_.io_errors.add();
            damaged(call.requests[job.at].name.key, place);
            if (call.result.status.ok()) {
                call.result.status = error(
                    StatusCode::unavailable,
                    "{}: slot {} cannot be read ({} of {} bytes, or -errno); its block is "
                    "forgotten and will be computed again",
                    path_of(segments_[place.segment]), place.slot, result, geometry_.slot_bytes);
            }
            settle(job.call, job.at, GetStatus::io_error);
        } else {
            std::uint8_t* slot =
                buffer != nullptr ? buffer : call.requests[job.at].destination.page;
            settle(job.call, job.at, judge(job, place, slot));
        }
    }
    if (buffer != nullptr) {
        read_buffers_.push_back(buffer);
    } else if (--call.direct_reads == 0 && call.finished && call.calls.released) {
        std::exchange(call.calls.released, {})();
    }
    unpin(place.segment);
}

// Whether what was read is the block asked for; if so it is where it was wanted afterwards.
GetStatus EmbeddedCore::judge(const ReadJob& job, const BlockPlace& place, std::uint8_t* slot) {
    const GetRequest& request = job.call->requests[job.at];
    const Segment& segment = segments_[place.segment];
    const SlotPlace expected{pool_low_bytes(pool_.uuid), segment.id, place.slot};
    SlotTrailer trailer;
    const SlotFault fault =
        open_slot({slot, static_cast<std::size_t>(geometry_.slot_bytes)}, geometry_, expected,
                  request.name, {options_.keys.get(), options_.encrypt}, trailer);
    const auto miss = [&](MissCause cause) {
        metrics_.misses[static_cast<std::size_t>(cause)]->add();
        if (cause == MissCause::tag)
            forget(request.name.key, place);
        else if (cause != MissCause::collision)
            damaged(request.name.key, place);
        return cause == MissCause::corrupt ? GetStatus::corrupt : GetStatus::miss;
    };
    if (fault != SlotFault::none) {
        metrics_.faults[static_cast<std::size_t>(fault)]->add();
        if (fault == SlotFault::collision) return miss(MissCause::collision);
        if (fault == SlotFault::tag) return miss(MissCause::tag);
        return miss(fault == SlotFault::empty ? MissCause::hole : MissCause::corrupt);
    }
    if (slot != request.destination.page) {
        std::memcpy(request.destination.page, slot,
                    static_cast<std::size_t>(geometry_.payload_bytes));
    }
    job.call->result.expiry_unix_ms[job.at] = segment.expiry_ms;
    metrics_.get_bytes.add(static_cast<std::uint64_t>(geometry_.payload_bytes));
    metrics_.ttl_left_at_hit.observe(static_cast<double>(segment.expiry_ms - wall_ms_) / 1000);
    return GetStatus::hit;
}

// What is in doubt is not found again. Its slot stays as it is, until its segment goes.
void EmbeddedCore::forget(const BlockKey& key, const BlockPlace& place) {
    if (index_.erase_if_at(key, place)) --segments_[place.segment].live;
}

void EmbeddedCore::damaged(const BlockKey& key, const BlockPlace& place) {
    const auto found = index_.find(key);
    const bool here = found && found->segment == place.segment && found->slot == place.slot;
    if (here && options_.watcher != nullptr)
        options_.watcher->damaged(key, segments_[place.segment].id, place.slot);
    forget(key, place);
}

}  // namespace fathom
