#include "pool/peer_pools.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "base/log.h"

namespace fathom {

namespace {

constexpr std::size_t kNewestBuckets = 2;
constexpr std::uint32_t kFirstSlots = 4, kMostSlots = 128;  // looked for at a time
// A slot that stays empty for so many looks, while later ones are there, was given up.
constexpr int kGapLooks = 20;
constexpr std::int64_t kFootersAhead = 64;

}  // namespace

PeerPools::PeerPools(PoolReader& reader, const SlotGeometry& geometry, bool encrypted_only,
                     Tell tell, SharedMetrics& metrics, const std::atomic<bool>& stop)
    : reader_(reader),
      geometry_(geometry),
      encrypted_only_(encrypted_only),
      tell_(std::move(tell)),
      metrics_(metrics),
      stop_(stop) {}

void PeerPools::in_trouble(const Status& status) {
    metrics_.io_errors.add();
    if (trouble_.empty()) trouble_ = status.message();
}

void PeerPools::catch_up() {
    const auto heard = std::make_shared<std::promise<void>>();
    tell_([heard](SharedCore&) { heard->set_value(); });
    heard->get_future().wait();
    untold_ = 0;
}

void PeerPools::forget(Known& known) {
    if (known.handle == 0) return;
    tell_([handle = known.handle](SharedCore& core) { core.remove_segment(handle); });
    known.handle = 0;
}

void PeerPools::forget_all(Pool& pool) {
    for (auto& [path, known] : pool.segments)
        forget(known);
    pool = Pool{};
}

void PeerPools::look(const std::vector<std::string>& directories, bool full,
                     const Dropping& dropping) {
    trouble_.clear();
    for (auto at = pools_.begin(); at != pools_.end();) {
        const bool there =
            std::find(directories.begin(), directories.end(), at->first) != directories.end();
        if (!there) forget_all(at->second);
        at = there ? std::next(at) : pools_.erase(at);
    }
    for (const std::string& directory : directories) {
        if (stop_.load()) return;
        const bool first = !pools_.contains(directory);
        look_at(directory, pools_[directory], full || first, dropping(directory));
    }
    std::size_t open = 0, sealed = 0;
    std::int64_t allocated_bytes = 0;
    for (const auto& [directory, pool] : pools_) {
        open += pool.unsealed.size();
        sealed += pool.segments.size() - pool.unsealed.size();
        for (const auto& [path, known] : pool.segments)
            allocated_bytes += known.allocated_bytes;
    }
    metrics_.pools.set(static_cast<double>(pools_.size()));
    metrics_.segments_open.set(static_cast<double>(open));
    metrics_.segments_sealed.set(static_cast<double>(sealed));
    metrics_.allocated_bytes.set(static_cast<double>(allocated_bytes));
}

// Which pool this is, each time: somebody may have begun it anew.
bool PeerPools::identify(const std::string& directory, Pool& pool) {
    const auto file = reader_.pool(directory);
    if (!file.ok() && file.status().code() == StatusCode::unavailable) {
        in_trouble(file.status());
        return false;
    }
    const bool usable = file.ok() && file->payload_bytes == geometry_.payload_bytes;
    if (!usable || (pool.usable && pool.uuid != file->uuid)) forget_all(pool);
    if (!usable && file.status().code() != StatusCode::not_found && trouble_.empty()) {
        trouble_ = file.ok() ? fmt::format("{}: holds blocks of {} bytes, these have {}", directory,
                                           file->payload_bytes, geometry_.payload_bytes)
                             : file.status().message();
    }
    pool.usable = usable;
    if (usable) pool.uuid = file->uuid;
    return usable;
}

void PeerPools::look_at(const std::string& directory, Pool& pool, bool full,
                        const std::set<std::uint64_t>& dropping) {
    if (!identify(directory, pool)) return;
    PoolListing listing;
    for (int i = 0; i < kTrafficClasses; ++i) {
        const Status listed =
            list_class_segments(reader_.files(), directory, static_cast<TrafficClass>(i),
                                full ? 0 : kNewestBuckets, listing);
        if (!listed.ok()) return in_trouble(listed);
    }
    for (auto& [path, known] : pool.segments)
        known.listed = false;
    for (const PoolSegmentFile& file : listing.segments) {
        if (stop_.load()) return;
        const auto [at, is_new] = pool.segments.try_emplace(file.path);
        at->second.listed = true;
        // What could not be used is looked at once more, by and by.
        if (is_new || (at->second.handle == 0 && full)) read_head(pool, file, dropping);
    }
    for (auto at = pool.segments.begin(); full && at != pool.segments.end();) {
        if (at->second.listed) {
            ++at;
            continue;
        }
        forget(at->second);
        pool.unsealed.erase(at->first);
        at = pool.segments.erase(at);
    }
    for (auto at = pool.unsealed.begin(); at != pool.unsealed.end();) {
        const bool ended = read_open(pool, *at, pool.segments[*at], dropping);
        at = ended ? pool.unsealed.erase(at) : std::next(at);
    }
}

void PeerPools::read_head(Pool& pool, const PoolSegmentFile& file,
                          const std::set<std::uint64_t>& dropping) {
    Known& known = pool.segments[file.path];
    known.allocated_bytes = kSegmentBytes;
    const auto opened = reader_.files().open(file.path, OpenMode::reading);
    if (!opened.ok()) {
        if (opened.status().code() != StatusCode::not_found) in_trouble(opened.status());
        return;
    }
    const auto head = reader_.head(*opened, file, pool.uuid, geometry_);
    const auto allocated = reader_.files().allocated_bytes(*opened);
    reader_.files().close(*opened);
    if (allocated.ok()) known.allocated_bytes = *allocated;
    if (!head.ok()) {
        if (head.status().code() == StatusCode::unavailable) in_trouble(head.status());
        // Not begun yet: it is looked at again with the next quick look.
        if (head.status().code() == StatusCode::not_found) pool.segments.erase(file.path);
        return;
    }
    known.handle = ++last_handle_;
    known.expiry_ms = head->header.expiry_unix_ms;
    known.place = {pool_low_bytes(pool.uuid), head->header.id, 0};
    PeerSegment segment;
    segment.path = file.path;
    segment.place = known.place;
    segment.bucket_start_ms = head->header.bucket_start_unix_ms;
    segment.expiry_ms = head->header.expiry_unix_ms;
    tell_([handle = known.handle, segment = std::move(segment)](SharedCore& core) {
        core.add_segment(handle, segment);
    });
    if (head->sealed) {
        take_footer(known, head->entries, dropping);
    } else {
        // Room is taken when a segment is begun, also where a file system does not say so.
        known.allocated_bytes = std::max(known.allocated_bytes, kSegmentBytes);
        pool.unsealed.insert(file.path);
    }
}

bool PeerPools::wanted(const FooterEntry& entry, const std::set<std::uint64_t>& dropping) const {
    const bool believed = !encrypted_only_ || (entry.flags & kFooterEncrypted) != 0;
    return (entry.flags & kFooterPresent) != 0 && believed && !dropping.contains(entry.ns_tag);
}

void PeerPools::take_footer(Known& known, const std::vector<FooterEntry>& entries,
                            const std::set<std::uint64_t>& dropping) {
    std::vector<PeerBlock> blocks;
    for (std::size_t slot = 0; slot < entries.size(); ++slot) {
        const FooterEntry& entry = entries[slot];
        if (!wanted(entry, dropping)) continue;
        blocks.push_back({entry.key, entry.ns_tag, static_cast<std::uint32_t>(slot)});
    }
    known.sealed = true;
    known.gaps.clear();
    tell_([handle = known.handle, blocks = std::move(blocks)](SharedCore& core) {
        core.seal(handle);
        core.add_blocks(handle, blocks);
    });
    if (++untold_ >= kFootersAhead) catch_up();
}

// True when it is not an open segment any more.
bool PeerPools::read_open(Pool& pool, const std::string& path, Known& known,
                          const std::set<std::uint64_t>& dropping) {
    // Opened anew for each look: network file systems bring a file up to date when it is opened.
    const auto file = reader_.files().open(path, OpenMode::reading);
    if (!file.ok()) {
        const bool gone = file.status().code() == StatusCode::not_found;
        if (gone) forget(known);
        if (!gone) in_trouble(file.status());
        return gone;
    }
    bool ended = false;
    if (reader_.has_footer(*file)) {
        const std::size_t name = path.rfind('/'), bucket = path.rfind('/', name - 1),
                          above = path.rfind('/', bucket - 1);
        const PoolSegmentFile parts{path, path.substr(above + 1, bucket - above - 1),
                                    path.substr(bucket + 1, name - bucket - 1),
                                    path.substr(name + 1)};
        const auto head = reader_.head(*file, parts, pool.uuid, geometry_);
        ended = head.ok() && head->sealed;
        if (ended) {
            const auto allocated = reader_.files().allocated_bytes(*file);
            if (allocated.ok()) known.allocated_bytes = *allocated;
            take_footer(known, head->entries, dropping);
        }
    }
    if (!ended) read_slots(*file, known, dropping);
    reader_.files().close(*file);
    return ended;
}

void PeerPools::read_slots(int file, Known& known, const std::set<std::uint64_t>& dropping) {
    std::vector<PeerBlock> blocks;
    std::vector<std::uint32_t> slots;
    for (const auto& [slot, looks] : known.gaps)
        slots.push_back(slot);
    const bool whole = std::exchange(known.whole, false);
    std::uint32_t next = known.next_slot, more = kFirstSlots;
    const auto end = static_cast<std::uint32_t>(geometry_.slots);
    while (true) {
        const std::uint32_t before = known.next_slot, until = std::min(next + more, end);
        for (; next < until; ++next)
            slots.push_back(next);
        const auto trailers = reader_.trailers(file, geometry_, known.place, slots);
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (!trailers[i]) continue;
            known.gaps.erase(slots[i]);
            for (; known.next_slot < slots[i]; ++known.next_slot)
                known.gaps.emplace(known.next_slot, 0);
            if (slots[i] >= known.next_slot) known.next_slot = slots[i] + 1;
            const FooterEntry entry = footer_entry(*trailers[i]);
            if (wanted(entry, dropping)) blocks.push_back({entry.key, entry.ns_tag, slots[i]});
        }
        if (next == end || (known.next_slot == before && !whole)) break;
        slots.clear();
        more = std::min(more * 4, kMostSlots);
    }
    for (auto at = known.gaps.begin(); at != known.gaps.end();)
        at = ++at->second > kGapLooks ? known.gaps.erase(at) : std::next(at);
    if (blocks.empty()) return;
    tell_([handle = known.handle, blocks = std::move(blocks)](SharedCore& core) {
        core.add_blocks(handle, blocks);
    });
}

void PeerPools::expect_wiped_slots() {
    for (auto& [directory, pool] : pools_)
        for (const std::string& path : pool.unsealed)
            if (const auto at = pool.segments.find(path); at != pool.segments.end())
                at->second.whole = true;
}

std::vector<PeerUsage> PeerPools::usage() const {
    std::vector<PeerUsage> all;
    for (const auto& [directory, pool] : pools_) {
        PeerUsage usage;
        usage.directory = directory;
        usage.unsealed = static_cast<std::int64_t>(pool.unsealed.size());
        for (const auto& [path, known] : pool.segments) {
            usage.allocated_bytes += known.allocated_bytes;
            std::int64_t& earliest = usage.earliest_expiry_unix_ms;
            if (known.sealed && (earliest == 0 || known.expiry_ms < earliest))
                earliest = known.expiry_ms;
        }
        all.push_back(std::move(usage));
    }
    return all;
}

}  // namespace fathom
