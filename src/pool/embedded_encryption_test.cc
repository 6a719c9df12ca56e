// The embedded store with keys (kvpool.md 10): what lies on the disk, and who can read it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>

#include "pool/embedded_store.h"
#include "pool/slot_keys.h"
#include "pool/testing/embedded_rig.h"
#include "pool/testing/store_calls.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
using namespace fathom::testing;

constexpr std::int64_t kPayload = 10'000;
const std::vector<std::uint64_t> kNumbers = {0, 1, 2, 3, 4, 5, 6, 7};

class EncryptedPool : public ::testing::Test {
  protected:
    EmbeddedOptions options(bool encrypt, bool with_keys = true) {
        EmbeddedOptions options;
        options.directory = folder_.path() + "/pool";
        options.payload_bytes = kPayload;
        options.capacity_bytes = std::int64_t{4} << 30;
        options.io_depth = 8;
        options.encrypt = encrypt;
        options.metrics = &metrics_;
        if (with_keys) options.keys = std::move(*KeyRing::open(keys(), real_clock()));
        return options;
    }
    std::unique_ptr<EmbeddedStore> open(bool encrypt, bool with_keys = true) {
        auto store = EmbeddedStore::open(options(encrypt, with_keys));
        if (store.ok()) return std::move(*store);
        ADD_FAILURE() << store.status().to_string();
        return nullptr;
    }
    void write(bool encrypt, std::uint8_t ns = 1) {
        const auto store = open(encrypt);
        for (const PutOutcome outcome : put_blocks(*store, kNumbers, {}, ns).blocks)
            EXPECT_EQ(outcome, PutOutcome::stored);
        store->close(kNever);
    }
    std::string keys() const { return folder_.path() + "/keys"; }
    std::string key_file(std::uint8_t ns) const {
        return keys() + "/" + hex_text(block_name(0, ns).ns.bytes) + ".key";
    }
    std::vector<fs::path> segments() const {
        std::vector<fs::path> found;
        for (const auto& entry : fs::recursive_directory_iterator(folder_.path() + "/pool/seg"))
            if (entry.is_regular_file()) found.push_back(entry.path());
        return found;
    }
    static std::string read(const fs::path& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // Whether any 32 bytes, from a multiple of 32 on, of a block lie in a segment file.
    bool on_disk(std::uint64_t number) const {
        const std::vector<std::uint8_t> bytes = block_bytes(number, kPayload);
        for (const fs::path& path : segments()) {
            const std::string file = read(path);
            for (std::size_t at = 0; at + 32 <= bytes.size(); at += 512) {
                const std::string part(reinterpret_cast<const char*>(&bytes[at]), 32);
                if (file.find(part) != std::string::npos) return true;
            }
        }
        return false;
    }
    double count(const char* metric, const char* label, const char* value) {
        return static_cast<double>(
            metrics_.counter(metric, "x", {{"backend", "embedded"}, {label, value}}).value());
    }
    static std::ptrdiff_t hits(BlockStore& store, std::uint8_t ns = 1) {
        const GotBlocks got = get_blocks(store, kNumbers, true, ns);
        EXPECT_EQ(got.wrong, 0);
        return std::count(got.result.blocks.begin(), got.result.blocks.end(), GetStatus::hit);
    }

    const TemporaryFolder folder_;
    MetricsRegistry metrics_;
};

TEST_F(EncryptedPool, NothingOfAPayloadLiesOnTheDisk) {
    write(true);
    EXPECT_FALSE(on_disk(3));
    const auto store = open(true);
    EXPECT_EQ(hits(*store), 8);
    for (const bool whole_slot : {true, false})
        EXPECT_EQ(get_blocks(*store, kNumbers, whole_slot).result.leading_hits, 8u);
}

TEST_F(EncryptedPool, WithoutEncryptionItDoes) {
    write(false);
    EXPECT_TRUE(on_disk(3));
}

TEST_F(EncryptedPool, WithoutTheKeyBlocksAreMissesAndMayBePutAgain) {
    write(true);
    write(true, 2);
    fs::remove(key_file(1));
    const auto store = open(true);
    EXPECT_EQ(hits(*store), 0);
    EXPECT_EQ(hits(*store, 2), 8);
    EXPECT_EQ(count("kvpool_miss_blocks_total", "cause", "tag"), 8);
    EXPECT_EQ(count("kvpool_corrupt_total", "where", "tag"), 8);
    put_blocks(*store, kNumbers);
    EXPECT_EQ(hits(*store), 8);
}

TEST_F(EncryptedPool, AnotherTenantsKeyDoesNotOpen) {
    write(true);
    write(true, 2);
    fs::remove(key_file(1));
    fs::copy_file(key_file(2), key_file(1));
    const auto store = open(true);
    EXPECT_EQ(hits(*store), 0);
    EXPECT_EQ(hits(*store, 2), 8);
}

TEST_F(EncryptedPool, AKeyThatCannotBeReadFailsPutsWithItsNameAndServesTheOthers) {
    write(true);
    const auto key = read(key_file(1));
    fs::resize_file(key_file(1), 31);
    const auto store = open(true);
    EXPECT_EQ(hits(*store), 0);
    const PutResult result = put_blocks(*store, {100});
    EXPECT_EQ(result.blocks[0], PutOutcome::failed);
    EXPECT_NE(result.status.message().find(key_file(1)), std::string::npos)
        << result.status.message();
    EXPECT_EQ(put_block(*store, 100, {}, 2), PutOutcome::stored);
    EXPECT_EQ(store->health().state, StoreHealth::State::ok);
    std::ofstream(key_file(1)) << key;
    EXPECT_EQ(put_block(*store, 100), PutOutcome::stored);
}

TEST_F(EncryptedPool, PlainBlocksAreNeitherFoundNorBelieved) {
    write(false);
    const auto store = open(true);
    for (const bool there : blocks_exist(*store, kNumbers))
        EXPECT_FALSE(there);
    EXPECT_EQ(put_block(*store, 3), PutOutcome::stored);
    EXPECT_EQ(get_block(*store, 3), GetStatus::hit);
}

TEST_F(EncryptedPool, WithoutEncryptionBothKindsAreReadWhereTheKeysAre) {
    write(true);
    write(false, 2);
    {
        const auto store = open(false);
        EXPECT_EQ(hits(*store), 8);
        EXPECT_EQ(hits(*store, 2), 8);
    }
    const auto store = open(false, false);
    EXPECT_EQ(hits(*store), 0);
    EXPECT_EQ(hits(*store, 2), 8);
}

TEST_F(EncryptedPool, ADroppedNamespaceHasNoKeyAnyMore) {
    write(true);
    write(true, 2);
    {
        const auto store = open(true);
        EXPECT_TRUE(drop_namespace(*store, 1).ok());
        EXPECT_FALSE(fs::exists(key_file(1)));
        EXPECT_TRUE(fs::exists(key_file(2)));
        EXPECT_EQ(hits(*store), 0);
        put_blocks(*store, {3});
        EXPECT_EQ(get_block(*store, 3), GetStatus::hit);
    }
    EXPECT_EQ(hits(*open(true), 2), 8);
}

TEST_F(EncryptedPool, ToEncryptNeedsKeys) {
    EXPECT_EQ(EmbeddedStore::open(options(true, false)).status().code(),
              StatusCode::invalid_argument);
}

// Everything of a slot but its place is another's; its checksums are right.
TEST(OpenSlot, AMovedOrPlantedSlotDoesNotOpen) {
    const TemporaryFolder folder;
    const auto ring = std::move(*KeyRing::open(folder.path(), real_clock()));
    const SlotGeometry geometry = *slot_geometry(kPayload);
    const BlockName name = block_name(1);
    SlotTrailer trailer;
    trailer.name = name;
    trailer.place = {1, 2, 3};
    trailer.payload_bytes = kPayload;
    std::vector<std::uint8_t> plain = block_bytes(1, kPayload);
    trailer.digest = payload_digest(plain.data(), kPayload);
    std::vector<std::uint8_t> slot = plain;
    slot.resize(static_cast<std::size_t>(geometry.slot_bytes));
    SlotTrailer sealed = trailer;
    (*ring->find_or_make(name.ns))->encrypt(std::span(slot).first(kPayload), sealed);
    const auto opened = [&](SlotTrailer as, const SlotKeys& keys, std::vector<std::uint8_t> bytes) {
        seal_slot(bytes, geometry, as);
        SlotTrailer found;
        const SlotFault fault = open_slot(bytes, geometry, as.place, as.name, keys, found);
        const bool same = std::equal(plain.begin(), plain.end(), bytes.begin());
        EXPECT_TRUE(fault != SlotFault::none || same);
        return fault;
    };
    const SlotKeys both{ring.get(), false}, encrypted_only{ring.get(), true};
    EXPECT_EQ(opened(sealed, both, slot), SlotFault::none);
    EXPECT_EQ(opened(sealed, encrypted_only, slot), SlotFault::none);
    EXPECT_EQ(opened(sealed, {}, slot), SlotFault::tag);
    SlotTrailer moved = sealed;
    moved.place.slot = 4;
    EXPECT_EQ(opened(moved, both, slot), SlotFault::tag);
    SlotTrailer renamed = sealed;
    renamed.name.key = block_name(2).key;
    EXPECT_EQ(opened(renamed, both, slot), SlotFault::tag);
    std::vector<std::uint8_t> planted = plain;
    planted.resize(slot.size());
    EXPECT_EQ(opened(trailer, both, planted), SlotFault::none);
    EXPECT_EQ(opened(trailer, encrypted_only, planted), SlotFault::tag);
}

}  // namespace
}  // namespace fathom
