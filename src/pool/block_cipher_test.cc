#include "pool/block_cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "pool/testing/content_oracle.h"

namespace fathom {
namespace {

using testing::oracle_name;
using testing::oracle_payload;

constexpr std::int64_t kBytes = 113'920;

struct Sealed {
    std::vector<std::uint8_t> plain, payload;
    SlotTrailer trailer;
};

Sealed encrypted(const std::string& key, std::int64_t bytes = kBytes) {
    const BlockName name = oracle_name(1, 3);
    Sealed sealed{.plain = oracle_payload(name.key, 1, bytes), .payload = {}, .trailer = {}};
    sealed.payload = sealed.plain;
    sealed.trailer.name = name;
    sealed.trailer.place = {.pool = 1, .segment = 2, .slot = 3};
    sealed.trailer.payload_bytes = static_cast<std::uint32_t>(bytes);
    sealed.trailer.expiry_unix_ms = 5;
    sealed.trailer.digest = payload_digest(sealed.plain.data(), bytes);
    BlockCipher(key).encrypt(sealed.payload, sealed.trailer);
    return sealed;
}

TEST(BlockCipher, OpensWhatItEncrypted) {
    for (const std::int64_t bytes : {std::int64_t{8}, std::int64_t{3000}, kBytes}) {
        Sealed sealed = encrypted("group", bytes);
        EXPECT_NE(sealed.payload, sealed.plain);
        EXPECT_EQ(sealed.trailer.flags & kSlotEncrypted, kSlotEncrypted);
        EXPECT_TRUE(BlockCipher("group").decrypt(sealed.payload, sealed.trailer).ok());
        EXPECT_EQ(sealed.payload, sealed.plain);
    }
}

TEST(BlockCipher, EncryptsTheSameBlockDifferentlyEachTime) {
    EXPECT_NE(encrypted("group").payload, encrypted("group").payload);
}

// Whatever is changed, the payload does not open, and nothing of it is left.
TEST(BlockCipher, OpensNothingThatWasTamperedWith) {
    const auto refused = [](const char* what, const std::function<void(Sealed&)>& change,
                            const std::string& key = "group") {
        SCOPED_TRACE(what);
        Sealed sealed = encrypted("group", 3000);
        change(sealed);
        EXPECT_EQ(BlockCipher(key).decrypt(sealed.payload, sealed.trailer).code(),
                  StatusCode::data_loss);
        EXPECT_TRUE(std::all_of(sealed.payload.begin(), sealed.payload.end(),
                                [](std::uint8_t byte) { return byte == 0; }));
    };
    refused(
        "another group's key", [](Sealed&) {}, "other");
    refused(
        "no key", [](Sealed&) {}, "");
    refused("first byte", [](Sealed& s) { s.payload.front() ^= 1; });
    refused("last byte", [](Sealed& s) { s.payload.back() ^= 0x80; });
    refused("nonce", [](Sealed& s) { s.trailer.nonce[0] ^= 1; });
    refused("tag", [](Sealed& s) { s.trailer.tag[15] ^= 1; });
    refused("flags", [](Sealed& s) { s.trailer.flags ^= kSlotRenewed; });
    refused("not encrypted", [](Sealed& s) { s.trailer.flags ^= kSlotEncrypted; });
    refused("key", [](Sealed& s) { s.trailer.name.key.bytes[31] ^= 1; });
    refused("parent", [](Sealed& s) { s.trailer.name.parent.bytes[0] ^= 1; });
    refused("namespace", [](Sealed& s) { s.trailer.name.ns.bytes[0] ^= 1; });
    refused("token mac", [](Sealed& s) { s.trailer.name.token_mac[0] ^= 1; });
    refused("ordinal", [](Sealed& s) { ++s.trailer.name.ordinal; });
    refused("pool", [](Sealed& s) { ++s.trailer.place.pool; });
    refused("segment", [](Sealed& s) { ++s.trailer.place.segment; });
    refused("slot", [](Sealed& s) { ++s.trailer.place.slot; });
    refused("size", [](Sealed& s) { ++s.trailer.payload_bytes; });
    refused("tokens", [](Sealed& s) { ++s.trailer.tokens; });
    refused("class", [](Sealed& s) { s.trailer.traffic_class = TrafficClass::system; });
    refused("codec", [](Sealed& s) { ++s.trailer.codec; });
    refused("written", [](Sealed& s) { ++s.trailer.written_unix_ms; });
    refused("expiry", [](Sealed& s) { ++s.trailer.expiry_unix_ms; });
    refused("writer", [](Sealed& s) { ++s.trailer.writer; });
    refused("sequence", [](Sealed& s) { ++s.trailer.writer_sequence; });
    refused("digest", [](Sealed& s) { s.trailer.digest[0] ^= 1; });
}

TEST(BlockCipher, RefusesWhatItsProducerDidNotHave) {
    Sealed sealed = encrypted("group", 3000);
    sealed.payload = sealed.plain;
    sealed.trailer.digest[0] ^= 1;
    BlockCipher cipher("group");
    cipher.encrypt(sealed.payload, sealed.trailer);
    const Status status = cipher.decrypt(sealed.payload, sealed.trailer);
    EXPECT_NE(status.message().find("producer"), std::string::npos);
}

// The cipher's part of a slot is in the trailer that is sealed and read back.
TEST(BlockCipher, SurvivesASlot) {
    const SlotGeometry geometry = *slot_geometry(3000);
    Sealed sealed = encrypted("group", 3000);
    std::vector<std::uint8_t> slot(static_cast<std::size_t>(geometry.slot_bytes));
    std::copy(sealed.payload.begin(), sealed.payload.end(), slot.begin());
    seal_slot(slot, geometry, sealed.trailer);
    SlotTrailer read;
    ASSERT_EQ(slot_fault_name(
                  verify_slot(slot, geometry, sealed.trailer.place, &sealed.trailer.name, read)),
              "none");
    const std::span<std::uint8_t> payload(slot.data(), 3000);
    EXPECT_TRUE(BlockCipher("group").decrypt(payload, read).ok());
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), sealed.plain.begin()));
}

}  // namespace
}  // namespace fathom
