#include "pool/pool_files.h"

#include <algorithm>
#include <utility>

#include "pool/slot_buffers.h"

namespace fathom {

namespace {

constexpr std::int64_t kLookUs = 50'000;
constexpr std::size_t kReadsAtATime = 32;

bool gone(const Status& status) {
    return status.code() == StatusCode::not_found;
}

std::size_t as_size(std::int64_t bytes) {
    return static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0));
}

}  // namespace

std::string segment_path(const std::string& directory, TrafficClass traffic_class,
                         std::int64_t bucket_start_unix_ms, std::uint64_t id) {
    return fmt::format("{}/seg/{}/{}/{}", directory, traffic_class_name(traffic_class),
                       bucket_start_unix_ms / 1000, segment_file_name(id));
}

Status list_class_segments(FileLayer& files, const std::string& directory,
                           TrafficClass traffic_class, std::size_t newest, PoolListing& listing) {
    const std::string class_name(traffic_class_name(traffic_class));
    const std::string above = directory + "/seg/" + class_name;
    auto buckets = files.list(above);
    if (!buckets.ok()) return gone(buckets.status()) ? Status() : buckets.status();
    std::erase_if(*buckets, [](const FileName& bucket) { return !bucket.directory; });
    // Numbers of seconds, of equal length for the next two centuries: names are in order of time.
    if (newest > 0 && buckets->size() > newest)
        buckets->erase(buckets->begin(), buckets->end() - static_cast<std::ptrdiff_t>(newest));
    for (const FileName& bucket : *buckets) {
        const std::string folder = above + "/" + bucket.name;
        const auto names = files.list(folder);
        if (!names.ok() && gone(names.status())) continue;
        if (!names.ok()) return names.status();
        for (const FileName& name : *names) {
            if (name.directory) continue;
            listing.segments.push_back(
                {folder + "/" + name.name, class_name, bucket.name, name.name});
        }
        if (names->empty()) listing.empty_buckets.push_back(folder);
    }
    return {};
}

Result<PoolListing> list_pool_segments(FileLayer& files, const std::string& directory) {
    PoolListing listing;
    for (int i = 0; i < kTrafficClasses; ++i) {
        FATHOM_RETURN_IF_ERROR(
            list_class_segments(files, directory, static_cast<TrafficClass>(i), 0, listing));
    }
    return listing;
}

namespace {

bool holds_pool(const std::vector<FileName>& names) {
    return std::any_of(names.begin(), names.end(),
                       [](const FileName& name) { return !name.directory && name.name == "POOL"; });
}

}  // namespace

Result<std::vector<std::string>> pool_directories(FileLayer& files, const std::string& directory) {
    std::vector<std::string> found;
    FATHOM_ASSIGN(const std::vector<FileName> names, files.list(directory));
    bool peers = false;
    for (const FileName& name : names) {
        if (!name.directory && name.name == "POOL") found.push_back(directory);
        peers = peers || (name.directory && name.name == "peers");
    }
    if (!peers) return found;
    FATHOM_ASSIGN(const std::vector<FileName> others, files.list(directory + "/peers"));
    for (const FileName& name : others) {
        if (!name.directory) continue;
        // What cannot be looked into is reported by who tries to read it; what has no POOL is not
        // one, or not yet.
        std::string peer = directory + "/peers/" + name.name;
        const auto inside = files.list(peer);
        if (!inside.ok() || holds_pool(*inside)) found.push_back(std::move(peer));
    }
    return found;
}

std::int64_t segment_head_bytes(const SlotGeometry& geometry) {
    return kPoolPageBytes + footer_bytes(geometry);
}

Result<SegmentHead> judge_segment_head(std::span<const std::uint8_t> head,
                                       const PoolSegmentFile& file, const PoolUuid& pool,
                                       const SlotGeometry& geometry) {
    FATHOM_ASSIGN(const std::uint64_t id, parse_segment_file_name(file.name));
    if (head.empty())
        return error(StatusCode::not_found, "{}: the segment was never begun", file.path);
    SegmentHead found;
    auto header = read_segment_header(head);
    if (!header.ok()) {
        const bool damaged = header.status().code() == StatusCode::data_loss;
        return damaged ? invalid_argument("{}", header.status().message()) : header.status();
    }
    found.header = *header;
    if (header->pool != pool) return invalid_argument("it is of another pool");
    const bool here = file.traffic_class == traffic_class_name(header->traffic_class) &&
                      file.bucket == std::to_string(header->bucket_start_unix_ms / 1000);
    if (header->id != id || !here || header->slots != geometry.slots ||
        header->slot_bytes != geometry.slot_bytes)
        return invalid_argument("its header names another file or another size of block");
    auto entries = read_footer(head.subspan(std::min(as_size(kPoolPageBytes), head.size())),
                               geometry, {pool_low_bytes(pool), id, 0});
    found.sealed = entries.ok();
    if (entries.ok()) found.entries = std::move(*entries);
    return found;
}

Result<SlotTrailer> judge_slot_tail(std::span<const std::uint8_t> tail,
                                    const SlotGeometry& geometry, const SlotPlace& place,
                                    SlotFault& fault) {
    const std::size_t skip = as_size(geometry.payload_bytes - geometry.tail_offset());
    FATHOM_ASSIGN(SlotTrailer trailer,
                  read_trailer(tail.subspan(std::min(skip, tail.size())), fault));
    if (trailer.place == place && trailer.payload_bytes == geometry.payload_bytes) return trailer;
    fault = SlotFault::place;
    return error(StatusCode::data_loss, "slot {}: its trailer is of another place", place.slot);
}

std::int64_t PoolReader::perform(IoRequest request) {
    files_->submit(std::move(request));
    done_.clear();
    while (done_.empty())
        files_->wait(done_, kLookUs);
    return done_.front().result;
}

Result<PoolFile> PoolReader::pool(const std::string& directory) {
    const std::string path = directory + "/POOL";
    FATHOM_ASSIGN(const int file, files_->open(path, OpenMode::reading));
    const auto bytes = aligned_bytes(kPoolFileBytes);
    const std::int64_t got = perform({.file = file, .bytes = kPoolFileBytes, .data = bytes.get()});
    files_->close(file);
    if (got < 0) return error(StatusCode::unavailable, "{}: cannot be read (errno {})", path, -got);
    auto pool = read_pool_file({bytes.get(), as_size(got)});
    return pool.ok() ? pool : Result<PoolFile>(pool.status().with_context(path));
}

Result<SegmentHead> PoolReader::head(int file, const PoolSegmentFile& of, const PoolUuid& pool,
                                     const SlotGeometry& geometry) {
    const std::int64_t bytes = segment_head_bytes(geometry);
    const auto head = aligned_bytes(bytes);
    const std::int64_t got = perform({.file = file, .bytes = bytes, .data = head.get()});
    if (got < 0)
        return error(StatusCode::unavailable, "{}: cannot be read (errno {})", of.path, -got);
    return judge_segment_head({head.get(), as_size(got)}, of, pool, geometry);
}

bool PoolReader::has_footer(int file) {
    const auto page = aligned_bytes(kPoolPageBytes);
    const std::int64_t got = perform(
        {.file = file, .offset = kPoolPageBytes, .bytes = kPoolPageBytes, .data = page.get()});
    return got > 0 &&
           std::any_of(page.get(), page.get() + got, [](std::uint8_t byte) { return byte != 0; });
}

std::vector<std::optional<SlotTrailer>> PoolReader::trailers(int file, const SlotGeometry& geometry,
                                                             const SlotPlace& segment,
                                                             std::span<const std::uint32_t> slots) {
    std::vector<std::optional<SlotTrailer>> found(slots.size());
    const std::int64_t bytes = geometry.tail_bytes();
    const std::size_t depth = std::clamp<std::size_t>(as_size(files_->depth()), 1, kReadsAtATime);
    const auto memory = aligned_bytes(bytes * static_cast<std::int64_t>(depth));
    const auto piece = [&](std::size_t i) { return memory.get() + as_size(bytes) * (i % depth); };
    for (std::size_t begin = 0; begin < slots.size(); begin += depth) {
        const std::size_t end = std::min(begin + depth, slots.size());
        for (std::size_t i = begin; i < end; ++i) {
            files_->submit({.kind = IoKind::read,
                            .file = file,
                            .offset = geometry.slot_offset(slots[i]) + geometry.tail_offset(),
                            .bytes = bytes,
                            .data = piece(i),
                            .tag = i});
        }
        done_.clear();
        while (done_.size() < end - begin)
            files_->wait(done_, kLookUs);
        for (const IoDone& done : done_) {
            if (done.result != bytes) continue;
            SlotPlace place = segment;
            place.slot = slots[done.tag];
            SlotFault fault = SlotFault::none;
            auto trailer =
                judge_slot_tail({piece(done.tag), as_size(bytes)}, geometry, place, fault);
            if (trailer.ok()) found[done.tag] = *trailer;
        }
    }
    return found;
}

}  // namespace fathom
