#include <cerrno>
#include <cstring>

#include "pool/rados_core.h"

namespace fathom {

void RadosCore::begin(const std::shared_ptr<RadosGet>& call) {
    const std::size_t n = call->requests.size();
    call->result.blocks.assign(n, GetStatus::miss);
    call->result.expiry_unix_ms.assign(n, 0);
    call->settled.assign(n, false);
    if (!admit(call, n)) return;
    if (n == 0) return call->finish(*this, CallEnd::complete);
    for (std::size_t i = 0; i < n; ++i)
        reads_.push_back({call, i});
    pump();
}

// What is in flight was read for nobody: it goes to memory of its own.
void RadosGet::finish(RadosCore& core, CallEnd end) {
    core.end(*this);
    for (std::size_t i = 0; i < settled.size(); ++i)
        if (!settled[i]) result.blocks[i] = unread_block(end);
    while (result.leading_hits < result.blocks.size() &&
           result.blocks[result.leading_hits] == GetStatus::hit)
        ++result.leading_hits;
    result.status = core.end_status(*this, end);
    for (const GetStatus block : result.blocks)
        core.metrics_.get_blocks[static_cast<std::size_t>(block)]->add();
    core.metrics_.get_seconds.observe(static_cast<double>(core.now_us() - begun_us) * 1e-6);
    const BlockStore::GetCalls to = std::move(calls);
    to.done(std::move(result));
    if (to.released) to.released();
}

void RadosCore::settle(const std::shared_ptr<RadosGet>& call, std::size_t at, GetStatus status) {
    call->result.blocks[at] = status;
    call->settled[at] = true;
    if (--call->unsettled == 0) call->finish(*this, CallEnd::complete);
}

void RadosCore::start_read(const ReadJob& job) {
    ++reads_in_flight_;
    RadosRead what{.object = rados_block_object(job.call->requests[job.at].name.key),
                   .bytes = geometry_.slot_bytes,
                   .attributes = true};
    read(std::move(what), [this, job](const std::shared_ptr<RadosAnswer>& answer) {
        --reads_in_flight_;
        if (!job.call->finished) finish_read(job, *answer);
        pump();
    });
}

void RadosCore::finish_read(const ReadJob& job, RadosAnswer& answer) {
    const BlockKey& key = job.call->requests[job.at].name.key;
    if (answer.result == 0) return settle(job.call, job.at, judge(job, answer));
    if (answer.result == -ENOENT) {
        metrics_.absent.add();
        return settle(job.call, job.at, GetStatus::miss);
    }
    metrics_.io_errors.add();
    if (job.call->status.ok()) job.call->status = failure(answer.result, rados_block_object(key));
    // More shards are damaged than the code can replace: it will never be read again.
    if (answer.result == -EIO) quarantine(key, nullptr);
    settle(job.call, job.at,
           answer.result == -ETIMEDOUT ? GetStatus::timeout : GetStatus::io_error);
}

// Whether what was read is the block asked for; if so it is where it was wanted afterwards.
GetStatus RadosCore::judge(const ReadJob& job, RadosAnswer& answer) {
    const GetRequest& request = job.call->requests[job.at];
    const BlockKey& key = request.name.key;
    const std::string* end = answer.attribute(kRadosEnd);
    const std::string* version = answer.attribute(kRadosVersion);
    const auto expiry = parse_rados_number(end != nullptr ? *end : std::string());
    const auto expiry_ms = static_cast<std::int64_t>(expiry.value_or(0));
    SlotTrailer trailer;
    SlotFault fault = SlotFault::trailer;
    const auto slot_bytes = static_cast<std::size_t>(geometry_.slot_bytes);
    if (answer.bytes == slot_bytes && expiry && version != nullptr)
        fault = open_slot({answer.data.get(), slot_bytes}, geometry_, rados_place(pool_.uuid, key),
                          request.name, {options_.keys.get(), options_.encrypt}, trailer);
    if (fault != SlotFault::none)
        return miss(fault, key, version, (trailer.flags & kSlotEncrypted) == 0);
    if (!alive(expiry_ms)) {
        metrics_.expired.add();
        return GetStatus::miss;
    }
    std::memcpy(request.destination.page, answer.data.get(),
                static_cast<std::size_t>(geometry_.payload_bytes));
    job.call->result.expiry_unix_ms[job.at] = expiry_ms;
    metrics_.get_bytes.add(static_cast<std::uint64_t>(geometry_.payload_bytes));
    metrics_.ttl_left_at_hit.observe(static_cast<double>(expiry_ms - wall_ms()) / 1000);
    return GetStatus::hit;
}

GetStatus RadosCore::miss(SlotFault fault, const BlockKey& key, const std::string* version,
                          bool plain) {
    metrics_.faults[static_cast<std::size_t>(fault)]->add();
    if (fault == SlotFault::collision) {
        metrics_.collision.add();
        return GetStatus::miss;
    }
    if (fault == SlotFault::tag) {
        metrics_.tag.add();
        // An encrypted one may open to others; a plain one never will where all encrypt.
        if (plain) quarantine(key, version);
        return GetStatus::miss;
    }
    metrics_.corrupt.add();
    quarantine(key, version);
    return GetStatus::corrupt;
}

// What is damaged goes, so that the next writer can store it anew. Not what took its place.
void RadosCore::quarantine(const BlockKey& key, const std::string* version) {
    if (closing_) return;
    RadosWrite removal{.object = rados_block_object(key), .must_exist = true, .remove = true};
    if (version != nullptr)
        removal.guards.push_back({.attribute = kRadosVersion, .value = *version});
    write(removal, [this](int result) {
        if (result == 0) metrics_.quarantined.add();
    });
}

}  // namespace fathom
