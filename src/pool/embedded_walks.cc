#include <algorithm>

#include "base/check.h"
#include "pool/embedded_core.h"

namespace fathom {

namespace {

constexpr std::int64_t kDropDepth = 16;  // of slots wiped at a time
constexpr std::int64_t kLookUs = 1'000'000;

}  // namespace

void EmbeddedCore::begin_walk(Walk walk) {
    for (Handle handle = static_cast<Handle>(segments_.size()); handle-- > 0;) {
        const Segment::State state = segments_[handle].state;
        if (state != Segment::State::none && state != Segment::State::dying)
            walk.todo.emplace_back(handle, segments_[handle].id);
    }
    walks_.push_back(std::move(walk));
    // A scrub of the background gives way.
    if (walks_.size() > 1 && walks_.front().call == nullptr) {
        walks_.front().todo.clear();
        walks_.front().slots.clear();
    }
}

void EmbeddedCore::begin_scrub(const std::shared_ptr<TaskCall>& call,
                               std::shared_ptr<ScrubReport> report) {
    watch(call);
    Walk walk;
    walk.call = call;
    walk.report = std::move(report);
    begin_walk(std::move(walk));
}

// Blocks on their way when a drop begins are wiped when they arrive (finish_write); what is put
// meanwhile is refused; all else is in some segment.
void EmbeddedCore::begin_drop(const std::shared_ptr<TaskCall>& call, const NamespaceId& ns) {
    watch(call);
    const std::uint64_t tag = namespace_tag(ns);
    dropping_.insert(tag);
    Walk walk;
    walk.call = call;
    walk.report = std::make_shared<ScrubReport>();
    walk.drop_tag = tag;
    // First of all: what cannot be wiped below does not open any more.
    if (options_.keys != nullptr) walk.status = options_.keys->destroy(ns);
    begin_walk(std::move(walk));
}

void EmbeddedCore::cut_short(Walk& walk) {
    if (walk.status.ok() && !(walk.todo.empty() && walk.slots.empty()))
        walk.status = error(StatusCode::unavailable,
                            "{}: the pool was closed before all of it was "
                            "gone through",
                            options_.directory);
    walk.todo.clear();
    walk.slots.clear();
}

void EmbeddedCore::next_segment() {
    walking_ = true;
    Walk& walk = walks_.front();
    if (closing_) cut_short(walk);
    std::size_t passed_over = 0;
    while (!walk.todo.empty()) {
        const auto [handle, id] = walk.todo.back();
        const Segment& segment = segments_[handle];
        const bool same = segment.id == id;
        const bool in_motion = same && (segment.state == Segment::State::sealing ||
                                        segment.state == Segment::State::creating);
        if (in_motion && walk.drop_tag) {
            if (++passed_over > walk.todo.size()) {
                walking_ = false;  // upkeep comes back to it
                return;
            }
            std::rotate(walk.todo.rbegin(), walk.todo.rbegin() + 1, walk.todo.rend());
            continue;
        }
        walk.todo.pop_back();
        const bool open = same && segment.state == Segment::State::open;
        if (!(same && segment.state == Segment::State::sealed) && !(open && walk.drop_tag))
            continue;
        walk.segment = handle;
        walk.footer_changed = false;
        pin(handle);
        return load_entries();
    }
    end_walk();
}

void EmbeddedCore::load_entries() {
    const Handle handle = walks_.front().segment;
    const Segment& segment = segments_[handle];
    if (segment.footer_kept) return take_entries({}, segment.entries);
    const auto file = file_of(handle);
    if (!file.ok()) return take_entries(file.status(), {});
    const std::int64_t bytes = footer_bytes(geometry_);
    const auto footer = aligned_bytes(bytes);
    start_io({.kind = IoKind::read,
              .file = *file,
              .offset = kPoolPageBytes,
              .bytes = bytes,
              .data = footer.get()},
             [this, handle, footer, bytes](std::int64_t result) {
                 const SlotPlace place{pool_low_bytes(pool_.uuid), segments_[handle].id, 0};
                 auto entries = read_footer(
                     {footer.get(), static_cast<std::size_t>(result == bytes ? bytes : 0)},
                     geometry_, place);
                 if (!entries.ok()) return take_entries(entries.status(), {});
                 take_entries({}, std::move(*entries));
             });
}

void EmbeddedCore::take_entries(Status status, std::vector<FooterEntry> entries) {
    Walk& walk = walks_.front();
    const std::string path = path_of(segments_[walk.segment]);
    walk.entries = std::move(entries);
    walk.slots.clear();
    if (!status.ok()) {
        metrics_.io_errors.add();
        // Nobody can say what is in it, so for a drop all of it goes; but who could not be read may
        // not be removed either.
        if (walk.drop_tag) kill(walk.segment, GcCause::drop);
        if (walk.status.ok()) walk.status = status.with_context(path);
        return leave_segment();
    }
    Segment& segment = segments_[walk.segment];
    for (std::size_t slot = walk.entries.size(); slot-- > 0;) {
        const FooterEntry& entry = walk.entries[slot];
        if ((entry.flags & kFooterPresent) == 0) continue;
        if (!walk.drop_tag) {
            walk.slots.push_back(static_cast<std::uint32_t>(slot));
        } else if (entry.ns_tag == *walk.drop_tag) {
            walk.slots.push_back(static_cast<std::uint32_t>(slot));
            forget(entry.key, {walk.segment, static_cast<std::uint16_t>(slot), 0});
            walk.entries[slot] = {};
            if (segment.footer_kept) segment.entries[slot] = {};
        }
    }
    for (const auto& [slot, tag] : segment.unwiped)
        if (walk.drop_tag && tag == *walk.drop_tag) walk.slots.push_back(slot);
    walk.footer_changed = walk.drop_tag && !walk.slots.empty();
    ++walk.report->segments;
    next_slot();
}

void EmbeddedCore::next_slot() {
    Walk& walk = walks_.front();
    if (closing_) cut_short(walk);
    if (walk.drop_tag) {
        while (!walk.slots.empty() && walk.in_flight < kDropDepth) {
            ++walk.in_flight;
            const std::uint32_t slot = walk.slots.back();
            walk.slots.pop_back();
            drop_slot(slot);
        }
        if (walk.in_flight == 0) leave_segment();
        return;
    }
    while (!walk.slots.empty()) {
        const std::uint32_t slot = walk.slots.back();
        const auto place = index_.find(walk.entries[slot].key);
        if (!place || place->segment != walk.segment || place->slot != slot) {
            walk.slots.pop_back();
            continue;
        }
        walk.paused = walk.call == nullptr && clock_.now_us() < scrub_after_us_;
        if (walk.paused) return;
        walk.slots.pop_back();
        return scrub_slot(slot);
    }
    leave_segment();
}

void EmbeddedCore::scrub_slot(std::uint32_t slot) {
    const Walk& walk = walks_.front();
    const Handle handle = walk.segment;
    const auto file = file_of(handle);
    const auto buffer = aligned_bytes(geometry_.slot_bytes);
    const BlockKey key = walk.entries[slot].key;
    const auto finish = [this, handle, slot, key, buffer](std::int64_t result) {
        Walk& of = walks_.front();
        const SlotPlace place{pool_low_bytes(pool_.uuid), segments_[handle].id, slot};
        SlotTrailer trailer;
        SlotFault fault = SlotFault::trailer;
        if (result == geometry_.slot_bytes) {
            fault = verify_slot({buffer.get(), static_cast<std::size_t>(result)}, geometry_, place,
                                nullptr, trailer);
        }
        const bool bad = fault != SlotFault::none || trailer.name.key != key;
        if (bad) {
            metrics_
                .faults[static_cast<std::size_t>(fault == SlotFault::none ? SlotFault::identity
                                                                          : fault)]
                ->add();
            damaged(key, {handle, static_cast<std::uint16_t>(slot), 0});
            ++of.report->bad_blocks;
            // For good, unless the disk merely did not give it this time, or it may be rebuilt.
            Segment& segment = segments_[handle];
            const bool for_good = result == geometry_.slot_bytes && options_.watcher == nullptr;
            of.footer_changed = of.footer_changed || for_good;
            if (for_good) of.entries[slot] = {};
            if (segment.footer_kept) segment.entries[slot] = of.entries[slot];
        }
        ++of.report->blocks;
        of.report->bytes += geometry_.slot_bytes;
        metrics_.scrub_blocks.add();
        metrics_.scrub_bytes.add(static_cast<std::uint64_t>(geometry_.slot_bytes));
        if (of.call == nullptr && options_.scrub_bytes_per_s > 0) {
            scrub_after_us_ =
                clock_.now_us() + geometry_.slot_bytes * 1'000'000 / options_.scrub_bytes_per_s;
        }
        next_slot();
    };
    if (!file.ok()) return finish(-1);
    start_io({.kind = IoKind::read,
              .file = *file,
              .offset = geometry_.slot_offset(slot),
              .bytes = geometry_.slot_bytes,
              .data = buffer.get()},
             finish);
}

// The block is out of the index and out of the footer that will be written; without its trailer no
// reader of slots believes it either.
void EmbeddedCore::drop_slot(std::uint32_t slot) {
    const Handle handle = walks_.front().segment;
    const std::int64_t from = geometry_.tail_offset();
    const std::int64_t bytes = geometry_.tail_bytes();
    const auto zeros = aligned_bytes(bytes);
    const auto file = file_of(handle);
    const auto finish = [this, zeros, bytes](std::int64_t result) {
        Walk& walk = walks_.front();
        --walk.in_flight;
        ++walk.report->blocks;
        if (result != bytes) {
            metrics_.io_errors.add();
            walk.wipe_failed = true;
        }
        next_slot();
    };
    if (!file.ok()) return finish(-1);
    start_io({.kind = IoKind::write,
              .file = *file,
              .offset = geometry_.slot_offset(slot) + from,
              .bytes = bytes,
              .data = zeros.get()},
             finish);
}

void EmbeddedCore::leave_segment() {
    Walk& walk = walks_.front();
    const Handle handle = walk.segment;
    Segment& segment = segments_[handle];
    if (segment.state == Segment::State::sealed) segment.scrubbed_ms = wall_ms_;
    const auto leave = [this, handle](bool done) {
        Walk& of = walks_.front();
        if (!done && of.status.ok()) {
            of.status =
                error(StatusCode::unavailable,
                      "{}: blocks that go cannot be wiped from the disk; they are not found "
                      "now, but may be when the pool is opened again: remove the file then",
                      path_of(segments_[handle]));
        }
        const bool sealed = segments_[handle].state == Segment::State::sealed;
        if (of.footer_changed && sealed && options_.watcher != nullptr)
            options_.watcher->rewritten(segments_[handle].id);
        if (done && of.drop_tag) {
            std::erase_if(segments_[handle].unwiped,
                          [&](const auto& slot) { return slot.second == *of.drop_tag; });
        }
        unpin(handle);
        next_segment();
    };
    if (!walk.footer_changed) return leave(true);
    const bool failed = std::exchange(walk.wipe_failed, false);
    const bool whole_file = segment.state == Segment::State::sealed && segment.live == 0;
    if (whole_file) kill(handle, GcCause::drop);
    const auto file = file_of(handle);
    if (!file.ok()) return leave(false);
    const auto sync = [this, leave, failed, file = *file](bool written) {
        start_io({.kind = IoKind::sync, .file = file},
                 [leave, failed, written](std::int64_t r) { leave(r >= 0 && written && !failed); });
    };
    if (segment.footer_kept) return sync(true);
    const std::int64_t bytes = footer_bytes(geometry_);
    const auto footer = aligned_bytes(bytes);
    write_footer({footer.get(), static_cast<std::size_t>(bytes)}, geometry_,
                 {pool_low_bytes(pool_.uuid), segment.id, 0}, walk.entries);
    start_io({.kind = IoKind::write,
              .file = *file,
              .offset = kPoolPageBytes,
              .bytes = bytes,
              .data = footer.get()},
             [sync, footer, bytes](std::int64_t result) { sync(result == bytes); });
}

bool EmbeddedCore::writing_of(std::uint64_t ns_tag) const {
    return std::any_of(writing_.begin(), writing_.end(),
                       [&](const auto& item) { return item.second == ns_tag; });
}

void EmbeddedCore::end_walk() {
    Walk& walk = walks_.front();
    if (walk.drop_tag && writing_of(*walk.drop_tag)) {
        walking_ = false;  // upkeep comes back to it
        return;
    }
    // What was wiped when it arrived must stay wiped.
    const auto left = std::make_shared<std::size_t>(1);
    const auto finish = [this, left](std::int64_t result) {
        Walk& of = walks_.front();
        if (result < 0 && of.status.ok()) {
            of.status = error(StatusCode::unavailable, "{}: cannot be synced (errno {})",
                              options_.directory, -result);
        }
        if (--*left > 0) return;
        const Walk ended = std::move(walks_.front());
        walks_.pop_front();
        walking_ = false;
        if (ended.drop_tag) dropping_.erase(*ended.drop_tag);
        if (ended.call == nullptr || ended.call->finished) return;
        end(*ended.call);
        std::exchange(ended.call->done, {})(ended.status);
    };
    for (const Writer& writer : writers_) {
        for (const Handle handle : {writer.current, writer.next}) {
            if (!walk.drop_tag || handle == kNoSegment ||
                segments_[handle].state != Segment::State::open)
                continue;
            ++*left;
            pin(handle);
            start_io({.kind = IoKind::sync, .file = segments_[handle].file},
                     [this, handle, finish](std::int64_t result) {
                         unpin(handle);
                         finish(result);
                     });
        }
    }
    finish(0);
}

// Every sealed segment is read once in half its life (kvpool.md 7).
void EmbeddedCore::scrub_in_background() {
    const std::int64_t now_us = clock_.now_us();
    if (walking_ && walks_.front().paused) {
        // Nobody waits for its pace: neither a walk behind it nor a segment that is to go.
        Walk& walk = walks_.front();
        const bool goes = segments_[walk.segment].state == Segment::State::dying;
        if (goes) walk.slots.clear();
        if (now_us < scrub_after_us_ && walks_.size() == 1 && !goes && !closing_) return;
        walk.paused = false;
        return next_slot();
    }
    if (!walks_.empty() || closing_ || options_.scrub_bytes_per_s <= 0 || now_us < scrub_after_us_)
        return;
    scrub_after_us_ = now_us + kLookUs;
    for (const auto& [expiry_ms, handle] : by_expiry_) {
        const Segment& segment = segments_[handle];
        const ClassLife& life = options_.lives[static_cast<std::size_t>(segment.traffic_class)];
        if (wall_ms_ - segment.scrubbed_ms < life.ttl_ms / 2) continue;
        Walk walk;
        walk.report = std::make_shared<ScrubReport>();
        walk.todo.emplace_back(handle, segment.id);
        walks_.push_back(std::move(walk));
        return next_segment();
    }
}

}  // namespace fathom
