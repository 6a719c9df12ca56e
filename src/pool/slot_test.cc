#include "pool/slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace fathom {
namespace {

std::vector<std::uint8_t> random_bytes(std::size_t n, std::uint64_t seed) {
    RandomStream random(seed);
    std::vector<std::uint8_t> bytes(n);
    for (std::uint8_t& byte : bytes)
        byte = static_cast<std::uint8_t>(random.next_u64());
    return bytes;
}

template <typename T>
T random_value(std::uint64_t seed) {
    const std::vector<std::uint8_t> bytes = random_bytes(sizeof(T), seed);
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
}

SlotTrailer some_trailer() {
    SlotTrailer trailer;
    trailer.flags = kSlotRenewed;
    trailer.name.key.bytes = random_value<Sha256Digest>(1);
    trailer.name.parent.bytes = random_value<Sha256Digest>(2);
    trailer.name.ns.bytes = random_value<Sha256Digest>(3);
    trailer.name.token_mac = random_value<std::array<std::uint8_t, 16>>(4);
    trailer.name.ordinal = 77;
    trailer.place = {.pool = 5, .segment = 6, .slot = 7};
    trailer.tokens = 128;
    trailer.traffic_class = TrafficClass::system;
    trailer.written_unix_ms = 1'764'460'800'123;
    trailer.expiry_unix_ms = 1'765'000'000'456;
    trailer.writer = 8;
    trailer.writer_sequence = 9;
    trailer.nonce = random_value<std::array<std::uint8_t, 12>>(10);
    trailer.tag = random_value<std::array<std::uint8_t, 16>>(11);
    return trailer;
}

struct Sealed {
    SlotGeometry geometry;
    std::vector<std::uint8_t> slot;
    SlotTrailer trailer;

    explicit Sealed(std::int64_t payload_bytes) : geometry(*slot_geometry(payload_bytes)) {
        slot = random_bytes(static_cast<std::size_t>(geometry.slot_bytes), 20);
        trailer = some_trailer();
        trailer.digest = payload_digest(slot.data(), payload_bytes);
        seal_slot(slot, geometry, trailer);
    }
    SlotFault verify(const SlotPlace& place, const BlockName* name) const {
        SlotTrailer found;
        return verify_slot(slot, geometry, place, name, found);
    }
    SlotFault verify() const { return verify(trailer.place, &trailer.name); }
};

std::uint32_t crc_of(std::string_view text) {
    return crc32c({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

TEST(Slot, ChecksumIsThatOfRfc3720) {
    std::vector<std::uint8_t> bytes(32, 0);
    EXPECT_EQ(crc32c(bytes), 0x8a9136aaU);
    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xff});
    EXPECT_EQ(crc32c(bytes), 0x62a8ab43U);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::uint8_t>(i);
    EXPECT_EQ(crc32c(bytes), 0x46dd794eU);
    std::reverse(bytes.begin(), bytes.end());
    EXPECT_EQ(crc32c(bytes), 0x113fdb5cU);
    EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
    EXPECT_EQ(crc_of(""), 0U);
}

TEST(Slot, GeometryOfTheReleasedModelIsThatOfTheSpecification) {
    const auto geometry = slot_geometry(113'920);
    ASSERT_TRUE(geometry.ok());
    EXPECT_EQ(geometry->slot_bytes, 114'688);
    EXPECT_EQ(geometry->slots, 584);
    EXPECT_EQ(geometry->slots_offset, 32 * kPoolPageBytes);
}

TEST(Slot, GeometryFillsASegmentForEverySize) {
    for (const std::int64_t payload : {1, 100, 3'328, 3'329, 20'000, 57'000, 113'919, 113'920}) {
        const auto geometry = slot_geometry(payload);
        ASSERT_TRUE(geometry.ok()) << payload;
        EXPECT_EQ(geometry->slot_bytes % kPoolPageBytes, 0);
        EXPECT_GE(geometry->slot_bytes, payload + kTrailerBytes);
        EXPECT_EQ(geometry->slot_offset(geometry->slots), kSegmentBytes);
        EXPECT_GE(geometry->slots_offset, kPoolPageBytes + geometry->slots * kFooterEntryBytes);
        EXPECT_LT(geometry->slots, 65'536);
    }
    EXPECT_FALSE(slot_geometry(0).ok());
    EXPECT_FALSE(slot_geometry(-1).ok());
    EXPECT_FALSE(slot_geometry(113'921).ok());
}

TEST(Slot, EveryFieldOfATrailerComesBack) {
    const Sealed sealed(10'000);
    SlotFault fault = SlotFault::empty;
    const auto found = read_trailer(std::span(sealed.slot).subspan(10'000), fault);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(fault, SlotFault::none);
    const SlotTrailer& t = sealed.trailer;
    EXPECT_EQ(found->flags, t.flags);
    EXPECT_EQ(found->name.key, t.name.key);
    EXPECT_EQ(found->name.parent, t.name.parent);
    EXPECT_EQ(found->name.ns, t.name.ns);
    EXPECT_EQ(found->name.token_mac, t.name.token_mac);
    EXPECT_EQ(found->name.ordinal, t.name.ordinal);
    EXPECT_EQ(found->place, t.place);
    EXPECT_EQ(found->payload_bytes, 10'000U);
    EXPECT_EQ(found->tokens, t.tokens);
    EXPECT_EQ(found->traffic_class, t.traffic_class);
    EXPECT_EQ(found->codec, t.codec);
    EXPECT_EQ(found->written_unix_ms, t.written_unix_ms);
    EXPECT_EQ(found->expiry_unix_ms, t.expiry_unix_ms);
    EXPECT_EQ(found->writer, t.writer);
    EXPECT_EQ(found->writer_sequence, t.writer_sequence);
    EXPECT_EQ(found->nonce, t.nonce);
    EXPECT_EQ(found->tag, t.tag);
    EXPECT_EQ(found->page_crcs, t.page_crcs);
    EXPECT_EQ(found->digest, t.digest);
}

TEST(Slot, WhatWasSealedIsBelieved) {
    for (const std::int64_t payload : {1, 3'328, 4'096, 8'000, 113'920})
        EXPECT_EQ(Sealed(payload).verify(), SlotFault::none) << payload;
}

TEST(Slot, AnyFlippedBitOfPayloadOrTrailerIsFound) {
    Sealed sealed(8'500);
    for (std::size_t bit = 0; bit < (8'500 + kTrailerBytes) * 8; ++bit) {
        const auto flip = [&] { sealed.slot[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8); };
        flip();
        const SlotFault fault = sealed.verify();
        ASSERT_EQ(fault, bit / 8 < 8'500 ? SlotFault::page : SlotFault::trailer) << "bit " << bit;
        flip();
    }
}

TEST(Slot, ATornWriteAtAnyPageIsFound) {
    const Sealed sealed(113'920);
    const std::vector<std::uint8_t> old =
        random_bytes(static_cast<std::size_t>(sealed.geometry.slot_bytes), 30);
    for (std::int64_t page = 1; page < kSlotPagesMax; ++page) {
        Sealed torn = sealed;
        std::copy(old.begin() + page * kPoolPageBytes, old.end(),
                  torn.slot.begin() + page * kPoolPageBytes);
        EXPECT_EQ(torn.verify(), SlotFault::trailer);
        torn = sealed;
        std::copy(old.begin(), old.begin() + page * kPoolPageBytes, torn.slot.begin());
        EXPECT_EQ(torn.verify(), SlotFault::page);
    }
}

TEST(Slot, AnotherPlaceIsToldApart) {
    const Sealed sealed(5'000);
    SlotPlace place = sealed.trailer.place;
    place.slot ^= 1;
    EXPECT_EQ(sealed.verify(place, nullptr), SlotFault::place);
    place = sealed.trailer.place;
    place.segment += 1;
    EXPECT_EQ(sealed.verify(place, nullptr), SlotFault::place);
    place = sealed.trailer.place;
    place.pool += 1;
    EXPECT_EQ(sealed.verify(place, nullptr), SlotFault::place);
    EXPECT_EQ(sealed.verify(sealed.trailer.place, nullptr), SlotFault::none);
}

TEST(Slot, AnotherNameIsIdentityOrCollision) {
    const Sealed sealed(5'000);
    const auto with = [&](auto change) {
        BlockName name = sealed.trailer.name;
        change(name);
        return sealed.verify(sealed.trailer.place, &name);
    };
    EXPECT_EQ(with([](BlockName& n) { n.key.bytes[0] ^= 1; }), SlotFault::identity);
    EXPECT_EQ(with([](BlockName& n) { n.key.bytes[15] ^= 1; }), SlotFault::identity);
    EXPECT_EQ(with([](BlockName& n) { n.key.bytes[16] ^= 1; }), SlotFault::collision);
    EXPECT_EQ(with([](BlockName& n) { n.parent.bytes[31] ^= 1; }), SlotFault::collision);
    EXPECT_EQ(with([](BlockName& n) { n.ns.bytes[0] ^= 1; }), SlotFault::collision);
    EXPECT_EQ(with([](BlockName& n) { n.token_mac[0] ^= 1; }), SlotFault::collision);
    EXPECT_EQ(with([](BlockName& n) { n.ordinal += 1; }), SlotFault::collision);
}

TEST(Slot, DamageBeforeTheStoreSawTheBytesIsFoundByTheDigest) {
    Sealed sealed(5'000);
    sealed.trailer.digest[3] ^= 1;
    seal_slot(sealed.slot, sealed.geometry, sealed.trailer);
    EXPECT_EQ(sealed.verify(), SlotFault::digest);
    sealed.trailer.flags |= kSlotEncrypted;  // whoever decrypts checks
    seal_slot(sealed.slot, sealed.geometry, sealed.trailer);
    EXPECT_EQ(sealed.verify(), SlotFault::none);
}

TEST(Slot, AnotherSizeOfPayloadIsNotBelieved) {
    Sealed sealed(5'000);
    const SlotGeometry other = *slot_geometry(4'999);
    std::vector<std::uint8_t> moved(sealed.slot);
    std::copy(sealed.slot.begin() + 5'000, sealed.slot.end(), moved.begin() + 4'999);
    SlotTrailer found;
    EXPECT_EQ(verify_slot(moved, other, sealed.trailer.place, nullptr, found), SlotFault::trailer);
}

TEST(Slot, ASlotOfZerosIsEmpty) {
    Sealed sealed(5'000);
    std::fill(sealed.slot.begin(), sealed.slot.end(), std::uint8_t{0});
    EXPECT_EQ(sealed.verify(), SlotFault::empty);
}

TEST(Slot, AShortTrailerIsRefused) {
    const Sealed sealed(5'000);
    SlotFault fault = SlotFault::none;
    EXPECT_FALSE(read_trailer(std::span(sealed.slot).subspan(5'000, 767), fault).ok());
    EXPECT_EQ(fault, SlotFault::trailer);
    EXPECT_EQ(slot_fault_name(fault), "trailer");
}

}  // namespace
}  // namespace fathom
