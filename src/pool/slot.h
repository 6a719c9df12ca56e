// How a block lies on a disk (kvpool.md 5.1): a slot of whole 4 KiB pages, the payload first, then
// a trailer of 768 bytes that says whose block this is, where it was meant to lie, and what its
// bytes were. A slot that is not wholly as its trailer says is not a block.
//
//   payload (113,920 bytes on the released model) | trailer 768
//   └──────────────── 28 pages of 4 KiB = 112 KiB ────────────┘
//
// Slots are gathered in segments of 64 MiB:
//
//   page 0 header | pages 1 … footer, once sealed | slot_count slots up to the end
//
// On the released model: 1 + 31 + 584 × 28 pages. Smaller models have smaller slots and more of
// them; the same rule sizes all. Pure functions over bytes; all numbers little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "pool/block_store.h"

namespace fathom {

inline constexpr std::int64_t kPoolPageBytes = 4096;
inline constexpr std::int64_t kTrailerBytes = 768;
inline constexpr std::int64_t kSegmentBytes = std::int64_t{64} << 20;
inline constexpr std::int64_t kSlotPagesMax = 28;  // the trailer has a checksum for each
inline constexpr std::int64_t kFooterEntryBytes = 64;
inline constexpr std::int64_t kFooterTailBytes = 32;  // behind the entries: segment.h

struct SlotGeometry {
    std::int64_t payload_bytes = 0;
    std::int64_t slot_bytes = 0;    // a multiple of 4 KiB; the trailer is at payload_bytes
    std::int64_t slots = 0;         // of a segment
    std::int64_t slots_offset = 0;  // of the first slot in a segment; the footer begins at 4 KiB
    std::int64_t slot_offset(std::int64_t slot) const { return slots_offset + slot * slot_bytes; }
    // The last pages of a slot, from the one on in which its trailer begins.
    std::int64_t tail_offset() const { return payload_bytes / kPoolPageBytes * kPoolPageBytes; }
    std::int64_t tail_bytes() const { return slot_bytes - tail_offset(); }
};
// invalid_argument when a payload is not 1 to 113,920 bytes.
Result<SlotGeometry> slot_geometry(std::int64_t payload_bytes);

using PoolUuid = std::array<std::uint8_t, 16>;

// Where a slot lies. A trailer that names another place is a misdirected or stale read.
struct SlotPlace {
    std::uint64_t pool = 0;     // low 8 bytes of the pool's uuid
    std::uint64_t segment = 0;  // never reused
    std::uint32_t slot = 0;
    friend bool operator==(const SlotPlace&, const SlotPlace&) = default;
};

enum SlotFlags : std::uint32_t { kSlotEncrypted = 1, kSlotRenewed = 2 };

struct SlotTrailer {
    std::uint32_t flags = 0;
    BlockName name;
    SlotPlace place;
    std::uint32_t payload_bytes = 0;
    std::uint16_t tokens = 128;
    TrafficClass traffic_class = TrafficClass::agent;
    std::uint8_t codec = 0;  // 0: as it is
    std::int64_t written_unix_ms = 0, expiry_unix_ms = 0;
    std::uint64_t writer = 0, writer_sequence = 0;
    std::array<std::uint8_t, 12> nonce{};
    std::array<std::uint8_t, 16> tag{};
    std::array<std::uint32_t, kSlotPagesMax> page_crcs{};  // CRC32C of each page's payload bytes
    std::array<std::uint8_t, 16> digest{};                 // of the payload as it was produced
};

// Writes the trailer behind a payload that is in place: page checksums are computed here, the
// trailer's own as well, and bytes behind it are zeroed. `slot` has slot_bytes.
void seal_slot(std::span<std::uint8_t> slot, const SlotGeometry& geometry, SlotTrailer& trailer);

enum class SlotFault : std::uint8_t {
    none,
    empty,      // all zero where the trailer stands: never written
    trailer,    // magic, format, size or its checksum
    place,      // another pool, segment or slot
    identity,   // another key; collision when the first 16 bytes are the same
    collision,  // …, or another parent, namespace, ordinal or token mac
    page,       // checksum of a page
    digest,     // the payload is not what the producer had
    tag,        // its namespace's key does not open it (slot_keys.h)
};
std::string_view slot_fault_name(SlotFault fault);

// Only the trailer, of the last kTrailerBytes or of the page or pages that hold it: `bytes` begins
// with the trailer.
Result<SlotTrailer> read_trailer(std::span<const std::uint8_t> bytes, SlotFault& fault);

// The whole check of a read: trailer, place, name (when given), pages, digest. An encrypted slot's
// digest is checked by who decrypts it.
SlotFault verify_slot(std::span<const std::uint8_t> slot, const SlotGeometry& geometry,
                      const SlotPlace& place, const BlockName* name, SlotTrailer& trailer);

// CRC32C (Castagnoli) as in RFC 3720, of `bytes` alone.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes);

}  // namespace fathom
