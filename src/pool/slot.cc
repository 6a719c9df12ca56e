#include "pool/slot.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "pool/le_bytes.h"

namespace fathom {

namespace {

constexpr std::uint64_t kTrailerMagic = 0x544f4c53'564b4c46;  // "FLKVSLOT"
constexpr std::uint16_t kSlotFormat = 1;

// Offsets within a trailer (kvpool.md 5.1).
constexpr std::size_t kMagicAt = 0, kFormatAt = 8, kSizeAt = 10, kFlagsAt = 12;
constexpr std::size_t kKeyAt = 16, kParentAt = 48, kNamespaceAt = 80, kMacAt = 112;
constexpr std::size_t kPoolAt = 128, kSegmentAt = 136, kSlotAt = 144, kOrdinalAt = 148;
constexpr std::size_t kPayloadAt = 152, kTokensAt = 156, kClassAt = 158, kCodecAt = 159;
constexpr std::size_t kWrittenAt = 160, kExpiryAt = 168, kWriterAt = 176, kSequenceAt = 184;
constexpr std::size_t kNonceAt = 192, kTagAt = 204, kSpareAt = 220, kPagesAt = 224, kDigestAt = 336,
                      kZeroAt = 352;
constexpr std::size_t kCrcAt = 764;

std::int64_t pages_of(std::int64_t bytes) {
    return (bytes + kPoolPageBytes - 1) / kPoolPageBytes;
}

std::array<std::uint32_t, kSlotPagesMax> page_checksums(std::span<const std::uint8_t> payload) {
    std::array<std::uint32_t, kSlotPagesMax> crcs{};
    for (std::size_t page = 0, at = 0; at < payload.size(); ++page, at += kPoolPageBytes) {
        crcs[page] =
            crc32c(payload.subspan(at, std::min<std::size_t>(kPoolPageBytes, payload.size() - at)));
    }
    return crcs;
}

SlotFault name_fault(const BlockName& found, const BlockName& expected) {
    if (found.key != expected.key) {
        return std::memcmp(found.key.bytes.data(), expected.key.bytes.data(), 16) == 0
                   ? SlotFault::collision
                   : SlotFault::identity;
    }
    const bool same = found.parent == expected.parent && found.ns == expected.ns &&
                      found.ordinal == expected.ordinal && found.token_mac == expected.token_mac;
    return same ? SlotFault::none : SlotFault::collision;
}

}  // namespace

Result<SlotGeometry> slot_geometry(std::int64_t payload_bytes) {
    constexpr std::int64_t kPayloadMax = kSlotPagesMax * kPoolPageBytes - kTrailerBytes;
    if (payload_bytes < 1 || payload_bytes > kPayloadMax) {
        return invalid_argument("a block of {} bytes of KV does not fit a slot: 1 to {} do",
                                payload_bytes, kPayloadMax);
    }
    constexpr std::int64_t kPages = kSegmentBytes / kPoolPageBytes;
    const std::int64_t slot_pages = pages_of(payload_bytes + kTrailerBytes);
    std::int64_t slots = (kPages - 1) / slot_pages;
    const auto footer_pages = [](std::int64_t n) {
        return pages_of(n * kFooterEntryBytes + kFooterTailBytes);
    };
    while (1 + footer_pages(slots) + slots * slot_pages > kPages)
        --slots;
    const std::int64_t slot_bytes = slot_pages * kPoolPageBytes;
    return SlotGeometry{.payload_bytes = payload_bytes,
                        .slot_bytes = slot_bytes,
                        .slots = slots,
                        .slots_offset = kSegmentBytes - slots * slot_bytes};
}

std::uint32_t crc32c(std::span<const std::uint8_t> bytes) {
    // The library takes the shift register as it is: RFC 3720 begins and ends with its complement.
    // It reads only; its parameter lacks a const.
    return ~crc32_iscsi(const_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size()),
                        0xffffffffU);
}

void seal_slot(std::span<std::uint8_t> slot, const SlotGeometry& geometry, SlotTrailer& trailer) {
    FATHOM_CHECK(slot.size() == static_cast<std::size_t>(geometry.slot_bytes));
    const auto payload_bytes = static_cast<std::size_t>(geometry.payload_bytes);
    trailer.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    trailer.page_crcs = page_checksums(slot.first(payload_bytes));
    const std::span<std::uint8_t> rest = slot.subspan(payload_bytes);
    std::fill(rest.begin(), rest.end(), std::uint8_t{0});
    const std::span<std::uint8_t> out = rest.first(kTrailerBytes);
    store_le(out, kMagicAt, kTrailerMagic);
    store_le(out, kFormatAt, kSlotFormat);
    store_le(out, kSizeAt, static_cast<std::uint16_t>(kTrailerBytes));
    store_le(out, kFlagsAt, trailer.flags);
    store_le(out, kKeyAt, trailer.name.key.bytes);
    store_le(out, kParentAt, trailer.name.parent.bytes);
    store_le(out, kNamespaceAt, trailer.name.ns.bytes);
    store_le(out, kMacAt, trailer.name.token_mac);
    store_le(out, kPoolAt, trailer.place.pool);
    store_le(out, kSegmentAt, trailer.place.segment);
    store_le(out, kSlotAt, trailer.place.slot);
    store_le(out, kOrdinalAt, trailer.name.ordinal);
    store_le(out, kPayloadAt, trailer.payload_bytes);
    store_le(out, kTokensAt, trailer.tokens);
    store_le(out, kClassAt, static_cast<std::uint8_t>(trailer.traffic_class));
    store_le(out, kCodecAt, trailer.codec);
    store_le(out, kWrittenAt, trailer.written_unix_ms);
    store_le(out, kExpiryAt, trailer.expiry_unix_ms);
    store_le(out, kWriterAt, trailer.writer);
    store_le(out, kSequenceAt, trailer.writer_sequence);
    store_le(out, kNonceAt, trailer.nonce);
    store_le(out, kTagAt, trailer.tag);
    store_le(out, kPagesAt, trailer.page_crcs);
    store_le(out, kDigestAt, trailer.digest);
    store_le(out, kCrcAt, crc32c(out.first(kCrcAt)));
}

std::string_view slot_fault_name(SlotFault fault) {
    constexpr std::array<std::string_view, 9> kNames = {
        "none", "empty", "trailer", "place", "identity", "collision", "page", "digest", "tag"};
    return kNames[static_cast<std::size_t>(fault)];
}

Result<SlotTrailer> read_trailer(std::span<const std::uint8_t> bytes, SlotFault& fault) {
    const auto refuse = [&](SlotFault why, std::string_view what) {
        fault = why;
        return error(StatusCode::data_loss, "slot trailer: {}", what);
    };
    if (bytes.size() < kTrailerBytes) return refuse(SlotFault::trailer, "it is cut short");
    const std::span<const std::uint8_t> in = bytes.first(kTrailerBytes);
    if (all_zero(in)) return refuse(SlotFault::empty, "the slot was never written");
    if (load_le<std::uint64_t>(in, kMagicAt) != kTrailerMagic) {
        return refuse(SlotFault::trailer, "its first bytes are not a trailer's");
    }
    if (load_le<std::uint32_t>(in, kCrcAt) != crc32c(in.first(kCrcAt))) {
        return refuse(SlotFault::trailer, "its checksum does not match");
    }
    if (load_le<std::uint16_t>(in, kFormatAt) != kSlotFormat ||
        load_le<std::uint16_t>(in, kSizeAt) != kTrailerBytes) {
        return refuse(SlotFault::trailer, "its format is not known");
    }
    const auto traffic_class = load_le<std::uint8_t>(in, kClassAt);
    SlotTrailer trailer;
    trailer.codec = load_le<std::uint8_t>(in, kCodecAt);
    if (traffic_class >= kTrafficClasses || trailer.codec != 0 ||
        !all_zero(in.subspan(kSpareAt, kPagesAt - kSpareAt)) ||
        !all_zero(in.subspan(kZeroAt, kCrcAt - kZeroAt))) {
        return refuse(SlotFault::trailer, "its class, codec or another field is not known");
    }
    trailer.flags = load_le<std::uint32_t>(in, kFlagsAt);
    trailer.name.key.bytes = load_le<Sha256Digest>(in, kKeyAt);
    trailer.name.parent.bytes = load_le<Sha256Digest>(in, kParentAt);
    trailer.name.ns.bytes = load_le<Sha256Digest>(in, kNamespaceAt);
    trailer.name.token_mac = load_le<std::array<std::uint8_t, 16>>(in, kMacAt);
    trailer.name.ordinal = load_le<std::uint32_t>(in, kOrdinalAt);
    trailer.place.pool = load_le<std::uint64_t>(in, kPoolAt);
    trailer.place.segment = load_le<std::uint64_t>(in, kSegmentAt);
    trailer.place.slot = load_le<std::uint32_t>(in, kSlotAt);
    trailer.payload_bytes = load_le<std::uint32_t>(in, kPayloadAt);
    trailer.tokens = load_le<std::uint16_t>(in, kTokensAt);
    trailer.traffic_class = static_cast<TrafficClass>(traffic_class);
    trailer.written_unix_ms = load_le<std::int64_t>(in, kWrittenAt);
    trailer.expiry_unix_ms = load_le<std::int64_t>(in, kExpiryAt);
    trailer.writer = load_le<std::uint64_t>(in, kWriterAt);
    trailer.writer_sequence = load_le<std::uint64_t>(in, kSequenceAt);
    trailer.nonce = load_le<std::array<std::uint8_t, 12>>(in, kNonceAt);
    trailer.tag = load_le<std::array<std::uint8_t, 16>>(in, kTagAt);
    trailer.page_crcs = load_le<std::array<std::uint32_t, kSlotPagesMax>>(in, kPagesAt);
    trailer.digest = load_le<std::array<std::uint8_t, 16>>(in, kDigestAt);
    fault = SlotFault::none;
    return trailer;
}

SlotFault verify_slot(std::span<const std::uint8_t> slot, const SlotGeometry& geometry,
                      const SlotPlace& place, const BlockName* name, SlotTrailer& trailer) {
    FATHOM_CHECK(slot.size() == static_cast<std::size_t>(geometry.slot_bytes));
    const auto payload_bytes = static_cast<std::size_t>(geometry.payload_bytes);
    SlotFault fault = SlotFault::none;
    const auto read = read_trailer(slot.subspan(payload_bytes), fault);
    if (!read.ok()) return fault;
    trailer = *read;
    if (trailer.payload_bytes != payload_bytes) return SlotFault::trailer;
    if (trailer.place != place) return SlotFault::place;
    if (name != nullptr) {
        fault = name_fault(trailer.name, *name);
        if (fault != SlotFault::none) return fault;
    }
    const std::span<const std::uint8_t> payload = slot.first(payload_bytes);
    if (page_checksums(payload) != trailer.page_crcs) return SlotFault::page;
    if ((trailer.flags & kSlotEncrypted) == 0 &&
        payload_digest(payload.data(), geometry.payload_bytes) != trailer.digest) {
        return SlotFault::digest;
    }
    return SlotFault::none;
}

}  // namespace fathom
