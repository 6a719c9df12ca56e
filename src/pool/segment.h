// What a directory of segments says about itself (kvpool.md 5.1): POOL, and the two ends of a
// segment's life, its header at creation and its footer when it is sealed.
//
//   POOL     two pages, each a whole copy: which pool this is, what its blocks are, how often it
//            was opened
//   header   page 0: whose segment, for whom, until when
//   footer   from page 1: an entry of 64 bytes for every slot, then 32 bytes that name the segment
//            and sum it all up
//
// Everything is summed by CRC32C; a reader believes a whole page or footer or nothing of it. Pure
// functions over bytes; all numbers little-endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/slot.h"

namespace fathom {

inline constexpr std::uint32_t kPoolFormat = 1;
inline constexpr std::int64_t kPoolFileBytes = 2 * kPoolPageBytes;

struct PoolFile {
    PoolUuid uuid{};
    std::uint32_t payload_bytes = 0;
    std::uint32_t slot_bytes = 0;
    // Rises by one whenever the pool is opened to be written: segment ids begin with it, so none
    // is ever used twice.
    std::uint64_t epoch = 0;
    std::int64_t created_unix_ms = 0;
    friend bool operator==(const PoolFile&, const PoolFile&) = default;
};
// Both copies. `out` has kPoolFileBytes.
void write_pool_file(std::span<std::uint8_t> out, const PoolFile& pool);
// The better copy: an intact one, of the later epoch. data_loss when neither is intact; unsupported
// when an intact one is of a format that this program does not know.
Result<PoolFile> read_pool_file(std::span<const std::uint8_t> bytes);

std::uint64_t pool_low_bytes(const PoolUuid& uuid);  // SlotPlace::pool

struct SegmentHeader {
    PoolUuid pool{};
    std::uint64_t id = 0;
    TrafficClass traffic_class = TrafficClass::agent;
    std::int64_t bucket_start_unix_ms = 0;
    std::int64_t expiry_unix_ms = 0;
    std::uint32_t payload_bytes = 0;
    std::uint32_t slot_bytes = 0;
    std::uint32_t slots = 0;
    std::uint64_t writer = 0;
    friend bool operator==(const SegmentHeader&, const SegmentHeader&) = default;
};
// A page of kPoolPageBytes.
void write_segment_header(std::span<std::uint8_t> page, const SegmentHeader& header);
// not_found when the page is all zero (a segment that never began), data_loss when it is damaged,
// unsupported when it is intact and of a later format.
Result<SegmentHeader> read_segment_header(std::span<const std::uint8_t> page);

enum FooterFlags : std::uint32_t { kFooterPresent = 1, kFooterEncrypted = 2 };

struct FooterEntry {
    BlockKey key;
    std::uint64_t ns_tag = 0;       // the first 8 bytes of the namespace
    std::uint32_t payload_crc = 0;  // CRC32C of the trailer's page checksums
    std::uint32_t payload_bytes = 0;
    std::uint32_t written_unix_s = 0;
    std::uint32_t flags = 0;  // FooterFlags; an entry of zeros is a slot without a block
    friend bool operator==(const FooterEntry&, const FooterEntry&) = default;
};
std::uint64_t namespace_tag(const NamespaceId& ns);
// What the footer says of a block whose trailer this is.
FooterEntry footer_entry(const SlotTrailer& trailer);

// Of a footer as it is read and written: whole pages.
std::int64_t footer_bytes(const SlotGeometry& geometry);
// `entries` has one for each slot; `out` has footer_bytes.
void write_footer(std::span<std::uint8_t> out, const SlotGeometry& geometry, const SlotPlace& place,
                  std::span<const FooterEntry> entries);
// An entry for each slot. not_found when it is all zero (not sealed), data_loss when it is damaged
// or another segment's. `place` names pool and segment.
Result<std::vector<FooterEntry>> read_footer(std::span<const std::uint8_t> bytes,
                                             const SlotGeometry& geometry, const SlotPlace& place);

// "0000000100000002.seg", and back; invalid_argument for any other name.
std::string segment_file_name(std::uint64_t id);
Result<std::uint64_t> parse_segment_file_name(std::string_view name);

}  // namespace fathom
