#include "pool/pool_survey.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "pool/le_bytes.h"
#include "pool/slot_buffers.h"
#include "pool/slot_keys.h"

namespace fathom {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDepth = 16;
constexpr std::size_t kBadListed = 1000;
constexpr std::int64_t kLookUs = 50'000;
constexpr std::int64_t kSettleUs = 200'000;  // longer than a write under way takes

Status ended() {
    return Status(StatusCode::cancelled, "interrupted; nothing was changed");
}

// A segment that can be read, with what it says of its slots.
struct OpenSegment {
    PoolSegmentFile of;
    int file = -1;
    SegmentHeader header;
    bool sealed = false;
    std::vector<FooterEntry> entries;
};

class SegmentVisitor {
  public:
    SegmentVisitor(PoolReader& reader, const std::string& directory)
        : reader_(reader), directory_(directory) {}

    Status begin() {
        auto pool = reader_.pool(directory_);
        if (!pool.ok() && pool.status().code() == StatusCode::not_found)
            return error(StatusCode::not_found,
                         "{}: is no pool: it has no POOL file; name the directory that pool.dir "
                         "names",
                         directory_);
        if (!pool.ok()) return pool.status();
        pool_ = *pool;
        FATHOM_ASSIGN(geometry_, slot_geometry(pool_.payload_bytes));
        if (geometry_.slot_bytes != pool_.slot_bytes)
            return error(StatusCode::data_loss, "{}/POOL: slots of {} bytes for blocks of {}",
                         directory_, pool_.slot_bytes, pool_.payload_bytes);
        FATHOM_ASSIGN(listing_, list_pool_segments(reader_.files(), directory_));
        return {};
    }

    // Nothing when the file vanished or is no segment; that is noted.
    std::optional<OpenSegment> open(const PoolSegmentFile& of, std::vector<std::string>& strange) {
        const auto file = reader_.files().open(of.path, OpenMode::reading);
        if (!file.ok()) {
            if (file.status().code() != StatusCode::not_found)
                strange.push_back(file.status().message());
            return std::nullopt;
        }
        auto head = reader_.head(*file, of, pool_.uuid, geometry_);
        if (!head.ok()) {
            reader_.files().close(*file);
            if (head.status().code() == StatusCode::not_found) {
                ++unbegun_;
            } else {
                strange.push_back(of.path + ": " + head.status().message());
            }
            return std::nullopt;
        }
        OpenSegment segment{of, *file, head->header, head->sealed, std::move(head->entries)};
        if (!segment.sealed) read_trailers(segment);
        return segment;
    }
    void close(const OpenSegment& segment) { reader_.files().close(segment.file); }

    SlotPlace place(const OpenSegment& segment, std::uint32_t slot) const {
        return {pool_low_bytes(pool_.uuid), segment.header.id, slot};
    }
    PoolReader& reader() { return reader_; }
    const PoolFile& pool() const { return pool_; }
    const SlotGeometry& geometry() const { return geometry_; }
    const std::vector<PoolSegmentFile>& files() const { return listing_.segments; }
    std::int64_t unbegun() const { return unbegun_; }

  private:
    void read_trailers(OpenSegment& segment) {
        std::vector<std::uint32_t> slots(static_cast<std::size_t>(geometry_.slots));
        for (std::uint32_t i = 0; i < slots.size(); ++i)
            slots[i] = i;
        const auto trailers = reader_.trailers(segment.file, geometry_, place(segment, 0), slots);
        segment.entries.assign(slots.size(), {});
        for (std::size_t i = 0; i < slots.size(); ++i)
            if (trailers[i]) segment.entries[i] = footer_entry(*trailers[i]);
    }

    PoolReader& reader_;
    const std::string directory_;
    PoolFile pool_;
    SlotGeometry geometry_;
    PoolListing listing_;
    std::int64_t unbegun_ = 0;  // files whose header was never written
};

bool present(const FooterEntry& entry) {
    return (entry.flags & kFooterPresent) != 0;
}

void widen(std::int64_t& first, std::int64_t& last, std::int64_t value) {
    if (first == 0 || value < first) first = value;
    last = std::max(last, value);
}

void add_segment(PoolSurvey& survey, const OpenSegment& segment, std::int64_t allocated_bytes,
                 std::int64_t now_ms) {
    auto& of = survey.classes[static_cast<std::size_t>(segment.header.traffic_class)];
    ++of.segments;
    of.unsealed += segment.sealed ? 0 : 1;
    of.expired += segment.header.expiry_unix_ms <= now_ms ? 1 : 0;
    of.allocated_bytes += allocated_bytes;
    widen(of.first_expiry_unix_ms, of.last_expiry_unix_ms, segment.header.expiry_unix_ms);
    for (const FooterEntry& entry : segment.entries) {
        if (!present(entry)) continue;
        ++of.blocks;
        widen(of.oldest_unix_s, of.newest_unix_s, entry.written_unix_s);
        auto& ns = survey.namespaces[namespace_tag_text(entry.ns_tag)];
        ++ns.blocks;
        ns.encrypted += (entry.flags & kFooterEncrypted) != 0 ? 1 : 0;
    }
}

void add_lost(PoolSurvey& survey) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(survey.directory + "/lost", failed)) {
        struct stat facts {};
        if (::stat(entry.path().c_str(), &facts) != 0) continue;
        ++survey.lost_files;
        survey.lost_bytes += static_cast<std::int64_t>(facts.st_blocks) * 512;
    }
}

// Reads slots of segments and judges them.
class Checker {
  public:
    Checker(SegmentVisitor& visitor, const Clock& clock, const PoolCheckOptions& options)
        : visitor_(visitor),
          clock_(clock),
          options_(options),
          memory_(aligned_bytes(visitor.geometry().slot_bytes * static_cast<std::int64_t>(kDepth))),
          begun_us_(clock.now_us()),
          total_bytes_(static_cast<std::int64_t>(visitor.files().size()) * kSegmentBytes) {}

    Status check(const PoolSegmentFile& of) {
        auto segment = visitor_.open(of, result_.strange);
        if (!segment) return go_on();
        ++result_.segments;
        std::vector<std::uint32_t> slots;
        for (std::uint32_t i = 0; i < segment->entries.size(); ++i)
            if (present(segment->entries[i])) slots.push_back(i);
        result_.blocks += static_cast<std::int64_t>(slots.size());
        if (!segment->sealed) {
            ++result_.open_segments;
            result_.open_blocks += static_cast<std::int64_t>(slots.size());
        }
        auto suspects = read(*segment, slots, true);
        visitor_.close(*segment);
        if (!suspects.ok()) return suspects.status();
        done_bytes_ += kSegmentBytes;
        if (suspects->empty()) return go_on();
        return look_again(of, *suspects);
    }
    // Behind the last segment. What is bad counts unless a later copy is there, which is what a
    // store finds.
    Result<PoolCheck> take() {
        if (!bad_.empty()) FATHOM_RETURN_IF_ERROR(find_replaced());
        for (const auto& [key, copies] : bad_) {
            for (const Bad& bad : copies) {
                ++result_.bad_blocks;
                if (result_.bad.size() < kBadListed) result_.bad.push_back(bad.where);
            }
        }
        std::sort(result_.bad.begin(), result_.bad.end(), [](const BadSlot& a, const BadSlot& b) {
            return std::tie(a.path, a.slot) < std::tie(b.path, b.slot);
        });
        return std::move(result_);
    }

  private:
    using Faults = std::map<std::uint32_t, SlotFault>;
    // Of copies of a block the one with the highest is found (embedded_recovery.cc): when it ends,
    // segment, slot.
    using Rank = std::tuple<std::int64_t, std::uint64_t, std::uint32_t>;
    struct Bad {
        Rank rank;
        BadSlot where;
    };

    Status find_replaced() {
        for (const PoolSegmentFile& of : visitor_.files()) {
            std::vector<std::string> seen;
            auto segment = visitor_.open(of, seen);
            if (!segment) continue;
            for (std::uint32_t slot = 0; slot < segment->entries.size(); ++slot) {
                if (!present(segment->entries[slot])) continue;
                const auto copies = bad_.find(segment->entries[slot].key.bytes);
                if (copies == bad_.end()) continue;
                const Rank here = rank(*segment, slot);
                result_.replaced_blocks += static_cast<std::int64_t>(
                    std::erase_if(copies->second, [&](const Bad& bad) { return bad.rank < here; }));
            }
            visitor_.close(*segment);
            FATHOM_RETURN_IF_ERROR(go_on());
        }
        return {};
    }

    // A writer may have been at it, or the owner dropped it meanwhile.
    Status look_again(const PoolSegmentFile& of, const Faults& suspects) {
        visitor_.reader().files().wait(done_, kSettleUs);
        std::vector<std::string> seen;
        auto segment = visitor_.open(of, seen);
        if (!segment) return go_on();
        std::vector<std::uint32_t> slots;
        for (const auto& [slot, fault] : suspects)
            if (present(segment->entries[slot])) slots.push_back(slot);
        const auto bad = read(*segment, slots, false);
        visitor_.close(*segment);
        if (!bad.ok()) return bad.status();
        for (const auto& [slot, fault] : *bad)
            bad_[segment->entries[slot].key.bytes].push_back(
                {rank(*segment, slot), {of.path, slot, fault}});
        return go_on();
    }

    static Rank rank(const OpenSegment& segment, std::uint32_t slot) {
        return {segment.header.expiry_unix_ms, segment.header.id, slot};
    }

    Result<Faults> read(const OpenSegment& segment, const std::vector<std::uint32_t>& slots,
                        bool counted) {
        const SlotGeometry& geometry = visitor_.geometry();
        FileLayer& files = visitor_.reader().files();
        const std::size_t depth =
            std::min(kDepth, static_cast<std::size_t>(std::max(files.depth(), 1)));
        Faults faults;
        for (std::size_t begin = 0; begin < slots.size(); begin += depth) {
            const std::size_t end = std::min(begin + depth, slots.size());
            for (std::size_t i = begin; i < end; ++i) {
                files.submit({.kind = IoKind::read,
                              .file = segment.file,
                              .offset = geometry.slot_offset(slots[i]),
                              .bytes = geometry.slot_bytes,
                              .data = piece(i - begin),
                              .tag = i});
            }
            done_.clear();
            while (done_.size() < end - begin)
                files.wait(done_, kLookUs);
            for (const IoDone& done : done_) {
                const std::uint32_t slot = slots[done.tag];
                const SlotFault fault = done.result == geometry.slot_bytes
                                            ? judge(segment, slot, piece(done.tag - begin), counted)
                                            : SlotFault::trailer;
                if (fault != SlotFault::none) faults[slot] = fault;
            }
            const auto bytes = static_cast<std::int64_t>(end - begin) * geometry.slot_bytes;
            if (counted) result_.bytes += bytes;
            read_bytes_ += bytes;
            FATHOM_RETURN_IF_ERROR(pace(static_cast<std::int64_t>(end) * geometry.slot_bytes));
        }
        return faults;
    }

    SlotFault judge(const OpenSegment& segment, std::uint32_t slot, std::uint8_t* bytes,
                    bool counted) {
        const SlotGeometry& geometry = visitor_.geometry();
        const std::span<std::uint8_t> whole(bytes, static_cast<std::size_t>(geometry.slot_bytes));
        SlotTrailer trailer;
        const SlotFault fault =
            verify_slot(whole, geometry, visitor_.place(segment, slot), nullptr, trailer);
        if (fault != SlotFault::none) return fault;
        if (footer_entry(trailer) != segment.entries[slot]) return SlotFault::identity;
        if ((trailer.flags & kSlotEncrypted) == 0) return SlotFault::none;
        result_.encrypted += counted ? 1 : 0;
        if (options_.keys == nullptr || !options_.keys->find(trailer.name.ns).ok())
            return SlotFault::none;
        result_.opened += counted ? 1 : 0;
        return open_slot(whole, geometry, trailer.place, trailer.name, {options_.keys, true},
                         trailer);
    }

    Status pace(std::int64_t of_segment_bytes) {
        FileLayer& files = visitor_.reader().files();
        for (;;) {
            const bool on = !options_.progress ||
                            options_.progress(done_bytes_ + of_segment_bytes, total_bytes_);
            if (!on) return ended();
            if (options_.bytes_per_s <= 0) return {};
            const double due_s =
                static_cast<double>(read_bytes_) / static_cast<double>(options_.bytes_per_s);
            const std::int64_t left_us =
                begun_us_ + static_cast<std::int64_t>(due_s * 1e6) - clock_.now_us();
            if (left_us <= 0) return {};
            done_.clear();
            files.wait(done_, std::min(left_us, kLookUs));
        }
    }
    Status go_on() {
        return !options_.progress || options_.progress(done_bytes_, total_bytes_) ? Status()
                                                                                  : ended();
    }
    std::uint8_t* piece(std::size_t i) {
        return memory_.get() + static_cast<std::size_t>(visitor_.geometry().slot_bytes) * i;
    }

    SegmentVisitor& visitor_;
    const Clock& clock_;
    const PoolCheckOptions& options_;
    const std::shared_ptr<std::uint8_t> memory_;
    const std::int64_t begun_us_, total_bytes_;
    std::int64_t done_bytes_ = 0, read_bytes_ = 0;
    std::vector<IoDone> done_;
    std::map<Sha256Digest, std::vector<Bad>> bad_;  // by key
    PoolCheck result_;
};

}  // namespace

std::string namespace_tag_text(std::uint64_t ns_tag) {
    std::array<std::uint8_t, sizeof(ns_tag)> bytes{};
    store_le(std::span<std::uint8_t>(bytes), 0, ns_tag);
    return hex_text(bytes);
}

PoolSurvey::PerClass PoolSurvey::total() const {
    PerClass sum;
    for (const PerClass& of : classes) {
        sum.segments += of.segments;
        sum.unsealed += of.unsealed;
        sum.expired += of.expired;
        sum.blocks += of.blocks;
        sum.allocated_bytes += of.allocated_bytes;
        if (of.segments > 0) {
            widen(sum.first_expiry_unix_ms, sum.last_expiry_unix_ms, of.first_expiry_unix_ms);
            widen(sum.first_expiry_unix_ms, sum.last_expiry_unix_ms, of.last_expiry_unix_ms);
        }
        if (of.blocks > 0) {
            widen(sum.oldest_unix_s, sum.newest_unix_s, of.oldest_unix_s);
            widen(sum.oldest_unix_s, sum.newest_unix_s, of.newest_unix_s);
        }
    }
    return sum;
}

Result<PoolSurvey> survey_pool(PoolReader& reader, const std::string& directory, const Clock& clock,
                               const SurveyProgress& progress) {
    SegmentVisitor visitor(reader, directory);
    FATHOM_RETURN_IF_ERROR(visitor.begin());
    PoolSurvey survey;
    survey.directory = directory;
    survey.pool = visitor.pool();
    survey.holder = pool_holder(directory);
    add_lost(survey);
    std::int64_t done = 0;
    for (const PoolSegmentFile& of : visitor.files()) {
        if (progress && !progress(done++, static_cast<std::int64_t>(visitor.files().size())))
            return ended();
        const auto segment = visitor.open(of, survey.strange);
        if (!segment) continue;
        const auto bytes = reader.files().allocated_bytes(segment->file);
        add_segment(survey, *segment, bytes.ok() ? *bytes : 0, clock.wall_unix_ms());
        visitor.close(*segment);
    }
    return survey;
}

Result<PoolCheck> check_pool(PoolReader& reader, const std::string& directory, const Clock& clock,
                             const PoolCheckOptions& options) {
    SegmentVisitor visitor(reader, directory);
    FATHOM_RETURN_IF_ERROR(visitor.begin());
    Checker checker(visitor, clock, options);
    std::string holder = pool_holder(directory);
    for (const PoolSegmentFile& of : visitor.files())
        FATHOM_RETURN_IF_ERROR(checker.check(of));
    const std::int64_t unbegun = visitor.unbegun();
    FATHOM_ASSIGN(PoolCheck check, checker.take());
    check.unbegun_segments = unbegun;
    check.holder = std::move(holder);
    return check;
}

// Of /proc/locks, since trying the lock would be in the way of who wants it just then.
std::string pool_holder(const std::string& directory) {
    const std::string path = directory + "/LOCK";
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) return {};
    std::string note;
    std::getline(std::ifstream(path), note);
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        long pid = 0;
        unsigned major_number = 0, minor_number = 0;
        std::uint64_t inode = 0;
        char kind[16] = {};
        if (std::sscanf(line.c_str(), "%*s %15s %*s %*s %ld %x:%x:%" SCNu64, kind, &pid,
                        &major_number, &minor_number, &inode) != 5)
            continue;
        const std::string who = fmt::format("process {}", pid);
        const bool device =
            major_number == major(facts.st_dev) && minor_number == minor(facts.st_dev);
        if (std::string_view(kind) != "FLOCK" || inode != facts.st_ino) continue;
        if (device || note == who) return note.empty() ? who : note;
    }
    return {};
}

}  // namespace fathom
