#include "pool/segment.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "pool/le_bytes.h"

namespace fathom {

namespace {

constexpr std::uint64_t kPoolMagic = 0x4c4f4f50'564b4c46;     // "FLKVPOOL"
constexpr std::uint64_t kSegmentMagic = 0x54474553'564b4c46;  // "FLKVSEGT"
constexpr std::uint64_t kFooterMagic = 0x544f4f46'564b4c46;   // "FLKVFOOT"
constexpr std::size_t kPageCrcAt = kPoolPageBytes - 4;

// Offsets within a page of POOL and within a header; magic 0, format 8, of both.
constexpr std::size_t kFormatAt = 8, kUuidAt = 16;
constexpr std::size_t kPoolPayloadAt = 32, kPoolSlotAt = 36, kPoolEpochAt = 40, kPoolCreatedAt = 48;
constexpr std::size_t kIdAt = 32, kClassAt = 40, kBucketAt = 48, kExpiryAt = 56, kPayloadAt = 64,
                      kSlotBytesAt = 68, kSlotsAt = 72, kWriterAt = 80;
// Within a footer's entry, and within its tail.
constexpr std::size_t kEntryTagAt = 32, kEntryCrcAt = 40, kEntryBytesAt = 44, kEntryTimeAt = 48,
                      kEntryFlagsAt = 52;
constexpr std::size_t kTailPoolAt = 8, kTailSegmentAt = 16, kTailCountAt = 24, kTailCrcAt = 28;

enum class PageState { intact, zero, damaged };

PageState page_state(std::span<const std::uint8_t> page, std::uint64_t magic) {
    if (all_zero(page)) return PageState::zero;
    const bool intact = load_le<std::uint64_t>(page, 0) == magic &&
                        load_le<std::uint32_t>(page, kPageCrcAt) == crc32c(page.first(kPageCrcAt));
    return intact ? PageState::intact : PageState::damaged;
}

void begin_page(std::span<std::uint8_t> page, std::uint64_t magic) {
    std::fill(page.begin(), page.end(), std::uint8_t{0});
    store_le(page, 0, magic);
    store_le(page, kFormatAt, kPoolFormat);
}

void end_page(std::span<std::uint8_t> page) {
    store_le(page, kPageCrcAt, crc32c(page.first(kPageCrcAt)));
}

std::size_t entries_bytes(const SlotGeometry& geometry) {
    return static_cast<std::size_t>(geometry.slots * kFooterEntryBytes);
}

}  // namespace

void write_pool_file(std::span<std::uint8_t> out, const PoolFile& pool) {
    FATHOM_CHECK(out.size() == kPoolFileBytes);
    const std::span<std::uint8_t> page = out.first(kPoolPageBytes);
    begin_page(page, kPoolMagic);
    store_le(page, kUuidAt, pool.uuid);
    store_le(page, kPoolPayloadAt, pool.payload_bytes);
    store_le(page, kPoolSlotAt, pool.slot_bytes);
    store_le(page, kPoolEpochAt, pool.epoch);
    store_le(page, kPoolCreatedAt, pool.created_unix_ms);
    end_page(page);
    std::copy(page.begin(), page.end(), out.begin() + kPoolPageBytes);
}

Result<PoolFile> read_pool_file(std::span<const std::uint8_t> bytes) {
    std::optional<PoolFile> best;
    for (std::size_t at = 0; at + kPoolPageBytes <= bytes.size() && at < kPoolFileBytes;
         at += kPoolPageBytes) {
        const std::span<const std::uint8_t> page = bytes.subspan(at, kPoolPageBytes);
        if (page_state(page, kPoolMagic) != PageState::intact) continue;
        const auto format = load_le<std::uint32_t>(page, kFormatAt);
        if (format != kPoolFormat) {
            return error(StatusCode::unsupported, "the pool has format {}, this program knows {}",
                         format, kPoolFormat);
        }
        PoolFile pool;
        pool.uuid = load_le<PoolUuid>(page, kUuidAt);
        pool.payload_bytes = load_le<std::uint32_t>(page, kPoolPayloadAt);
        pool.slot_bytes = load_le<std::uint32_t>(page, kPoolSlotAt);
        pool.epoch = load_le<std::uint64_t>(page, kPoolEpochAt);
        pool.created_unix_ms = load_le<std::int64_t>(page, kPoolCreatedAt);
        if (!best || pool.epoch > best->epoch) best = pool;
    }
    if (!best) return error(StatusCode::data_loss, "neither copy of the pool's page is intact");
    return *best;
}

std::uint64_t pool_low_bytes(const PoolUuid& uuid) {
    return load_le<std::uint64_t>(uuid, 0);
}

void write_segment_header(std::span<std::uint8_t> page, const SegmentHeader& header) {
    FATHOM_CHECK(page.size() == kPoolPageBytes);
    begin_page(page, kSegmentMagic);
    store_le(page, kUuidAt, header.pool);
    store_le(page, kIdAt, header.id);
    store_le(page, kClassAt, static_cast<std::uint8_t>(header.traffic_class));
    store_le(page, kBucketAt, header.bucket_start_unix_ms);
    store_le(page, kExpiryAt, header.expiry_unix_ms);
    store_le(page, kPayloadAt, header.payload_bytes);
    store_le(page, kSlotBytesAt, header.slot_bytes);
    store_le(page, kSlotsAt, header.slots);
    store_le(page, kWriterAt, header.writer);
    end_page(page);
}

Result<SegmentHeader> read_segment_header(std::span<const std::uint8_t> page) {
    if (page.size() < kPoolPageBytes) {
        return error(StatusCode::data_loss, "segment header: {} bytes, expected {}", page.size(),
                     kPoolPageBytes);
    }
    page = page.first(kPoolPageBytes);
    const PageState state = page_state(page, kSegmentMagic);
    if (state == PageState::zero) {
        return error(StatusCode::not_found, "segment header: was never written");
    }
    if (state == PageState::damaged) {
        return error(StatusCode::data_loss, "segment header: damaged, or of no segment");
    }
    const auto format = load_le<std::uint32_t>(page, kFormatAt);
    if (format != kPoolFormat) {
        return error(StatusCode::unsupported, "segment header: format {}, this program knows {}",
                     format, kPoolFormat);
    }
    const auto traffic_class = load_le<std::uint8_t>(page, kClassAt);
    if (traffic_class >= kTrafficClasses) {
        return error(StatusCode::data_loss, "segment header: class {} is not known", traffic_class);
    }
    SegmentHeader header;
    header.pool = load_le<PoolUuid>(page, kUuidAt);
    header.id = load_le<std::uint64_t>(page, kIdAt);
    header.traffic_class = static_cast<TrafficClass>(traffic_class);
    header.bucket_start_unix_ms = load_le<std::int64_t>(page, kBucketAt);
    header.expiry_unix_ms = load_le<std::int64_t>(page, kExpiryAt);
    header.payload_bytes = load_le<std::uint32_t>(page, kPayloadAt);
    header.slot_bytes = load_le<std::uint32_t>(page, kSlotBytesAt);
    header.slots = load_le<std::uint32_t>(page, kSlotsAt);
    header.writer = load_le<std::uint64_t>(page, kWriterAt);
    return header;
}

std::uint64_t namespace_tag(const NamespaceId& ns) {
    return load_le<std::uint64_t>(ns.bytes, 0);
}

FooterEntry footer_entry(const SlotTrailer& trailer) {
    std::array<std::uint8_t, sizeof(trailer.page_crcs)> crcs{};
    std::memcpy(crcs.data(), trailer.page_crcs.data(), crcs.size());
    return {
        .key = trailer.name.key,
        .ns_tag = namespace_tag(trailer.name.ns),
        .payload_crc = crc32c(crcs),
        .payload_bytes = trailer.payload_bytes,
        .written_unix_s = static_cast<std::uint32_t>(trailer.written_unix_ms / 1000),
        .flags = kFooterPresent | ((trailer.flags & kSlotEncrypted) != 0 ? kFooterEncrypted : 0U)};
}

std::int64_t footer_bytes(const SlotGeometry& geometry) {
    const std::int64_t bytes = geometry.slots * kFooterEntryBytes + kFooterTailBytes;
    return (bytes + kPoolPageBytes - 1) / kPoolPageBytes * kPoolPageBytes;
}

void write_footer(std::span<std::uint8_t> out, const SlotGeometry& geometry, const SlotPlace& place,
                  std::span<const FooterEntry> entries) {
    FATHOM_CHECK(out.size() == static_cast<std::size_t>(footer_bytes(geometry)));
    FATHOM_CHECK(entries.size() == static_cast<std::size_t>(geometry.slots));
    std::fill(out.begin(), out.end(), std::uint8_t{0});
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const FooterEntry& entry = entries[i];
        if ((entry.flags & kFooterPresent) == 0) continue;
        const std::span<std::uint8_t> at = out.subspan(i * kFooterEntryBytes, kFooterEntryBytes);
        store_le(at, 0, entry.key.bytes);
        store_le(at, kEntryTagAt, entry.ns_tag);
        store_le(at, kEntryCrcAt, entry.payload_crc);
        store_le(at, kEntryBytesAt, entry.payload_bytes);
        store_le(at, kEntryTimeAt, entry.written_unix_s);
        store_le(at, kEntryFlagsAt, entry.flags);
        ++count;
    }
    const std::size_t tail_at = entries_bytes(geometry);
    const std::span<std::uint8_t> tail = out.subspan(tail_at, kFooterTailBytes);
    store_le(tail, 0, kFooterMagic);
    store_le(tail, kTailPoolAt, place.pool);
    store_le(tail, kTailSegmentAt, place.segment);
    store_le(tail, kTailCountAt, count);
    store_le(tail, kTailCrcAt, crc32c(out.first(tail_at + kTailCrcAt)));
}

Result<std::vector<FooterEntry>> read_footer(std::span<const std::uint8_t> bytes,
                                             const SlotGeometry& geometry, const SlotPlace& place) {
    const std::size_t tail_at = entries_bytes(geometry);
    if (bytes.size() < tail_at + kFooterTailBytes) {
        return error(StatusCode::data_loss, "segment footer: it is cut short");
    }
    const std::span<const std::uint8_t> tail = bytes.subspan(tail_at, kFooterTailBytes);
    if (all_zero(tail)) return error(StatusCode::not_found, "segment footer: not sealed");
    if (load_le<std::uint64_t>(tail, 0) != kFooterMagic ||
        load_le<std::uint32_t>(tail, kTailCrcAt) != crc32c(bytes.first(tail_at + kTailCrcAt))) {
        return error(StatusCode::data_loss, "segment footer: its checksum does not match");
    }
    if (load_le<std::uint64_t>(tail, kTailPoolAt) != place.pool ||
        load_le<std::uint64_t>(tail, kTailSegmentAt) != place.segment) {
        return error(StatusCode::data_loss, "segment footer: it is another segment's");
    }
    std::vector<FooterEntry> entries(static_cast<std::size_t>(geometry.slots));
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::span<const std::uint8_t> at =
            bytes.subspan(i * kFooterEntryBytes, kFooterEntryBytes);
        const auto flags = load_le<std::uint32_t>(at, kEntryFlagsAt);
        if ((flags & kFooterPresent) == 0) continue;
        FooterEntry& entry = entries[i];
        entry.key.bytes = load_le<Sha256Digest>(at, 0);
        entry.ns_tag = load_le<std::uint64_t>(at, kEntryTagAt);
        entry.payload_crc = load_le<std::uint32_t>(at, kEntryCrcAt);
        entry.payload_bytes = load_le<std::uint32_t>(at, kEntryBytesAt);
        entry.written_unix_s = load_le<std::uint32_t>(at, kEntryTimeAt);
        entry.flags = flags;
        ++count;
    }
    if (count != load_le<std::uint32_t>(tail, kTailCountAt)) {
        return error(StatusCode::data_loss, "segment footer: {} blocks where it says {}", count,
                     load_le<std::uint32_t>(tail, kTailCountAt));
    }
    return entries;
}

std::string segment_file_name(std::uint64_t id) {
    return fmt::format("{:016x}.seg", id);
}

Result<std::uint64_t> parse_segment_file_name(std::string_view name) {
    constexpr std::size_t kDigits = 16;
    std::uint64_t id = 0;
    bool good = name.size() == kDigits + 4 && name.substr(kDigits) == ".seg";
    for (std::size_t i = 0; good && i < kDigits; ++i) {
        const char c = name[i];
        const bool digit = c >= '0' && c <= '9';
        good = digit || (c >= 'a' && c <= 'f');
        id = id << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
    if (!good) {
        return invalid_argument("'{}' is no segment's name: 16 hex digits and .seg", name);
    }
    return id;
}

}  // namespace fathom
