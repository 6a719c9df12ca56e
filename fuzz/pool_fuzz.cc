// What a pool reads back from a disk: trailers and slots, segment headers and footers, POOL. The
// first byte chooses the reader and the size of payloads, the second whether the checksum where
// the reader looks for it is made right first, so that what lies behind it is reached. What is
// accepted must be written to the same bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "pool/le_bytes.h"
#include "pool/segment.h"
#include "pool/slot.h"

namespace {

using namespace fathom;

using Bytes = std::vector<std::uint8_t>;

// `data` at the front of `n` bytes.
Bytes padded(std::span<const std::uint8_t> data, std::int64_t n) {
    Bytes bytes(static_cast<std::size_t>(n));
    std::copy_n(data.begin(), std::min(data.size(), bytes.size()), bytes.begin());
    return bytes;
}

void mend(Bytes& bytes, std::size_t begin, std::size_t crc_at) {
    store_le(bytes, crc_at, crc32c(std::span(bytes).subspan(begin, crc_at - begin)));
}

void check_slot(std::span<const std::uint8_t> data, const SlotGeometry& geometry, bool mended) {
    const auto payload = static_cast<std::size_t>(geometry.payload_bytes);
    Bytes slot(static_cast<std::size_t>(geometry.slot_bytes));
    std::copy_n(data.begin(), std::min<std::size_t>(data.size(), kTrailerBytes),
                slot.begin() + geometry.payload_bytes);
    if (mended) mend(slot, payload, payload + 764);
    SlotFault fault = SlotFault::none;
    const auto trailer = read_trailer(std::span(slot).subspan(payload), fault);
    if (trailer.ok() != (fault == SlotFault::none)) std::abort();
    if (!trailer.ok()) return;
    SlotTrailer found;
    fault = verify_slot(slot, geometry, trailer->place, &trailer->name, found);
    if (fault == SlotFault::identity || fault == SlotFault::place) std::abort();
    Bytes again = slot;
    SlotTrailer resealed = *trailer;
    seal_slot(again, geometry, resealed);
    if (verify_slot(again, geometry, trailer->place, &trailer->name, found) != SlotFault::none &&
        payload_digest(again.data(), geometry.payload_bytes) == trailer->digest) {
        std::abort();
    }
    if (fault == SlotFault::none && again != slot) std::abort();
}

void check_header(std::span<const std::uint8_t> data, bool mended) {
    Bytes page = padded(data, kPoolPageBytes);
    if (mended) mend(page, 0, kPoolPageBytes - 4);
    const auto header = read_segment_header(page);
    if (!header.ok()) return;
    Bytes again(page.size());
    write_segment_header(again, *header);
    if (read_segment_header(again) != *header) std::abort();
}

void check_pool_file(std::span<const std::uint8_t> data, bool mended) {
    Bytes bytes = padded(data, kPoolFileBytes);
    if (mended) {
        mend(bytes, 0, kPoolPageBytes - 4);
        mend(bytes, kPoolPageBytes, kPoolFileBytes - 4);
    }
    const auto pool = read_pool_file(bytes);
    if (!pool.ok()) return;
    Bytes again(bytes.size());
    write_pool_file(again, *pool);
    if (read_pool_file(again) != *pool) std::abort();
}

void check_footer(std::span<const std::uint8_t> data, const SlotGeometry& geometry, bool mended) {
    Bytes bytes = padded(data, footer_bytes(geometry));
    const auto tail = static_cast<std::size_t>(geometry.slots * kFooterEntryBytes);
    // The tail comes first in the input: what is far behind would never be reached.
    if (data.size() >= kFooterTailBytes) {
        std::copy_n(data.begin(), kFooterTailBytes,
                    bytes.begin() + static_cast<std::ptrdiff_t>(tail));
    }
    if (mended) mend(bytes, 0, tail + kFooterTailBytes - 4);
    const SlotPlace place{.pool = load_le<std::uint64_t>(bytes, tail + 8),
                          .segment = load_le<std::uint64_t>(bytes, tail + 16),
                          .slot = 0};
    const auto entries = read_footer(bytes, geometry, place);
    if (!entries.ok()) return;
    if (entries->size() != static_cast<std::size_t>(geometry.slots)) std::abort();
    Bytes again(bytes.size());
    write_footer(again, geometry, place, *entries);
    if (read_footer(again, geometry, place) != *entries) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::span<const std::uint8_t> rest(data + 2, size - 2);
    const bool mended = data[1] % 2 == 1;
    const auto geometry = slot_geometry(1 + (data[0] >> 2) * 1'800);
    if (!geometry.ok()) std::abort();
    switch (data[0] % 4) {
        case 0:
            check_slot(rest, *geometry, mended);
            break;
        case 1:
            check_header(rest, mended);
            break;
        case 2:
            check_pool_file(rest, mended);
            break;
        default:
            check_footer(rest, *geometry, mended);
            break;
    }
    (void)parse_segment_file_name(
        {reinterpret_cast<const char*>(rest.data()), std::min<std::size_t>(rest.size(), 24)});
    return 0;
}
